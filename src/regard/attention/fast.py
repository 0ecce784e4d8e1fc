"""The same equation through fused kernels, which never hold the m × n weights.

`fast` takes what `attend` takes and gives the same answer without the weights. Where a part has no fused form it falls
back to `attend`, and `reason` says why. Three fused forms are used: torch's scaled_dot_product_attention everywhere,
blocks of it for masks of finite reach or with a block layout (blocks.py, sparse.py), FlexAttention for other masks on
a GPU. A list of edges and kernels have forms of their own (edges.py, linear.py). On a CPU the steps of a search are
left to `attend`, which is faster there.
"""

import math
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_exporting
from torch.nn.functional import scaled_dot_product_attention

from regard.attention.blocks import blocks_of, in_blocks
from regard.attention.edges import Edges, attend_edges
from regard.attention.equation import AnyMask, attend, check, checked, lay, match_heads, positions_for
from regard.attention.kernels import Kernel
from regard.attention.linear import is_linear, linear
from regard.attention.masks import Laid
from regard.attention.mixing import Mix, ShawValues, weighted_sum
from regard.attention.normalisers import Normaliser, WeightDropout, softmax
from regard.attention.positions import Bias, BiasFunction
from regard.attention.scores import MLP, Additive, Bilinear, Score, dot, same_width, scaled_dot
from regard.attention.sparse import Softmax, chosen_of, in_chosen
from regard.layers.products import on_cpu


def fast(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    score: Score = scaled_dot,
    bias: BiasFunction | None = None,
    mask: AnyMask = None,
    normalise: Normaliser = softmax,
    mix: Mix = weighted_sum,
    q_pos: Tensor | None = None,
    k_pos: Tensor | None = None,
) -> Tensor:
    """Return the answer of `attend` with the same parts. Tensors are (batch, heads, m, d)."""
    parts: dict[str, Any] = {"score": score, "bias": bias, "normalise": normalise, "mix": mix}
    if mask is None and bias is None and k_pos is None and reason(**parts) is None:
        check(q, k, v)
        same_width(score, q, k)
        return _fused(q, k, v, score, None)
    q_pos, k_pos = positions_for(mask, q_pos, k_pos, q.shape[-2], k)
    if isinstance(mask, Edges):
        if mix is not weighted_sum:
            return attend(q, k, v, mask=mask, q_pos=q_pos, k_pos=k_pos, **parts)[0]
        k, v = match_heads(q, k, v)
        return attend_edges(q, k, v, mask, score=score, bias=bias, normalise=normalise, q_pos=q_pos, k_pos=k_pos)
    laid = mask if isinstance(mask, Tensor) else lay(mask, q_pos, k_pos)
    check(q, k, v)
    same_width(score, q, k)
    # An exported graph takes the dense form: which blocks there are depends on the positions of a batch.
    if isinstance(laid, Laid) and q.dim() == 4 and not is_exporting():
        answer = _linear_cost(parts, q, k, v, laid)
        if answer is not None:
            return answer
    return _dense(parts, q, k, v, laid, q_pos, k_pos)


def _linear_cost(parts: dict[str, Any], q: Tensor, k: Tensor, v: Tensor, laid: Laid) -> Tensor | None:
    """Return the answer at a cost linear in length; None where there is no such form or the dense one is better."""
    score = parts["score"]
    if isinstance(score, Kernel) and is_linear(**parts):
        answer = linear(q, k, v, score, laid)
        if answer is not None:
            return answer
    if not local_parts(score, parts["bias"], parts["mix"]):
        return None
    if blocks := blocks_of(laid):
        return in_blocks(partial(_dense, parts), q, k, v, blocks)
    if chosen := chosen_of(laid):
        plain = _plain(parts, q)
        if plain is not None and isinstance(score, Bilinear):
            q, parts = score.queries(q), {**parts, "score": dot}
        return in_chosen(partial(_dense, parts), q, k, v, laid, chosen, plain)
    return None


def _dense(
    parts: dict[str, Any], q: Tensor, k: Tensor, v: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor
) -> Tensor:
    """Compare all queries with all keys: fused if the parts allow, by `attend` otherwise."""
    bias: BiasFunction | None = parts["bias"]
    added = None
    if (why := reason(**parts)) is None and bias is not None:
        added = bias(q, k, q_pos, k_pos)
        why = _learned(added)
        parts = {**parts, "bias": lambda *_: added}
    if why is None and not _stepping(q, k):
        return _fused(q, k, v, parts["score"], mask, added)
    return attend(q, k, v, mask=mask, q_pos=q_pos, k_pos=k_pos, **parts)[0]


def _plain(parts: dict[str, Any], q: Tensor) -> Softmax | None:
    """Return the scale of a softmax of dot products, without bias and on a CPU; None for any other parts."""
    if not on_cpu(q) or q.dtype not in (torch.float32, torch.float64):
        return None
    if parts["bias"] is not None or reason(**parts) is not None:
        return None
    return Softmax(1 / math.sqrt(q.shape[-1]) if parts["score"] is scaled_dot else 1.0)


