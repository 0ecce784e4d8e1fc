"""The programs that are compared, each as the function that makes its next training step.

A program is `make(shape, folder)`: a model of that shape, ready to train, and a function that trains on the next batch
of those that lie in the folder, the same for all. Each runs in the environment that has its library, so nothing but
numpy is imported before one is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import numpy as np

PAD, UNKNOWN, START, END = range(4)  # as in Regard; the peers are told so
SMOOTHING, CLIP, RATE = 0.1, 1.0, 1e-4
Step = Callable[[], float]
Rows = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Shape:
    """An encoder–decoder: a Transformer, or LSTMs (one layer each way of half the width) with attention."""

    kind: str  # transformer or rnn
    layers: int
    width: int
    hidden: int
    heads: int
    size: int  # of the joint vocabulary
    dropout: float


def batches(folder: Path) -> Iterator[Rows]:
    """Those that `ours.write` has put there, again and again."""
    found = np.load(folder / "batches.npz")
    source, target = (np.split(found[side], found[f"{side}_ends"][:-1]) for side in ("source", "target"))
    rows = list(zip(source, target, strict=True))
    ends = [0, *found["batch_ends"]]
    return cycle([rows[start:end] for start, end in pairwise(ends)])


def padded(rows: Rows, *, start: bool) -> tuple[Any, Any]:
    """Two tensors (rows, longest) of a batch; the target begins with START if asked to, and ends with END."""
    import torch

    def fill(found: list[np.ndarray]) -> Any:
        whole = np.full((len(found), max(map(len, found))), PAD, np.int64)
        for row, ids in zip(whole, found, strict=True):
            row[: len(ids)] = ids
        return torch.from_numpy(whole)

    head = [START] if start else []
    return fill([source for source, _ in rows]), fill([np.array([*head, *target, END]) for _, target in rows])


def regard(shape: Shape, folder: Path) -> Step:
    """The step of `regard train` itself, on rows that are stored as it stores them."""
    from benchmarks.peers.ours import trainer

    from regard.training.allocator import keep_memory

    keep_memory()
    ours = trainer(shape, folder)

    def step() -> float:
        return float(ours._step()[0])

    return step


def marian(shape: Shape, **more: Any) -> Any:
    """Hugging Face's model of this shape."""
    from transformers import MarianConfig, MarianMTModel

    both = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (("layers", shape.layers), ("ffn_dim", shape.hidden), ("attention_heads", shape.heads))
    }
    settings = MarianConfig(
        vocab_size=shape.size, d_model=shape.width, dropout=shape.dropout, attention_dropout=0.0, pad_token_id=PAD,
        activation_dropout=shape.dropout, activation_function="relu", eos_token_id=END, decoder_start_token_id=START,
        forced_eos_token_id=None, attn_implementation="sdpa", bos_token_id=START, **both, **more,
    )  # fmt: skip
    return MarianMTModel(settings)


def transformers(shape: Shape, folder: Path) -> Step:
    """MarianMTModel of Hugging Face in a plain loop; the batches are in length buckets, which its own trainer lacks."""
    import torch

    model = marian(shape).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    criterion = torch.nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=SMOOTHING)
    ready = batches(folder)

    def step() -> float:
        source, target = padded(next(ready), start=True)
        given, wanted = target[:, :-1], target[:, 1:]
        logits = model(
            input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=given, use_cache=False
        ).logits
        loss = criterion(logits.flatten(0, 1), wanted.flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        return loss.item()

    return step


def opennmt(shape: Shape, folder: Path) -> Step:
    """OpenNMT-py's model, loss, optimiser and the step of its trainer, built from its own options."""
    import onmt
    from onmt.model_builder import build_model
    from onmt.opts import train_opts
    from onmt.trainer import Trainer
    from onmt.utils.loss import LossCompute
    from onmt.utils.optimizers import Optimizer
    from onmt.utils.parse import ArgumentParser
    from onmt.utils.statistics import Statistics
    from pyonmttok import build_vocab_from_tokens

    parser = ArgumentParser()
    train_opts(parser)
    options, _ = parser.parse_known_args(_options(shape))
    ArgumentParser.update_model_opts(options)
    special = ["<blank>", "<unk>", "<s>", "</s>"]
    words = build_vocab_from_tokens([f"w{i}" for i in range(4, shape.size)], special_tokens=special)
    words.default_id = UNKNOWN
    vocabularies = {"src": words, "tgt": words, "decoder_start_token": "<s>"}
    model = build_model(options, options, vocabularies, None, -1)
    model.count_parameters(log=lambda _: None)
    loss = LossCompute.from_opts(options, model, words)
    trainer = Trainer(model, loss, loss, None, None, Optimizer.from_opt(model, options), n_gpu=0, gpu_rank=-1)
    model.train()
    ready = batches(folder)
    assert onmt.__version__ == "3.5.1"

    def step() -> float:
        rows = next(ready)
        source, target = padded(rows, start=True)
        batch = {
            "src": source.unsqueeze(2),
            "srclen": (source != PAD).sum(1),
            "tgt": target.unsqueeze(2),
            "tgtlen": (target != PAD).sum(1),
        }
        found = Statistics()
        tokens = sum(len(target) + 1 for _, target in rows)
        trainer._gradient_accumulation([batch], tokens, Statistics(), found)
        return float(found.loss / tokens)

    return step


def _options(shape: Shape) -> list[str]:
    """The command line of `onmt_train` for this shape."""
    common = {
        "data": "{}", "src_vocab": "none", "share_vocab": "", "share_embeddings": "", "share_decoder_embeddings": "",
        "layers": shape.layers, "hidden_size": shape.width, "word_vec_size": shape.width, "dropout": shape.dropout,
        "attention_dropout": 0, "label_smoothing": SMOOTHING, "optim": "adam", "adam_beta2": 0.98,
        "max_grad_norm": CLIP, "learning_rate": RATE, "normalization": "tokens", "param_init": 0,
        "param_init_glorot": "",
    }  # fmt: skip
    if shape.kind == "transformer":
        own = {
            "encoder_type": "transformer", "decoder_type": "transformer", "transformer_ff": shape.hidden,
            "heads": shape.heads, "position_encoding": "",
        }  # fmt: skip
    else:
        own = {
            "encoder_type": "brnn",
            "decoder_type": "rnn",
            "rnn_type": "LSTM",
            "global_attention": "mlp",
            "input_feed": 1,
        }
    return [word for key, value in (common | own).items() for word in (f"--{key}", str(value)) if word != ""]


def matmul(shape: Shape, folder: Path) -> Step:  # noqa: ARG001
    """What the machine can do at most: products of the feed-forward layer's shape at 2,048 rows, 20 to a step."""
    import torch

    x, w = torch.randn(2048, shape.width), torch.randn(shape.width, 1024)
    out = torch.empty(2048, 1024)

    def step() -> float:
        for _ in range(20):
            torch.mm(x, w, out=out)
        return 20 * 2 * 2048 * shape.width * 1024 / 1e9  # GFLOP

    return step


PROGRAMS: dict[str, Callable[[Shape, Path], Step]] = {
    "regard": regard,
    "transformers": transformers,
    "opennmt": opennmt,
    "matmul": matmul,
}
