"""Fonts for any script: a list of families that together cover the characters of a picture.

matplotlib (from 3.11) shapes text with libraqm and HarfBuzz: Arabic is joined, Hebrew runs from right to left,
Devanagari and Thai are composed. It does not look for a font that has the characters; this module does.
"""

import unicodedata
import warnings
from collections.abc import Iterable
from functools import lru_cache

from matplotlib.font_manager import FontEntry, findSystemFonts, fontManager
from matplotlib.ft2font import FT2Font

BASE = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew, the signs of `visible`


def families(texts: Iterable[str]) -> list[str]:
    """Return font families, first choice first, that cover all characters of `texts` as far as installed fonts can."""
    characters = frozenset("".join(texts))
    return list(_families(frozenset(c for c in characters if c > "~" and not _ignorable(c))))


def _ignorable(character: str) -> bool:
    return unicodedata.category(character) in ("Cf", "Cc", "Cs") or "\ufe00" <= character <= "\ufe0f"


@lru_cache(maxsize=256)
def _families(wanted: frozenset[str]) -> tuple[str, ...]:
    chosen, missing = _cover(wanted)
    if missing and _find_new_fonts():
        chosen, missing = _cover(wanted)
    for package in sorted({_package(character) for character in missing}):
        _advise(package, "".join(sorted(c for c in missing if _package(c) == package)[:5]))
    return chosen


def _cover(wanted: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return a greedy set cover: the base font, then the font with most of the missing characters, and so on."""
    chosen = [BASE]
    base = next(entry for entry in fontManager.ttflist if entry.name == BASE and _plain(entry))
    missing = wanted - _covered(base, wanted)
    if not missing:
        return tuple(chosen), missing
    candidates = sorted(filter(_plain, fontManager.ttflist), key=lambda entry: _rank(entry, wanted))
    coverage = {entry.name: _covered(entry, missing) for entry in reversed(candidates)}
    order = list(dict.fromkeys(entry.name for entry in candidates))
    while missing:
        best = max(order, key=lambda name: len(coverage[name] & missing))  # max keeps the first of equals
        if not coverage[best] & missing:
            break
        chosen.append(best)
        missing -= coverage[best]
    return tuple(chosen), missing


def _plain(entry: FontEntry) -> bool:
    if entry.name.startswith("Last Resort"):  # matplotlib's own boxes cover everything and show nothing
        return False
    return entry.style == "normal" and str(entry.weight) in ("400", "normal", "regular", "book")


def _rank(entry: FontEntry, wanted: frozenset[str]) -> tuple[bool, bool, bool, str]:
    """Return a sort key: sans before serif and monospaced, and the East Asian font that suits the language first."""
    names = " ".join(unicodedata.name(character, "") for character in wanted)
    region = "JP" if "HIRAGANA" in names or "KATAKANA" in names else "KR" if "HANGUL" in names else "SC"
    return (
        entry.name != f"Noto Sans CJK {region}",
        not entry.name.startswith("Noto Sans"),
        any(word in entry.name for word in ("Mono", "Serif", "Symbols", "Display", "Math")),
        entry.name,
    )


def _covered(entry: FontEntry, wanted: frozenset[str]) -> frozenset[str]:
    try:
        font = FT2Font(entry.fname, face_index=entry.index)
    except (OSError, RuntimeError):  # removed or damaged since matplotlib listed it
        return frozenset()
    if not font.scalable:  # colour bitmaps, which matplotlib cannot draw
        return frozenset()
    return frozenset(character for character in wanted if font.get_char_index(ord(character)))


def _find_new_fonts() -> bool:
    """Add fonts installed after matplotlib wrote its font list; without this our own advice would not help."""
    known = {entry.fname for entry in fontManager.ttflist}
    new = [path for path in findSystemFonts() if path not in known]
    for path in new:
        try:
            fontManager.addfont(path)
        except (OSError, RuntimeError):
            continue
    return bool(new)


def _package(character: str) -> str:
    name = unicodedata.name(character, "")
    if name.startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "FULLWIDTH")):
        return "fonts-noto-cjk"
    return "fonts-symbola" if unicodedata.category(character) in ("So", "Sk") else "fonts-noto-core"


_advised: set[str] = set()  # packages named so far: one sentence for each, not one for each picture


def _advise(package: str, characters: str) -> None:
    if package in _advised:
        return
    _advised.add(package)
    box = "it appears as a box" if len(characters) == 1 else "they appear as boxes"
    warnings.warn(
        f"No installed font has {characters}: {box} "
        f"until a font is installed, for example the Debian package {package}.",
        stacklevel=2,
    )
