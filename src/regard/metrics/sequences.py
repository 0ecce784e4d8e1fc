"""Scores of converted sequences: BLEU and chrF of running text, error rates of symbols, words and characters."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from regard.errors import UserError
from regard.metrics.scores import (
    SAMPLES,
    SEED,
    References,
    Score,
    check_items,
    label_of,
    make_score,
    percentage,
    reference_counts,
    value_of,
)
from regard.text import scripts

COMPOUND = re.compile(r"(\S)-(\S)")
BUCKETS = 5  # of lengths, unless told otherwise

TOKENIZERS = (
    "13a",
    "none",
    "intl",
    "char",
    "zh",
)  # those of sacrebleu that need neither models nor a network


class Bucket(NamedTuple):
    """The score of the items whose source has `low` to `high` units (both included)."""

    low: int
    high: int
    items: int
    score: Score


Metric = Callable[[Sequence[str], References], Score]


def bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> Score:
    """Return corpus BLEU by sacrebleu: the geometric mean of 1- to 4-gram precisions times the brevity penalty.

    The default for detokenised text is `tokenize="13a"`. Scripts without spaces have no n-grams of words: the default
    is "zh" (each character is a token) for references that are mostly Chinese, and "char" for other such scripts.
    Figures of older papers, on text already tokenised and often in lower case, need `tokenize="none"` and
    `lowercase=True`; the signature shows the difference.
    """
    from sacrebleu.metrics.bleu import BLEU

    tokenize = tokenize if tokenize is not None else tokenizer_for(references)
    if tokenize not in TOKENIZERS:
        raise UserError(f"Unknown BLEU tokenisation {tokenize!r}; choose one of {', '.join(TOKENIZERS)}.")
    # `force` only silences sacrebleu's warning that text is already tokenised, which "none" says it is.
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
    return _by_sacrebleu("bleu", metric, hypotheses, references, samples, seed)


def compound_bleu(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return BLEU as it is published for English to German of WMT14: of tokens, and hyphenated compounds are three.

    `a-b` becomes `a ##AT##-##AT## b` on both sides (Luong et al. 2015; Vaswani et al. 2017): parts of a compound then
    count, and the score is higher than sacreBLEU's, by about a point. The tokens are those of mteval 13a.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    check_items(hypotheses, references)
    cut = Tokenizer13a()  # type: ignore[no-untyped-call]

    def parted(text: str) -> str:
        return COMPOUND.sub(r"\1 ##AT##-##AT## \2", cut(text))

    metric = BLEU(tokenize="none", force=True)
    split = [[parted(text) for text in allowed] for allowed in references]
    found = _by_sacrebleu("compound_bleu", metric, [parted(text) for text in hypotheses], split, samples, seed)
    return replace(found, signature=found.signature.replace("tok:none", "tok:13a, compounds split"))


def tokenizer_for(references: References) -> str:
    """Return the tokenisation of BLEU that suits the script of the references."""
    texts = [text for allowed in references for text in allowed]
    if not scripts.mostly_unspaced(texts):
        return "13a"
    return "zh" if scripts.mostly_han(texts) else "char"


def chrf(
    hypotheses: Sequence[str],
    references: References,
    *,
    lowercase: bool = False,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> Score:
    """Return corpus chrF2 by sacrebleu: the F-score (β = 2) of character 1- to 6-grams, spaces left out."""
    from sacrebleu.metrics.chrf import CHRF

    return _by_sacrebleu("chrf", CHRF(lowercase=lowercase), hypotheses, references, samples, seed)


def _by_sacrebleu(
    name: str, metric: Any, hypotheses: Sequence[str], references: References, samples: int, seed: int
) -> Score:
    """Score with a sacrebleu metric through its two inner steps, rows of counts and formula.

    They are the steps of its own `corpus_score`; taking them apart reads the corpus once and needs no second
    copy of its formulas here.
    """
    check_items(hypotheses, references)
    # sacrebleu wants one stream per reference number, with None where an item has fewer references.
    most = max(map(len, references))
    streams = [[item[k] if k < len(item) else None for item in references] for k in range(most)]
    rows = metric._extract_corpus_statistics(hypotheses, streams)

    def formula(counts: list[int]) -> float:
        return float(metric._compute_score_from_stats(counts).score)

    statistics = np.asarray(rows, dtype=np.int64)
    return make_score(name, statistics, formula, str(metric.get_signature()), samples, seed, unit="")


def exact_match(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return the share of items equal to one of their references, character for character."""
    check_items(hypotheses, references)
    rows = [(int(answer in allowed), 1) for answer, allowed in zip(hypotheses, references, strict=True)]
    signature = f"nrefs:{reference_counts(references)}|compare:string"
    return make_score("exact_match", np.asarray(rows), percentage, signature, samples, seed)


