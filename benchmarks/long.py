"""Every kind of self-attention on long inputs: time, memory, generation, beside SDPA, an LSTM and the peer packages.

    python benchmarks/long.py            # about an hour on one core
    python benchmarks/long.py --quick    # up to 4,096 tokens

Eight heads of 64, batch 1, one thread, seconds of processor time: the machine may be busy with something else. Causal
kinds are compared with causal SDPA, others with full SDPA, in one run, the candidates taking turns. Peers are read from
benchmarks/peers/long (`make benchmarks/peers/long/installed`), Hugging Face's BigBird from the development environment.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as sdpa

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import alternate, peak_memory, report

from regard.attention import Cache, Context, MultiHead, Sums, causal, fast, masks, padding
from regard.attention.kernels import EluFeatures, FavorFeatures, Kernel
from regard.attention.normalisers import divide
from regard.attention.patterns import bigbird
from regard.attention.shortened import LengthProjection, Shortened
from regard.models.gpt import gpt
from regard.pictures.style import origin

HERE = Path(__file__).parent
HEADS, WIDTH, COLUMNS = 8, 64, 256
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
Run = Callable[[], Any]


def attend_like(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Explicit softmax attention, which holds all weights."""
    return (q @ k.mT / WIDTH**0.5).softmax(-1) @ v


def kernels(length: int) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Functions of q, k and v (1, heads, n, d)."""
    linear = {"score": Kernel(EluFeatures()), "normalise": divide}
    performer = {"score": Kernel(FavorFeatures(WIDTH, 128)), "normalise": divide}
    both, back = bigbird(64), bigbird(64, back=True)
    e, f = (LengthProjection(length, COLUMNS) for _ in range(2))
    line = torch.arange(length)
    return {
        "sdpa": sdpa,
        "sdpa causal": lambda q, k, v: sdpa(q, k, v, is_causal=True),
        "linear": lambda q, k, v: fast(q, k, v, mask=padding, **linear),
        "linear causal": lambda q, k, v: fast(q, k, v, mask=causal, **linear),
        "performer": lambda q, k, v: fast(q, k, v, mask=padding, **performer),
        "performer causal": lambda q, k, v: fast(q, k, v, mask=causal, **performer),
        "linformer": lambda q, k, v: sdpa(q, e(k, line), f(v, line)),
        "bigbird": lambda q, k, v: fast(q, k, v, mask=both),
        "bigbird causal": lambda q, k, v: fast(q, k, v, mask=back),
        "local": lambda q, k, v: fast(q, k, v, mask=masks.window(128, 128)),
        "local causal": lambda q, k, v: fast(q, k, v, mask=masks.window(256, 0)),
        "explicit": attend_like,
    }


def of_kernel(name: str, length: int, *, backward: bool) -> Run:
    torch.manual_seed(0)
    tensors = [torch.randn(1, HEADS, length, WIDTH, requires_grad=backward) for _ in range(3)]
    run = kernels(length)[name]
    if not backward:
        return lambda: run(*tensors)
    return lambda: torch.autograd.grad(run(*tensors).sum(), tensors)


# ---- layers and peers ----------------------------------------------------------------------------------------------


def of_layer(layer: nn.Module, length: int, *, backward: bool, how: Callable[[Any, Tensor], Any] | None = None) -> Run:
    x = torch.randn(1, length, HEADS * WIDTH, requires_grad=backward)

    def run() -> Tensor:
        y = layer(x) if how is None else how(layer, x)
        return y[0] if isinstance(y, tuple) else y

    if not backward:
        return run
    return lambda: torch.autograd.grad(run().sum(), [x, *layer.parameters()], allow_unused=True)


def lstm(length: int, *, backward: bool) -> Run:
    return of_layer(nn.LSTM(HEADS * WIDTH, HEADS * WIDTH, batch_first=True), length, backward=backward)


def hf_bigbird(length: int, *, backward: bool) -> Run:
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

    config = BigBirdConfig(
        hidden_size=HEADS * WIDTH, num_attention_heads=HEADS, block_size=64, num_random_blocks=3,
        max_position_embeddings=length, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    layer = BigBirdBlockSparseAttention(config, seed=1).train()
    blocked, band, start, end = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(1, length), 64)
    more = {
        "band_mask": band,
        "from_mask": start,
        "to_mask": end,
        "from_blocked_mask": blocked,
        "to_blocked_mask": blocked,
    }
    return of_layer(layer, length, backward=backward, how=lambda layer, x: layer(x, **more))


def peers() -> dict[str, Callable[..., Run]]:
    """Peer packages, where they are installed."""
    sys.path.append(str(HERE / "peers" / "long"))
    found: dict[str, Callable[..., Run]] = {"HF bigbird": hf_bigbird, "lstm": lstm}
    try:
        from linformer import LinformerSelfAttention
        from local_attention import LocalAttention
        from performer_pytorch import FastAttention
    except ImportError:
        print(
            "peers/long is not installed: performer-pytorch, linformer, local-attention are left out", file=sys.stderr
        )
        return found

    def on_heads(make: Callable[[], nn.Module]) -> Callable[..., Run]:
        def prepared(length: int, *, backward: bool) -> Run:
            module = make()
            x = [torch.randn(1, HEADS, length, WIDTH, requires_grad=backward) for _ in range(3)]
            return (lambda: torch.autograd.grad(module(*x).sum(), x)) if backward else (lambda: module(*x))

        return prepared

    found["performer-pytorch"] = on_heads(lambda: FastAttention(WIDTH, 128))
    found["performer-pytorch causal"] = on_heads(lambda: FastAttention(WIDTH, 128, causal=True))
    local = {"window_size": 128, "autopad": True, "use_rotary_pos_emb": False}
    found["local-attention"] = on_heads(lambda: LocalAttention(look_forward=1, exact_windowsize=True, **local))
    found["linformer package"] = lambda length, backward: of_layer(
        LinformerSelfAttention(HEADS * WIDTH, length, k=COLUMNS, heads=HEADS), length, backward=backward
    )
    return found


def of_ours(name: str, length: int, *, backward: bool) -> Run:
    """Our layer with its projections, for peers that have them too. HF's BigBird has no output projection."""
    width = HEADS * WIDTH
    if name == "linformer layer":
        e, f = (LengthProjection(length, COLUMNS) for _ in range(2))
        return of_layer(Shortened(width, HEADS, e, f), length, backward=backward)
    layer = MultiHead(width, HEADS, mask=bigbird(64))
    layer.output_proj = nn.Identity()
    return of_layer(layer, length, backward=backward)


