"""The long versions: every moment of a run, a thousand damaged bits, a hundred thousand mutated files. `make soak`."""

import random
import shutil
import signal
from pathlib import Path

import pytest

import regard
from regard import config
from tests import torture
from tests.conftest import write_pairs

pytestmark = [pytest.mark.soak, pytest.mark.timeout(36_000)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("soak")
    pairs = write_pairs(folder / "pairs.tsv", 300, longest=4)
    torture._end(pairs, folder / "first")  # the children inherit the modules it has loaded
    assert torture.forked(lambda: torture._end(pairs, folder / "whole")) == 0
    return folder


def test_killed_at_any_moment_it_comes_to_the_same_end(place: Path) -> None:
    """At every moment of a save with all that belongs to it, and at sixty others: before steps, before system calls
    that change the run, and in the middle of writes."""
    pairs, expected = place / "pairs.tsv", torture.outcome(place / "whole")
    names = torture.moments(pairs, place / "counted", place / "moments")
    assert torture.outcome(place / "counted") == expected
    failed = []
    others = random.Random(0).sample(range(1, len(names) + 1), 60)
    chosen = sorted({*range(names.index("step 20") + 1, names.index("step 21") + 1), *others})
    for moment in chosen:
        name, run = names[moment - 1], place / f"killed-{moment}"
        try:
            torture.survives(pairs, run, [moment], expected)
        except Exception as error:
            failed.append(f"{moment} ({name}): {type(error).__name__}: {str(error)[:300]}")
        shutil.rmtree(run)
    print(f"\n{len(chosen)} kills among {len(names)} moments, {len(failed)} failures")
    assert len(chosen) > 100
    assert not failed, "\n".join(failed[:20])


def test_killed_again_and_again(place: Path) -> None:
    """Ten runs with six kills each, at random."""
    pairs, expected, generator = place / "pairs.tsv", torture.outcome(place / "whole"), random.Random(1)
    kills = 0
    for number in range(10):
        run = place / f"again-{number}"
        for _ in range(6):
            kills += torture.killed(pairs, run, generator.randrange(1, 150)) == -signal.SIGKILL
        torture.survives(pairs, run, [], expected)
        shutil.rmtree(run)
    print(f"\n{kills} kills")
    assert kills > 30


def test_a_thousand_flipped_bits_and_truncations(place: Path) -> None:
    run, generator = place / "whole", random.Random(2)
    changes = [torture.flip] * 1000 + [torture.truncate] * 20
    silent = []
    for change in changes:
        path = generator.choice(torture.files_of(run))
        found = torture.unreported(run, path, change(path.read_bytes(), generator))
        silent += [found] if found else []
    print(f"\n{len(changes)} damages, {len(silent)} not reported")
    assert not silent


def test_a_hundred_thousand_mutated_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = place / "mutated"
    shutil.copytree(place / "whole", run, ignore=shutil.ignore_patterns("state", "cache", "checkpoints"))
    regard.load(run).predict(["abc"])
    mutations = torture.Mutations(run, seed=3)
    path = run / "config.yaml"
    read, parsed, whole = config.parse, config.parse(path), path.read_bytes()
    # The settings are read anew only when they were changed: the same file need not be parsed 80,000 times.
    monkeypatch.setattr(config, "parse", lambda path: parsed if path.read_bytes() == whole else read(path))
    before = torture.resident("VmRSS")
    for number in range(1, 100_001):
        mutations.once()
        if number % 5_000 == 0:
            print(f"{number:,} mutations, {len(mutations.faults)} faults {mutations.faults[-1:]}", flush=True)
    grown = torture.resident("VmRSS") - before
    print(
        f"\n{mutations.refused:,} refused, {mutations.accepted:,} harmless with fitting sums, slowest {mutations.slowest:.2f} s, "
        f"largest {mutations.largest / 1e6:.0f} MB, {grown / 1e6:.0f} MB more at the end, {len(mutations.faults)} faults"
    )
    assert not mutations.faults, "\n".join(mutations.faults[:10])
    assert grown < 512e6
