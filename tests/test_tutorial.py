"""The tutorial, followed to the letter: its python and its commands run in order in one empty folder, and print what the
page says they print, but for the numbers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "tutorial.md"


def steps(page: str) -> list[tuple[int, list[str]]]:
    """(line, command) of every python block and of every line that begins with `$ `, in the page's order."""
    found: list[tuple[int, list[str]]] = []
    for block in blocks(page):
        if block.info == "python":
            found.append((block.line, [sys.executable, "-c", block.text]))
        elif block.info == "console":
            lines = enumerate(block.text.splitlines(), block.line)
            found += [(n, ["bash", "-o", "pipefail", "-c", line[2:]]) for n, line in lines if line.startswith("$ ")]
    return found


def follow(page: Path, folder: Path) -> dict[int, str]:
    """What every step printed, by its line; the first that fails ends it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    environment.pop("REGARD_DEBUG", None)
    printed = {}
    for line, command in steps(page.read_text(encoding="utf-8")):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            pytest.fail(f"{page.name}:{line}: {command[-1]}\nexit {done.returncode}: {done.stderr}", pytrace=False)
        printed[line] = done.stdout + done.stderr
    return printed


def shape(line: str) -> str:
    """A line without its numbers, and with one blank where there are several."""
    return re.sub(r"\d[\d,.]*", "#", " ".join(line.split()))


def unprinted(page: Path, printed: dict[int, str]) -> list[str]:
    """Lines that the page quotes and no command above them has printed."""
    said: list[str] = []
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.info in ("python", "console"):
            continue
        known = {shape(line) for at, text in printed.items() if at < block.line for line in text.splitlines()}
        quoted = (line for line in block.text.splitlines() if line.strip("… "))
        said += [f"{page.name}: {line}" for line in quoted if shape(line) not in known]
    return said


@pytest.mark.timeout(400)
def test_every_step_of_the_tutorial_works(tmp_path: Path) -> None:
    printed = follow(PAGE, tmp_path)
    commands = {line: command[-1] for line, command in steps(PAGE.read_text(encoding="utf-8"))}
    assert all(printed[line] or ">" in text or "write" in text for line, text in commands.items()), (
        "each tells something"
    )
    for name in ("check", "train", "predict", "evaluate", "show", "average"):
        assert any(f"regard {name} " in text for text in commands.values())
    assert (tmp_path / "roman.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "roman.html").stat().st_size > 5000
    assert len((tmp_path / "answers.txt").read_text().splitlines()) == 100
    assert unprinted(PAGE, printed) == []


def test_a_step_that_fails_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ true\nsome output\n$ false | cat\n```\n```python\n1 / 0\n```\n")
    with pytest.raises(pytest.fail.Exception, match=r"page.md:4: false"):
        follow(page, tmp_path)
    page.write_text("```console\n$ echo 3 pairs\n```\n```\n4 pairs\n5 rows\n…\n```\n")
    assert unprinted(page, follow(page, tmp_path)) == ["page.md: 5 rows"]
    page.write_text("text\n```python\n1 / 0\n```\n")
    with pytest.raises(pytest.fail.Exception, match=r"page.md:3: [\s\S]*ZeroDivisionError"):
        follow(page, tmp_path)
