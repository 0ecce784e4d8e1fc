"""Alignments: where an answer looked, as numbers or as `0-0 1-2`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Alignment:
    """Weights (answer units, source units), rows adding to 1, with the units' names."""

    weights: NDArray[np.float32]
    rows: list[str]
    columns: list[str]
    hard: bool = True  # shown as pairs
    times: list[tuple[float, float]] | None = None  # of a recording: when each answer unit is said, in seconds

    def as_pairs(self) -> str:
        """Return the pairs; of a recording its answer units with their seconds, `one@0.10-0.42 two@0.42-0.80`."""
        if self.times is None:
            return self.pharaoh()
        pairs = zip(self.rows, self.times, strict=True)
        return " ".join(f"{name}@{start:.2f}-{end:.2f}" for name, (start, end) in pairs)

    def pharaoh(self) -> str:
        """Return `0-0 1-2`: for each answer unit the source unit it looked at most, source first."""
        return " ".join(f"{int(np.argmax(row))}-{j}" for j, row in enumerate(self.weights))

    def rounded(self) -> list[list[float]]:
        """Return the weights as JSON can hold them, with four digits."""
        return [[round(float(x), 4) for x in row] for row in self.weights]

    def as_text(self) -> str:
        """Return the pairs or times (hard), or the weights as JSON (soft)."""
        return self.as_pairs() if self.hard else json.dumps(self.rounded())

    def as_json(self) -> dict[str, Any]:
        """Return the pairs (hard) or the weights (soft), with the names of the units."""
        found = self.pharaoh() if self.hard else self.rounded()
        times = {} if self.times is None else {"times": [[round(a, 3), round(b, 3)] for a, b in self.times]}
        return {"tokens": self.rows, "source_tokens": self.columns, "alignment": found, **times}
