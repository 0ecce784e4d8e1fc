"""Scores of converted sequences, each with its signature and a bootstrap confidence interval.

Every metric here is a function of *sums over items*: with a row of counts s_i for item i (n-gram matches,
edits, reference lengths …), the corpus score is f(Σ_i s_i). The rows are computed once; a bootstrap resample
only adds them up again with other multiplicities, which makes a thousand resamples of corpus BLEU cheap.

All values are on a scale of 0 to 100; an error rate passes 100 where edits outnumber the reference's symbols.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError

References = Sequence[Sequence[str]]
Kind = Literal["text", "symbols", "characters"]

SAMPLES = 1000
SEED = 12345
TOKENIZERS = (
    "13a",
    "none",
    "intl",
    "char",
    "zh",
)  # those of sacrebleu that need neither models nor a network

_LABELS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact_match": "exact match",
    "sequence_error_rate": "sequence error rate (WER of g2p)",
    "symbol_error_rate": "symbol error rate",
    "word_error_rate": "word error rate",
    "character_error_rate": "character error rate",
}


@dataclass(frozen=True)
class Score:
    """One number and all that is needed to report it.

    `low` and `high` bound the 95 % bootstrap interval (None when no resamples were asked for); `count` is the
    number of items scored; `unit` is "%" for shares and rates and empty for BLEU and chrF, which are points.
    """

    name: str
    value: float
    unit: str
    low: float | None
    high: float | None
    count: int
    higher_is_better: bool
    signature: str


class Bucket(NamedTuple):
    """The score of the items whose source has `low` to `high` units (both included)."""

    low: int
    high: int
    items: int
    score: Score


Metric = Callable[[Sequence[str], References], Score]
Formula = Callable[[list[int]], float]  # summed counts → score


def resample(
    statistics: NDArray[np.int64], formula: Formula, *, samples: int = SAMPLES, seed: int = SEED
) -> NDArray[np.float64]:
    """Score `samples` corpora of the same size drawn from the items with replacement.

    `statistics` is (items, counts) and `formula` maps summed counts to a score: score_b = f(Σ_i m_bi s_i),
    m_bi being how often draw b took item i. The draws depend only on `seed` and the number of items, so two
    systems scored on the same items are resampled in pairs: subtract their results for an interval of the
    difference.
    """
    if samples < 1:
        raise UserError(f"A bootstrap needs at least 1 resample, found {samples}; 1000 is usual.")
    generator = np.random.default_rng(seed)
    count = len(statistics)
    scores = np.empty(samples)
    for sample in range(samples):
        multiplicity = np.bincount(generator.integers(count, size=count), minlength=count)
        scores[sample] = formula((multiplicity @ statistics).tolist())
    return scores


def bootstrap(
    statistics: NDArray[np.int64],
    formula: Formula,
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
    confidence: float = 95.0,
) -> tuple[float, float]:
    """Return the percentile interval of the score over resampled corpora: (low, high)."""
    if not 0 < confidence < 100:
        raise UserError(f"The confidence must lie between 0 and 100 per cent, found {confidence}; 95 is usual.")
    tail = (100 - confidence) / 2
    scores = resample(statistics, formula, samples=samples, seed=seed)
    low, high = np.percentile(scores, [tail, 100 - tail])
    return float(low), float(high)


def _score(
    name: str, rows: Sequence[Sequence[int]], formula: Formula, signature: str, samples: int, seed: int
) -> Score:
    """Put a score together from one row of counts per item; `samples=0` leaves the interval out."""
    statistics = np.asarray(rows, dtype=np.int64)
    interval = bootstrap(statistics, formula, samples=samples, seed=seed) if samples else (None, None)
    points = name in ("bleu", "chrf")
    return Score(
        name=name,
        value=formula(statistics.sum(axis=0).tolist()),
        unit="" if points else "%",
        low=interval[0],
        high=interval[1],
        count=len(rows),
        higher_is_better=points or name == "exact_match",
        signature=signature,
    )


def bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> Score:
    """Corpus BLEU by sacrebleu: the geometric mean of 1- to 4-gram precisions times the brevity penalty.

    Detokenised text takes `tokenize="13a"`. The figures of older papers, on text already tokenised and often
    in lower case, take `tokenize="none"` and `lowercase=True`; the signature tells the two apart.
    """
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in TOKENIZERS:
        raise UserError(f"Unknown BLEU tokenisation {tokenize!r}; choose one of {', '.join(TOKENIZERS)}.")
    # `force` only silences sacrebleu's warning that text is already tokenised, which "none" says it is.
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
    return _by_sacrebleu("bleu", metric, hypotheses, references, samples, seed)


def chrf(
    hypotheses: Sequence[str],
    references: References,
    *,
    lowercase: bool = False,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> Score:
    """Corpus chrF2 by sacrebleu: the F-score (β = 2) of character 1- to 6-grams, spaces left out."""
    from sacrebleu.metrics.chrf import CHRF

    return _by_sacrebleu("chrf", CHRF(lowercase=lowercase), hypotheses, references, samples, seed)


def _by_sacrebleu(
    name: str, metric: Any, hypotheses: Sequence[str], references: References, samples: int, seed: int
) -> Score:
    """Score with a sacrebleu metric through its two inner steps, rows of counts and formula.

    They are the steps of its own `corpus_score`; taking them apart reads the corpus once and needs no second
    copy of its formulas here.
    """
    _check(hypotheses, references)
    # sacrebleu wants one stream per reference number, with None where an item has fewer references.
    most = max(map(len, references))
    streams = [[item[k] if k < len(item) else None for item in references] for k in range(most)]
    rows = metric._extract_corpus_statistics(hypotheses, streams)

    def formula(counts: list[int]) -> float:
        return float(metric._compute_score_from_stats(counts).score)

    return _score(name, rows, formula, str(metric.get_signature()), samples, seed)


def exact_match(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Share of items equal to one of their references, character for character."""
    _check(hypotheses, references)
    rows = [(int(found in allowed), 1) for found, allowed in zip(hypotheses, references, strict=True)]
    signature = f"nrefs:{_reference_counts(references)}|compare:string"
    return _score("exact_match", rows, _percentage, signature, samples, seed)


