"""Attention as one equation with five replaceable parts; usable alone, in anybody's PyTorch.

    attention(q, k, v) = mix( normalise( score(q, k) + bias, mask ), v )

The parts live in scores, kernels, positions (bias), masks, normalisers and mixing; `attend` is the reference, `fast`
the same through fused kernels and in linear time where there is such a form, `MultiHead` the layer, `Layer` the
interface of layers.
"""

from regard.attention import kernels, masks, mixing, normalisers, positions, scores
from regard.attention.edges import Edges
from regard.attention.equation import attend
from regard.attention.fast import fast, reason
from regard.attention.layer import Attention, AttentionState, Context, Layer, State, Watchable
from regard.attention.masks import Mask, causal, padding, window
from regard.attention.multihead import MultiHead, pieces
from regard.attention.state import Cache, Fixed, Rolling, Sums

__all__ = [
    "Attention", "AttentionState", "Cache", "Context", "Edges", "Fixed", "Layer", "Mask", "MultiHead", "Rolling",
    "State", "Sums", "Watchable", "attend", "causal", "fast", "kernels", "masks", "mixing", "normalisers", "padding",
    "pieces", "positions", "reason", "scores", "window",
]  # fmt: skip
