"""Scores of answers, each with its signature and a bootstrap confidence interval.

`scores` is what they share, `sequences` scores converted sequences, `labels` labels and tags, `likelihoods` plain
text, and `kinds` chooses among them.
"""

from regard.metrics.kinds import Kind, evaluate
from regard.metrics.labels import (
    accuracy,
    confusion,
    macro_f1,
    render_confusion,
    single_tags,
    span_f1,
    span_precision,
    span_recall,
    spans,
    tag_accuracy,
)
from regard.metrics.likelihoods import bits_per_character, cross_entropy, perplexity
from regard.metrics.scores import (
    SAMPLES,
    SEED,
    Formula,
    References,
    Score,
    as_good,
    as_json,
    bootstrap,
    ranked,
    render,
    resample,
)
from regard.metrics.sequences import (
    TOKENIZERS,
    Bucket,
    Metric,
    bleu,
    by_length,
    character_error_rate,
    chrf,
    count_words,
    exact_match,
    sequence_error_rate,
    symbol_error_rate,
    word_error_rate,
)

__all__ = [
    "SAMPLES",
    "SEED",
    "TOKENIZERS",
    "Bucket",
    "Formula",
    "Kind",
    "Metric",
    "References",
    "Score",
    "accuracy",
    "as_good",
    "as_json",
    "bits_per_character",
    "bleu",
    "bootstrap",
    "by_length",
    "character_error_rate",
    "chrf",
    "confusion",
    "count_words",
    "cross_entropy",
    "evaluate",
    "exact_match",
    "macro_f1",
    "perplexity",
    "ranked",
    "render",
    "render_confusion",
    "resample",
    "sequence_error_rate",
    "single_tags",
    "span_f1",
    "span_precision",
    "span_recall",
    "spans",
    "symbol_error_rate",
    "tag_accuracy",
    "word_error_rate",
]
