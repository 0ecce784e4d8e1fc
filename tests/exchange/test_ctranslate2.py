"""CTranslate2 as an export and as an engine: the values and answers of torch, in any order, from sound files only."""

import json
import random
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st

import regard
from regard.config import render
from regard.errors import UserError
from regard.exchange import conversion, ctranslate2, engine, huggingface
from regard.inputs.input import Use
from regard.inputs.tokens import Tokens
from regard.inspection.recording import watch
from regard.outputs.convert.output import Convert
from regard.runs import checkpoint, checksums, settings
from regard.runs.build import build
from regard.runs.model import Model, load
from regard.text.tokenizer import END, Tokenizer
from regard.training.split import held_out
from tests.conftest import SPELLED, Regard
from tests.exchange import published
from tests.models.same import shake

pytest.importorskip("ctranslate2")

CHOSEN = random.Random(0)
TEXTS = [" ".join("".join(CHOSEN.choices("abcdefgh", k=3)) for _ in range(CHOSEN.randint(1, 6))) for _ in range(120)]
SOURCE, TARGET = Tokenizer.train(TEXTS, "bpe", 50), Tokenizer.train([text.upper() for text in TEXTS], "bpe", 64)
SMALL = ["training.warmup=0", "model.layers=1", "model.width=16", "model.heads=2"]
EVERY = [
    {}, {"norm": "post"}, {"joint": True}, {"joint": True, "tied": False, "norm": "post"}, {"closed": True, "tied": False},
    {"activation": "gelu", "scale": False}, {"activation": "gelu_tanh", "layers": 1}, {"activation": "swish"},
    *({"position": kind} for kind in ("learned", "recurrent", "floater", "rotary", "shaw", "none")),
    {"position": "learned", "norm": "post", "closed": True}, {"position": "rotary", "norm": "post", "joint": True},
]  # fmt: skip


