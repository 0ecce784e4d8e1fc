"""Codes and duels beside the formulas of the lecture and of the papers, in values and in gradients."""

import base64
import io
import json
import math
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.distributions import Normal, kl_divergence

import regard
from regard.attention import Context
from regard.commands import evaluate as evaluating
from regard.commands import inventing
from regard.commands.show import show, show_many
from regard.errors import UserError
from regard.inputs.input import Batch, Source
from regard.models.decoders import decoder, halved
from regard.models.sagan import AttentionBlock, CriticTrunk, Generator, MovingAverage
from regard.network import Network
from regard.outputs.imagine.codes import Code, CodeHead, Reader, totals
from regard.outputs.imagine.duel import AdversarialHead
from regard.runs import checkpoint, checksums
from regard.serving.worker import Order, Worker
from regard.training import loop
from regard.training.loop import Trainer
from tests import test_matrix as matrix

# ---- the loss of codes ----------------------------------------------------------------------------------------------


class Plain(nn.Module):
    def forward(self, source: Source) -> Context:
        return Context(source.values[0], source.positions)


def squares(values: torch.Tensor, predicted: torch.Tensor) -> torch.Tensor:
    return (values - predicted).square().flatten(1).sum(1)


def coder(*, variational: bool = True, shared: bool = False, noise: float = 0.0) -> Network:
    torch.manual_seed(0)
    read = Reader(4, 3, [5], 4 if variational and not shared else 2)
    made = decoder("dense", 2, (4, 3), 7)
    head = CodeHead(read, made, lambda x: 2 * x, squares, variational=variational, shared=shared, noise=noise)
    return Network(Plain(), nn.Identity(), head).double()


