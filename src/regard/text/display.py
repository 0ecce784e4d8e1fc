"""The display of tokens: nothing invisible, nothing that disturbs its neighbours."""

import unicodedata

_SIGNS = {"\n": "↵", "\r": "↵", "\u2028": "↵", "\u2029": "↵", "\t": "⇥", "\x7f": "␡"}
_JOINERS = "\u200c\u200d"  # they shape Persian, Indic scripts and emoji, so they stay


def visible(token: str, longest: int | None = None) -> str:
    """Return `token` with blanks as ␣, an empty token as ∅, control characters as signs and a lone accent on ◌.

    Invisible format characters (direction overrides among them) are dropped; a token made of nothing else is
    written as its code points. With `longest`, a longer text is cut and ends in ….
    """
    if not token:
        return "∅"
    shown = "".join(_sign(character) for character in token)
    if not shown.strip(_JOINERS):
        shown = ",".join(f"U+{ord(character):04X}" for character in token)
    if unicodedata.category(shown[0]).startswith("M"):
        shown = "◌" + shown
    return shown if longest is None or len(shown) <= longest else shown[: longest - 1] + "…"


def _sign(character: str) -> str:
    category = unicodedata.category(character)
    if character in _SIGNS:
        return _SIGNS[character]
    if character.isspace() and category != "Cc":
        return "␣"
    if category == "Cc":
        return chr(0x2400 + ord(character)) if ord(character) < 0x20 else "\ufffd"
    if category == "Cs":
        return "\ufffd"
    if category == "Cf" and character not in _JOINERS:
        return ""
    return character
