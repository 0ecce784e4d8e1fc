"""Sequences to copy or to reverse: `python recipes/sequences.py copy|reverse FOLDER`.

train.tsv and valid.tsv hold sequences of 2 to 8 letters with spaces between them, test.tsv some of up to 8, 16, 32 and
64 letters, as many of each: what was learned on short ones is tried on longer ones with `regard compare --lengths 8,16,32,64`.
"""

import random
import sys
from pathlib import Path

LETTERS = "abcdefghijkl"


def lines(count: int, shortest: int, longest: int, draw: random.Random, *, turned: bool) -> list[str]:
    found = []
    for _ in range(count):
        text = draw.choices(LETTERS, k=draw.randint(shortest, longest))
        found.append(f"{' '.join(text)}\t{' '.join(text[::-1] if turned else text)}\n")
    return found


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in ("copy", "reverse"):
        raise SystemExit("usage: python recipes/sequences.py copy|reverse FOLDER")
    folder, draw, turned = Path(sys.argv[2]), random.Random(0), sys.argv[1] == "reverse"
    folder.mkdir(parents=True, exist_ok=True)
    test = [line for a, b in ((2, 8), (9, 16), (17, 32), (33, 64)) for line in lines(100, a, b, draw, turned=turned)]
    for name, found in {
        "train": lines(5000, 2, 8, draw, turned=turned),
        "valid": lines(200, 2, 8, draw, turned=turned),
        "test": test,
    }.items():
        (folder / f"{name}.tsv").write_text("".join(found), encoding="utf-8")


if __name__ == "__main__":
    main()
