"""Finding: the matching against all assignments, the loss against Hugging Face's DETR, sets without order, and a task
learned in seconds."""

import itertools
import json
import math
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss

import regard
from regard.attention import Context, padding
from regard.backbones.queries import Gaze, grid_places
from regard.commands import shapes
from regard.commands.show import show
from regard.data.boxes import Box
from regard.errors import UserError
from regard.inputs.input import Batch, Source, Window
from regard.layers.boxes import centred, corners, moved, overlap, unique
from regard.models.detr import detr
from regard.network import Network
from regard.outputs.detect.head import DetectHead, classes_of_places, visible
from regard.outputs.detect.matching import Objects, SetWeights, costs, match, set_loss, totals
from regard.outputs.detect.noise import Noise, spoilt
from regard.outputs.detect.output import Detect, Found, collapsed
from regard.runs import settings
from regard.serving.huggingface import _shaped
from regard.text.classes import Classes

CLASSES, QUERIES = 3, 5


def boxes(*shape: int) -> Tensor:
    edges = torch.rand(*shape, 2, 2, dtype=torch.float64).sort(-2).values
    return centred(torch.cat((edges[..., 0, :], edges[..., 1, :] + 0.02), -1))


def things(counts: list[int]) -> Objects:
    most = max(counts)
    classes = torch.stack([
        torch.where(torch.arange(most) < count, torch.randint(CLASSES, (most,)), -1) for count in counts
    ])  # fmt: skip
    return Objects(classes, boxes(len(counts), most))


# ---- boxes


def test_overlaps_equal_a_count_of_small_squares() -> None:
    generator = np.random.default_rng(0)
    edges = np.sort(generator.integers(0, 11, (40, 2, 2)), 1)
    edges = edges[(edges[:, 1] > edges[:, 0]).all(1)]
    area = [np.zeros((10, 10), bool) for _ in edges]
    for cells, ((left, top), (right, bottom)) in zip(area, edges, strict=True):
        cells[top:bottom, left:right] = True
    found = torch.from_numpy(edges.reshape(-1, 4)).double()
    iou, giou = overlap(found[:, None], found[None])
    for (i, one), (j, other) in itertools.product(enumerate(area), repeat=2):
        union = (one | other).sum()
        rows, columns = np.nonzero((one | other).any(1))[0], np.nonzero((one | other).any(0))[0]
        around = (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)
        expected = (one & other).sum() / union
        assert float(iou[i, j]) == pytest.approx(expected)
        assert float(giou[i, j]) == pytest.approx(expected - (around - union) / around)


