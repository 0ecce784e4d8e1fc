"""The speed and memory of a Vision Transformer beside Hugging Face's, timm's and its bare matrix products.

    make bench-images, or .venv/bin/python -m benchmarks.images [--turns 9] [--threads 2] [--cpu] [--memory]

28 × 28 pixels, patches of 4, width 192, 12 layers, 3 heads, batches of 64: training steps (forward, backward, AdamW)
and inference. All take turns in one process, so that whatever else the machine does hits all of them; medians are
compared. `--cpu` measures the time of the processor rather than of the clock, for machines that are busy; `--memory`
the peak of each in a process of its own instead.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from benchmarks.measure import peak_memory
from torch import Tensor, nn

from regard.data.draws import Draws
from regard.inputs.input import Batch
from regard.inputs.patches import LabelledPictureSettings, Patches
from regard.layers.stem import Marks
from regard.models.vit import vit
from regard.network import Network
from regard.outputs.classify.head import ClassifyHead, label_loss, pool

SIDE, PATCH, WIDTH, LAYERS, HEADS, BATCH, LABELS = 28, 4, 192, 12, 3, 64, 10
HIDDEN, PLACES = 4 * WIDTH, (SIDE // PATCH) ** 2 + 1
Step = Callable[[], object]


def ours() -> tuple[nn.Module, Step, Step, Step]:
    how = LabelledPictureSettings(size=SIDE, channels=1, patch=PATCH, shift=0.07, flip=True, erase=0.2)
    reader = Patches(how, [0.28], [0.35]).marked(Marks.FIRST)
    stem, backbone = vit(layers=LAYERS, width=WIDTH, hidden=HIDDEN, heads=HEADS, dropout=0.0)
    head = ClassifyHead(pool("first", WIDTH), WIDTH, LABELS, dropout=0.0, measure=label_loss(0.0))
    network = Network(reader.module(stem), backbone, head)
    optimiser = torch.optim.AdamW(network.parameters(), fused=True)
    rows = [(np.random.default_rng(i).integers(0, 256, (1, SIDE, SIDE, 1)).astype(np.uint8),) for i in range(BATCH)]
    target = torch.arange(BATCH) % LABELS
    draws = Draws(1, 0, np.arange(BATCH), BATCH, lambda _: [])
    source = reader.collate(rows)

    def train() -> None:
        network.train()
        optimiser.zero_grad(set_to_none=True)
        network(Batch(source, target)).sum().backward()
        optimiser.step()

    def infer() -> Tensor:
        network.eval()
        with torch.no_grad():
            return network.scores(Batch(source, target))

    return network, train, infer, lambda: reader.vary(reader.collate(rows), draws)


def of_module(model: nn.Module, logits: Callable[[nn.Module, Tensor], Tensor]) -> tuple[Step, Step]:
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    x, target = torch.randn(BATCH, 1, SIDE, SIDE), torch.arange(BATCH) % LABELS

    def train() -> None:
        model.train()
        optimiser.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(logits(model, x), target).backward()
        optimiser.step()

    def infer() -> Tensor:
        model.eval()
        with torch.no_grad():
            return logits(model, x)

    return train, infer


def hugging_face() -> tuple[Step, Step]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=HIDDEN,
        image_size=SIDE, patch_size=PATCH, num_channels=1, num_labels=LABELS, attn_implementation="sdpa",
    )  # fmt: skip
    return of_module(ViTForImageClassification(config), lambda model, x: model(x).logits)


class _Names(type):
    """A class that has whatever attribute it is asked for."""

    def __getattr__(cls, name: str) -> str:
        return name


class Stub(ModuleType):
    """A module that has whatever class it is asked for: timm imports torchvision, of which its models use nothing."""

    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or _Names(name, (nn.Module,), {})


def timm_model() -> tuple[Step, Step] | None:
    parts = "", ".datasets", ".models", ".models.feature_extraction", ".ops", ".ops.misc"
    names = ["torchvision" + part for part in (*parts, ".transforms", ".transforms.functional")]
    sys.path.append(str(Path(__file__).parent / "peers" / "pictures"))
    sys.modules.update({name: Stub(name) for name in names})
    try:
        from timm.models.vision_transformer import VisionTransformer
    except ImportError:
        return None
    finally:
        for name in names:  # Hugging Face asks whether there is a real one
            del sys.modules[name]
    model = VisionTransformer(
        img_size=SIDE, patch_size=PATCH, in_chans=1, num_classes=LABELS, embed_dim=WIDTH, depth=LAYERS, num_heads=HEADS
    )
    return of_module(model, lambda model, x: model(x))


def products() -> tuple[Step, Step]:
    """The matrix products of the layers alone: with those of the backward pass, twice as many, and forward alone."""
    x, wide = torch.randn(BATCH * PLACES, WIDTH), torch.randn(BATCH * PLACES, HIDDEN)
    square, inner, outer = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, HIDDEN), torch.randn(HIDDEN, WIDTH)
    q = torch.randn(BATCH * HEADS, PLACES, WIDTH // HEADS)
    a = torch.randn(BATCH * HEADS, PLACES, PLACES)

    def forward() -> None:
        for _ in range(LAYERS):
            for _ in range(4):
                x @ square
            x @ inner
            wide @ outer
            q @ q.mT
            a @ q

    def both() -> None:
        for _ in range(3):
            forward()

    return both, forward


MEASURED = """
import torch
torch.set_num_threads({threads})
from benchmarks import images
made = images.{maker}()
made = made[1:] if images.{maker} is images.ours else made
mark()
made[{side}]()
made[{side}]()
"""


def memory(threads: int) -> None:
    """Print the peak of two steps and of two answers of each, in MB beside what was there before them."""
    for what, side in (("training", 0), ("inference", 1)):
        used = {
            maker: peak_memory(MEASURED.format(threads=threads, maker=maker, side=side))
            for maker in ("ours", "hugging_face", "timm_model")
        }
        print(f"{what}, MB: " + ", ".join(f"{maker} {each:.0f}" for maker, each in used.items()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--memory", action="store_true")
    given = parser.parse_args()
    if given.memory:
        memory(given.threads)
        return
    clock = time.process_time if given.cpu else time.perf_counter
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    _, train, infer, load = ours()
    pairs: dict[str, tuple[Step, Step]] = {"regard": (train, infer), "transformers": hugging_face()}
    if (peer := timm_model()) is not None:
        pairs["timm"] = peer
    pairs["bare products"] = products()
    for what, side in (("training", 0), ("inference", 1)):
        times: dict[str, list[float]] = {name: [] for name in pairs}
        for turn in range(given.turns + 1):
            names = [*pairs]
            for name in names[turn % len(names) :] + names[: turn % len(names)]:  # nobody is always behind the same
                began = clock()
                pairs[name][side]()
                if turn:
                    times[name].append(clock() - began)
        medians = {name: statistics.median(each) for name, each in times.items()}
        print(f"{what}, ms a batch of {BATCH} ({given.threads} threads, medians of {given.turns}):")
        for name, median in medians.items():
            print(f"  {name:<14} {1000 * median:8.1f}   regard ÷ it in speed: {median / medians['regard']:.2f}")
        if side == 0:
            loads = []
            for _ in range(given.turns):
                began = clock()
                load()
                loads.append(clock() - began)
            share, took = statistics.median(loads) / medians["regard"], 1000 * statistics.median(loads)
            print(f"  reading and varying a batch: {took:.1f} ms, {100 * share:.1f} % of a step")


if __name__ == "__main__":
    main()
