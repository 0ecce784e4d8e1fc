"""The pages tell the truth: their python runs, their commands and links exist, their pictures are what is drawn today.

`python -m tests.test_docs` draws the pictures of docs/ anew, by running the pages' own code.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from docs.atlas.figures import unsupported
from docs.atlas.pages import ROOT, Failed, blocks, broken, looks_like, name, origin_of, prose, python_of, run_python
from packaging.version import Version
from pathspec import GitIgnoreSpec

import regard

ATLAS = sorted((ROOT / "docs" / "atlas").glob("*.md"))  # test_atlas.py runs these
LONGER = sorted(page for folder in ("tutorials", "guides") for page in (ROOT / "docs" / folder).glob("*.md"))
FOLLOWED = [ROOT / "docs" / "tutorial.md", *LONGER]  # test_tutorial.py runs their commands and python in turn
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted({*(ROOT / "docs").rglob("*.md")} - {*ATLAS})]
RUN = [page for page in PAGES if page not in FOLLOWED and python_of(page.read_text(encoding="utf-8"))]
LINKED = [*PAGES, *ATLAS, ROOT / "CHANGELOG.md"]
SHELLS = ("console", "bash", "sh", "shell")


def report(page: Path, faults: list[str]) -> None:
    if faults:
        pytest.fail("\n".join(f"{name(page)}, {fault}" for fault in faults), pytrace=False)


every_run_page = pytest.mark.parametrize("page", RUN, ids=name)
every_linked_page = pytest.mark.parametrize("page", LINKED, ids=name)


# ---- python -------------------------------------------------------------------------------------------------------


def run_page(page: Path, folder: Path) -> str:
    return run_python(page, tuple(python_of(page.read_text(encoding="utf-8"))), folder, 240)[0]


@every_run_page
def test_python_runs_from_top_to_bottom_and_draws_the_pictures_shown(page: Path, tmp_path: Path) -> None:
    try:
        run_page(page, tmp_path)
    except Failed as fault:
        pytest.fail(str(fault), pytrace=False)
    for drawn in sorted(tmp_path.glob("pictures/*.png")):
        shown = page.parent / "pictures" / drawn.name
        assert looks_like(shown, drawn), f"{name(shown)} is not what {name(page)} draws: python -m tests.test_docs"


def draw_again() -> None:
    for page in RUN:
        with tempfile.TemporaryDirectory() as folder:
            try:
                run_page(page, Path(folder))
            except Failed as fault:
                sys.exit(str(fault))
            for drawn in Path(folder).glob("pictures/*.png"):
                print(shutil.copy(drawn, page.parent / "pictures"))


# ---- commands -----------------------------------------------------------------------------------------------------


def commands(page: str) -> list[tuple[int, str]]:
    """(line, command) of every shell block, and of every `make …` and `regard …` written within a line."""
    found = []
    for block in blocks(page):
        if block.info.split(" ")[0] in SHELLS:
            lines = list(enumerate(block.text.splitlines(), block.line))
            prompted = [(n, line.strip()[2:]) for n, line in lines if line.strip().startswith("$ ")]
            found += prompted or lines
    for number, line in enumerate(prose(page).splitlines(), 1):
        found += [(number, inline) for inline in re.findall(r"`((?:make|regard) [^`]+)`", line)]
    return found


def unknown(page: str, targets: set[str], helped: Callable[[str], str | None] | None) -> list[str]:
    """Return what the page's commands name that does not exist. `helped(command)` is its help, or None if there is none."""
    faults = []
    for number, line in commands(page):
        for part in re.split(r"&&|[|;]", re.sub(r"(^|\s)#.*", "", line)):
            words = re.sub(r"^\s*(\w+=\S+\s+)*", "", part).split()
            if words[:1] == ["make"]:
                wanted = [w for w in words[1:] if re.fullmatch(r"[a-z][\w-]*", w)]
                faults += [f"line {number}: the Makefile has no target '{w}'" for w in wanted if w not in targets]
            elif words[:1] == ["regard"] and helped and words[1:] and re.fullmatch(r"[a-z][\w-]*", words[1]):
                text = helped(words[1])
                if text is None:
                    faults.append(f"line {number}: regard has no command '{words[1]}'")
                    continue
                options = [m[0] for w in words[2:] if (m := re.match(r"--[a-z][\w-]*", w))]
                missing = [o for o in options if not re.search(rf"(?<![\w-]){o}(?![\w-])", text)]
                faults += [f"line {number}: regard {words[1]} has no option {o}" for o in missing]
    return faults