def sequence_error_rate(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Share of items whose symbols are not exactly a reference's: what g2p papers call word error rate.

    Symbols are separated by white space, whose amount does not count.
    """
    _check(hypotheses, references)
    rows = [
        (int(all(found.split() != reference.split() for reference in allowed)), 1)
        for found, allowed in zip(hypotheses, references, strict=True)
    ]
    signature = f"nrefs:{_reference_counts(references)}|compare:symbols"
    return _score("sequence_error_rate", rows, _percentage, signature, samples, seed)


def symbol_error_rate(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Edits per reference symbol, symbols separated by white space: of phonemes, the phoneme error rate."""
    return _edit_rate("symbol_error_rate", str.split, hypotheses, references, samples, seed)


def word_error_rate(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Edits per reference word, as in speech recognition; not g2p's WER, which is `sequence_error_rate`."""
    return _edit_rate("word_error_rate", str.split, hypotheses, references, samples, seed)


def character_error_rate(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Edits per reference character (Unicode code point, spaces included), for text without spaces."""
    return _edit_rate("character_error_rate", list, hypotheses, references, samples, seed)


def _edit_rate(
    name: str,
    split: Callable[[str], list[str]],
    hypotheses: Sequence[str],
    references: References,
    samples: int,
    seed: int,
) -> Score:
    """100 · Σ_i min_r edits(h_i, r) / Σ_i |r_i*|, with r_i* the nearest reference of item i."""
    _check(hypotheses, references)
    rows = [
        _nearest(split(found), [split(reference) for reference in allowed])
        for found, allowed in zip(hypotheses, references, strict=True)
    ]
    signature = f"nrefs:{_reference_counts(references)}|edits:levenshtein|unit:{name.split('_')[0]}"
    return _score(name, rows, _percentage, signature, samples, seed)


def _nearest(found: list[str], allowed: list[list[str]]) -> tuple[int, int]:
    """Return (edits, length) of the reference with the fewest edits, of equally near ones the longest.

    The rule for ties makes the rate independent of the order in which references are listed.
    """
    # rapidfuzz is what jiwer, a dependency, counts its edits with.
    from rapidfuzz.distance import Levenshtein

    edits, length = min((Levenshtein.distance(found, reference), -len(reference)) for reference in allowed)
    return edits, -length


def _percentage(counts: list[int]) -> float:
    part, whole = counts
    return 100 * part / max(whole, 1)  # only empty references have a whole of 0: each extra symbol then counts 100


def _reference_counts(references: References) -> str:
    """The number of references per item as sacrebleu's signatures write it: a number, or "var"."""
    counts = {len(allowed) for allowed in references}
    return str(counts.pop()) if len(counts) == 1 else "var"


def _check(hypotheses: Sequence[str], references: References) -> None:
    if not hypotheses:
        raise UserError("There is nothing to score: expected at least one hypothesis, found none.")
    if len(hypotheses) != len(references):
        raise UserError(
            f"Expected as many reference items as hypotheses, found {len(references)} for {len(hypotheses)}; "
            "check that both files have the same number of lines."
        )
    for number, allowed in enumerate(references, start=1):
        if isinstance(allowed, str):
            raise UserError(
                f"The references of item {number} must be a list of strings, found the string "
                f"{allowed[:40]!r}; write [text] for a single reference."
            )
        if not allowed:
            raise UserError(f"Item {number} has no reference; give at least one for each hypothesis.")


_METRICS: dict[str, tuple[Callable[..., Score], ...]] = {
    "text": (bleu, chrf, exact_match),
    "symbols": (sequence_error_rate, symbol_error_rate, exact_match),
    "characters": (exact_match, character_error_rate),
}


def evaluate(
    hypotheses: Sequence[str],
    references: References,
    *,
    kind: Kind,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> list[Score]:
    """Score with the metrics that fit: running text, space-separated symbols, or unspaced characters."""
    if kind not in _METRICS:
        raise UserError(f"Unknown kind of sequence {kind!r}; choose one of {', '.join(_METRICS)}.")
    return [metric(hypotheses, references, samples=samples, seed=seed) for metric in _METRICS[kind]]


def count_words(text: str) -> int:
    """Number of words of a text, words being what white space separates."""
    return len(text.split())


def by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: References,
    metric: Metric,
    edges: Sequence[int] = (10, 20, 30, 40, 50),
    *,
    length: Callable[[str], int] = count_words,
) -> list[Bucket]:
    """Score apart the items with short and long sources, for the table of BLEU against sentence length.

    Edges 10, 20 make the buckets 0–10, 11–20 and 21–(the longest found); buckets without items are left out.
    `length` measures a source: words unless told (`len` counts characters).
    """
    _check(hypotheses, references)
    if len(sources) != len(hypotheses):
        raise UserError(f"Expected as many sources as hypotheses, found {len(sources)} for {len(hypotheses)}.")
    if not edges or edges[0] < 0 or any(low >= high for low, high in pairwise(edges)):
        raise UserError(f"The edges of the length buckets must be increasing numbers from 0 on, found {list(edges)}.")
    lengths = [length(source) for source in sources]
    limits = [-1, *edges, max(max(lengths), edges[-1])]
    buckets = []
    for below, high in pairwise(limits):
        chosen = [item for item, size in enumerate(lengths) if below < size <= high]
        if chosen:
            score = metric([hypotheses[item] for item in chosen], [references[item] for item in chosen])
            buckets.append(Bucket(below + 1, high, len(chosen), score))
    return buckets


def render(scores: Sequence[Score]) -> str:
    """Lay scores out as an aligned table in plain text, their signatures below."""
    rows = [("metric", "score  ", "95 % interval", "items")]  # "score" stands above the digits, not the unit
    for score in scores:
        interval = "" if score.low is None else f"{score.low:.2f} – {score.high:.2f}"
        rows.append(
            (
                _LABELS.get(score.name, score.name),
                f"{score.value:.2f} {score.unit:1}",
                interval,
                str(score.count),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(row[column].rjust(widths[column]) for column in (1, 2, 3))])
        for row in rows
    ]
    signatures = [f"{_LABELS.get(score.name, score.name)}: {score.signature}" for score in scores]
    return "\n".join([*lines, "", *signatures])


def as_json(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Return the scores as plain dictionaries, ready for `json.dumps` alone or inside something larger."""
    return [asdict(score) for score in scores]
