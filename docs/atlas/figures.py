"""Figures that a page quotes from another: each must stand in one of the sections that are linked beside it."""

import re
from pathlib import Path

from docs.atlas.pages import anchors, prose

NUMBER = re.compile(r"(?<![\w.,⁻])\d[\d,]*(?:\.\d+)?(?!\w|·10|[⁰¹²³⁴-⁹⁻])")  # 10⁻⁵ and 9.5·10¹⁷ are left alone
LINK = re.compile(r"\]\(([^)]+)\)")


def section(page: Path, anchor: str) -> str:
    """Return what stands below a heading of a page, up to the next one of its level; the page without an anchor."""
    lines, level, kept = page.read_text(encoding="utf-8").splitlines(), 0, list[str]()
    for bare, line in zip(prose("\n".join(lines)).splitlines(), lines, strict=False):
        if found := re.match(r"(#{1,6})\s", bare):
            if level and len(found[1]) <= level:
                break
            if not level and anchors(bare) == {anchor}:
                level = len(found[1])
        if level or not anchor:
            kept.append(line)
    return "\n".join(kept)


def measured(page: str) -> str:
    """Return what a page says was measured elsewhere: the paragraph that begins with **Measured.**"""
    found = re.search(r"\*\*Measured\.\*\*.*?(?=\*\*Paper\.\*\*|\Z)", page, re.DOTALL)
    return found[0] if found else ""


def unsupported(text: str, page: Path) -> list[str]:
    """Return the numbers of a text that stand in none of the sections that it links to, not even with more digits."""
    targets = [target.partition("#") for target in LINK.findall(text) if not re.match(r"[a-z]+:", target)]
    files = [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in targets]
    held = [
        value(each) for file, anchor in files if file.suffix == ".md" for each in NUMBER.findall(section(file, anchor))
    ]
    plain = re.sub(r"`[^`]*`", "", LINK.sub("]", text))
    return [each for each in NUMBER.findall(plain) if value(each) not in [round(one, digits(each)) for one in held]]


def value(number: str) -> float:
    return float(number.replace(",", ""))


def digits(number: str) -> int:
    return len(number.partition(".")[2])
