"""Mean average precision against pycocotools: random boxes, crowds, ties, empty pictures, more than 100 answers."""

import contextlib
import io
import random
from collections.abc import Sequence

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from regard import metrics
from regard.metrics import Detection

Pictures = list[list[Detection]]
LABELS = ("cell", "platelet", "white")


def box(chosen: random.Random, label: str, score: float) -> Detection:
    left, top = chosen.uniform(0, 80), chosen.uniform(0, 80)
    return Detection(label, left, top, left + chosen.uniform(4, 40), top + chosen.uniform(4, 40), score)


def shaken(chosen: random.Random, thing: Detection, by: float) -> Detection:
    edges = [edge + chosen.uniform(-by, by) for edge in thing[1:5]]
    edges[2], edges[3] = max(edges[2], edges[0] + 1), max(edges[3], edges[1] + 1)
    score = chosen.choice((0.3, 0.5, 0.9, chosen.random()))  # some are equal
    return Detection(chosen.choice((thing.label, thing.label, *LABELS)), *edges, score)


def scene(seed: int, count: int = 12, *, crowds: bool = False, many: int = 0) -> tuple[Pictures, Pictures]:
    """Answers and things; some answers are near, some nowhere, some twice."""
    chosen = random.Random(seed)
    expected = [[box(chosen, chosen.choice(LABELS), 1.0) for _ in range(chosen.randint(0, 6))] for _ in range(count)]
    if crowds:
        expected = [[thing._replace(score=float(chosen.random() > 0.3)) for thing in things] for things in expected]
    answers = [
        [shaken(chosen, thing, chosen.choice((0, 1, 4, 12))) for thing in things for _ in range(chosen.randint(0, 2))]
        + [box(chosen, chosen.choice(LABELS), chosen.random()) for _ in range(chosen.randint(0, 3) + many)]
        for things in expected
    ]
    return answers, expected


def theirs(answers: Pictures, expected: Pictures) -> tuple[float, float]:
    def sized(one: Detection) -> list[float]:
        return [one.left, one.top, one.right - one.left, one.bottom - one.top]

    boxes = [
        {
            "id": 100 * picture + number + 1, "image_id": picture, "category_id": LABELS.index(thing.label),
            "bbox": sized(thing), "area": sized(thing)[2] * sized(thing)[3], "iscrowd": int(thing.score == 0),
        }
        for picture, things in enumerate(expected) for number, thing in enumerate(things)
    ]  # fmt: skip
    found = [
        {"image_id": picture, "category_id": LABELS.index(one.label), "bbox": sized(one), "score": one.score}
        for picture, some in enumerate(answers) for one in some
    ]  # fmt: skip
    data = COCO()
    categories = [{"id": number, "name": name} for number, name in enumerate(LABELS)]
    data.dataset = {"images": [{"id": i} for i in range(len(expected))], "annotations": boxes, "categories": categories}
    with contextlib.redirect_stdout(io.StringIO()):
        data.createIndex()
        run = COCOeval(data, data.loadRes(found), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return 100 * run.stats[1], 100 * run.stats[0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("more", [{}, {"crowds": True}, {"many": 130, "count": 4}])
def test_it_equals_pycocotools(seed: int, more: dict[str, int]) -> None:
    answers, expected = scene(seed, **more)  # type: ignore[arg-type]
    ours = [score.value for score in metrics.average_precisions(answers, expected, samples=0)]
    assert ours == pytest.approx(theirs(answers, expected), abs=1e-6)
    assert ours[0] > 0


def test_the_right_answers_alone_are_perfect_and_no_answer_is_worth_nothing() -> None:
    _, expected = scene(3)
    assert [s.value for s in metrics.average_precisions(expected, expected, samples=0)] == pytest.approx([100, 100])
    nothing: Sequence[Sequence[Detection]] = [[] for _ in expected]
    assert [s.value for s in metrics.average_precisions(nothing, expected, samples=0)] == [0, 0]
    assert [s.value for s in metrics.average_precisions(expected, nothing, samples=10)] == [0, 0]


def test_the_interval_is_that_of_pictures_drawn_again() -> None:
    answers, expected = scene(5, 30)
    score = metrics.average_precisions(answers, expected, samples=30, seed=1)[0]
    generator, values = np.random.default_rng(1), []
    for _ in range(30):
        drawn = generator.integers(30, size=30)
        values.append(theirs([answers[i] for i in drawn], [expected[i] for i in drawn])[0])
    assert score.low is not None
    assert score.high is not None
    assert score.low < score.value < score.high
    bounds = np.percentile(values, (2.5, 97.5)).tolist()
    assert [score.low, score.high] == pytest.approx(bounds, abs=1.5)  # ties are ordered anew
    assert score.draws is not None
    assert len(score.draws) == 30
    assert [score.low, score.high] == np.percentile(score.draws, (2.5, 97.5)).tolist()
