"""The tutorial, followed to the letter: its python and its commands run in order in one empty folder, and print what the
page says they print, but for the numbers."""

import re
from pathlib import Path

import pytest
from docs.atlas.pages import ROOT, Done, Failed, follow, name

from tests.test_docs import LONGER

PAGE = ROOT / "docs" / "tutorial.md"


def shape(line: str) -> str:
    """A line without its numbers, and with one blank where there are several."""
    return re.sub(r"\d[\d,.]*", "#", " ".join(line.split()))


def unprinted(done: list[Done]) -> list[str]:
    """Lines that the page quotes and no step above them has printed, whatever their numbers."""
    known, missing = set[str](), list[str]()
    for each in done:
        known |= {shape(line) for line in each.printed.splitlines()}
        quoted = (line for line in each.step.quoted if line.strip("… "))
        missing += [line for line in quoted if shape(line) not in known]
    return missing


@pytest.mark.timeout(400)
def test_every_step_of_the_tutorial_works(tmp_path: Path) -> None:
    done = list(follow(PAGE, tmp_path, limit=120))
    commands = [each.step.command for each in done]
    assert all(each.printed or each.step.python or ">" in each.step.command for each in done), "each tells something"
    for verb in ("check", "train", "predict", "evaluate", "show", "average"):
        assert any(f"regard {verb} " in command for command in commands)
    assert (tmp_path / "roman.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "roman.html").stat().st_size > 5000
    assert len((tmp_path / "answers.txt").read_text().splitlines()) == 100
    assert unprinted(done) == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", LONGER, ids=name)
def test_every_step_of_the_other_tutorials_and_of_the_guides_works(page: Path, tmp_path: Path) -> None:
    assert unprinted(list(follow(page, tmp_path, limit=900))) == []


def test_a_step_that_fails_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ true\nsome output\n$ false | cat\n```\n```python\n1 / 0\n```\n")
    with pytest.raises(Failed, match=r"page.md:4: false"):
        list(follow(page, tmp_path))
    page.write_text("```console\n$ echo 3 pairs\n```\n```\n4 pairs\n5 rows\n…\n```\n")
    assert unprinted(list(follow(page, tmp_path))) == ["5 rows"]
    page.write_text("text\n```python\n1 / 0\n```\n")
    with pytest.raises(Failed, match=r"page.md:3: [\s\S]*ZeroDivisionError"):
        list(follow(page, tmp_path))
