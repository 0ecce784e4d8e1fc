"""The programs that are compared in decoding, each as the function that answers all texts once, from text to text.

All have the weights of one run and read the same lines of `texts.txt` with the same tokenizer. Where the folder has a
`tokens.txt` they write exactly as many tokens to each line, otherwise as many as they find right. Their answers are
left in `PROGRAM.out`, in the order of the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.programs import END, PAD, START, Shape, Step

ROWS = 64  # to a batch of the programs that leave its size to their caller
Answer = Callable[[list[str]], list[str]]


def forced(folder: Path) -> int:
    """How many tokens each answer must have; 0: any number."""
    path = folder / "tokens.txt"
    return int(path.read_text()) if path.exists() else 0


def regard(engine: str, beam: int, folder: Path) -> Answer:
    """The run, loaded as `regard predict --engine` loads it."""
    from regard.exchange import engine as engines
    from regard.runs import running

    model, tokens = running.load(folder / "run"), forced(folder)
    changes: dict[str, Any] = {"beam": beam} | ({"minimum": tokens, "longest": tokens} if tokens else {})
    engines.use(model, engine, changes, lambda _: None)
    return lambda texts: model.predict(texts, **changes)


def transformers(beam: int, folder: Path) -> Answer:
    """`generate` of Hugging Face's model over batches of texts of like length, the longest first.

    A beam ends with as many finished sequences as it is wide: faster than its own choice, which looks for better ones.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM

    from regard.runs import running

    task, tokens = running.load(folder / "run").task, forced(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder / "huggingface", attn_implementation="sdpa").eval()

    def batch(some: list[list[int]]) -> Iterator[str]:
        wide = max(map(len, some))
        source = torch.tensor([ids + [PAD] * (wide - len(ids)) for ids in some])
        found = model.generate(
            input_ids=source, attention_mask=(source != PAD).long(), num_beams=beam, do_sample=False,
            early_stopping=beam > 1, min_new_tokens=tokens, max_new_tokens=tokens or task.how.limits([wide]).maximum[0],
        )  # fmt: skip
        for ids in found.tolist():
            yield task.target.decode([id for id in ids if id not in (PAD, START, END)])

    def answer(texts: list[str]) -> list[str]:
        rows = task.source.encode_batch(texts)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]), reverse=True)
        found = [text for i in range(0, len(order), ROWS) for text in batch([rows[row] for row in order[i : i + ROWS]])]
        return [text for _, text in sorted(zip(order, found, strict=True))]

    return answer


def ctranslate2(beam: int, folder: Path, kind: str = "float32") -> Answer:
    """CTranslate2 called as its guide has it: all texts at once, sorted by itself, workers of one thread."""
    import ctranslate2
    import torch

    from regard.exchange.ctranslate2 import names
    from regard.runs import running

    task, tokens = running.load(folder / "run").task, forced(folder)
    workers = torch.get_num_threads()
    model = ctranslate2.Translator(
        str(folder / "ctranslate2"), compute_type=kind, inter_threads=workers, intra_threads=1
    )
    source, target = names(task.source), names(task.target)
    ids = {name: id for id, name in enumerate(target)}
    limits = {"min_decoding_length": tokens, "max_decoding_length": tokens} if tokens else {}

    def answer(texts: list[str]) -> list[str]:
        rows = [[source[id] for id in row] for row in task.source.encode_batch(texts)]
        found = model.translate_batch(rows, beam_size=beam, max_batch_size=max(1, ROWS // max(1, beam // 2)), **limits)
        return [task.target.decode([ids[name] for name in result.hypotheses[0]]) for result in found]

    return answer


def step(program: str, make: Callable[[Path], Answer], shape: Shape, folder: Path) -> Step:  # noqa: ARG001
    answer, texts = make(folder), (folder / "texts.txt").read_text(encoding="utf-8").splitlines()

    def answered() -> float:
        found = answer(texts)
        (folder / f"{program}.out").write_text("\n".join(found), encoding="utf-8")
        return len(found)

    return answered


DECODERS: dict[str, Callable[[Shape, Path], Step]] = {
    f"{program}, beam {beam}": partial(step, f"{program}, beam {beam}", make)
    for beam in (1, 5)
    for program, make in {
        "regard torch": partial(regard, "torch", beam),
        "transformers": partial(transformers, beam),
        "regard ctranslate2": partial(regard, "ctranslate2", beam),
        "ctranslate2": partial(ctranslate2, beam),
        "regard ctranslate2-int8": partial(regard, "ctranslate2-int8", beam),
        "ctranslate2 int8": partial(ctranslate2, beam, kind="int8"),
    }.items()
}