def test_boxes_move_with_their_pictures() -> None:
    """A bright rectangle is where its box says, before and after flips, shifts and scales."""
    pixels = torch.zeros(1, 40, 40, 1, dtype=torch.uint8)
    pixels[0, 8:20, 24:32] = 255
    box = centred(torch.tensor([[[24, 8, 32, 20]]]) / 40)
    for change in ([-1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [0.8, 0.0, 0.1, 0.0, 0.8, -0.2], [-1.2, 0.0, 0.0, 0.0, 1.2, 0.0]):
        mapped = torch.tensor(change).view(1, 2, 3)
        grid = torch.nn.functional.affine_grid(mapped, [1, 1, 40, 40], align_corners=False)
        seen = torch.nn.functional.grid_sample(pixels.float().permute(0, 3, 1, 2), grid, align_corners=False)[0, 0]
        where = (seen > 127).nonzero()
        found, left = moved(box, mapped)
        expected = [where[:, 1].min(), where[:, 0].min(), where[:, 1].max() + 1, where[:, 0].max() + 1]
        assert (40 * corners(found)[0, 0]).tolist() == pytest.approx([float(x) for x in expected], abs=1.0)
        assert float(left) == pytest.approx(1.0)


def test_what_leaves_the_picture_is_not_to_be_found() -> None:
    given = Objects(
        torch.tensor([[0, 1, -1]]), torch.tensor([[[0.05, 0.5, 0.1, 0.2], [0.6, 0.5, 0.2, 0.2], [0, 0, 0, 0.0]]])
    )
    away = visible(given, torch.tensor([[[1.0, 0.0, 0.4], [0.0, 1.0, 0.0]]]))  # 0.2 of the picture to the left
    assert away.classes.tolist() == [[1, -1, -1]]
    assert away.boxes[0, 0].tolist() == pytest.approx([0.4, 0.5, 0.2, 0.2])


def test_only_the_best_of_boxes_that_are_one_thing_is_kept() -> None:
    edges = torch.tensor([[0, 0, 10, 10], [0, 0, 10, 9], [20, 0, 30, 10], [0, 0, 10, 10]]).float()
    assert unique(edges, torch.tensor([0.5, 0.9, 0.1, 0.9]), 0.7).tolist() == [False, True, True, False]


# ---- matching and loss


@pytest.mark.parametrize(
    ("counts", "repeats"), [*(([n], 1) for n in range(7)), ([2, 0, 4], 1), ([1], 2), ([2, 0], 2), ([3], 2)]
)
def test_the_matching_equals_all_assignments(counts: list[int], repeats: int) -> None:
    torch.manual_seed(sum(counts))
    logits, guess, wanted = (
        torch.randn(len(counts), QUERIES, CLASSES + 1).double(),
        boxes(len(counts), QUERIES),
        things(counts),
    )
    weights = SetWeights(repeats=repeats)
    found, table = match(logits, guess, wanted, weights), costs(logits, guess, wanted, weights)
    for row, count in enumerate(counts):
        own = found.rows == row
        asked = found.queries[own].tolist()
        assert len(set(asked)) == len(asked) == min(QUERIES, repeats * count)
        columns = [i % count for i in range(repeats * count)] if count else []
        if len(columns) <= QUERIES:
            every = (
                sum(float(table[row, q, c]) for q, c in zip(order, columns, strict=True))
                for order in itertools.permutations(range(QUERIES), len(columns))
            )
        else:
            every = (sum(float(table[row, q, columns[c]]) for q, c in enumerate(order))
                     for order in itertools.permutations(range(len(columns)), QUERIES))  # fmt: skip
        assert float(table[row, found.queries[own], found.things[own]].sum()) == pytest.approx(min(every), abs=1e-9)


def test_the_loss_equals_that_of_hugging_face_with_all_layers() -> None:
    torch.manual_seed(0)
    counts, layers = [2, 0, 4, 1], 3
    logits = torch.randn(layers, 4, 8, CLASSES + 1, dtype=torch.float64, requires_grad=True)
    guess = boxes(layers, 4, 8).requires_grad_()
    wanted, weights = things(counts), SetWeights()
    sums = sum(
        set_loss(each, box, wanted, match(each, box, wanted, weights), weights)
        for each, box in zip(logits, guess, strict=True)
    )
    ours = (sums / torch.tensor(totals(np.array(counts, np.int32), 8, weights))).sum()
    labels = [
        {"class_labels": c[c >= 0], "boxes": b[c >= 0]} for c, b in zip(wanted.classes, wanted.boxes, strict=True)
    ]
    config = SimpleNamespace(
        class_cost=1, bbox_cost=5, giou_cost=2, num_labels=CLASSES, eos_coefficient=0.1, auxiliary_loss=True,
        bbox_loss_coefficient=5, giou_loss_coefficient=2, decoder_layers=layers,
    )  # fmt: skip
    with torch.device("cpu"):
        torch.set_default_dtype(torch.float64)
        try:
            theirs = ForObjectDetectionLoss(logits[-1], labels, "cpu", guess[-1], config, logits, guess)[0]
        finally:
            torch.set_default_dtype(torch.float32)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-5)
    for mine, other in zip(
        torch.autograd.grad(ours, (logits, guess)), torch.autograd.grad(theirs, (logits, guess)), strict=True
    ):
        assert mine.allclose(other, atol=1e-6)


