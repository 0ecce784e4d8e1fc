"""A corpus larger than the memory there is trains: under a limit of the system's, beside a control that dies of it."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests import corpora

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(36_000),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is Linux's"),
]


def test_a_corpus_larger_than_memory_trains(tmp_path: Path) -> None:
    """Memory is limited to what a small corpus needs, and a quarter of the large corpus more."""
    small, large = (corpora.write_corpus(tmp_path / str(pairs), pairs, 25) for pairs in (20_000, 1_200_000))
    text = (large.parent / "train.tsv").stat().st_size
    before, _ = corpora.train(small)
    allowed = text // 4
    after, said = corpora.train(large, before["VmData"] + allowed)
    grown = after["RssAnon"] - before["RssAnon"]
    print(
        f"\n{text / 1e6:.0f} MB of text, {corpora.size_of(large) / 1e6:.0f} MB with its tokens; allowed {allowed / 1e6:.0f} MB "
        f"more than a small corpus needs ({before['RssAnon'] / 1e6:.0f} MB), took {grown / 1e6:.0f} MB"
    )
    assert "peak memory" in said
    assert text > 350e6
    assert grown < allowed
    # The control: whoever holds the lines in memory does not get through with all that a training may have.
    limit = before["VmData"] + allowed
    held = [
        sys.executable,
        "-c",
        f"lines = open({str(large.parent / 'train.tsv')!r}).readlines(); lines += [*map(str.split, lines)]",
    ]
    control = subprocess.run(
        held,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )
    assert "MemoryError" in control.stderr
