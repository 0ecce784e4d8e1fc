"""A training step of a small language model against torch's own layers in a plain loop: `make bench-language`.

The shape is nanoGPT's for a CPU: 4 layers, width 128, 4 heads, context 64, 12 rows, characters. Ours is
the step of `regard train` itself, from stored tokens to updated weights; the other is nn.TransformerEncoder (pre-LN,
GELU, causal mask, no dropout) with AdamW, gradient clipping and batches cut from an array, as one writes it by hand.
"""

import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import alternate, ratio, report

from regard import config
from regard.training.loop import Trainer
from regard.training.prepare import prepare
from regard.training.progress import Progress

LAYERS, WIDTH, HEADS, CONTEXT, ROWS = 4, 128, 4, 64, 12
SHAPE = {"layers": LAYERS, "width": WIDTH, "hidden": 4 * WIDTH, "heads": HEADS}
STEPS, TURNS = 10, 15  # steps to a turn
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,:;!?'-&$3"


class Plain(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(size, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, size)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(CONTEXT))
        logits: Tensor = self.head(self.encoder(x, mask=self.mask, is_causal=True))
        return logits


def plain(size: int) -> Callable[[], float]:
    """One step of a plain loop."""
    torch.manual_seed(0)
    network, data = Plain(size).train(), np.random.default_rng(0).integers(4, size, 200_000).astype(np.uint16)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)

    def step() -> float:
        starts = torch.randint(len(data) - CONTEXT, (ROWS,)).tolist()
        x = torch.stack([torch.from_numpy(data[i : i + CONTEXT].astype(np.int64)) for i in starts])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + CONTEXT].astype(np.int64)) for i in starts])
        loss = nn.functional.cross_entropy(network(x).flatten(0, 1), y.flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        return loss.item()

    return step


def ours(folder: Path) -> Trainer:
    """The trainer of a run on as many letters."""
    chosen = random.Random(0)
    lines = ("".join(chosen.choices(LETTERS, k=chosen.randint(0, 60))) for _ in range(6_500))
    text = folder / "text.txt"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = config.make(
        {
            "task": "continue",
            "data": {"train": [str(text)], "held_out": 100},
            "tokens": {"level": "characters", "context": CONTEXT},
            "model": {"kind": "gpt", "dropout": 0.0, **SHAPE},
            "training": {"budget": ROWS * (CONTEXT + 1), "steps": 10**6, "minutes": None},
        },
        "the benchmark",
    )
    run = folder / "run"
    run.mkdir()
    return Trainer(settings, run, prepare(settings, run, lambda _: None), Progress(quiet=True))


def compare(threads: int, trainer: Trainer, turns: int = TURNS) -> dict[str, object]:
    torch.set_num_threads(threads)
    step = plain(trainer.task.vocabularies[0].size)
    candidates: dict[str, Callable[[], object]] = {
        "regard": lambda: [trainer._step() for _ in range(STEPS)],
        "torch": lambda: [step() for _ in range(STEPS)],
    }
    times = alternate(candidates, turns)
    each = {f"{name}, ms a step": 1000 * statistics.median(times[name]) / STEPS for name in candidates}
    return {"what": f"regard ÷ TransformerEncoder, {threads} threads", **ratio(times, "regard", "torch"), **each}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trainer = ours(Path(folder))
        report("language", [compare(threads, trainer) for threads in (1, 2)])
