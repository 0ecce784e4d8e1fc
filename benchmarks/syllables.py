"""Hangul words and their letters: how well words are read whose syllables do not occur in training.

2,000 words of two to four syllables, drawn by Zipf's law from all 11,172 syllables and written as Unicode names them
(한국 → hanguk): two of three words of the test have a syllable that no word of the training has.

    python benchmarks/syllables.py FOLDER
    regard train FOLDER/train.tsv --test FOLDER/test.tsv -o FOLDER/run
    regard evaluate FOLDER/run FOLDER/unseen.tsv
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path
from random import Random

TRAINED, TESTED = 2_000, 500


def words(count: int, seed: int = 0) -> list[str]:
    """Return different words of syllables of which few are frequent and many rare."""
    draw = Random(seed)
    syllables = [chr(code) for code in range(0xAC00, 0xD7A4)]
    draw.shuffle(syllables)
    weights = [1 / rank for rank in range(10, 10 + len(syllables))]
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(draw.choices(syllables, weights, k=draw.randint(2, 4)))] = None
    return list(found)


def letters(word: str) -> str:
    """Return the Latin letters of a word, by the names of its syllables."""
    return "".join(unicodedata.name(syllable).rpartition(" ")[2].lower() for syllable in word)


def write(folder: Path) -> None:
    """Write train.tsv, test.tsv, and unseen.tsv: the test words with a syllable that is not in train.tsv."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = words(TRAINED + TESTED)
    known = set("".join(drawn[:TRAINED]))
    unseen = [word for word in drawn[TRAINED:] if not {*word} <= known]
    for name, some in {"train": drawn[:TRAINED], "test": drawn[TRAINED:], "unseen": unseen}.items():
        (folder / f"{name}.tsv").write_text("".join(f"{w}\t{letters(w)}\n" for w in some), encoding="utf-8")
        print(f"{len(some):,} words in {folder / name}.tsv")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
