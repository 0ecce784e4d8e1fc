"""The conclusion of a comparison, in one sentence."""

import pytest

from regard.comparison.table import Row, conclusion
from regard.comparison.verdicts import BETTER, OPEN, WORSE, Verdict


def row(name: str, word: str | None, speeds: list[float], *, simple: bool = False) -> Row:
    verdict = None if word is None else Verdict(-2.0, None, None, word)
    return Row(name, simple, [90.0], 90.0, None, verdict, speeds=speeds)


BASE = row("full", None, [100, 110, 120])


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ([50, 55, 52], " and answers 2.1× as slowly"),
        ([300, 400, 350], " and answers 3.2× as fast"),
        ([90, 400, 350], ""),  # one seed was not faster
        ([121, 122, 123], ""),  # hardly
        ([], ""),
    ],
)
def test_speed_is_told_where_it_holds_with_every_seed(speeds: list[float], said: str) -> None:
    assert conclusion([BASE, row("local", WORSE, speeds)], "accuracy") == (
        f"In accuracy, compared with full: local is 2 worse{said}."
    )


def test_what_is_alike_and_what_simple_baselines_beat_is_said() -> None:
    rows = [BASE, row("local", OPEN, []), row("window", BETTER, [], simple=True)]
    assert conclusion(rows, "accuracy") == (
        "local cannot be told apart from full in accuracy; the simple baseline window beats full."
    )
    rows = [BASE, *(row(name, OPEN, []) for name in ("local", "linear", "bigbird"))]
    assert conclusion(rows, "loss") == "local, linear and bigbird cannot be told apart from full in loss."
    assert conclusion([BASE], "accuracy").startswith("Nothing can be compared with full: there is no metric")