def network(*, anchors: bool = True, noise: Noise = Noise(), dense: float = 0.0, repeats: int = 1) -> Network:  # noqa: B008
    torch.manual_seed(1)
    encoder, decoder = detr(encoder_layers=1, layers=2, width=16, hidden=32, heads=2, dropout=0.0, anchors=anchors)
    head = DetectHead(decoder, 16, CLASSES, QUERIES, weights=SetWeights(repeats=repeats), noise=noise, dense=dense)
    with torch.no_grad():
        for part in head.parameters():
            part.add_(0.1 * torch.randn_like(part))  # nothing is zero any more
    stem = torch.nn.Conv2d(3, 16, 4, 4)

    class Stem(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = stem

        def forward(self, source: Source) -> Context:
            found = self.stem(source.values[0])
            return Context(found.flatten(2).mT, grid=(1, *found.shape[2:]))

    return Network(Stem(), encoder, head)


def pictures(count: int) -> Source:
    return Source((torch.randn(count, 3, 16, 16),), torch.arange(16))


@pytest.mark.parametrize("anchors", [True, False])
def test_a_set_has_no_order(anchors: bool) -> None:
    """Queries in another order answer in that order, and neither their order nor that of the things changes the loss."""
    net, source, wanted = network(anchors=anchors), pictures(3), things([2, 0, 4])
    wanted = Objects(wanted.classes, wanted.boxes.float())
    scores, loss = net.scores(Batch(source, None)), net(Batch(source, wanted))
    turned = torch.stack([torch.cat((torch.randperm(n), torch.arange(n, 4))) for n in (2, 0, 4)])
    other = Objects(wanted.classes.gather(1, turned), wanted.boxes.gather(1, turned[..., None].expand(-1, -1, 4)))
    assert net(Batch(source, other)).allclose(loss, atol=1e-4)
    order = torch.randperm(QUERIES)
    with torch.no_grad():
        for part in (net.head.content, net.head.asked):
            part.copy_(part[order].clone())
    assert net.scores(Batch(source, None)).allclose(scores[:, order], atol=1e-5)
    assert net(Batch(source, wanted)).allclose(loss, atol=1e-4)


@pytest.mark.parametrize("more", [{}, {"noise": Noise(2)}, {"dense": 1.0}, {"repeats": 2}, {"anchors": False}])
def test_pictures_without_things_have_a_loss(more: dict[str, object]) -> None:
    net = network(**more)  # type: ignore[arg-type]
    for wanted in (
        Objects(torch.full((2, 0), -1), torch.zeros(2, 0, 4)),
        Objects(torch.full((2, 2), -1), torch.zeros(2, 2, 4)),
    ):
        loss = net(Batch(pictures(2), wanted))
        loss.sum().backward()
        assert torch.isfinite(loss).all()
        assert loss[0].item() > 0
        assert loss[1].item() == 0
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


@pytest.mark.parametrize("more", [{"noise": Noise(2), "dense": 1.0}, {"anchors": False}])
@pytest.mark.parametrize("counts", [[2, 1], [0, 0]])
def test_every_weight_has_a_gradient(more: dict[str, object], counts: list[int]) -> None:
    """Several processes wait for each of them; and anchors are learned."""
    net, wanted = network(**more), things([*counts, 1])  # type: ignore[arg-type]
    net(Batch(pictures(2), Objects(wanted.classes[:2], wanted.boxes[:2].float()))).sum().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None] == []
    if any(counts):
        assert float(net.head.asked.grad.abs().max()) > 0


def test_queries_do_not_see_what_others_shall_mend() -> None:
    """With denoising beside them, the queries answer as without it; and a group does not see another one."""
    net, source, wanted = network(noise=Noise(2)), pictures(2), things([3, 1])
    wanted = Objects(wanted.classes, wanted.boxes.float())
    memory = net.features(source)
    queries, asked = net.head._queries(2)
    plain = net.head.decoder(queries, asked, memory)[-1]
    torch.manual_seed(0)
    more, wider, _ = net.head._with_spoilt(queries, asked, wanted)
    both = net.head.decoder(more, wider, memory)[-1]
    assert both.boxes[:, :QUERIES].allclose(plain.boxes, atol=1e-6)
    changed = more._replace(values=more.values.clone())
    changed.values[:, -3:] += torch.randn(16)  # the second group
    other = net.head.decoder(changed, wider, memory)[-1]
    assert other.boxes[:, :-3].allclose(both.boxes[:, :-3], atol=1e-6)
    assert not other.boxes[0, -3:].allclose(both.boxes[0, -3:], atol=1e-3)


