"""Feature-based training: only the head learns (Devlin et al. 2019, 5.3)."""

import random
from pathlib import Path

import torch

import regard
from tests import test_matrix as matrix

SET = [*matrix.SET, "model.kind=transformer", "model.heads=2", "model.hidden=16", "training.every=3"]


def test_frozen_weights_stay_as_the_other_run_left_them_and_the_head_learns(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text(matrix.labels(random.Random(1)), encoding="utf-8")
    first = regard.train(path, tmp_path / "first", steps=3, set=SET, quiet=True)
    how = ["training.every=3", "training.budget=300", "training.frozen=true", "training.average=1"]
    second = regard.train(path, tmp_path / "second", start=tmp_path / "first", steps=6, set=how, quiet=True)
    before, after = (dict(model.network.named_parameters()) for model in (first, second))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.startswith("head.") for name in changed)
