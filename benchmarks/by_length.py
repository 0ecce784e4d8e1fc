"""Scores against the length of the source for several runs, as a table and a picture (Bahdanau et al. 2015, figure 2).

python benchmarks/by_length.py test.de test.en -o by_length.png attention=runs/a none=runs/b
"""

from __future__ import annotations

import argparse
from pathlib import Path

import regard
from regard import metrics, pictures

EDGES = (8, 11, 14, 17, 20)  # words: about equally many captions in each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs=2, metavar="FILE", help="sources and references, line-aligned")
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--lowercase", action="store_true")
    given = parser.parse_args()
    series, buckets = {}, []
    for name, _, run in (text.partition("=") for text in given.runs):
        model = regard.load(run)
        items = model.items(given.data)
        _, answers = model.task.evaluate(items, samples=0)
        sources, references = [source for source, _ in items], [texts for _, texts in items]

        def bleu(found: list[str], allowed: list[list[str]]) -> metrics.Score:
            return metrics.bleu(found, allowed, lowercase=given.lowercase, samples=0)

        buckets = metrics.by_length(sources, answers, references, bleu, EDGES)
        series[name] = [bucket.score.value for bucket in buckets]
        whole = bleu(answers, references).value
        print(f"{name:<24}" + "".join(f"{value:8.1f}" for value in series[name]) + f"   all {whole:.2f}")
    print(" " * 24 + "".join(f"{bucket.low:>4}–{bucket.high:<3}" for bucket in buckets))
    middles = [(bucket.low + bucket.high) / 2 for bucket in buckets]
    figure = pictures.curves(middles, series, "words of the source", "BLEU")
    print(pictures.save(figure, given.output))


if __name__ == "__main__":
    main()
