"""The programs that are compared in decoding, each as the function that answers all texts once, from text to text.

All have models of one shape with random weights, read the same lines of `texts.txt` with the same tokenizer, and write
exactly `TOKENS` tokens to each: what the weights are changes nothing in the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.programs import END, PAD, START, Shape, Step

TOKENS = 25
ROWS = 64  # to a batch of the programs that leave its size to their caller


def texts_of(folder: Path) -> list[str]:
    return (folder / "texts.txt").read_text(encoding="utf-8").splitlines()


def regard(engine: str, beam: int, shape: Shape, folder: Path) -> Step:  # noqa: ARG001
    """The run, loaded as `regard predict --engine` loads it."""
    from regard import engine as engines
    from regard import running

    model, texts = running.load(folder / "run"), texts_of(folder)
    changes: dict[str, Any] = {"beam": beam, "minimum": TOKENS, "longest": TOKENS}
    engines.use(model, engine, changes, lambda _: None)
    return lambda: TOKENS * len(model.predict(texts, **changes))


def transformers(beam: int, shape: Shape, folder: Path) -> Step:
    """`generate` of Hugging Face's Marian over batches of texts of like length, the longest first."""
    import torch
    from benchmarks.peers.programs import marian

    from regard import running

    task, texts = running.load(folder / "run").task, texts_of(folder)
    model = marian(shape).eval()

    def batch(some: list[list[int]]) -> Iterator[str]:
        wide = max(map(len, some))
        source = torch.tensor([ids + [PAD] * (wide - len(ids)) for ids in some])
        found = model.generate(
            input_ids=source, attention_mask=(source != PAD).long(), num_beams=beam, do_sample=False,
            min_new_tokens=TOKENS, max_new_tokens=TOKENS,
        )  # fmt: skip
        for ids in found.tolist():
            yield task.target.decode([id for id in ids if id not in (PAD, START, END)])

    def step() -> float:
        rows = sorted(task.source.encode_batch(texts), key=len, reverse=True)
        return TOKENS * sum(1 for i in range(0, len(rows), ROWS) for _ in batch(rows[i : i + ROWS]))

    return step


def ctranslate2(beam: int, shape: Shape, folder: Path, kind: str = "float32") -> Step:  # noqa: ARG001
    """CTranslate2 called as its guide has it: all texts at once, sorted by itself, workers of one thread."""
    import ctranslate2
    import torch

    from regard import running
    from regard.exchange.ctranslate2 import names

    task, texts = running.load(folder / "run").task, texts_of(folder)
    workers = torch.get_num_threads()
    model = ctranslate2.Translator(
        str(folder / "ctranslate2"), compute_type=kind, inter_threads=workers, intra_threads=1
    )
    source, target = names(task.source), names(task.target)
    ids = {name: id for id, name in enumerate(target)}

    def step() -> float:
        rows = [[source[id] for id in row] for row in task.source.encode_batch(texts)]
        found = model.translate_batch(
            rows, beam_size=beam, max_batch_size=max(1, ROWS // max(1, beam // 2)), min_decoding_length=TOKENS,
            max_decoding_length=TOKENS,
        )  # fmt: skip
        answers = [task.target.decode([ids[name] for name in result.hypotheses[0]]) for result in found]
        return TOKENS * len(answers)

    return step


DECODERS: dict[str, Callable[[Shape, Path], Step]] = {}
for size in (1, 5):
    DECODERS |= {
        f"regard torch, beam {size}": partial(regard, "torch", size),
        f"transformers, beam {size}": partial(transformers, size),
        f"regard ctranslate2, beam {size}": partial(regard, "ctranslate2", size),
        f"ctranslate2, beam {size}": partial(ctranslate2, size),
        f"regard ctranslate2-int8, beam {size}": partial(regard, "ctranslate2-int8", size),
        f"ctranslate2 int8, beam {size}": partial(ctranslate2, size, kind="int8"),
    }
