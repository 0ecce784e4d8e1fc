"""Comparisons whose truth is known: of a variant with itself, and ones that are killed again and again."""

from pathlib import Path

import pytest

from regard.comparison.compare import Budget, compare
from regard.comparison.variants import Variant
from tests.comparison.test_compare import asked, facts_of, killed_and_continued, qualities

pytestmark = pytest.mark.soak


@pytest.mark.timeout(3600)
def test_of_20_comparisons_of_a_variant_with_itself_at_most_3_give_a_verdict(tmp_path: Path) -> None:
    told = 0
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        seeds = (1000 * number + 1, 1000 * number + 501)
        variants = [
            Variant(f"seeds {seed}", ("model.kind=deepsets", "training.rate=0.003", f"training.seed={seed}"))
            for seed in seeds
        ]
        rows = compare(asked(folder, variants, budget=Budget(steps=12)), lambda _: None)["rows"]
        told += rows[1]["verdict"]["word"] != "not distinguishable"
    assert told <= 3


@pytest.mark.timeout(3600)
def test_a_comparison_killed_ten_times_ends_with_the_same_quality(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = killed_and_continued(tmp_path / "whole", 0)
    killed = killed_and_continued(tmp_path / "killed", 10)
    assert qualities(killed) == qualities(whole)
    assert facts_of(killed)["metric"] == facts_of(whole)["metric"]