def sequence_error_rate(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return the share of items whose symbols differ from every reference: the word error rate of g2p papers.

    Symbols are separated by white space, whose amount does not count.
    """
    check_items(hypotheses, references)
    rows = [
        (int(all(answer.split() != reference.split() for reference in allowed)), 1)
        for answer, allowed in zip(hypotheses, references, strict=True)
    ]
    signature = f"nrefs:{reference_counts(references)}|compare:symbols"
    return _rate("sequence_error_rate", rows, signature, samples, seed)


def symbol_error_rate(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return edits per reference symbol, symbols separated by white space: of phonemes, the phoneme error rate."""
    return _edit_rate("symbol_error_rate", str.split, hypotheses, references, samples, seed)


def word_error_rate(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return edits per reference word, as in speech recognition; not g2p's WER, which is `sequence_error_rate`."""
    return _edit_rate("word_error_rate", str.split, hypotheses, references, samples, seed)


def character_error_rate(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return edits per reference character (Unicode code point, spaces included), for text without spaces."""
    return _edit_rate("character_error_rate", list, hypotheses, references, samples, seed)


def _edit_rate(
    name: str,
    split: Callable[[str], list[str]],
    hypotheses: Sequence[str],
    references: References,
    samples: int,
    seed: int,
) -> Score:
    """Return 100 · Σ_i min_r edits(h_i, r) / Σ_i |r_i*|, with r_i* the nearest reference of item i."""
    check_items(hypotheses, references)
    rows = [
        _nearest(split(answer), [split(reference) for reference in allowed])
        for answer, allowed in zip(hypotheses, references, strict=True)
    ]
    signature = f"nrefs:{reference_counts(references)}|edits:levenshtein|unit:{name.split('_')[0]}"
    return _rate(name, rows, signature, samples, seed)


def _rate(name: str, rows: list[tuple[int, int]], signature: str, samples: int, seed: int) -> Score:
    return make_score(name, np.asarray(rows), percentage, signature, samples, seed, higher_is_better=False)


def _nearest(answer: list[str], allowed: list[list[str]]) -> tuple[int, int]:
    """Return (edits, length) of the reference with the fewest edits, of equally near ones the longest.

    The rule for ties makes the rate independent of the order in which references are listed.
    """
    # rapidfuzz is what jiwer, a dependency, counts its edits with.
    from rapidfuzz.distance import Levenshtein

    edits, length = min((Levenshtein.distance(answer, reference), -len(reference)) for reference in allowed)
    return edits, -length


def count_words(text: str) -> int:
    """Return the number of words of a text, separated by white space."""
    return len(text.split())


def by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: References,
    metric: Metric,
    edges: Sequence[int] | None = None,
    *,
    length: Callable[[str], int] = count_words,
) -> list[Bucket]:
    """Score items with short and long sources separately, for a table of BLEU against sentence length.

    Edges 10, 20 make the buckets 0–10, 11–20 and 21–(the longest found); buckets without items are left out. Without
    edges there are up to five buckets of about equally many items, from the shortest found to the longest. `length`
    measures a source: words unless told (`len` counts characters).
    """
    check_items(hypotheses, references)
    if len(sources) != len(hypotheses):
        raise UserError(f"Expected as many sources as hypotheses, found {len(sources)} for {len(hypotheses)}.")
    lengths = [length(source) for source in sources]
    if edges is None:
        limits = [min(lengths) - 1, *_quantiles(lengths, BUCKETS)]
    elif not edges or edges[0] < 0 or any(low >= high for low, high in pairwise(edges)):
        raise UserError(f"The edges of the length buckets must be increasing numbers from 0 on, found {list(edges)}.")
    else:
        limits = [-1, *edges, max(max(lengths), edges[-1])]
    buckets = []
    for below, high in pairwise(limits):
        chosen = [item for item, size in enumerate(lengths) if below < size <= high]
        if chosen:
            score = metric([hypotheses[item] for item in chosen], [references[item] for item in chosen])
            buckets.append(Bucket(below + 1, high, len(chosen), score))
    return buckets


def _quantiles(lengths: Sequence[int], parts: int) -> list[int]:
    """Return the lengths at the quantiles 1/parts, 2/parts …, each once; the last is the longest."""
    shares = np.arange(1, parts + 1) / parts
    return sorted({int(edge) for edge in np.quantile(lengths, shares, method="inverted_cdf")})


def render_buckets(buckets: Sequence[Bucket]) -> str:
    """Return the scores of buckets as an aligned table."""
    rows = [("source length", "items", label_of(buckets[0].score) + "  ")]  # above the digits, not the unit
    for bucket in buckets:
        name = f"{bucket.low:,}" if bucket.low == bucket.high else f"{bucket.low:,}–{bucket.high:,}"
        rows.append((name, f"{bucket.items:,}", value_of(bucket.score)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = (f"{name:<{widths[0]}}  {items:>{widths[1]}}  {value:>{widths[2]}}" for name, items, value in rows)
    return "\n".join(line.rstrip() for line in lines)