def test_noise_stays_within_its_limits() -> None:
    torch.manual_seed(0)
    wanted = Objects(torch.zeros(50, 4, dtype=torch.long), torch.tensor([0.5, 0.5, 0.2, 0.3]).expand(50, 4, 4))
    found = spoilt(wanted, Noise(3, 0.4, 0.25), CLASSES)
    assert found.boxes.shape == (50, 12, 4)
    away = (found.boxes[..., :2] - 0.5).abs() / wanted.boxes[0, 0, 2:]
    assert 0.15 < float(away.max()) <= 0.2
    assert float((found.boxes[..., 2:] / wanted.boxes[0, 0, 2:]).min()) > 0.55
    assert float((found.classes != 0).float().mean()) == pytest.approx(0.25 * 2 / 3, abs=0.05)


def test_the_gaze_equals_its_formula() -> None:
    """The Gaussian inside the dot product is the one of the docstring, place by place."""
    torch.manual_seed(0)
    gaze = Gaze(8, 2, local=True).double()
    with torch.no_grad():
        gaze.aim.weight.normal_(std=0.2)
    x, place, where = torch.randn(1, 3, 8).double(), torch.randn(1, 3, 8).double(), boxes(1, 3)
    memory = Context(torch.randn(1, 12, 8).double(), torch.arange(12), grid=(1, 3, 4))
    ours = gaze(x, place, where, memory, torch.arange(3), padding)
    middles = grid_places(memory)[0].double() + 0.5
    q = gaze.layer.q_proj(x + place).view(3, 2, 4)
    k, v = (project(memory.values).view(12, 2, 4) for project in (gaze.layer.k_proj, gaze.layer.v_proj))
    aim = gaze.aim(x).view(3, 2, 4)
    heads = []
    for h in range(2):
        scores = torch.zeros(3, 12).double()
        for j, i in itertools.product(range(3), range(12)):
            box = where[0, j]
            spread = (aim[j, h, 2:].exp() * box[2:]).clamp(min=1 / 3 / 2)
            apart = (middles[i] - box[:2] - aim[j, h, :2] * box[2:]) / spread
            scores[j, i] = q[j, h] @ k[i, h] / math.sqrt(4) - apart.square().sum() / 2
        heads.append(scores.softmax(-1) @ v[:, h])
    assert ours[0].allclose(gaze.layer.output_proj(torch.cat(heads, -1)), atol=1e-9)


def test_each_place_has_the_class_of_the_smallest_box() -> None:
    memory = Context(torch.zeros(1, 16, 4), grid=(1, 4, 4))
    wanted = Objects(torch.tensor([[0, 1]]), torch.tensor([[[0.5, 0.5, 1.0, 1.0], [0.25, 0.25, 0.5, 0.5]]]))
    found = classes_of_places(memory, wanted, 9).view(4, 4)
    assert found.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert classes_of_places(memory, Objects(torch.zeros(1, 0).long(), torch.zeros(1, 0, 4)), 9).eq(9).all()


# ---- the output


def output(names: str = "cat dog") -> Detect:
    from regard.text import labels

    return Detect(Classes(labels.learn(names.split())))


def test_a_crowd_an_unknown_class_and_what_is_cut_off_are_not_learned() -> None:
    found = [
        Box("cat", 10, 10, 30, 30),
        Box("cat", 10, 10, 30, 30, 0.0),
        Box("cow", 0, 0, 9, 9),
        Box("dog", 0, 0, 9, 90),
    ]
    places, classes = output()._row(found, Window(10, 0, 80, 80))
    assert len(classes) == 1
    assert places[0].tolist() == pytest.approx([0.125, 0.25, 0.25, 0.25])