PAIRS = {
    "performer-pytorch": "performer",
    "performer-pytorch causal": "performer causal",
    "local-attention": "local",
    "linformer package": "linformer layer",
    "HF bigbird": "bigbird layer",
}


# ---- what is measured ----------------------------------------------------------------------------------------------


def timed(lengths: list[int], turns: int, passes: list[bool], *, alone: bool) -> list[dict[str, Any]]:
    """Seconds of every candidate at every length, forward and with backward."""
    rows = []
    others = {} if alone else peers()
    for length in lengths:
        for backward in passes:
            names = [name for name in kernels(length) if name != "explicit" or length <= 4096]
            if length > 16384:  # minutes each
                names = [name for name in names if not name.startswith("sdpa")]
            candidates = {name: of_kernel(name, length, backward=backward) for name in names}
            if not alone:
                candidates |= {n: of_ours(n, length, backward=backward) for n in ("linformer layer", "bigbird layer")}
            for name, make in others.items():
                if length <= (4096 if name == "performer-pytorch causal" else 16384):
                    candidates[name] = make(length, backward=backward)
            slow = {n: candidates.pop(n) for n in [*candidates] if length > 4096 and n.startswith("sdpa")}
            with torch.set_grad_enabled(backward):
                times = alternate(slow, 1, time.process_time) | alternate(candidates, turns, time.process_time)
            middle = {name: statistics.median(found) for name, found in times.items()}
            for name, seconds in middle.items():
                base = "sdpa causal" if name.endswith("causal") else "sdpa"
                row = {"what": name, "tokens": length, "pass": "both" if backward else "forward", "ms": 1e3 * seconds}
                row["us a token"] = 1e6 * seconds / length
                row["times sdpa"] = middle[base] / seconds if base in middle else ""
                rows.append(row)
                print(json.dumps(row), file=sys.stderr)
            for peer, own in PAIRS.items():
                if peer in middle:
                    row = {"what": f"{own} against {peer}", "tokens": length, "pass": "both" if backward else "forward"}
                    row["times sdpa"] = middle[peer] / middle[own]
                    rows.append(row)
                    print(json.dumps(row), file=sys.stderr)
    return rows


def memory(lengths: list[int]) -> list[dict[str, Any]]:
    """Megabytes of forward and backward, each in a process of its own."""
    rows = []
    for length in lengths:
        for name in kernels(64):
            if (name == "explicit" and length > 4096) or (name.startswith("sdpa") and length > 16384):
                continue
            code = f"""
import sys
sys.path.insert(0, {str(HERE.parent)!r})
from benchmarks.long import of_kernel, torch
of_kernel({name!r}, 512, backward=True)()
run = of_kernel({name!r}, {length}, backward=True)
mark()
run()
"""
            rows.append({"what": name, "tokens": length, "pass": "memory", "MB": peak_memory(code)})
            print(json.dumps(rows[-1]), file=sys.stderr)
    return rows


