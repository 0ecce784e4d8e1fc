"""The table "row → page, code, test, command, picture, result", from the front matter of the pages.

`python -m docs.atlas.catalogue` writes index.md and fails unless each row has its page and each cell leads somewhere.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from docs.atlas.figures import measured, unsupported
from docs.atlas.pages import ROOT, anchored, blocks, links, name
from docs.atlas.source import MARKER, expand, lines_of, names_of

FOLDER = Path(__file__).resolve().parent
GROUPS = {
    "A": ("The mechanism", 12),
    "B": ("Positions", 8),
    "C": ("Systems", 27),
    "D": ("Tasks", 7),
    "E": ("What people look at", 9),
}
ROWS = [f"{group}{number}" for group, (_, count) in GROUPS.items() for number in range(1, count + 1)]
CELLS = ("code", "test", "command", "picture", "result")
LONGEST = 60  # lines of a page below its front matter
REASONS = {
    "exact": "an identity, which a test checks to rounding: there is no score to report",
    "definition": "a definition or a worked number: there is nothing to measure on data",
    "text": "what comes out is text or a table: there is nothing to draw",
}


@dataclass(frozen=True)
class Entry:
    """A page and its front matter; every cell is a list."""

    page: Path
    row: str
    title: str
    paper: str
    cells: dict[str, list[str]]

    @property
    def text(self) -> str:
        return self.page.read_text(encoding="utf-8")


def pages() -> list[Path]:
    """Return the pages in the order of their rows."""
    return sorted(FOLDER.glob("[a-e]*-*.md"), key=lambda page: (page.name[0], int(page.name[1:].partition("-")[0])))


def entry(page: Path) -> Entry:
    """Read the front matter of a page."""
    parts = page.read_text(encoding="utf-8").split("---\n", 2)
    if len(parts) < 3 or parts[0]:
        raise ValueError(f"{name(page)}: expected front matter between two lines of three hyphens at its top")
    try:
        found: dict[str, Any] = yaml.safe_load(parts[1]) or {}
    except yaml.YAMLError as fault:
        raise ValueError(f"{name(page)}: the front matter is no YAML ({' '.join(str(fault).split())})") from fault
    missing = [key for key in ("row", "title", "paper", *CELLS) if not found.get(key)]
    if missing:
        raise ValueError(f"{name(page)}: the front matter lacks {', '.join(missing)}")
    cells = {
        key: [str(each) for each in (found[key] if isinstance(found[key], list) else [found[key]])] for key in CELLS
    }
    return Entry(page, str(found["row"]), str(found["title"]), str(found["paper"]), cells)


# ---- what is wrong ------------------------------------------------------------------------------------------------


def missing(entries: list[Entry]) -> list[str]:
    """Return a sentence for each row without a page, and for each that has two."""
    rows = [each.row for each in entries]
    without = [f"row {row} has no page" for row in ROWS if row not in rows]
    return without + [f"row {row}: {rows.count(row)} pages" for row in sorted(set(rows)) if rows.count(row) > 1]


def faults(each: Entry) -> list[str]:
    """Return a sentence for each thing that is wrong with a page."""
    found = [*_form(each)]
    for key, cells in each.cells.items():
        for cell in cells:
            fault = _reason(cell) if cell.startswith("n/a") else CHECKS[key](each, cell)
            found += [f"{key}: {fault}"] if fault else []
    return [f"{name(each.page)}: {fault}" for fault in found]


def _form(each: Entry) -> Iterator[str]:
    if not each.page.name.startswith(f"{each.row.lower()}-"):
        yield f"row {each.row} does not begin the file's name"
    if each.row not in ROWS:
        known = ", ".join(f"{group}1 to {group}{count}" for group, (_, count) in GROUPS.items())
        yield f"row {each.row}: expected one of {known}"
    if f"\n# {each.row}. {each.title}\n" not in each.text:
        yield f"expected the heading '# {each.row}. {each.title}'"
    if (count := len(each.text.split("---\n", 2)[2].splitlines())) > LONGEST:
        yield f"{count} lines, at most {LONGEST} were expected"
    shown = {f"{found[1]} {each_name}" for found in MARKER.finditer(each.text) for each_name in names_of(found[2])}
    if not shown and not each.cells["code"][0].startswith("n/a"):
        yield "no line of the source is shown: expected a line such as <!-- source: src/regard/… Name -->"
    for figure in unsupported(measured(each.text), each.page):
        yield f"'{figure}' under Measured stands in none of the sections that are linked there"
    try:
        expand(each.text)
    except ValueError as fault:
        yield str(fault)


def _reason(cell: str) -> str | None:
    key = cell.removeprefix("n/a").lstrip(": ")
    return None if key in REASONS else f"'{cell}' has no known reason: expected 'n/a: ' and one of {', '.join(REASONS)}"


def _code(each: Entry, cell: str) -> str | None:  # noqa: ARG001
    file, _, inside = cell.partition(" ")
    try:
        lines_of(file, inside)
    except ValueError as fault:
        return str(fault)
    return None


def _test(each: Entry, cell: str) -> str | None:
    file, _, inside = cell.partition("::")
    if not inside.split("::")[-1].startswith("test_"):
        return f"'{cell}' is no test: expected tests/….py::test_…"
    return _code(each, f"{file} {inside.replace('::', '.')}")


def _command(each: Entry, cell: str) -> str | None:
    found = blocks(each.text)
    if cell == "python":
        return None if any(block.info == "python" for block in found) else "the page has no python"
    given = [
        line[2:] for block in found if block.info == "console" for line in block.text.splitlines() if line[:2] == "$ "
    ]
    return None if cell in given else f"'{cell}' is no command of the page"


def _picture(each: Entry, cell: str) -> str | None:
    if not (FOLDER / cell).is_file():
        return f"there is no file {cell}"
    return None if cell in [target for _, target in links(each.text)] else f"the page does not show {cell}"


def _result(each: Entry, cell: str) -> str | None:
    path, _, place = cell.partition("#")
    file = (each.page.parent / path).resolve()
    if not file.is_file() or not file.is_relative_to(ROOT):
        return f"there is no file {path}"
    if not place:
        return f"'{cell}' names no place: expected page.md#heading or file.json#key"
    held = file.suffix == ".json" and holds(json.loads(file.read_text(encoding="utf-8")), place)
    return None if held or anchored(file, place) else f"{path} has no place '{place}'"


def holds(data: Any, path: str) -> bool:
    """Return whether JSON has an entry, its keys and indices joined by dots."""
    for key in path.split("."):
        if isinstance(data, dict) and key in data:
            data = data[key]
        elif isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        else:
            return False
    return True


CHECKS = {"code": _code, "test": _test, "command": _command, "picture": _picture, "result": _result}

# ---- the table ----------------------------------------------------------------------------------------------------

TOP = """# The atlas