def batch_of(count: int) -> Batch:
    values = torch.randn(count, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return Batch(Source((values,), torch.arange(4)), torch.zeros(count, dtype=torch.long))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("beta", [None, 1.0, 0.03])
def test_the_loss_is_the_lectures_in_values_and_gradients(shared: bool, beta: float | None) -> None:
    """(m/n) Σ (x − x̂)² + β Σ (μ² + σ² − log σ² − 1), x over all its components, in loops over rows and numbers."""
    network, batch, n = coder(shared=shared), batch_of(6), 40
    m = len(batch.target)
    weights = [*network.parameters()]
    torch.manual_seed(3)
    sums = network(batch)
    ours = sum(each / total for each, total in zip(sums, totals(m, beta, n), strict=True)) * m**2 / n
    torch.manual_seed(3)
    noise = torch.randn(m, 2, dtype=torch.float64)
    head, factor, lectured = network.head, m / n if beta is None else beta, torch.zeros((), dtype=torch.float64)
    for row in range(m):
        found = head.read.layers(batch.source.values[0][row].flatten())
        mean, log_sigma = (found, head.log_sigma.expand(2)) if shared else (found[:2], found[2:])
        z = torch.stack([mean[j] + torch.exp(log_sigma[j]) * noise[row, j] for j in range(2)])
        again = 2 * head.decoder(z.unsqueeze(0))[0]
        for i in range(4):
            for c in range(3):
                lectured = lectured + m / n * (batch.source.values[0][row, i, c] - again[i, c]) ** 2
        for j in range(2):
            sigma = torch.exp(log_sigma[j])
            lectured = lectured + factor * (mean[j] ** 2 + sigma**2 - torch.log(sigma**2) - 1)
    assert ours.item() == pytest.approx(lectured.item(), rel=1e-12)
    for mine, theirs in zip(torch.autograd.grad(ours, weights), torch.autograd.grad(lectured, weights), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_the_second_sum_is_twice_the_divergence_of_torch() -> None:
    mean, log_sigma = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    theirs = kl_divergence(Normal(mean, log_sigma.exp()), Normal(torch.zeros_like(mean), torch.ones_like(mean)))
    torch.testing.assert_close(Code(mean, log_sigma).divergence(), 2 * theirs)


def test_an_autoencoder_draws_nothing_and_a_denoiser_reads_noise_but_makes_what_was_there() -> None:
    plain, batch = coder(variational=False), batch_of(5)
    expected = squares(batch.source.values[0], 2 * plain.head.decoder(plain.head.read(plain.features(batch.source))))
    assert plain(batch).tolist() == [pytest.approx(expected.sum().item())]
    noisy = coder(variational=False, noise=0.5)
    assert noisy(batch).item() != noisy(batch).item()
    noisy.eval()
    assert noisy(batch).item() == noisy(batch).item() == plain(batch).item()


def test_without_a_weight_the_divergence_counts_nothing() -> None:
    assert totals(8, 0.0, 100) == (8.0, math.inf)


@pytest.mark.parametrize("shape", [(28, 28, 1), (12, 9, 3), (6, 2), (31, 1)])
@pytest.mark.parametrize("kind", ["dense", "convolution"])
def test_decoders_make_every_shape(shape: tuple[int, ...], kind: str) -> None:
    assert decoder(kind, 3, shape, 8)(torch.randn(2, 3)).shape == (2, *shape)


# ---- duels ----------------------------------------------------------------------------------------------------------


def duel(attention: bool = True, rates: tuple[float, float] = (4.0, 1.0)) -> Network:
    torch.manual_seed(0)
    trunk = CriticTrunk(2, (12,), 8, attention=attention)
    generator = Generator(3, (12, 2), 8, 3, attention=attention)
    head = AdversarialHead(generator, trunk.width, 3, 3, lambda x: x, rates=rates, average=0.9)
    return Network(Plain(), trunk, head)


def real(count: int = 5) -> Batch:
    values = torch.randn(count, 12, 2, generator=torch.Generator().manual_seed(1))
    return Batch(Source((values,), torch.arange(12)), torch.arange(count) % 3)


def test_hinge_losses_equal_their_formula() -> None:
    network, batch = duel().eval(), real()  # no step of power iteration in between
    head = network.head

    def judged(values: torch.Tensor) -> torch.Tensor:
        pooled = network.features(batch.source._replace(values=(values,))).values.sum(1)
        return head.judge(pooled)[:, 0] + (head.classes.weight[batch.target] * pooled).sum(1)

    torch.manual_seed(2)
    found = network(batch, "critic").item()
    torch.manual_seed(2)
    made = head.generator(torch.randn(5, 3), batch.target)
    pairs = zip(judged(batch.source.values[0]).tolist(), judged(made).tolist(), strict=True)
    assert found == pytest.approx(sum(max(0, 1 - a) + max(0, 1 + b) for a, b in pairs), rel=1e-5)
    torch.manual_seed(2)
    assert network(batch, "generator").item() == pytest.approx(-judged(made).sum().item(), rel=1e-5)


def test_every_matrix_of_both_players_is_divided_by_its_largest_singular_value() -> None:
    network, batch = duel(), real()
    for _ in range(200):
        with torch.no_grad():
            network(batch, "critic")
            network(batch, "generator")
    network.eval()
    bounded = [part for part in network.modules() if hasattr(part, "parametrizations")]
    assert len(bounded) >= 16
    for part in bounded:
        first = part.parametrizations.weight.original.flatten(1)
        sigma = torch.linalg.svdvals(first)[0]
        torch.testing.assert_close(part.weight.flatten(1), first / sigma, rtol=2e-3, atol=1e-4)


def test_the_attention_block_begins_as_nothing_and_is_the_papers_equation() -> None:
    torch.manual_seed(0)
    block, x = AttentionBlock(16), torch.randn(2, 16, 3, 4)
    assert block(x).equal(x)
    with torch.no_grad():
        block.gamma.fill_(0.7)
    places = x.flatten(2).mT
    attention = block.attention
    weights = (attention.q_proj(places) @ attention.k_proj(places).mT).softmax(-1)
    expected = 0.7 * attention.output_proj(weights @ attention.v_proj(places)).mT.unflatten(2, (3, 4)) + x
    torch.testing.assert_close(block(x), expected)
    assert attention.q_proj.out_features == 2  # width / 8, and width / 2 of values
    assert attention.v_proj.out_features == 8


def test_a_moving_average_follows_its_weights_and_begins_fast() -> None:
    layer = nn.Linear(2, 1, bias=False)
    mean = MovingAverage(layer, 0.9)
    assert [*mean.parameters()] == []
    before = layer.weight.detach().clone()
    with torch.no_grad():
        layer.weight.add_(1)
    mean.renew()
    assert mean.mean0.allclose(before + 1 - 2 / 11)
    x = torch.ones(1, 2)
    assert mean(x).item() == pytest.approx((x @ (before + 1 - 2 / 11).T).item())


def test_halving_a_map_keeps_its_mean_and_rounds_up() -> None:
    assert halved(torch.arange(4.0).view(1, 1, 4)).tolist() == [[[0.5, 2.5]]]
    assert halved(torch.ones(1, 1, 5, 7)).shape == (1, 1, 3, 4)


# ---- runs -----------------------------------------------------------------------------------------------------------


def trained(folder: Path, name: str, *more: str, at: Any = None) -> Any:
    return matrix.train(folder, name, "patches", "imagine", at, more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("imagine")


@pytest.fixture(scope="module")
def vae(folder: Path) -> Any:
    return trained(folder, "vae")


@pytest.fixture(scope="module")
def gan(folder: Path) -> Any:
    return trained(folder, "gan", *matrix.PLAYERS)


def test_players_buffers_and_random_numbers_resume_to_the_same_bits(gan: Any, folder: Path) -> None:
    assert trained(folder, "parts", *matrix.PLAYERS, at=matrix.stop) is None
    assert trained(folder, "parts", *matrix.PLAYERS) is not None
    assert matrix.outcome(folder / "parts") == matrix.outcome(gan.folder)
    state = checkpoint.load_weights(gan.folder / "model.safetensors")
    assert any(name.endswith("_u") for name in state)  # singular vectors
    assert int(state["head.average.steps"]) == matrix.STEPS


def weights(network: Network, whose: str) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in network.players()[whose].parameters]


@pytest.mark.parametrize(("frozen", "other"), [("critic", "generator"), ("generator", "critic")])
def test_a_frozen_player_keeps_its_weights_and_the_other_learns(folder: Path, frozen: str, other: str) -> None:
    kept: dict[str, list[torch.Tensor]] = {}

    def look(trainer: Trainer) -> None:
        for whose in (frozen, other):
            kept.setdefault(whose, weights(trainer.network, whose))
        trainer.stop = trainer.at.step == 4

    inner = Trainer.__init__

    def begun(self: Trainer, *arguments: Any, **more: Any) -> None:
        inner(self, *arguments, **more)
        for whose in (frozen, other):
            kept[whose] = weights(self.network, whose)
        kept["trainer"] = self  # type: ignore[assignment]

    Trainer.__init__ = begun  # type: ignore[method-assign]
    try:
        trained(folder, f"frozen_{frozen}", *matrix.PLAYERS, f"model.{frozen}_rate=0", at=look)
    finally:
        Trainer.__init__ = inner  # type: ignore[method-assign]
    network = kept["trainer"].network  # type: ignore[attr-defined]
    assert all(map(torch.equal, kept[frozen], weights(network, frozen)))
    assert not all(map(torch.equal, kept[other], weights(network, other)))


def test_an_output_without_a_metric_keeps_the_last_weights_and_is_scored_at_the_end(gan: Any) -> None:
    history = [json.loads(line) for line in (gan.folder / "metrics.jsonl").open()]
    assert [entry["step"] for entry in history] == [5, 10, 15, 20]
    assert not {"frechet_distance", "negative_elbo"} & {*history[-1]}
    results = json.loads((gan.folder / "results.json").read_text())["validation"]
    assert {"frechet_distance", "precision", "recall", "diversity"} <= {score["name"] for score in results}


@pytest.mark.parametrize("name", ["vae", "gan"])
def test_new_things_are_the_same_for_the_same_seed(name: str, request: pytest.FixtureRequest) -> None:
    task = request.getfixturevalue(name).task
    one, same, other = (task.output.new(task.passes, 6, seed) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert one.shape == (6, 12, 12, 1)
    assert one.min() >= 0
    assert one.max() <= 255
    assert np.allclose(task.output.new(task.passes, 3, 1), one[:3], atol=1e-3)  # however many are made


def invent(model: Any, path: Path | None = None, **wish: Any) -> str:
    out = io.StringIO()
    usual = inventing.Wish(None, None, 0.5, None, None, 1)._replace(**wish)
    inventing.invent(model, usual, path, out, as_json=False)
    return out.getvalue()


def test_near_between_and_a_sheet_of_new_pictures(vae: Any, gan: Any, tmp_path: Path) -> None:
    source = f"{matrix.toy(vae.folder.parent, 'patches', 'imagine')}/images"
    invent(vae, tmp_path / "new.png", n=10)
    with Image.open(tmp_path / "new.png") as sheet:
        assert sheet.size == (4 * (4 * 13 + 1), 4 * (3 * 13 + 1))  # four times as large, ten in rows of four
    passes, output, read = vae.task.passes, vae.task.output, vae.task.input.read
    again = output.decoded(passes, output.means(passes, vae.task.input.encode([read(f"{source}#0")])))
    assert np.allclose(output.near(passes, read(f"{source}#0"), 2, 0.0, 1), again, atol=1e-3)
    line = output.between(passes, read(f"{source}#0"), read(f"{source}#1"), 5)
    assert np.allclose(line[:1], again, atol=1e-3)
    assert not np.allclose(line[:1], line[-1:], atol=1)
    assert output.near(passes, read(f"{source}#0"), 2, 1.0, 1).std(0).max() > 0
    invent(gan, tmp_path / "bars.npz", n=3, label="lying")
    assert np.load(tmp_path / "bars.npz")["things"].shape == (3, 12, 12, 1)


@pytest.mark.parametrize(
    ("name", "wish", "said"),
    [
        ("vae", {"n": 0}, "n is 0, expected 1 to 10,000"),
        ("vae", {"n": 4}, "name a file for them"),
        ("vae", {"n": 4, "label": "lying"}, "codes of an autoencoder belong to no class"),
        ("vae", {"near": "nowhere.png"}, "nowhere.png cannot be read"),
        ("vae", {"near": ""}, "found an empty name"),
        ("vae", {"near": "a", "between": ("a", "b")}, "give one of them"),
        ("gan", {"near": "{0}/images#0"}, "a GAN does not know the code of an example"),
        ("gan", {"n": 2, "label": "sitting"}, "label sitting: there is no such label, expected one of"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused_in_a_sentence(
    name: str, wish: dict[str, Any], said: str, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(name)
    path = matrix.toy(model.folder.parent, "patches", "imagine")
    wish = {key: value.format(path) if isinstance(value, str) else value for key, value in wish.items()}
    with pytest.raises(UserError, match=said.replace("(", r"\(")):
        invent(model, **wish)


def test_a_collapsed_generator_and_collapsed_codes_are_reported(gan: Any, vae: Any, folder: Path) -> None:
    held = gan.task.held(model_items(gan))
    head = gan.network.head
    before = [head.average.get_buffer(f"mean{i}").clone() for i in range(len(head.average.names))]
    with torch.no_grad():
        for i, name in enumerate(head.average.names):
            if name.startswith("map."):  # whatever z is, the same thing
                head.average.get_buffer(f"mean{i}").mul_(1e-6)
    try:
        assert "the generator has collapsed" in gan.task.warnings(held, [])[0]
    finally:
        for i, value in enumerate(before):
            head.average.get_buffer(f"mean{i}").copy_(value)
    scores, _ = vae.task.evaluate(held, samples=0)
    assert vae.task.warnings(held, scores) == []
    collapsed = [regard.metrics.Score("active_dimensions", 0.0, "", None, None, 9, True, "")]
    assert "Try a lower loss.beta" in vae.task.warnings(held, collapsed)[0]


def model_items(model: Any) -> list[Any]:
    return [item.example for item in model.held([matrix.toy(model.folder.parent, "patches", "imagine")]).items]


def test_a_heavy_divergence_presses_on_the_codes(folder: Path) -> None:
    found = []
    for beta in (0, 1000):
        model = trained(folder, f"beta{beta}", f"loss.beta={beta}", "training.rate=0.02")
        assert 45 <= model.config.loss.rows <= 55  # of 60, some are held out
        held = model.task.held(model_items(model))
        found.append({score.name: score.value for score in model.task.evaluate(held, samples=0)[0]})
    free, pressed = found
    assert pressed["kl_divergence"] < free["kl_divergence"] / 2


@pytest.mark.parametrize(
    "kind", [["model.kind=vit"], ["model.kind=dense", "output.decoder=dense"], ["model.kind=transformer"], ["output.noise=0.3"],
             ["output.sigma=shared"]], ids=lambda kind: kind[0].split("=")[1],
)  # fmt: skip
def test_encoders_of_every_kind_make_pictures_again(kind: list[str], folder: Path) -> None:
    heads = ["model.heads=2", "model.hidden=16"] if kind[0].split("=")[1] in ("vit", "transformer") else []
    model = trained(folder, "-".join(kind), *kind, *heads)
    scores = {score.name: score.value for score in model.task.evaluate(model.task.held(model_items(model)))[0]}
    assert all(map(math.isfinite, scores.values()))
    assert {"negative_elbo", "reconstruction_error", "kl_divergence", "active_dimensions"} <= {*scores}


def test_scores_in_the_features_of_a_classifier_name_it_and_have_a_floor(vae: Any, folder: Path) -> None:
    classifier = matrix.train(folder, "classifier", "patches", "classify")
    said: list[str] = []
    given = evaluating.compared_with(vae, classifier.folder, said.append)
    path = str(matrix.toy(folder, "patches", "imagine"))
    found = {score.name: score for score in evaluating.evaluate(vae, [path], given).scores}
    checksum = checksums.sha256(classifier.folder / "model.safetensors")[:16]
    assert f"space:classifier, sha256 {checksum}" in found["frechet_distance"].signature
    assert found["frechet_floor"].value < found["frechet_ceiling"].value
    plain = evaluating.evaluate(vae, [path], evaluating.compared_with(vae, None, said.append)).scores
    assert "space:principal components 32" in next(s for s in plain if s.name == "frechet_distance").signature
    with pytest.raises(UserError, match=r"features .*: expected a classifier of images, found a model that makes"):
        evaluating.compared_with(vae, vae.folder, said.append)
    with pytest.raises(UserError, match="features: a model that labels images has no such option"):
        evaluating.compared_with(classifier, vae.folder, said.append)


@pytest.mark.parametrize("name", ["latent", "reconstructions", "noise", "neighbours", "spread", "attribute"])
def test_portraits_are_drawn(name: str, vae: Any, folder: Path, tmp_path: Path) -> None:
    others = [folder / "gan"][:0]
    path = show_many(vae, others, name, [str(matrix.toy(folder, "patches", "imagine"))], tmp_path / "x.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_portraits_that_make_no_sense_are_refused(vae: Any, gan: Any, folder: Path, tmp_path: Path) -> None:
    data, out = [str(matrix.toy(folder, "patches", "imagine"))], tmp_path / "x.png"
    show_many(gan, [], "attention", data, out)
    with pytest.raises(UserError, match="draw latent: expected one of attention"):
        show_many(gan, [], "latent", data, out)
    with pytest.raises(UserError, match="expected a run that makes the same things"):
        show_many(vae, [gan.folder], "noise", data, out)
    with pytest.raises(UserError, match="draw attribute needs two labels of the data"):
        show_many(vae, [], "attribute", data, out, answer="lying,flying")
    show_many(vae, [vae.folder], "noise", data, out)
    show(gan, [f"{data[0]}/images#0"], tmp_path / "critic.png")


@pytest.mark.parametrize("name", ["vae", "gan"])
def test_a_server_answers_images_and_refuses_texts(name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    sent: list[dict[str, Any]] = []
    worker = Worker(Order({"m": str(model.folder)}, "torch", 1, 1000), sent.append, SimpleNamespace(value=-1))
    file = io.BytesIO()
    Image.fromarray(np.full((20, 20), 90, np.uint8)).save(file, "PNG")
    image = {"content": base64.b64encode(file.getvalue()).decode(), "media": "image/png", "place": 0}
    text = {"content": "a text", "media": "text/plain", "place": 1}
    for wants in ("answer", "attention"):
        sent.clear()
        worker.work({"batch": 1, "model": "m", "wants": wants, "options": {}, "jobs": [image, text]})
        found = dict(sent[-1]["found"])
        assert found[1]["fault"] == "This model reads images, and this is a text."
        answer = found[0]["answer"]
        if name == "gan":
            assert math.isfinite(answer["realness"])
            continue
        assert len(answer["code"]) == 3
        with Image.open(io.BytesIO(base64.b64decode(answer["content"]))) as again:
            assert (again.size, answer["media_type"]) == ((12, 12), "image/png")
    assert worker.facts["m"]["options"] == []


# ---- data -----------------------------------------------------------------------------------------------------------


def test_pictures_without_labels_are_enough(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    chosen = random.Random(0)
    for number in range(24):
        pixels = np.zeros((8, 8), np.uint8)
        pixels[chosen.randrange(7) :, chosen.randrange(7) :] = 200
        Image.fromarray(pixels).save(pictures / f"{number}.png")
    small = ["training.budget=300", "data.held_out=5", "model.width=8", "output.latent=2", "output.width=8"]
    model = regard.train(pictures, tmp_path / "run", task="imagine", steps=5, set=small, quiet=True)
    assert model.task.output.things.labels == ()
    pixels = np.stack([np.asarray(Image.open(file)) for file in sorted(pictures.iterdir())])
    np.savez(tmp_path / "alone.npz", images=pixels)
    held = model.held([tmp_path / "alone.npz"])
    assert len(held.items) == 24
    with pytest.raises(UserError, match="draw attribute needs two labels of the data"):
        show_many(model, [], "attribute", [str(tmp_path / "alone.npz")], tmp_path / "x.png")


def test_series_of_several_lengths_are_refused_by_line_and_of_one_length_are_made(tmp_path: Path) -> None:
    lines = ["series,label", *(f"{i} {i + 1} {i * i},{'ab'[i % 2]}" for i in range(30))]
    path = tmp_path / "series.csv"
    path.write_text("\n".join(lines) + "\n")
    small = ["data.held_out=5", "model.width=8", "output.latent=2", "output.width=8", "training.budget=60"]
    model = regard.train(path, tmp_path / "run", task="imagine", steps=5, set=small, quiet=True)
    written = invent(model, n=4).splitlines()
    assert len(written) == 4
    assert all(len(line.split()) == 3 for line in written)
    with pytest.raises(UserError, match=r"expected 3 × 1 numbers, as the first example has, found 2 × 1"):
        model.predict(["1 2"])
    path.write_text("\n".join([*lines, "1 2,a"]) + "\n")
    with pytest.raises(UserError, match=r"series.csv:32: expected 3 × 1 numbers, .*; bring all examples to one length"):
        regard.train(path, tmp_path / "other", task="imagine", steps=5, set=small, quiet=True)


def test_no_line_of_the_loop_names_a_task() -> None:
    text = re.findall(r"[a-z]+", Path(loop.__file__).read_text(encoding="utf-8").lower())
    names = ["imagine", "detect", "classify", "convert", "vae", "gan", "generator", "critic", "autoencoder"]
    assert [name for name in names if name in text] == []
