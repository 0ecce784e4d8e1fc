"""Training of sub-words: byte-pair encoding, and a unigram language model over pieces."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import tokenizers
from tokenizers import models, trainers

from regard.text.tokenizer import SPACE, SPECIALS, UNKNOWN, ranked

SEED_FACTOR = 4  # unigram: how many times more pieces are tried than kept
SEED_WORDS = 200_000  # unigram: the most frequent words it learns from


def train_bpe(texts: Iterable[str], size: int, split: Any) -> tokenizers.Tokenizer:
    """Train byte-pair encoding over characters: the most frequent pair becomes one token, again and again."""
    inner = tokenizers.Tokenizer(models.BPE(unk_token=SPECIALS[UNKNOWN]))
    if split is not None:
        inner.pre_tokenizer = split
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIALS),
        initial_alphabet=[SPACE],
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return inner


def train_unigram(prepared: Iterable[str], size: int, split: Any) -> Any:
    """Train a unigram language model over pieces (Kudo 2018): P(x) = Π p(piece), the best segmentation is taken.

    The library's own trainer gives another file each time, so the loop is written here: seeds from byte-pair
    encoding, hard EM (segment, count, p = count / total), and each round drops the quarter of the pieces with the
    least loss: loss(piece) = count · (log p(piece) − log p(its best segmentation without it)).
    """
    counts: Counter[str] = Counter()
    for text in prepared:
        counts.update(word for word, _ in split.pre_tokenize_str(text))
    words = dict(ranked(counts)[:SEED_WORDS])
    characters = sorted({SPACE, *(character for word in counts for character in word)})
    weights = _seed_weights(words, characters, size)
    wanted = max(size - len(SPECIALS), len(characters))
    while True:
        scores = _log_shares(weights)
        model = _unigram_model(scores)
        used: Counter[str] = Counter()
        for word, count in words.items():
            for token in model.tokenize(word):
                used[token.value] += count
        # A character is never dropped, or some text could not be written; half a sighting keeps it improbable.
        weights = {piece: max(used[piece], 0.5) for piece in scores if used[piece] or len(piece) == 1}
        if len(weights) <= wanted:
            return _unigram_model(_log_shares(weights))
        weights = _keep_best(weights, max(wanted, int(0.75 * len(weights))))


def _seed_weights(words: dict[str, int], characters: list[str], size: int) -> dict[str, float]:
    """Return the frequency of each byte-pair piece anywhere in the words."""
    # The words are split already; frequent ones count more, but need not be repeated a million times to seed.
    texts = (word for word, count in words.items() for _ in range(min(count, 20)))
    seeds = set(train_bpe(texts, SEED_FACTOR * size, None).get_vocab()) - set(SPECIALS) | set(characters)
    longest = max(map(len, seeds))
    weights: dict[str, float] = dict.fromkeys(seeds, 0.5)
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + longest) + 1):
                if word[start:end] in seeds:
                    weights[word[start:end]] += count
    return weights


def _log_shares(weights: dict[str, float]) -> dict[str, float]:
    total = math.log(math.fsum(weights.values()))
    falling = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
    # The library reads long decimal fractions inexactly; short ones survive saving and loading.
    return {piece: round(math.log(weight) - total, 6) for piece, weight in falling}


def _unigram_model(scores: dict[str, float]) -> Any:
    return models.Unigram([*((name, 0.0) for name in SPECIALS), *scores.items()], unk_id=UNKNOWN)


def _keep_best(weights: dict[str, float], number: int) -> dict[str, float]:
    scores = _log_shares(weights)
    losses = {
        piece: math.inf if len(piece) == 1 else weight * (scores[piece] - _without(piece, scores))
        for piece, weight in weights.items()
    }
    kept = sorted(losses, key=lambda piece: (-losses[piece], piece))[:number]
    return {piece: weights[piece] for piece in kept}


def _without(piece: str, scores: dict[str, float]) -> float:
    """Return the log probability of the best segmentation of a piece into smaller ones."""
    best = [0.0] + [-math.inf] * len(piece)
    for end in range(1, len(piece) + 1):
        for start in range(end):
            part = piece[start:end]
            if part in scores and part != piece:
                best[end] = max(best[end], best[start] + scores[part])
    return best[-1]
