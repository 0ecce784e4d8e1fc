"""Commands and their actions over nineteen words: how well a model learns a small closed vocabulary without settings.

The grammar is that of SCAN (Lake and Baroni 2018, figure 1): 20,910 commands of at most nine words, up to 48 actions.
16,000 of them are trained on, the others are the test.

    python benchmarks/commands.py FOLDER
    regard train FOLDER/train.tsv --test FOLDER/test.tsv --minutes 10 -o FOLDER/run
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

TRAINED = 16_000
VERBS = {"walk": "WALK", "look": "LOOK", "run": "RUN", "jump": "JUMP"}
TIMES = {"": 1, " twice": 2, " thrice": 3}


def commands() -> dict[str, list[str]]:
    """Return the actions of every command of the grammar."""
    single: dict[str, list[str]] = {verb: [action] for verb, action in VERBS.items()}
    for side in ("left", "right"):
        turn = f"TURN_{side.upper()}"
        for verb, actions in (*((verb, [action]) for verb, action in VERBS.items()), ("turn", [])):
            single[f"{verb} {side}"] = [turn, *actions]
            single[f"{verb} opposite {side}"] = [turn, turn, *actions]
            single[f"{verb} around {side}"] = [turn, *actions] * 4
    repeated = {f"{text}{often}": actions * count for text, actions in single.items() for often, count in TIMES.items()}
    found = dict(repeated)
    for first, one in repeated.items():
        for second, two in repeated.items():
            found[f"{first} and {second}"] = [*one, *two]
            found[f"{first} after {second}"] = [*two, *one]
    return found


def write(folder: Path) -> None:
    """Write train.tsv and test.tsv."""
    pairs = [f"{text}\t{' '.join(actions)}\n" for text, actions in commands().items()]
    Random(0).shuffle(pairs)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.tsv").write_text("".join(pairs[:TRAINED]), encoding="utf-8")
    (folder / "test.tsv").write_text("".join(pairs[TRAINED:]), encoding="utf-8")
    print(f"{len(pairs):,} commands, {TRAINED:,} of them in {folder / 'train.tsv'}")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
