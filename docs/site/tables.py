"""What generated pages share: a note for those who would edit them, and tables."""

from collections.abc import Iterable

WRITTEN = "<!-- Written from the code by `python -m docs.site.reference`: change the code, not this page. -->\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