def made(folder: Path, *, joint: bool = False, longest: int = 40, factor: float = 3.0, **model: Any) -> Model:
    """A run of a tiny Transformer whose weights are random: it writes anything, and ends now and then."""
    sizes = {"kind": "transformer", "layers": 3, "width": 16, "hidden": 24, "heads": 2}
    config = settings.make(
        {
            "task": "convert", "input": "tokens", "data": {"train": ["nothing.tsv"], "longest": 24},
            "tokens": {"level": "bpe"}, "output": {"level": "bpe", "joint": joint},
            "model": sizes | model, "decoding": {"longest": longest, "factor": factor},
        }, "test",
    )  # fmt: skip
    task = build(config, (Tokens(SOURCE, None, config.reading, Use.SOURCE), Convert(SOURCE if joint else TARGET)))
    torch.manual_seed(1)
    shake(task.network)
    with torch.no_grad():
        task.network.get_parameter("head.output.bias")[END] += 1.5
    files: dict[str, bytes | Path] = {"config.yaml": render(config, {}).encode(), **task.files}
    files["model.safetensors"] = checkpoint.as_bytes(checkpoint.tensors_of(task.network))
    folder.mkdir()
    checksums.publish(folder, files)
    return load(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Model:
    model = made(tmp_path_factory.mktemp("runs") / "run", factor=1.0)
    engine.use(model, "ctranslate2", {}, lambda _: None)
    fast(model).workers = 2
    return model


def output(model: Model) -> Convert:
    assert isinstance(model.task.output, Convert)
    return model.task.output


def fast(model: Model) -> engine.CTranslate2:
    """Return the engine that a model has."""
    used = output(model).engine
    assert isinstance(used, engine.CTranslate2)
    return used


def both(model: Model, texts: list[str], **changes: Any) -> tuple[Any, Any]:
    """Return the answers of torch, and of the engine that the model has."""
    own = output(model)
    used, own.engine = own.engine, None
    try:
        expected = model.answers(texts, **changes)
    finally:
        own.engine = used
    return expected, model.answers(texts, **changes)


def source_ids(text: str) -> list[int]:
    return SOURCE.encode(text)


@torch.no_grad()
def log_probabilities(model: Model, source: list[int], target: list[int]) -> torch.Tensor:
    """Return what torch gives each token of a target and its end."""
    batch = model.task.batch([(source, [*target, END])])
    return model.network.scores(batch)[0].log_softmax(-1)[range(len(target) + 1), batch.target.ids[0]]


@torch.no_grad()
def looked(model: Model, source: list[int], target: list[int]) -> Any:
    """Return the weights (target tokens + end, source tokens) of torch, a mean over heads."""
    layers = output(model).crossing(model.network)
    with watch(model.network, layers[max(0, len(layers) - 2)]) as seen:
        model.network.scores(model.task.batch([(source, [*target, END])]))
    (layer,) = seen.values()
    return layer.weights[0].mean(0)[: len(target) + 1, : len(source)].numpy()


# ---- the export ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", EVERY, ids=lambda parts: "-".join(map(str, parts.values())) or "plain")
def test_log_probabilities_and_attention_are_those_of_torch(tmp_path: Path, parts: dict[str, Any]) -> None:
    import ctranslate2 as theirs

    model = made(tmp_path / "run", **parts)
    assert ctranslate2.export(model, tmp_path / "out") <= 1e-4
    source, target = ctranslate2.vocabularies(model.task)
    names = ctranslate2.names(target)
    translator = theirs.Translator(str(tmp_path / "out"), compute_type="float32")
    chosen = random.Random(2)
    sources = [source.encode(text) for text in (TEXTS[0], TEXTS[1], TEXTS[0] + " " + TEXTS[1], "a")]
    targets = [[chosen.randrange(1, target.size) for _ in range(n)] for n in (7, 19, 1, 0)]
    written = [[ctranslate2.names(source)[id] for id in row] for row in sources]
    scored = translator.score_batch(written, [[names[id] for id in row] for row in targets])
    for row, wanted, found in zip(sources, targets, scored, strict=True):
        assert torch.tensor(found.log_probs).allclose(log_probabilities(model, row, wanted), atol=1e-4)
    answers = translator.translate_batch(written, beam_size=1, max_decoding_length=9, return_attention=True)
    ids = [[names.index(name) for name in answer.hypotheses[0]] for answer in answers]
    for answer, row, best in zip(answers, sources, ids, strict=True):
        expected = looked(model, row, best)
        assert np.allclose(answer.attention[0], expected[: len(answer.attention[0])], atol=1e-4)


def test_a_published_model_goes_on_with_its_own_tokens(tmp_path: Path) -> None:
    published.marian(tmp_path / "published")
    model = huggingface.take_up(tmp_path / "published", tmp_path / "run")
    engine.use(model, "ctranslate2", {}, lambda _: None)
    expected, found = both(model, published.TEXTS[:6], beam=1, longest=12)
    assert [one.ids for (one,) in found] == [one.ids for (one,) in expected]
    assert "▁cat" in ctranslate2.names(ctranslate2.vocabularies(model.task).source)


def test_what_differs_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, real = made(tmp_path / "run"), ctranslate2.specification

    def other(given: Model) -> Any:
        spec = real(given)
        with torch.no_grad():
            given.network.get_parameter("head.decoder.layers.0.cross.v_proj.bias").add_(0.3)
        return spec

    monkeypatch.setattr(ctranslate2, "specification", other)
    with pytest.raises(UserError, match=r"differ by .*, expected at most 1e-04"):
        ctranslate2.export(model, tmp_path / "out" / "put")
    assert not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("position", "reason"), [("alibi", "no linear biases"), ("t5", "share one table"), ("transformer-xl", "no such")]
)
def test_positions_that_it_lacks_are_refused(tmp_path: Path, position: str, reason: str) -> None:
    model = made(tmp_path / "run", position=position)
    with pytest.raises(UserError, match=f"model.position is {position}: CTranslate2 cannot express it, .*{reason}"):
        ctranslate2.export(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_n_grams_are_refused(tmp_path: Path) -> None:
    model = made(tmp_path / "run", ngrams=3, buckets=20)
    with pytest.raises(
        UserError, match=r'model.ngrams is 3: CTranslate2 cannot express it, .* train with set={"model.ngrams": 1}'
    ):
        ctranslate2.export(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_commands_refuse_in_one_sentence(
    cli: Regard, letters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "run")
    cli.run("export", letters / "run", "--to", "ctranslate2", "-o", "out", code=1)
    assert "model.kind is recurrent: CTranslate2 cannot express it, because it runs Transformers only." in cli.said
    cli.run("export", "run", "--to", "onnx", "-o", "out", code=1)
    assert "is not exported to ONNX, because its answers are written step by step" in cli.said
    cli.run("export", "run", "--to", "ctranslate2", "-o", "run", code=1)
    assert "run exists already" in cli.said
    cli.run("predict", "run", "abc", "--engine", "fast", code=1)
    assert (
        "--engine is 'fast', expected one of torch, ctranslate2, ctranslate2-int8, onnx, onnx-int8, auto." in cli.said
    )
    cli.run("predict", "run", "abc", "--engine", "ctranslate2", "--sample", code=1)
    assert "--sample is not supported by CTranslate2" in cli.said
    (tmp_path / "text.txt").write_text("some text\nand more of it\n" * 20, encoding="utf-8")
    regard.train("text.txt", "book", task="continue", steps=1, set=SMALL, quiet=True)
    cli.run("export", "book", "--to", "ctranslate2", "-o", "out", code=1)
    assert "is not converted for CTranslate2: expected a Transformer of the task convert." in cli.said
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2", None)
    for command in (
        ["export", "run", "--to", "ctranslate2", "-o", "out"],
        ["predict", "run", "a", "--engine", "ctranslate2"],
    ):
        cli.run(*command, code=1)
        assert cli.said.strip().endswith("install it with `pip install 'regard[fast]'`.")
    assert not (tmp_path / "out").exists()
    assert cli.lines("predict", "run", "abc", "--engine", "auto") == cli.lines("predict", "run", "abc")


# ---- answers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"minimum": 6}, {"longest": 3}, {"minimum": 4, "longest": 4}])
def test_greedy_answers_are_those_of_torch(run: Model, changes: dict[str, int]) -> None:
    expected, found = both(run, [*TEXTS[:60], ""], beam=1, **changes)
    assert [one.ids for (one,) in found] == [one.ids for (one,) in expected]
    assert [one.finished for (one,) in found] == [one.finished for (one,) in expected]
    assert {one.finished for (one,) in found} == {True, False} or changes
    assert np.allclose([one.score for (one,) in found], [one.score for (one,) in expected], atol=1e-4)
    assert np.allclose([one.normalised for (one,) in found], [one.normalised for (one,) in expected], atol=1e-4)


def test_it_leaves_torch_its_threads_and_has_as_many_workers(tmp_path: Path) -> None:
    """Both count by one OpenMP. Only the conversion's own first check would find the threads already gone."""
    made(tmp_path / "run")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = load(tmp_path / "run")
        engine.use(model, "ctranslate2", {}, lambda _: None)
        assert torch.get_num_threads() == 2
        assert fast(model).workers == 2
    finally:
        torch.set_num_threads(before)


def test_a_beam_gives_different_answers_with_torchs_scores_best_first(run: Model) -> None:
    texts = TEXTS[:40]
    expected, found = both(run, texts, beam=6, n_best=4, length_penalty=0.7)
    assert sum(a[0].ids == b[0].ids for a, b in zip(expected, found, strict=True)) > 0.6 * len(texts)
    for text, row in zip(texts, found, strict=True):
        source = source_ids(text)
        assert len({tuple(one.ids) for one in row}) == len(row) == 4
        assert max(len(one.ids) for one in row) <= int(output(run).how.factor * (len(source) + 3) + 3)
        for one in row:
            expected_score = float(log_probabilities(run, source, one.ids).sum())
            assert one.score == pytest.approx(expected_score, abs=2e-4)
            assert one.normalised == pytest.approx(one.score / (len(one.ids) + 1) ** 0.7)
    forced = [row for row in run.answers(texts, beam=6, n_best=4, longest=4) if not all(one.finished for one in row)]
    assert len(forced) > 5
    assert all(a.normalised >= b.normalised for row in forced for a, b in pairwise(row))


@trying(max_examples=12, derandomize=True, deadline=None)
@given(st.lists(st.sampled_from([*TEXTS[:40], ""]), min_size=1, max_size=12), st.randoms(), st.sampled_from([1, 4]))
def test_neither_order_nor_neighbours_change_an_answer(
    run: Model, texts: list[str], chance: random.Random, beam: int
) -> None:
    alone = {text: [one.ids for one in run.answers([text], beam=beam, n_best=min(2, beam))[0]] for text in texts}
    chance.shuffle(texts)
    how = replace(output(run).how, beam=beam, n_best=min(2, beam), scored=False)
    together = output(run).answers(run.task.passes, texts, how)
    assert [[one.ids for one in row] for row in together] == [alone[text] for text in texts]


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary"])
def test_beyond_the_positions_it_is_as_with_torch(tmp_path: Path, position: str) -> None:
    model = made(tmp_path / "run", position=position)
    engine.use(model, "ctranslate2", {}, lambda _: None)
    assert fast(model).positions == (42 if position == "learned" else 4 * 24 + 2)
    text = " ".join(TEXTS[:5])
    length = len(source_ids(text))
    assert 42 < length < 96
    if position == "learned":
        with pytest.raises(UserError, match="the learned position table holds positions 0 to 41"):
            model.predict([TEXTS[0], text])
    else:
        expected, found = both(model, [TEXTS[0], text], beam=1)
        assert [one.ids for (one,) in found] == [one.ids for (one,) in expected]
        expected, found = both(model, [TEXTS[0]], beam=1, longest=200, minimum=120)  # an answer beyond the table
        assert len(found[0][0].ids) >= 120
        assert found == expected
    expected, found = both(model, [TEXTS[0]], beam=40)  # a beam wider than the vocabulary is torch's as well
    assert found == expected


# ---- in a run folder -----------------------------------------------------------------------------------------------


def test_predict_answers_as_torch_does(cli: Regard, numbers: Path, tmp_path: Path) -> None:
    shutil.copytree(numbers / "run", "run")
    chosen = random.Random(3)
    digits = [" ".join(chosen.choices(SPELLED, k=chosen.randint(1, 6))) for _ in range(30)]
    lines = [*digits, "", "two  two", "\t", "ジ", "one"]
    lines.insert(3, " ")
    given = "".join(line + "\n" for line in lines)
    for options in (["--beam", "1"], ["--beam", "1", "--alignment", "hard"], ["--beam", "1", "--with-score"], []):
        expected = cli.lines("predict", "run", *options, given=given)
        found = cli.lines("predict", "run", *options, "--engine", "ctranslate2", given=given)
        assert len(found) == len(lines)
        assert [found[i] for i in (3, 31, 33)] == [expected[i] for i in (3, 31, 33)]  # the empty ones
        same = sum(a.split("\t")[-1] == b.split("\t")[-1] for a, b in zip(found, expected, strict=True))
        assert same == len(lines) if options else same > 0.6 * len(lines)  # its beam may stop sooner
    options = ("--alignment", "soft", "--beam", "1", "one two three")
    expected, found = (cli.objects("predict", "run", *options, *more) for more in ((), ("--engine", "auto")))
    assert np.allclose(found[0]["answers"][0]["alignment"], expected[0]["answers"][0]["alignment"], atol=2e-4)
    assert found[0]["answers"][0]["score"] == pytest.approx(expected[0]["answers"][0]["score"], abs=1e-4)
    assert len(cli.lines("predict", "run", "one two", "--n-best", "3", "--engine", "ctranslate2")) == 3


def test_the_conversion_is_kept_and_made_anew_when_it_must_be(cli: Regard, tmp_path: Path) -> None:
    made(tmp_path / "run")
    ask = ("predict", "run", TEXTS[0], "--with-score", "--beam", "1")
    expected = cli.lines(*ask)
    assert cli.lines(*ask, "--engine", "ctranslate2") == expected
    assert "run/ctranslate2: converted for CTranslate2" in cli.said
    before = (tmp_path / "run/ctranslate2/model.bin").stat().st_mtime_ns
    assert cli.lines(*ask, "--engine", "ctranslate2") == expected
    assert cli.said == ""
    assert (tmp_path / "run/ctranslate2/model.bin").stat().st_mtime_ns == before
    names = ["config.json", "model.bin", "sums.json", "target_vocabulary.json"]
    for name, keep in [*((name, -40) for name in names), ("model.bin", 0), ("sums.json", 0)]:
        path = tmp_path / "run/ctranslate2" / name
        path.write_bytes(path.read_bytes()[:keep]) if keep else path.unlink()
        assert cli.lines(*ask, "--engine", "ctranslate2") == expected
        assert "converted for CTranslate2" in cli.said, name
    weights = checkpoint.load_weights(tmp_path / "run/model.safetensors")
    weights["head.output.bias"] = weights["head.output.bias"] + torch.arange(64) / 20
    checksums.publish(tmp_path / "run", {"model.safetensors": checkpoint.as_bytes(weights)})
    changed = cli.lines(*ask)
    assert changed != expected
    assert cli.lines(*ask, "--engine", "ctranslate2") == changed
    assert sorted(path.name for path in (tmp_path / "run").glob(".*")) == []
    assert cli.run("check", "run").startswith("run: every file matches its checksum")


def test_int8_says_once_what_it_costs(cli: Regard, numbers: Path, tmp_path: Path) -> None:
    shutil.copytree(numbers / "run", "run")
    ask = ("predict", "run", "one two three", "--engine", "ctranslate2-int8")
    first = cli.lines(*ask)
    said = cli.said.splitlines()[-1]
    model = regard.load("run")
    sources = [item.example.source for item in held_out(model.config, model.task.output)]
    answers = []
    for kind in ("ctranslate2", "ctranslate2-int8"):
        engine.use(model, kind, {}, lambda _: None)
        answers.append(model.predict(sources))
    share = 100 * np.mean([a == b for a, b in zip(*answers, strict=True)])
    expected = f"int8: {share:.1f} % of {len(sources)} held-out answers are the same as in float32; bleu "
    assert len(sources) > 10
    assert said.startswith(expected)
    assert json.loads((tmp_path / "run/ctranslate2/int8.json").read_text())["says"] == said
    assert cli.lines(*ask) == first
    assert cli.said == ""


def test_int8_is_compared_on_what_was_trained_on_where_the_data_is_gone(
    numbers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(numbers / "run", tmp_path / "run")
    model, said = load(tmp_path / "run"), list[str]()
    model.config.data.train = [str(tmp_path / "gone.tsv")]
    monkeypatch.setattr(conversion, "COMPARED", 20)
    engine.use(model, "ctranslate2-int8", {}, said.append)
    share = r"int8: \d+\.\d % of 20 training answers are the same as in float32"
    assert re.fullmatch(share, said[-1]), said


def test_joined_models_search_by_torch(tmp_path: Path) -> None:
    """A model that is joined after the engine was chosen is not left out."""
    model, other = made(tmp_path / "run"), load(tmp_path / "run")
    torch.manual_seed(2)
    shake(other.network)
    engine.use(model, "ctranslate2", {}, lambda _: None)
    model.task.join([other.task], ["other"])
    expected, found = both(model, TEXTS[:8], beam=1)
    assert found == expected


def test_int8_is_another_computation_and_is_compared_on_what_there_is(tmp_path: Path) -> None:
    model, said = made(tmp_path / "run"), list[str]()
    engine.use(model, "ctranslate2-int8", {}, said.append)
    assert said[-1] == "int8: not compared with float32, because the data of the run is not there"
    plain = engine.CTranslate2(model.task, tmp_path / "run/ctranslate2", 98)
    pairs = [(source_ids(text), [7, 8, 9]) for text in TEXTS]
    differences = np.abs(np.subtract(fast(model).scores(pairs), plain.scores(pairs)))
    assert 1e-4 < differences.mean() < 1


def test_auto_is_torch_where_the_other_cannot(cli: Regard, letters: Path, tmp_path: Path) -> None:
    expected = cli.lines("predict", letters / "run", "cafe")
    assert cli.lines("predict", letters / "run", "cafe", "--engine", "auto") == expected
    assert "engine torch: model.kind is recurrent" in cli.said
    made(tmp_path / "run")
    drawn = cli.lines("predict", "run", TEXTS[0], "--sample", "--seed", "3")
    assert cli.lines("predict", "run", TEXTS[0], "--sample", "--seed", "3", "--engine", "auto") == drawn
    assert "engine torch: --sample" in cli.said
