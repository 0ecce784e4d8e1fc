"""Access tokens: in the header of a request, or in its body where an existing protocol has them there."""

from __future__ import annotations

import hmac
from collections.abc import Mapping


class AccessTokens:
    """The tokens of a server. Without any, everybody is let in."""

    def __init__(self, tokens: tuple[str, ...] = ()) -> None:
        self._known = tuple(token.encode() for token in tokens)

    def __bool__(self) -> bool:
        return bool(self._known)

    def admit(self, given: bytes) -> bool:
        """Return True for a known token. All are compared, each in constant time: time tells nothing."""
        matches = [hmac.compare_digest(given, token) for token in self._known]
        return not self._known or any(matches)

    def in_header(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return True if `Authorization: Bearer …` holds a known token."""
        given = headers.get(b"authorization", b"")
        return self.admit(given[7:] if given[:7].lower() == b"bearer " else b"")
