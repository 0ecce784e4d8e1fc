"""Attention's speed and memory against torch's own kernel, in one run: `make bench-attention`.

Three questions: does `fast` cost anything over calling scaled_dot_product_attention directly; how much does a window
save over the same kernel with a mask; and does its time per token stay flat as the length grows.
"""

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import alternate, peak_memory, ratio, report

from regard.attention import causal, fast, window

HEADS, WIDTH = 8, 64


def inputs(length: int) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, HEADS, length, WIDTH, requires_grad=True) for _ in range(3)]


def call(run: Callable[..., Tensor], tensors: list[Tensor], backward: bool) -> Callable[[], object]:
    if backward:
        upstream = torch.ones_like(tensors[0])
        return lambda: torch.autograd.grad(run(*tensors), tensors, upstream)

    def forward() -> Tensor:
        with torch.no_grad():
            return run(*tensors)

    return forward


def against_the_kernel() -> list[dict[str, Any]]:
    rows = []
    for length in (512, 2048, 8192):
        tensors = inputs(length)
        for is_causal in (False, True):
            for backward in (False, True):
                where = torch.arange(length)
                laid = causal.on(where, where) if is_causal else None
                candidates = {
                    "ours": call(lambda q, k, v, m=laid: fast(q, k, v, mask=m), tensors, backward),
                    "torch": call(lambda q, k, v, c=is_causal: sdpa(q, k, v, is_causal=c), tensors, backward),
                }
                times = alternate(candidates, {512: 61, 2048: 20, 8192: 10}[length])
                rows.append({
                    "what": f"fast ÷ sdpa, {length}" + ", causal" * is_causal + ", with backward" * backward,
                    **ratio(times, "ours", "torch"),
                    "ms": 1000 * statistics.median(times["ours"]),
                    "memory ratio": memory(length, is_causal, backward),
                })  # fmt: skip
                print(rows[-1], file=sys.stderr)
    return rows


def memory(length: int, is_causal: bool, backward: bool) -> float:
    """Peak of `fast` ÷ peak of the kernel, each in a process of its own, inputs included."""
    code = f"""
import torch
from regard.attention import fast, causal
from torch.nn.functional import scaled_dot_product_attention as sdpa
def run(length):
    x = [torch.randn(1, {HEADS}, length, {WIDTH}, requires_grad={backward}) for _ in range(3)]
    with torch.set_grad_enabled({backward}):
        y = RUN
        if {backward}: y.sum().backward()
run(64)  # so that the code itself is in memory already
mark()
run({length})
"""
    ours = f"fast(*x, mask={'causal' if is_causal else None})"
    runs = {"ours": code.replace("RUN", ours), "torch": code.replace("RUN", f"sdpa(*x, is_causal={is_causal})")}
    peaks = {name: statistics.median(peak_memory(run) for _ in range(3)) for name, run in runs.items()}
    return peaks["ours"] / max(peaks["torch"], 1e-9)


def windows() -> list[dict[str, Any]]:
    rule, length = window(256, 0), 8192
    where, tensors = torch.arange(length), inputs(length)
    laid, dense = rule.on(where, where), rule.on(where, where).dense
    candidates = {
        "masked sdpa": call(lambda q, k, v: sdpa(q, k, v, attn_mask=dense), tensors, True),
        "window": call(lambda q, k, v: fast(q, k, v, mask=laid), tensors, True),
    }
    times = alternate(candidates, 5)
    rows = [{"what": "masked sdpa ÷ window of 256, 8192 with backward", **ratio(times, "masked sdpa", "window")}]
    lengths = (2048, 4096, 8192, 16384, 32768)
    runs = {}
    for n in lengths:
        where_n = torch.arange(n)
        laid_n = rule.on(where_n, where_n)
        runs[str(n)] = call(lambda q, k, v, m=laid_n: fast(q, k, v, mask=m), inputs(n), True)
    times = alternate(runs, 7)
    per_token = {n: [t / n for t in times[str(n)]] for n in lengths}
    for n in lengths[1:]:
        row = ratio({"long": per_token[n], "short": per_token[lengths[0]]}, "long", "short")
        rows.append(
            {
                "what": f"window: time per token at {n} ÷ at {lengths[0]}",
                **row,
                "ms": 1000 * statistics.median(times[str(n)]),
            }
        )
    return rows


def masks_once_per_batch() -> list[dict[str, Any]]:
    """Six layers with one laid mask against six layers that each lay their own."""
    length = 1024
    where, tensors = torch.arange(length).expand(4, -1).clone(), [x.expand(4, -1, -1, -1) for x in inputs(length)]
    where[1:, 900:] = -1

    def six(shared: bool) -> Callable[[], object]:
        def run() -> None:
            with torch.no_grad():
                laid = causal.on(where, where)
                for _ in range(6):
                    fast(*tensors, mask=laid if shared else causal, q_pos=where, k_pos=where)

        return run

    times = alternate({"once": six(True), "each": six(False)}, 9)
    return [{"what": "mask laid in each of 6 layers ÷ once per batch", **ratio(times, "each", "once")}]


if __name__ == "__main__":
    report("attention", against_the_kernel() + windows() + masks_once_per_batch())
