"""FLOATER's three wishes for positions, measured on the networks of a comparison."""

from pathlib import Path

from regard.comparison import report
from regard.comparison.compare import _configs
from regard.comparison.variants import every_combination
from regard.comparison.wishes import wishes_of
from tests.comparison.test_compare import asked

SMALL = ["model.kind=transformer", "model.heads=2", "model.hidden=16", "model.layers=1"]
TOLD = {
    "sinusoidal": [True, False, True, 0],
    "learned": [False, True, False, 16 * (4 + 2)],  # sources of up to 4 elements, and two more
    "rotary": [True, False, True, 0],
    "alibi": [True, False, True, 0],
    "t5": [True, True, True, 32 * 2],  # buckets, heads
    "shaw": [True, True, True, 2 * (2 * 16 + 1) * 8],  # keys and values, distances of up to 16, a head of 8
    "floater": [True, True, True, None],
}


def test_each_kind_fulfils_the_wishes_of_the_published_table(tmp_path: Path) -> None:
    """Longer sources are read by all but the table, which alone grows with them; sinusoids and rotations learn nothing."""
    variants = every_combination([f"model.position={','.join(TOLD)}", *(f"{change}" for change in SMALL)])
    configs = [config for _, config in _configs(asked(tmp_path, variants, lengths=(4, 8)), lambda _: None)]
    for kind, found in zip(TOLD, wishes_of(configs), strict=False):
        assert found is not None
        *told, weights = found.values()
        assert told == TOLD[kind][:3], kind
        assert weights == TOLD[kind][3] or (kind == "floater" and weights > 0), kind
    assert wishes_of(configs[:1]) == [None]  # positions do not differ
    assert wishes_of([configs[0], configs[-1]]) == [None, None]  # nor do they where another kind has none


def test_they_stand_beside_the_measured_lengths() -> None:
    wishes = {"inductive": True, "data-driven": False, "parameter-efficient": True, "weights": 1200}
    row = {"name": "alibi", "lengths": {"8": 1.5, "16": None}, "excluded": None, "wishes": wishes}
    facts = {"metric": {"label": "perplexity", "higher_is_better": False, "unit": ""}, "rows": [row]}
    heads, _, line = report.by_key(facts, "lengths", "length").splitlines()
    assert (
        heads
        == "| perplexity ↓ by length | inductive | data-driven | parameter-efficient | weights | 8 (1×) | 16 (2×) |"
    )
    assert line == "| alibi | ✓ | ✗ | ✓ | 1,200 | 1.500 | cannot |"
