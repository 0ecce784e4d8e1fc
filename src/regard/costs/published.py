"""Published costs of translation: Vaswani et al. 2017, Table 2, newstest2014.

    cost = time · devices · 9.5 TFLOP/s (what they sustained on a P100)

That is what the machines could have computed, not what the network needed: see docs/plan.md for both side by side.
"""

from __future__ import annotations

from typing import NamedTuple

SUSTAINED = 9.5e12  # operations a second of a P100 in single precision, §6.1


class Published(NamedTuple):
    """A system with its BLEU and its operations of training, English to German and to French; None: not reported."""

    name: str
    bleu: tuple[float | None, float | None]
    flops: tuple[float | None, float | None]


TABLE = (
    Published("ByteNet", (23.75, None), (None, None)),
    Published("Deep-Att + PosUnk", (None, 39.2), (None, 1.0e20)),
    Published("GNMT + RL", (24.6, 39.92), (2.3e19, 1.4e20)),
    Published("ConvS2S", (25.16, 40.46), (9.6e18, 1.5e20)),
    Published("MoE", (26.03, 40.56), (2.0e19, 1.2e20)),
    Published("Deep-Att + PosUnk ensemble", (None, 40.4), (None, 8.0e20)),
    Published("GNMT + RL ensemble", (26.30, 41.16), (1.8e20, 1.1e21)),
    Published("ConvS2S ensemble", (26.36, 41.29), (7.7e19, 1.2e21)),
    Published("Transformer (base)", (27.3, 38.1), (3.3e18, 3.3e18)),
    Published("Transformer (big)", (28.4, 41.8), (2.3e19, 2.3e19)),
)


def by_convention(hours: float, devices: int, rate: float = SUSTAINED) -> float:
    """Return the operations that devices could have computed in so many hours."""
    return 3600 * hours * devices * rate