@cache
def help_of(command: str) -> str | None:
    code = "import sys; from regard.commands.app import main; sys.argv[0] = 'regard'; main()"
    plain = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200", "TERMINAL_WIDTH": "200"}
    asked = [sys.executable, "-c", code, command, "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, env=plain, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else None


@every_linked_page
def test_commands_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+)\s*:(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    helped = help_of if find_spec("regard.commands.app") else None
    report(page, unknown(page.read_text(encoding="utf-8"), targets, helped))


# ---- links --------------------------------------------------------------------------------------------------------


@every_linked_page
def test_links_and_pictures_lead_somewhere(page: Path) -> None:
    report(page, broken(page, ROOT))


def test_key_figures_stand_where_they_link() -> None:
    page = ROOT / "README.md"
    rows = page.read_text(encoding="utf-8").partition("| measured")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) > 4
    assert {row: missing for row in rows if (missing := unsupported(row, page))} == {}


# ---- pictures -----------------------------------------------------------------------------------------------------


def undrawn(software: str, command: str, picture: str) -> str | None:
    """Return what is wrong with what a picture says of itself: a version up to this one, and a page, a script of
    benchmarks/ or recipes/, or a command that exists."""
    version = re.fullmatch(r"Regard (\d+\.\d+\.\d+)", software)
    if not version or Version(version[1]) > Version(regard.__version__):
        return f"it was drawn by '{software}', expected Regard and a version up to {regard.__version__}"
    if command.endswith(".md"):
        held = (ROOT / command).is_file() and picture in (ROOT / command).read_text(encoding="utf-8")
        return None if held else f"'{command}' is no page that draws it"
    if command.endswith(".py"):
        known = {path.name for folder in ("benchmarks", "recipes") for path in (ROOT / folder).glob("*.py")}
        return None if Path(command).name in known else f"there is no script '{command}'"
    if not command.startswith("regard "):
        return f"'{command}' is no command"
    return next(iter(unknown(f"```sh\n{command}\n```", set(), help_of)), None)


def test_pictures_say_what_drew_them() -> None:
    pictures = [path for kind in ("png", "svg") for path in sorted((ROOT / "docs").rglob(f"pictures/*.{kind}"))]
    assert len(pictures) > 20
    found = {name(path): undrawn(*origin_of(path), path.name) for path in pictures}
    assert {path: fault for path, fault in found.items() if fault} == {}


@pytest.mark.parametrize(
    ("software", "command", "fault"),
    [
        ("Regard 0.1.0", "docs/positions.md", None),
        ("Regard 0.1.0", "regard show runs/x -o masks.png", None),
        ("Regard 0.1.0", "lengths.py", None),
        ("Matplotlib 3.11", "docs/positions.md", "drawn by 'Matplotlib 3.11'"),
        ("Regard 99.0.0", "docs/positions.md", "drawn by 'Regard 99.0.0'"),
        ("Regard 0.1.0", "docs/graphs.md", "no page that draws it"),
        ("Regard 0.1.0", "absent.py", "no script 'absent.py'"),
        ("Regard 0.1.0", "regard show runs/x --flying", "no option --flying"),
        ("Regard 0.1.0", "python", "'python' is no command"),
    ],
)
def test_what_a_picture_says_of_itself_is_checked(software: str, command: str, fault: str | None) -> None:
    found = undrawn(software, command, "masks.png")
    assert found is None if fault is None else found is not None and fault in found


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("CITATION.cff", r"^version: (\S+)\ndate-released: (\S+)$"),
        ("CHANGELOG.md", r"^## (\d[\d.]+\d) \((\d{4}-\d\d-\d\d)\)$"),
    ],
)
def test_citation_and_changelog_are_of_this_version_and_day(file: str, line: str) -> None:
    newest = re.search(line, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == regard.__version__
    assert f"\n## {newest[1]} ({newest[2]})\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no list of the project's files")
