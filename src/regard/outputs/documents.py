"""Networks for documents: texts so long that full attention would cost more than everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.data.survey import Survey

LONG = 1_000  # tokens of half of the texts from which on they count as documents
MOST = 16_384  # tokens of the longest rows of training
REACH = 64  # tokens that each looks back and ahead in a layer


def tokens_of(seen: Survey, level: str) -> list[int]:
    """Return about how many tokens each text has, in ascending order."""
    return sorted(len(text) if level == "characters" else len(text.split()) for text in map(str, seen.sources))


def are_documents(lengths: Sequence[int]) -> bool:
    """Return True if half of the texts are so long."""
    return bool(lengths) and lengths[len(lengths) // 2] > LONG


def document_network(lengths: Sequence[int]) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return settings of `model` and `data` for documents of these lengths, and the reasons.

    Local attention: the same weights as full attention inside of its reach, which two layers double, at a cost linear
    in length. Rotary positions are relative, so that longer documents than in training can be read.
    """
    longest = min(MOST, 64 * -(-lengths[-1] * 5 // 256))  # a quarter more than the longest, in blocks of 64
    middle = lengths[len(lengths) // 2]
    model = {"kind": "transformer", "layers": 2, "width": 128, "hidden": 256, "heads": 4, "position": "rotary"}
    model |= {"attention": "local", "reach": REACH, "dropout": 0.3}
    reasons = {
        "model.kind": f"half of the texts have more than {middle:,} tokens: a Transformer reads each in one piece",
        "model.attention": f"local: each token looks {REACH} back and {REACH} ahead, which costs about "
        f"{max(2, middle // (2 * REACH + 1)):,} times less than looking at {middle:,}",
        "data.longest": f"{longest:,} tokens: documents are read in one piece, not in parts",
    }
    return model, {"longest": longest}, reasons
