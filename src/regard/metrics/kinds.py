"""The metrics for each kind of answer."""

from collections.abc import Callable, Sequence
from typing import Literal

from regard.errors import UserError
from regard.metrics.labels import accuracy, are_spans, macro_f1, span_f1, span_precision, span_recall, tag_accuracy
from regard.metrics.scores import SAMPLES, SEED, References, Score
from regard.metrics.segments import frame_accuracy, segment_f1
from regard.metrics.sequences import (
    bleu,
    character_error_rate,
    chrf,
    exact_match,
    sequence_error_rate,
    symbol_error_rate,
    word_error_rate,
)

Kind = Literal["text", "closed", "symbols", "characters", "labels", "tags", "speech", "segments"]

_METRICS: dict[str, tuple[Callable[..., Score], ...]] = {
    "text": (bleu, chrf, exact_match),
    "closed": (exact_match, symbol_error_rate),
    "symbols": (sequence_error_rate, symbol_error_rate, exact_match),
    "characters": (exact_match, character_error_rate),
    "labels": (accuracy, macro_f1),
    "tags": (tag_accuracy, exact_match),
    "speech": (word_error_rate, character_error_rate, exact_match),
    "segments": (frame_accuracy, segment_f1),
}
_CASED = (bleu, chrf)  # their signatures say whether case counts
_SPANS = (span_f1, span_precision, span_recall)  # before the others, where tags mark spans


def without_case(scores: Sequence[Score], hypotheses: Sequence[str], references: References) -> list[Score]:
    """Return scores in which those that tell case apart are replaced by ones that do not."""
    cased = {metric.__name__: metric for metric in _CASED}
    return [
        cased[score.name](hypotheses, references, lowercase=True) if score.name in cased else score for score in scores
    ]


def evaluate(
    hypotheses: Sequence[str],
    references: References,
    *,
    kind: Kind,
    lowercase: bool = False,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> list[Score]:
    """Score with the metrics of the kind, the main one first; `lowercase` compares both sides in lower case.

    The kinds are running text, texts of few words, space-separated symbols, unspaced characters, single labels, rows
    of tags (with span F1 first where the tags mark spans, such as B-person I-person O), transcripts of speech, and
    labels of frames.
    """
    if kind not in _METRICS:
        raise UserError(f"Unknown kind of sequence {kind!r}; choose one of {', '.join(_METRICS)}.")
    spans = _SPANS if kind == "tags" and are_spans(references) else ()
    if lowercase:
        hypotheses = [text.lower() for text in hypotheses]
        references = [[text.lower() for text in texts] for texts in references]
    return [
        metric(
            hypotheses, references, samples=samples, seed=seed, **({"lowercase": lowercase} if metric in _CASED else {})
        )
        for metric in (*spans, *_METRICS[kind])
    ]
