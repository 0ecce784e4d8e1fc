"""A search that is stopped between two steps, because nobody waits for its answer any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Stop = Callable[[], bool]


class Stopped(Exception):
    """The answer was given up before it was complete."""


def stoppable(step: Callable[[Any, Any], Any], stop: Stop | None) -> Callable[[Any, Any], Any]:
    """Return a step of decoding that asks before each time whether to go on."""
    if stop is None:
        return step

    def asked(tokens: Any, state: Any) -> Any:
        if stop():
            raise Stopped
        return step(tokens, state)

    return asked