One page for each idea: the equation, the lines of the source that implement it, a snippet or a command that runs in
under a minute, the picture that it draws, what was measured, and the paper. `make atlas` runs them all and draws the
pictures again; a snippet writes its picture into a folder `pictures`.

This page is written by `python -m docs.atlas.catalogue`, which fails where a link leads nowhere."""


def index(entries: list[Entry]) -> str:
    """Return the page with all tables."""
    text = [TOP]
    for group, (heading, _) in GROUPS.items():
        rows = [_line(each) for each in entries if each.row[0] == group]
        text.append(
            "\n".join(
                [f"## {heading}\n", "| page | code | test | command | picture | result |", "|---" * 6 + "|", *rows]
            )
        )
    used = sorted(
        {cell.removeprefix("n/a: ") for e in entries for c in e.cells.values() for cell in c if cell[:3] == "n/a"}
    )
    text.append(
        "\n".join(["## Where there is nothing to link to\n", *(f"- {key}: {REASONS.get(key, '')}." for key in used)])
    )
    return "\n\n".join(text) + "\n"


def _line(each: Entry) -> str:
    cells = (" · ".join(_link(each, key, cell) for cell in each.cells[key]) for key in CELLS)
    return f"| [{each.row} {each.title}]({each.page.name}) | {' | '.join(cells)} |"


def _link(each: Entry, key: str, cell: str) -> str:
    if cell.startswith("n/a"):
        return f"n/a ([{cell.removeprefix('n/a: ')}](#where-there-is-nothing-to-link-to))"
    if key == "code":
        file, _, inside = cell.partition(" ")
        return f"[{inside}](../../{file})"
    if key == "test":
        file, _, inside = cell.partition("::")
        return f"[{inside.split('::')[-1].removeprefix('test_').replace('_', ' ')}](../../{file})"
    if key == "command":
        return f"[{'snippet' if cell == 'python' else '`' + cell.replace('|', chr(92) + '|') + '`'}]({each.page.name})"
    if key == "picture":
        return f"[picture]({cell})"
    held = Path(cell.partition("#")[0])
    return f"[{'on the page' if held.name == each.page.name else held.stem}]({cell})"


def main() -> int:
    entries, found = [], []
    for page in pages():
        try:
            entries.append(entry(page))
        except ValueError as fault:
            found.append(str(fault))
    found += missing(entries) + [fault for each in entries for fault in faults(each)]
    (FOLDER / "index.md").write_text(index(entries), encoding="utf-8")
    print("\n".join(found) if found else f"{len(entries)} pages, each cell leads somewhere", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
