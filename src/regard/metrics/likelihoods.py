"""Scores of predicted text: the likelihood of the real text under a model.

Each item (a block or a document) has the sum of −log p over its tokens, in nats, and a number of tokens or
characters. Both are summed before dividing: the result does not depend on how the text was cut.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.metrics.scores import SAMPLES, SEED, Formula, Score, make_score, percentage


def cross_entropy(losses: Sequence[float], tokens: Sequence[int], *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """Return nats per token: Σ −log p / tokens, the training loss."""
    return _score("cross_entropy", losses, tokens, _mean, "unit:token|log:e", samples, seed)


def perplexity(losses: Sequence[float], tokens: Sequence[int], *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """Return exp(Σ −log p / tokens): the number of equally probable tokens that would be as uncertain.

    Tokens differ between vocabularies: compare only models with the same vocabulary.
    """
    return _score("perplexity", losses, tokens, _exponential, "unit:token", samples, seed)


def bits_per_character(
    losses: Sequence[float], characters: Sequence[int], *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return Σ −log₂ p / characters: comparable between models with any vocabulary."""
    return _score("bits_per_character", losses, characters, _bits, "unit:character|log:2", samples, seed)


def hidden_words(totals: NDArray[np.float64], rate: float, *, whole: bool, samples: int = SAMPLES) -> list[Score]:
    """Return 100 · words found ÷ words hidden, and exp(mean −log p of a hidden token given all that is not hidden).

    `totals` has for each item: words found, words hidden, tokens hidden, Σ −log p.
    """
    signature = f"hidden:{100 * rate:.3g}%|unit:{'word' if whole else 'token'}|at-once|fixed-by-item"
    found, tokens, losses = totals[:, :2].astype(np.int64), totals[:, 2].astype(np.int64), totals[:, 3]
    surprise = perplexity(losses.tolist(), tokens.tolist(), samples=samples)
    return [
        make_score("accuracy", found, percentage, signature, samples, SEED),
        replace(surprise, name="pseudo_perplexity", signature=signature),
    ]


def _score(
    name: str,
    losses: Sequence[float],
    counts: Sequence[int],
    formula: Formula,
    signature: str,
    samples: int,
    seed: int,
) -> Score:
    if not len(losses) or len(losses) != len(counts) or sum(counts) <= 0:
        raise UserError(
            f"There is nothing to score: expected a loss and a count for each text, found {len(losses)} losses and "
            f"{len(counts)} counts that sum to {sum(counts)}."
        )
    statistics = np.stack([np.asarray(losses, np.float64), np.asarray(counts, np.float64)], axis=1)
    return make_score(name, statistics, formula, signature, samples, seed, unit="", higher_is_better=False)


def _mean(sums: list[float]) -> float:
    loss, count = sums
    return loss / count if count else math.nan  # a resample may have drawn empty texts only


def _bits(sums: list[float]) -> float:
    return _mean(sums) / math.log(2)


def _exponential(sums: list[float]) -> float:
    mean = _mean(sums)
    return math.exp(mean) if mean < 700 else math.inf