def generation(positions: list[int], steps: int) -> list[dict[str, Any]]:
    """Milliseconds a token of a GPT with 6 layers of width 384, after so many tokens, by batch."""
    rows = []
    for batch in (16, 1):
        for kind in ("linear", "full"):
            torch.manual_seed(0)
            _, backbone = gpt(layers=6, width=384, hidden=1536, heads=6, context=64, attention=kind, position="none")
            backbone = backbone.eval()
            output = nn.Linear(384, 256)
            for position in positions:
                if kind == "full" and position > 16384:
                    continue
                with torch.no_grad():
                    state = _state(backbone, batch, position)
                    size = sum(x.numel() for own in state.own for x in _tensors(own)) * 4 / 2**20
                    times = []
                    for step in range(steps + 2):
                        x = torch.randn(batch, 1, 384)
                        start = time.process_time()
                        features, state = backbone.steps(Context(x, torch.tensor([position + step])), state)
                        output(features.values[:, -1]).argmax(-1)
                        times.append(time.process_time() - start)
                row = {"what": f"generation, {kind}, batch {batch}", "tokens": position, "pass": "step"}
                rows.append(row | {"ms": 1e3 * statistics.median(times[2:]), "MB": size})
                print(json.dumps(rows[-1]), file=sys.stderr)
                del state
    return rows


def _state(backbone: Any, batch: int, position: int) -> Any:
    """Return a state as it is after so many tokens: a cache filled with random keys, for reading them all takes long;
    sums of at most 512 tokens, for they are as large after any number of them."""
    where = torch.arange(8)
    _, state = backbone.steps(Context(torch.randn(batch, 8, 384), where))
    if isinstance(state.own[0], Sums):
        where = torch.arange(position - min(504, position - 8), position)
        return backbone.steps(Context(torch.randn(batch, len(where), 384), where), state)[1]
    filled = []
    for _ in state.own:
        k, v = (torch.randn(batch, 6, position, 64) for _ in range(2))
        filled.append(Cache().extend(k, v, torch.arange(position))[2])
    return type(state)(tuple(filled))


def _tensors(own: Any) -> list[Tensor]:
    if isinstance(own, Sums):
        assert own.summed is not None
        return [x for x in own.summed if x is not None]
    return [own.buffer.k[: own.length], own.buffer.v[: own.length]]


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw time for each token and peak memory against length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    shown = ["sdpa", "linear", "performer", "linformer", "bigbird", "local", "lstm"]
    for name in shown:
        line = [(r["tokens"], r["us a token"]) for r in rows if r["what"] == name and r["pass"] == "both"]
        if line:
            left.loglog(*zip(*line, strict=True), marker="o", label=name)
        line = [(r["tokens"], r["MB"]) for r in rows if r["what"] == name and r["pass"] == "memory"]
        if line:
            right.loglog(*zip(*line, strict=True), marker="o", label=name)
    line = [(r["tokens"], r["MB"]) for r in rows if r["what"] == "explicit" and r["pass"] == "memory"]
    if line:
        right.loglog(*zip(*line, strict=True), marker="x", color="black", label="explicit softmax")
    left.set(title="Forward and backward, both ways", xlabel="tokens", ylabel="µs for each token")
    right.set(title="Peak memory", xlabel="tokens", ylabel="MB")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        axes.set_xticks(LENGTHS, [f"{n:,}" for n in LENGTHS], rotation=30, minor=False)
        axes.minorticks_off()
    figure.savefig(path, dpi=110, metadata=origin())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to 4,096 tokens")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", choices=["time", "memory", "generation"])
    parser.add_argument("--lengths", type=int, nargs="*")
    parser.add_argument("--alone", action="store_true", help="without layers and peers")
    parser.add_argument("--both", action="store_true", help="only forward and backward together")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lengths = given.lengths or [n for n in LENGTHS if n <= (4096 if given.quick else LENGTHS[-1])]
    positions = [1000, 4096] if given.quick else [1000, 4096, 16384, 20000]
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "generation": lambda: generation(positions, 20),
        "memory": lambda: memory(lengths),
        "time": lambda: timed(lengths, given.turns, [True] if given.both else [False, True], alone=given.alone),
    }
    for name, measured in parts.items():
        if given.only in (None, name):
            report(f"long_{name}", measured())
    if given.plot:
        saved = [HERE / "results" / f"long_{name}.json" for name in parts]
        plot([row for path in saved if path.is_file() for row in json.loads(path.read_text())["rows"]], given.plot)


if __name__ == "__main__":
    main()
