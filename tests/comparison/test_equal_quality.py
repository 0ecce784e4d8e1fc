"""Parameters at equal quality: interpolated between the widths that were trained."""

from typing import Any

import pytest

from regard.comparison.equal_quality import at_equal_quality, parameters_at, sentences


def row(name: str, parameters: float, quality: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "simple": False,
        "excluded": None,
        "quality": quality,
        "costs": {"parameters": parameters},
    } | more


def facts(*rows: dict[str, Any], higher: bool = False) -> dict[str, Any]:
    return {"rows": rows, "metric": {"label": "errors", "higher_is_better": higher}}


ROWS = (
    row("transformer width=16", 10_000, 60.0),
    row("transformer width=32", 40_000, 40.0),
    row("transformer width=64", 160_000, 20.0),
    row("recurrent width=16", 20_000, 50.0),
    row("recurrent width=32", 80_000, 30.0),
    row("window", 100, 0.0, simple=True),
    row("other width=8", 1.0, 0.0, excluded="padding"),
)


def test_each_kind_needs_so_many_parameters_for_what_both_reach() -> None:
    found = at_equal_quality(facts(*ROWS))
    assert found is not None
    assert found[0] == 30  # the best of the kind that is worse at its best
    assert found[1] == {"recurrent": pytest.approx(80_000), "transformer": pytest.approx(80_000)}  # √(40,000 · 160,000)
    assert [*sentences(facts(*ROWS))] == [
        "Parameters at equal quality, errors 30, between the widths that were trained: transformer 80,000, "
        "recurrent 80,000."
    ]


def test_higher_may_be_better() -> None:
    found = at_equal_quality(facts(*ROWS, higher=True))
    assert found == (50, {"transformer": 10_000, "recurrent": 20_000})


def test_nothing_is_said_without_two_kinds_of_two_widths() -> None:
    assert at_equal_quality(facts(*ROWS[:3])) is None
    assert at_equal_quality(facts(*ROWS[:4])) is None
    assert not [*sentences(facts(ROWS[0], ROWS[3]))]
    assert at_equal_quality({"rows": [], "metric": None}) is None


def test_the_line_is_one_over_the_logarithm_of_the_size() -> None:
    points = [(100.0, 0.0), (10_000.0, 1.0)]
    assert parameters_at(0.5, points) == pytest.approx(1000)
    assert parameters_at(-1, points) == 100
    with pytest.raises(ValueError, match="no size reaches 2"):
        parameters_at(2, points)
