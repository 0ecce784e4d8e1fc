"""Architectures, and the changes that they commute with (catalogue C25)."""

from regard.comparison.symmetries import SAME, as_table, symmetries

PIXELS = {"translation", "rotation by 90°"}
ALL = {*PIXELS, "permutation of elements", "permutation of nodes and edges"}
EXPECTED = {
    "perceptron": set[str](),
    "CNN": {"translation"},
    "group CNN (p4)": {"translation", "rotation by 90°"},
    "DeepSets": ALL,
    "Transformer without positions": ALL,
    # Moving or turning a periodic grid maps neighbours to neighbours.
    "graph network": {*PIXELS, "permutation of nodes and edges"},
    "intrinsic CNN": {*PIXELS, "permutation of nodes and edges", "choice of local frames"},
}


def test_each_architecture_commutes_with_its_changes_and_no_others() -> None:
    found = symmetries()
    assert {name: {change for change, value in row.items() if value < SAME} for name, row in found.items()} == EXPECTED
    assert all(value > 0.01 for row in found.values() for value in row.values() if value >= SAME)


def test_the_table_ticks_what_holds() -> None:
    assert "| CNN | ✓ (0e+00) | 0.50 |" in as_table({"CNN": {"translation": 0.0, "rotation": 0.5}})
