"""Scores of predicted text: how probable a model finds what is really there.

Given for each item (a block or a document) the sum of −log p over its tokens, in nats, and how many tokens or
characters it has. The total is divided by the total, so that it does not matter how the text was cut.
"""

import math
from collections.abc import Sequence

import numpy as np

from regard.errors import UserError
from regard.metrics.scores import SAMPLES, SEED, Formula, Score, make_score


def cross_entropy(losses: Sequence[float], tokens: Sequence[int], *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """Nats per token: Σ −log p / tokens, what training minimises."""
    return _score("cross_entropy", losses, tokens, _mean, "unit:token|log:e", samples, seed)


def perplexity(losses: Sequence[float], tokens: Sequence[int], *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """exp(Σ −log p / tokens): among so many equally probable tokens the model seems to choose.

    Tokens differ between vocabularies: compare only models with the same one.
    """
    return _score("perplexity", losses, tokens, _exponential, "unit:token", samples, seed)


def bits_per_character(
    losses: Sequence[float], characters: Sequence[int], *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Σ −log₂ p / characters: the same for every vocabulary, so that any models can be compared."""
    return _score("bits_per_character", losses, characters, _bits, "unit:character|log:2", samples, seed)


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
