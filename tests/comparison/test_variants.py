from pathlib import Path

import pytest

from regard.comparison.variants import every_combination, named
from regard.errors import UserError


def test_every_combination_the_first_is_the_baseline() -> None:
    found = every_combination(["model.attention=full,linear", "model.layers=1,2"])
    assert [variant.name for variant in found] == [
        "full layers=1",
        "full layers=2",
        "linear layers=1",
        "linear layers=2",
    ]
    assert found[3].changes == ("model.attention=linear", "model.layers=2")
    assert found[0].slug == "full-layers=1"
    assert [each.name for each in every_combination(["model.position=t5,none"])] == ["t5", "position=none"]


def test_commas_in_brackets_are_part_of_a_value() -> None:
    found = every_combination(["model.window=[4,4],[8,8]"])
    assert [variant.changes for variant in found] == [("model.window=[4,4]",), ("model.window=[8,8]",)]


def test_named_variants_are_nested_or_flat(tmp_path: Path) -> None:
    path = tmp_path / "variants.yaml"
    path.write_text("small: {model.width: 8}\nlarge:\n  model: {width: 32, layers: 2}\n  training.rate: 0.001\n")
    small, large = named(path)
    assert (small.name, small.changes) == ("small", ("model.width=8",))
    assert large.changes == ("model.width=32", "model.layers=2", "training.rate=0.001")


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        (["model.attention"], "expected key=a,b,c"),
        (["model.attention="], "value 1 of 1 is empty"),
        (["model.attention=full,,linear"], "value 2 of 3 is empty"),
        (["model.attention=full"], "at least two variants"),
        (["a.b=1,2", "a.b=3,4"], "given twice"),
        (["model.attention=full,full"], "two variants are called 'full'"),
    ],
)
def test_what_cannot_be_compared_is_refused(vary: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        every_combination(vary)


def test_an_empty_variant_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "variants.yaml"
    path.write_text("one: {model.width: 8}\ntwo: {}\n")
    with pytest.raises(UserError, match="the variant 'two' is empty"):
        named(path)
    path.write_text("")
    with pytest.raises(UserError, match=r"holds no settings: expected named variants, such as `full: \{model"):
        named(path)
