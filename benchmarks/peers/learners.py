"""Programs that learn to translate, each as the function that trains for some minutes and then says its BLEU.

All learn from the batches that Regard makes of the same pairs, with the same sub-words. The folder has `config.yaml`,
Regard's recipe, and `valid.tsv`; texts are translated greedily and compared in lower case, which no clock counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.programs import CLIP, END, PAD, SMOOTHING, START, Shape, Step, batches, marian, padded

MINUTES = 3
# Adam, 1/√step after a warm-up. Transformer-Tiny's published 5e-3 after 2,000 steps had 3 BLEU in 12 minutes, as many
# steps being most of those minutes.
RATE, WARM = 1.5e-3, 600


def pairs_of(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "valid.tsv").read_text(encoding="utf-8").splitlines()
    return [(source, target) for source, target in (line.split("\t") for line in lines)]


def bleu(answers: list[str], folder: Path) -> float:
    import sacrebleu

    return float(sacrebleu.corpus_bleu(answers, [[target for _, target in pairs_of(folder)]], lowercase=True).score)


def for_some_minutes(step: Callable[[], object]) -> None:
    began = time.perf_counter()
    while time.perf_counter() - began < 60 * MINUTES:
        step()


def regard(shape: Shape, folder: Path) -> Step:  # noqa: ARG001
    """The trainer of `regard train` with a recipe whose schedule ends in time."""
    from benchmarks.peers.ours import of_config

    from regard.training.allocator import keep_memory

    keep_memory()
    trainer = of_config(folder)
    sources = [source for source, _ in pairs_of(folder)]

    def turn() -> float:
        for_some_minutes(trainer._step)
        return bleu(trainer.task.answer(sources, **trainer.task.quickly()), folder)

    return turn


def transformers(shape: Shape, folder: Path) -> Step:
    """Hugging Face's Marian in a plain loop over batches in length buckets.

    It begins as fairseq's models do: with the small weights that Marian has by itself it hardly learns at this rate.
    """
    import torch
    from benchmarks.peers.ours import of_config

    task, model, ready = of_config(folder).task, marian(shape, scale_embedding=True), batches(folder)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.xavier_uniform_(module.weight)
    torch.nn.init.normal_(model.model.shared.weight, std=shape.width**-0.5)  # the head's too: they are one
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    rate = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda n: min((n + 1) / WARM, (WARM / (n + 1)) ** 0.5))
    criterion = torch.nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=SMOOTHING)
    rows = task.source.encode_batch([source for source, _ in pairs_of(folder)])

    def step() -> None:
        source, target = padded(next(ready), start=True)
        logits = model(
            input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=target[:, :-1], use_cache=False
        ).logits
        loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        rate.step()

    @torch.no_grad()
    def answers() -> list[str]:
        found = [""] * len(rows)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for chosen in (order[i : i + 64] for i in range(0, len(order), 64)):
            wide = len(rows[chosen[-1]])
            source = torch.tensor([rows[i] + [PAD] * (wide - len(rows[i])) for i in chosen])
            made = model.generate(
                input_ids=source, attention_mask=(source != PAD).long(), num_beams=1, do_sample=False,
                max_new_tokens=2 * wide + 10,
            )  # fmt: skip
            for i, ids in zip(chosen, made.tolist(), strict=True):
                found[i] = task.target.decode([id for id in ids if id not in (PAD, START, END)])
        return found

    def turn() -> float:
        model.train()
        for_some_minutes(step)
        model.eval()
        return bleu(answers(), folder)

    return turn


LEARNERS: dict[str, Callable[[Shape, Path], Step]] = {"learn regard": regard, "learn transformers": transformers}
