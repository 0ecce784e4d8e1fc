"""A score with its signature and a bootstrap confidence interval, from a row of counts for each item.

Every metric here is a function of *sums over items*: with a row of counts s_i for item i (n-gram matches,
edits, reference lengths …), the corpus score is f(Σ_i s_i). The rows are computed once; a bootstrap resample
only adds them up again with other multiplicities, which makes a thousand resamples of corpus BLEU cheap.

Shares and rates are on a scale of 0 to 100; an error rate passes 100 where edits outnumber the reference's symbols.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError

References = Sequence[Sequence[str]]
Formula = Callable[[list[Any]], float]  # summed counts → score

SAMPLES = 1000
SEED = 12345

_LABELS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "compound_bleu": "BLEU, compounds split",
    "sequence_error_rate": "sequence error rate (WER of g2p)",
    "macro_f1": "macro F1",
    "f1": "F1 of one label",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "span_f1": "span F1",
    "segment_f1": "segment F1",
    "negative_elbo": "negative ELBO",
    "kl_divergence": "KL divergence",
    "frechet_distance": "Fréchet distance",
    "frechet_floor": "Fréchet distance, floor",
    "frechet_ceiling": "Fréchet distance, ceiling",
    "map50": "mAP50",
    "map50_95": "mAP50:95",
}  # the others are called what their names say
_DECIMALS = {"cross_entropy": 4, "bits_per_character": 4, "perplexity": 3, "squared_error": 4} | dict.fromkeys(
    ("frechet_distance", "frechet_floor", "frechet_ceiling"), 4
)  # 2 for all others


@dataclass(frozen=True)
class Score:
    """One number with everything that a report of it needs.

    `low` and `high` bound the 95 % bootstrap interval (None when no resamples were asked for); `count` is the
    number of items scored; `unit` is "%" for shares and rates and empty for points (BLEU, chrF), perplexities,
    nats and bits. `draws` are the scores of the resampled corpora: those of two systems on the same items are pairs.
    """

    name: str
    value: float
    unit: str
    low: float | None
    high: float | None
    count: int
    higher_is_better: bool
    signature: str
    draws: NDArray[np.float64] | None = field(default=None, repr=False, compare=False)


def ranked(scores: list[Score]) -> list[float]:
    """Return the scores as numbers of which higher is better, in their order."""
    return [score.value if score.higher_is_better else -score.value for score in scores]


def at_ceiling(score: Score) -> bool:
    """Return True if no score could be better: all is right, or no error is left."""
    if not score.higher_is_better:
        return score.unit == "%" and score.value <= 0
    return score.value >= 100


def as_good(average: Score, best: list[float] | None) -> tuple[bool, str]:
    """Return True if an averaged model is to be kept, and the reason.

    The best of many validations owes a part of its score to luck, more so with few items. The average is kept if it
    comes within one standard error of it.
    """
    if best is None or ranked([average])[0] >= best[0]:
        return True, "kept"
    low, high = (average.value if bound is None else bound for bound in (average.low, average.high))
    error = (high - low) / (2 * 1.96)
    kept = best[0] - ranked([average])[0] <= error
    reason = f"the best had {abs(best[0]):.2f}, the standard error is {error:.2f}"
    return kept, f"kept: {reason}" if kept else f"not kept: {reason}"


def resample(
    statistics: NDArray[Any],
    formula: Formula,
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
    rows: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Score `samples` corpora of the same size drawn from the items with replacement.

    `statistics` is (items, counts) and `formula` maps summed counts to a score: score_b = f(Σ_i m_bi s_i),
    m_bi being how often draw b took item i. The draws depend only on `seed` and the number of items, so two
    systems scored on the same items are resampled in pairs: subtract their results for an interval of the
    difference. Where many items have the same counts, `statistics` may hold each row of counts once and `rows` the
    row of each item.
    """
    if samples < 1:
        raise UserError(f"A bootstrap needs at least 1 resample, found {samples}; 1000 is usual.")
    generator = np.random.default_rng(seed)
    count = len(statistics) if rows is None else len(rows)
    scores = np.empty(samples)
    for sample in range(samples):
        drawn = generator.integers(count, size=count)
        multiplicity = np.bincount(drawn if rows is None else rows[drawn], minlength=len(statistics))
        scores[sample] = formula((multiplicity @ statistics).tolist())
    return scores