def test_the_same_answer_to_every_picture_is_a_collapse() -> None:
    def answer(left: float, score: float = 0.4) -> Found:
        return Found([Box("cat", 0, 0, 1, 1, score)], np.array([[left, 0.5, 0.2, 0.2]], np.float32), 0.0)

    assert collapsed([answer(0.5)] * 10)
    assert not collapsed([answer(0.5)] * 7)  # too few to tell
    assert not collapsed([answer(0.5 + i / 20) for i in range(10)])
    assert not collapsed([answer(0.5, 0.4 + i / 20) for i in range(10)])


def test_a_model_whose_queries_ignore_the_picture_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "shapes.zip"
    shapes.write(path, 24, "few")
    how = ["model.width=16", "encoder.width=16", "model.queries=4", "data.held_out=10", "training.rate=1e-6"]
    model = regard.train(path, tmp_path / "run", steps=2, set=[*how, "training.every=2"], quiet=True)
    held = model.held([path])
    assert "collapsed" in model.task.warnings(held, [])[0]
    with torch.no_grad():
        model.network.head.classes.weight.mul_(30)  # classes that depend on what is seen
    assert model.task.warnings(held, []) == []


def test_boxes_are_learned_shown_and_refused_in_sentences(tmp_path: Path) -> None:
    """A few steps lower the loss; the commands answer with boxes and show where the queries looked."""
    path = tmp_path / "shapes.zip"
    shapes.write(path, 30, "few")
    how = [
        "model.width=16", "model.hidden=32", "model.queries=8", "encoder.width=16", "encoder.layers=1", "encoder.hidden=32",
        "training.every=8", "patches.colour=0", "data.held_out=4", "model.dropout=0", "encoder.dropout=0",
    ]  # fmt: skip
    model = regard.train(path, tmp_path / "run", steps=24, set=how, quiet=True)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run/metrics.jsonl").open()]
    assert losses[-1] < 0.9 * losses[0]
    asked = f"{path}/00003.png"
    found = model.answers([model.task.input.read(asked)], threshold=0.0)[0]
    assert len(found.kept) == 8
    said = model.task.output.as_json(found)["annotations"][0]
    assert said["bbox"][2] == pytest.approx(
        found.boxes[found.kept[0]].right - found.boxes[found.kept[0]].left, abs=0.01
    )
    with zipfile.ZipFile(path) as archive:
        sent = model.task.input.open(archive.read("00003.png"), "image/png")  # as a server gets it
    assert model.answers([sent], threshold=0.0)[0].boxes == found.boxes
    shaped = _shaped(model.task.output.as_json(found), {"task": "detect"}, {})[0]
    assert shaped["box"]["xmax"] == round(found.boxes[found.kept[0]].right)
    assert {*shaped} == {"label", "score", "box"}
    with np.load(show(model, [asked], tmp_path / "shown.npz")) as numbers:
        weights = numbers["where each query looked"]
        assert numbers["boxes"].shape == (weights.shape[2], 4)
        assert weights.sum(-1) == pytest.approx(1.0, abs=1e-4)
    assert b'"boxes":[[' in show(model, [asked], tmp_path / "shown.html").read_bytes()
    with pytest.raises(UserError, match="the model's own"):
        show(model, [asked], tmp_path / "shown.png", answer="cat")
    with pytest.raises(UserError, match=r"model\.denoising=0"):
        settings.override(model.config, ["model.anchors=false"])


def test_the_variations_of_a_picture_are_told_to_its_boxes() -> None:
    """The loss of a mirrored picture is that of its mirrored boxes."""
    net, wanted = network(), Objects(torch.tensor([[1]]), torch.tensor([[[0.3, 0.4, 0.2, 0.2]]]))
    source = pictures(1)
    mirror = torch.tensor([[[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    here = net(Batch(source._replace(change=mirror), wanted))
    there = net(Batch(source, wanted._replace(boxes=torch.tensor([[[0.7, 0.4, 0.2, 0.2]]]))))
    assert here.allclose(there, atol=1e-5)