def _stepping(q: Tensor, k: Tensor) -> bool:
    """Return True for one query in each of many rows, a step of beam search: on a CPU the two products of `attend` then
    take two thirds of the fused kernel's time.

    In training they gain a few hundredths at most, and their rounding depends on how far a batch is padded: two
    processes would no longer have the losses of one to a millionth for as long.
    """
    if is_exporting():  # one graph for batches of all sizes
        return False
    alone = q.dim() == 4 and q.shape[-2] == 1 and q.shape[:2] == k.shape[:2]
    return alone and len(q) >= 64 and k.shape[-2] >= 8 and on_cpu(q)


def reason(
    *,
    score: Score = scaled_dot,
    bias: BiasFunction | None = None,
    normalise: Normaliser = softmax,
    mix: Mix = weighted_sum,
) -> str | None:
    """Say in one sentence why these parts have no fused kernel; None if they have one."""
    if score not in (dot, scaled_dot) and not isinstance(score, Bilinear):
        return f"the score {_name(score)} is not a dot product, and fused kernels compute nothing else"
    if isinstance(normalise, WeightDropout) and normalise.training and normalise.p > 0:
        return "attention dropout needs the weights themselves, so training with it goes without the fused kernel"
    if normalise is not softmax and not (isinstance(normalise, WeightDropout) and normalise.normalise is softmax):
        return f"the normaliser {_name(normalise)} is not softmax, and fused kernels compute nothing else"
    if mix is not weighted_sum:
        return f"the mix {_name(mix)} needs the weights themselves, and fused kernels never hold them"
    if isinstance(bias, Bias) and torch.is_grad_enabled() and any(p.requires_grad for p in bias.parameters()):
        return _learned_because
    return None


_learned_because = "the bias is learned, and the fused kernel computes no gradient for it"


def _learned(added: Tensor) -> str | None:
    return _learned_because if added.requires_grad and torch.is_grad_enabled() else None


def local_parts(score: Score, bias: BiasFunction | None, mix: Mix) -> bool:
    """Return True if the parts depend on nothing but their arguments, so that they can be computed block by block.

    A plain function may close over a whole batch; only the parts of this package are known not to.
    """
    by_pair = score in (dot, scaled_dot) or isinstance(score, Bilinear | Additive | MLP | Kernel)
    return by_pair and (bias is None or isinstance(bias, Bias)) and (mix is weighted_sum or isinstance(mix, ShawValues))


def _fused(q: Tensor, k: Tensor, v: Tensor, score: Score, mask: AnyMask, added: Tensor | None = None) -> Tensor:
    scale = None if score is scaled_dot else 1.0
    if isinstance(score, Bilinear):
        q = score.queries(q)
    triangle = isinstance(mask, Laid) and added is None and mask.triangle
    if isinstance(mask, Laid) and not triangle:
        if q.is_cuda and added is None and mask.dense is not None:
            return flex(q, k, v, mask, scale, compiled=True)
        mask = mask.dense
    if isinstance(mask, Tensor):
        mask = checked(mask, torch.Size((*q.shape[:-1], k.shape[-2])))
    allowed = None if triangle else mask
    assert allowed is None or isinstance(allowed, Tensor)
    if added is not None:
        allowed = added if allowed is None else added.masked_fill(~allowed, -math.inf)
    grouped = q.dim() >= 3 and q.shape[-3] != k.shape[-3]
    return scaled_dot_product_attention(q, k, v, attn_mask=allowed, is_causal=triangle, scale=scale, enable_gqa=grouped)


def flex(q: Tensor, k: Tensor, v: Tensor, laid: Laid, scale: float | None = None, *, compiled: bool = False) -> Tensor:
    """Call FlexAttention with this mask, laid out once per batch: it skips blocks that are masked throughout."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if "flex" not in laid.store:
        dense = laid.rows(laid.q_pos)
        dense = dense.expand(*(1,) * (4 - dense.dim()), *dense.shape[:-2], q.shape[-2], k.shape[-2])
        batched = len(dense) > 1
        laid.store["flex"] = create_block_mask(
            lambda b, h, i, j: dense[b if batched else 0, 0, i, j],  # noqa: ARG005
            B=len(dense) if batched else None,
            H=None,
            Q_LEN=q.shape[-2],
            KV_LEN=k.shape[-2],
            device=str(q.device),
        )
    kernel: Any = _compiled_flex() if compiled else flex_attention
    answer: Tensor = kernel(q, k, v, block_mask=laid.store["flex"], scale=scale, enable_gqa=q.shape[-3] != k.shape[-3])
    # FlexAttention leaves a row with nothing to attend to undefined across versions; ours is zeros everywhere.
    return answer.masked_fill(~laid.rows(laid.q_pos).any(-1, keepdim=True), 0.0)


@cache
def _compiled_flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def _name(part: object) -> str:
    return getattr(part, "__name__", type(part).__name__)