def bootstrap(
    statistics: NDArray[Any],
    formula: Formula,
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
    confidence: float = 95.0,
    rows: NDArray[np.int64] | None = None,
) -> tuple[float, float]:
    """Return the percentile interval of the score over resampled corpora: (low, high)."""
    if not 0 < confidence < 100:
        raise UserError(f"The confidence must lie between 0 and 100 per cent, found {confidence}; 95 is usual.")
    return interval(resample(statistics, formula, samples=samples, seed=seed, rows=rows), confidence)


def interval(scores: NDArray[np.float64], confidence: float = 95.0) -> tuple[float, float]:
    """Return the percentile interval of resampled scores: (low, high)."""
    tail = (100 - confidence) / 2
    low, high = np.percentile(scores, [tail, 100 - tail])
    return float(low), float(high)


def make_score(
    name: str,
    statistics: NDArray[Any],
    formula: Formula,
    signature: str,
    samples: int,
    seed: int,
    *,
    unit: str = "%",
    higher_is_better: bool = True,
    rows: NDArray[np.int64] | None = None,
) -> Score:
    """Put a score together from one row of counts per item; `samples=0` leaves the interval out."""
    draws = resample(statistics, formula, samples=samples, seed=seed, rows=rows) if samples else None
    low, high = (None, None) if draws is None else interval(draws)
    often = np.ones(len(statistics), np.int64) if rows is None else np.bincount(rows, minlength=len(statistics))
    return Score(
        name=name,
        value=formula((often @ statistics).tolist()),
        unit=unit,
        low=low,
        high=high,
        count=len(statistics) if rows is None else len(rows),
        higher_is_better=higher_is_better,
        signature=signature,
        draws=draws,
    )


def percentage(counts: list[int]) -> float:
    part, whole = counts
    return 100 * part / max(whole, 1)  # only empty references have a whole of 0: each extra symbol then counts 100


def reference_counts(references: References) -> str:
    """Return the number of references per item as sacrebleu's signatures write it: a number, or "var"."""
    counts = {len(allowed) for allowed in references}
    return str(counts.pop()) if len(counts) == 1 else "var"


def check_items(hypotheses: Sequence[str], references: References) -> None:
    """Refuse what cannot be scored: nothing at all, unequal numbers of items, items without a reference."""
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


def label_of(score: Score) -> str:
    """Return the name of a score in a table."""
    return _LABELS.get(score.name, score.name.replace("_", " "))


def value_of(score: Score) -> str:
    """Return the value of a score in a table, with room for a unit."""
    return f"{score.value:.{_DECIMALS.get(score.name, 2)}f} {score.unit:1}"


def render(scores: Sequence[Score]) -> str:
    """Lay scores out as an aligned table in plain text, their signatures below."""
    rows = [("metric", "score  ", "95 % interval", "items")]  # "score" stands above the digits, not the unit
    for score in scores:
        digits = _DECIMALS.get(score.name, 2)
        bounds = "" if score.low is None else f"{score.low:.{digits}f} – {score.high:.{digits}f}"
        rows.append(
            (
                label_of(score),
                value_of(score),
                bounds,
                str(score.count),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(row[column].rjust(widths[column]) for column in (1, 2, 3))])
        for row in rows
    ]
    signatures = [f"{label_of(score)}: {score.signature}" for score in scores]
    return "\n".join([*lines, "", *signatures])


def as_json(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Return the scores as plain dictionaries, ready for `json.dumps` alone or inside something larger."""
    return [{name: value for name, value in asdict(score).items() if name != "draws"} for score in scores]
