"""The package: wheel and source archive install where there is no repository, and everything works from them."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.test_docs import ROOT

pytestmark = pytest.mark.soak


def run(*command: object, folder: Path) -> str:
    """Return what a command prints in a folder, without this project's sources on the path."""
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=plain, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def packed(archive: Path) -> set[str]:
    with tarfile.open(archive) as opened:
        return {name.partition("/")[2] for name in opened.getnames()}


def tracked() -> set[str]:
    """The files of the project; data, runs and installed peers are not among them."""
    return {name for name in run("git", "ls-files", folder=ROOT).splitlines() if not name.startswith(".ci/")}


@pytest.mark.timeout(3600)
def test_installs_and_works_without_the_repository(tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "builder", folder=tmp_path)
    run(tmp_path / "builder/bin/pip", "install", "-q", "hatchling", folder=tmp_path)
    run(tmp_path / "builder/bin/hatchling", "build", "-d", tmp_path / "dist", folder=ROOT)
    (wheel,), (archive,) = (tmp_path / "dist").glob("*.whl"), (tmp_path / "dist").glob("*.tar.gz")
    assert packed(archive) == tracked() | {"PKG-INFO"}

    run(sys.executable, "-m", "venv", tmp_path / "clean", folder=tmp_path)
    pip, regard = tmp_path / "clean/bin/pip", tmp_path / "clean/bin/regard"
    run(pip, "install", "-q", "-c", ROOT / "constraints.txt", wheel, folder=tmp_path)
    work(regard, tmp_path / "from-wheel")
    run(pip, "install", "-q", "--force-reinstall", "--no-deps", archive, folder=tmp_path)
    work(regard, tmp_path / "from-archive")


def work(regard: Path, folder: Path) -> None:
    """Train, answer and draw with an installed command."""
    folder.mkdir()
    assert "communities" in run(regard, "demo", "--help", folder=folder)
    pairs = (f"{a}{b}{c}\t{a}{b}{c}\n" for a in "abcdef" for b in "abcdef" for c in "abcdef")
    (folder / "pairs.tsv").write_text("".join(pairs))
    run(regard, "train", "pairs.tsv", "-o", "runs/pairs", "--steps", 20, "--set", "model.width=32", folder=folder)
    assert run(regard, "predict", "runs/pairs", "abc", folder=folder).endswith("\n")
    for name in ("look.png", "look.html"):
        run(regard, "show", "runs/pairs", "abc", "-o", name, folder=folder)
        assert (folder / name).stat().st_size > 5000