def test_the_source_archive_has_every_file() -> None:
    """What the soak test of the package shows by building it; the builder adds two more by itself."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    named = GitIgnoreSpec.from_lines(build["targets"]["sdist"]["include"])
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    left = {path for path in listed if not path.startswith(".ci/") and not named.match_file(path)}
    assert left <= {"pyproject.toml", ".gitignore"}


# ---- the checks themselves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("x = 1\n```\ntext\n```python\nassert x == 2", "page.md:6: AssertionError"),
        ("def f():\n    return 1 / 0\nf()", "page.md:3: ZeroDivisionError"),
        ("x = (", "page.md:2: SyntaxError"),
        ("import sys\nsys.exit(0)", "it ended before its last block"),
    ],
)
def test_a_page_that_fails_is_named_with_its_line(code: str, where: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```python\n{code}\n```\n")
    with pytest.raises(Failed, match=re.escape(where)):
        run_page(page, tmp_path)


@pytest.mark.parametrize("info", ["python no-run", "py", "Python", "python {.skip}", "pycon"])
def test_no_python_block_escapes(info: str) -> None:
    with pytest.raises(AssertionError, match="line 2: write ```python alone"):
        python_of(f"\n```{info}\nx = 1\n```\n")
    with pytest.raises(AssertionError, match="never closed"):
        blocks("```python\nx = 1\n")


def test_unknown_commands_targets_and_options_are_named() -> None:
    helps = {"train": "Usage: regard train [OPTIONS]\n --minutes-each FLOAT  --set TEXT"}
    page = """
Type `make nothing` or `make test`, or `regard fly`.
```console
$ regard train a.tsv --set x=1 --minutes 2
regard is what this line of output begins with
$ make test && regard train b.tsv | regard dance
$ PYTHON=python3 make -j 2 test coffee # make tea
```
```bash
make test unmade
regard --help
```
"""
    assert unknown(page, {"test"}, helps.get) == [
        "line 4: regard train has no option --minutes",
        "line 6: regard has no command 'dance'",
        "line 7: the Makefile has no target 'coffee'",
        "line 10: the Makefile has no target 'unmade'",
        "line 2: the Makefile has no target 'nothing'",
        "line 2: regard has no command 'fly'",
    ]
    assert len(unknown(page, {"test"}, None)) == 3


def test_broken_links_are_named(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text(
        '# A *great* `day`: 1–2\n## Twice\n## Twice\n<a id="here"></a>\n```\n# no\n```\n'
    )
    page = tmp_path / "page.md"
    fine = (
        "[a](other.md) [b](other.md#a-great-day-12) [c](other.md#twice-1) [d](other.md#here) [e](#f) [g](other.md#L3)"
    )
    page.write_text(f"# f\n{fine} ![x](https://example.org/x.png) `[in](code)`\n```\n[in](block)\n```\n")
    assert not broken(page, tmp_path)
    page.write_text(
        '[a](missing.md)\n![p](p.png "title") and [b](other.md#thrice)\n<img src="q.png">\n[r]: gone.md\n[s](../x)\n[n](other.md#no)\n[l](other.md#L99)\n'
    )
    assert broken(page, tmp_path) == [
        "line 1: there is no file missing.md",
        "line 2: there is no file p.png",
        "line 2: other.md has no place #thrice",
        "line 3: there is no file q.png",
        "line 4: there is no file gone.md",
        "line 5: there is no file ../x",
        "line 6: other.md has no place #no",
        "line 7: other.md has no place #L99",
    ]


if __name__ == "__main__":
    draw_again()
