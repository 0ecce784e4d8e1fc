"""Every kind of self-attention through the real commands: trained, checked, shown, resumed; documents read in one piece."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.attention import Sums
from regard.commands.check import check_run
from regard.commands.show import show
from regard.errors import UserError
from regard.inspection import page
from regard.runs import checkpoint, checksums
from regard.training import choose
from regard.training.loop import Interrupted, Trainer

SIZES = {
    "local": ["model.reach=3"],
    "linear": [],
    "performer": ["model.features=8", "model.redraw=3"],
    "linformer": ["model.columns=5"],
    "bigbird": ["model.block=2", "model.random=1"],
}
SMALL = ["model.width=16", "model.heads=2", "model.layers=2", "model.hidden=16", "training.budget=200"]
TASKS: dict[str, tuple[str, list[str]]] = {
    "continue": ("text.txt", ["model.position=none", "output.context=24"]),
    "fill": ("text.txt", ["model.kind=bert", "data.longest=32"]),
    "classify": ("labels.tsv", ["model.kind=transformer"]),
    "tag": ("tags.conll", ["model.kind=transformer", "tokens.spelling_width=8"]),
    "convert": ("pairs.tsv", ["model.kind=transformer"]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("kinds")
    chosen = random.Random(0)
    words = ["".join(chosen.choices("abcdefgh", k=chosen.randint(2, 5))) for _ in range(40)]
    lines = [chosen.choices(words, k=8) for _ in range(60)]
    (made / "text.txt").write_text("\n".join(" ".join(line) for line in lines))
    (made / "labels.tsv").write_text("".join(f"{' '.join(line)}\t{line[0] < 'd'}\n" for line in lines))
    (made / "pairs.tsv").write_text(
        "".join(f"{word}\t{word[::-1]}\n" for word in dict.fromkeys(itertools.chain(*lines)))
    )
    tagged = ("\n".join(f"{word}\t{'AB'[word < 'd']}" for word in line) for line in lines)
    (made / "tags.conll").write_text("\n\n".join(tagged) + "\n")
    return made


def trained(folder: Path, task: str, kind: str, out: str, *more: str, steps: int = 2) -> Any:
    file, own = TASKS[task]
    settings = [*SMALL, *own, f"model.attention={kind}", *SIZES[kind], "training.every=4", *more]
    return regard.train(folder / file, out=folder / out, task=task, steps=steps, set=settings, quiet=True)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", SIZES)
def test_every_kind_trains_is_proven_and_is_shown(folder: Path, task: str, kind: str) -> None:
    if (task, kind) == ("continue", "linformer"):
        with pytest.raises(UserError, match=r"linformer cannot look back only: .* try linear"):
            trained(folder, task, kind, "refused")
        return
    out = folder / f"{task}-{kind}"
    model = trained(folder, task, kind, out.name)
    said, sound = check_run(out, accept=False)
    assert sound, said
    assert ("causality" in said) == (task in ("continue", "convert"))
    source = {"fill": "abc ___ ab", "convert": "abcd"}.get(task, "abc def ab")
    assert model.predict([source])
    for suffix in (".png", ".html")[: 1 + (kind == "linformer")]:
        assert show(model, [source], folder / f"{out.name}{suffix}").is_file()
    exhibit = model.task.exhibit(source, "dcba" if task == "convert" else None)
    own = [m for m in exhibit.maps if m.rows in ("source", "target") and np.ndim(m.weights) == 4]
    mixed = [m for m in own if m.columns == "projected"]
    assert bool(mixed) == (kind == "linformer")
    for m in mixed:
        assert exhibit.tokens()["projected"] == page.projected_names(5)
        assert np.allclose(np.asarray(m.weights).sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", ["local", "linear", "performer"])
def test_a_state_of_constant_size_writes_beyond_the_context(folder: Path, kind: str) -> None:
    model = trained(folder, "continue", kind, f"beyond-{kind}")
    network = model.task.network
    head: Any = network.head
    state, tokens = head.start([[4, 5, 6], [7]]), torch.tensor([4, 4])
    sizes = []
    with torch.no_grad():
        for _ in range(60):  # the context is 24
            logits, state = head.step(network, tokens, state)
            tokens = logits.argmax(-1)
            sizes.append(sum(x.numel() for own in state.state.own for x in _tensors(own)) + state.ids.numel())
    assert len({*sizes[30:]}) == 1
    assert len(model.predict(["abc"], longest=60)[0]) > 30


def _tensors(state: Any) -> list[torch.Tensor]:
    kept = state.summed if isinstance(state, Sums) else (state.kept.k, state.kept.v)
    return [x for x in kept if x is not None]


def test_global_tokens_of_their_own_are_left_out_of_pictures(folder: Path) -> None:
    model = trained(folder, "classify", "bigbird", "etc", "model.extra=1")
    exhibit = model.task.exhibit("abc def ab", None)
    inside = next(m for m in exhibit.maps if m.rows == "source")
    assert np.shape(inside.weights)[-2:] == (3, 3)
    assert check_run(folder / "etc", accept=False)[1]


def stopped(folder: Path, out: str, at: Callable[[Trainer], bool], *more: str) -> None:
    inner = Trainer._step

    def step(self: Trainer) -> tuple[float, int]:
        found = inner(self)
        self.stop = at(self)
        return found

    Trainer._step = step  # type: ignore[method-assign]
    try:
        trained(folder, "continue", "performer", out, *more, steps=8)
    except (Interrupted, UserError):
        pass
    finally:
        Trainer._step = inner  # type: ignore[method-assign]


def weights(run: Path) -> str:
    return checksums.sha256(checkpoint.states(run)[-1] / "weights.safetensors")


def test_a_performer_that_redraws_resumes_to_the_same_bits_with_and_without_checkpointing(folder: Path) -> None:
    """It is stopped between two draws: the next must come at the same step, with the same features.

    Dropout included: the second pass of activation checkpointing draws what the first one drew.
    """
    found = set()
    for name, more in (("plain", []), ("again", ["training.checkpointing=true"])):
        more = [*more, "model.dropout=0.2"]
        trained(folder, "continue", "performer", f"{name}-whole", *more, steps=8)
        stopped(folder, f"{name}-parts", lambda trainer: trainer.at.step == 4, *more)
        trained(folder, "continue", "performer", f"{name}-parts", *more, steps=8)
        found |= {weights(folder / f"{name}-whole"), weights(folder / f"{name}-parts")}
    assert len(found) == 1


def test_deepnorm_trains_each_kind_of_network(folder: Path) -> None:
    for task in TASKS:
        trained(folder, task, "linear", f"deep-{task}", "model.norm=deep")
        assert check_run(folder / f"deep-{task}", accept=False)[1]


def test_settings_for_documents_name_an_attention_and_a_reason(tmp_path: Path) -> None:
    chosen = random.Random(0)
    words = ["".join(chosen.choices("abcdefgh", k=4)) for _ in range(50)]
    documents = [chosen.choices(words, k=9000) for _ in range(4)]
    (tmp_path / "labels.tsv").write_text("".join(f"{' '.join(d)}\t{d[0] < 'd'}\n" for d in documents))
    tagged = ("\n".join(f"{word}\t{'AB'[word < 'd']}" for word in d) for d in documents)
    (tmp_path / "tags.conll").write_text("\n\n".join(tagged) + "\n")
    for name, task in (("labels.tsv", "classify"), ("tags.conll", "tag")):
        config, reasons, _ = choose.choose([str(tmp_path / name)], task=task)
        assert (config.model.kind, config.model.attention) == ("transformer", "local")
        assert config.data.longest >= 9000
        assert "9,000" in reasons["model.attention"]
    (tmp_path / "text.txt").write_text("\n".join(" ".join(d) for d in documents))
    config, reasons, _ = choose.choose([str(tmp_path / "text.txt")], task="continue", given={"output.context": "8192"})
    assert (config.output.context, config.model.attention, config.model.position) == (8192, "local", "rotary")
    assert "8,192" in reasons["model.attention"]
    config, reasons, _ = choose.choose([str(tmp_path / "text.txt")], task="continue")
    assert config.model.attention == "full"
    assert "model.attention" not in reasons
