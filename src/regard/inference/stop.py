"""Answers that are given up between two steps, because nobody waits for them any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regard.inference.search import Step

Stop = Callable[[], bool]


class Stopped(Exception):
    """The answer was given up before it was complete."""


def refuse_stopped(stop: Stop | None) -> None:
    """Raise `Stopped` if it is time to give up."""
    if stop is not None and stop():
        raise Stopped


def stoppable(step: Step[Any], stop: Stop | None) -> Step[Any]:
    """Return a step of decoding that asks before each time whether to go on."""
    if stop is None:
        return step

    def asked(tokens: Any, state: Any) -> Any:
        refuse_stopped(stop)
        return step(tokens, state)

    return asked
