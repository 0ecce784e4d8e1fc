"""Arguments and options of `regard info`."""

from __future__ import annotations

from regard.commands.signatures.options import Json, Run


def info(run: Run, as_json: Json = False) -> None:
    """Show a run on one screen: what it learned from, its settings, its size, its scores and its state.

    Example: regard info runs/fre
    """
    from regard.commands import info as informing

    facts = informing.info(run)
    print(informing.as_json(facts) if as_json else informing.render(facts))
