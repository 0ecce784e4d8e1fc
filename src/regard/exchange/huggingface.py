"""`regard import` and `regard export --to huggingface`: published BERT, GPT-2 and Marian models, both ways."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from regard import checkpoint, running, sums
from regard import config as settings
from regard.config import Config
from regard.errors import UserError
from regard.exchange import bert, gpt2, marian
from regard.exchange.folder import CONFIG, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS, Facts, Weights, need
from regard.exchange.kind import Kind
from regard.exchange.marian import TARGET_TOKENIZER
from regard.exchange.tokenizer import published
from regard.outputs.task import Vocabularies
from regard.preparing import read, shapes
from regard.running import Model
from regard.tasks import TASKS

# By the model_type of a config.json.
KINDS: dict[str, Kind] = {
    "bert": bert.KIND,
    "gpt2": gpt2.KIND,
    "marian": marian.MARIAN,
    "pegasus": marian.PEGASUS,
}
SEARCH = ("bad_words_ids", "num_beams", "length_penalty", "max_length")
GENERATION = (
    "bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id", "forced_eos_token_id", *SEARCH
)  # fmt: skip
TOLERANCE = 1e-5  # between the logits of a model and of what was exported of it
EXAMPLES = ("Yes, it's 7 o'clock.", "a b c", "Ärger über Öl; naïve  façade")


def take_up(folder: Path, run: Path) -> Model:
    """A run folder from a published model, ready to be used or to be where a training starts from."""
    running.refuse_unwritable(folder, run)
    facts = Facts.read(need(folder, CONFIG))
    kind = KINDS.get(str(facts.get("model_type")))
    if kind is None:
        raise UserError(f"{facts.path}: model_type is {facts.get('model_type')!r}, expected one of {', '.join(KINDS)}.")
    named = facts.get("architectures")
    if named and kind.architecture not in named:
        raise UserError(f"{facts.path}: the model is a {named[0]}, expected a {kind.architecture}.")
    path = need(folder, WEIGHTS)
    weights = Weights(path, lambda name: kind.canonical(facts, name))
    vocabularies = kind.vocabularies(folder, facts)
    found = kind.settings(facts, vocabularies)
    found["data"] = {"train": [str(folder)]} | found.get("data", {})
    config = settings.make({"task": kind.task} | found, str(facts.path))
    weights.refuse_unfit(_published_shapes(kind, config, vocabularies))
    state = kind.ours(weights.load(), config, vocabularies)
    return _write_run(run, config, vocabularies, state, f"{kind.architecture} imported from {folder.name}")


def _published_shapes(kind: Kind, config: Config, vocabularies: Vocabularies) -> checkpoint.Shapes:
    """What the weights of a model of these settings are called and shaped there; none of them is allocated."""
    own = {name: torch.empty(shape, device="meta") for name, shape in shapes(config, vocabularies).items()}
    return {name: tuple(tensor.shape) for name, tensor in kind.theirs(own, config, vocabularies).items()}


def _write_run(run: Path, config: Config, vocabularies: Vocabularies, state: dict[str, Tensor], what: str) -> Model:
    _refuse_existing(run)
    task = TASKS[config.task]
    count, name = sum(tensor.numel() for tensor in state.values()), running.quoted(run)
    card = [
        f"# {run.name}",
        "",
        f"A {what}: it {task.does}.",
        "",
        f"- parameters: {count:,}",
        f"- use it: `regard predict {name}`; train it further on your data: `regard train DATA --from {name}`",
    ]
    files: dict[str, bytes | Path] = {
        "config.yaml": settings.render(config, {"data.train": "a published model: its data is not known"}).encode(),
        "model.safetensors": checkpoint.as_bytes(state),
        "README.md": ("\n".join(card) + "\n").encode(),
    }
    files |= {name: own.as_bytes() for name, own in zip(task.files, vocabularies, strict=True)}
    with sums.writing(run):
        run.mkdir(parents=True, exist_ok=True)
        sums.publish(run, files)
    return running.load(run)


def _refuse_existing(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists already: name another folder with -o.")


def export(model: Model, folder: Path) -> float:
    """A folder in the Hugging Face layout; it is read back, and the largest difference of logits is returned."""
    config, vocabularies = model.config, model.task.vocabularies
    kind = _kind_of(config)
    kind.refuse(config)
    _refuse_existing(folder)
    facts = kind.facts(config, vocabularies, model.network) | {
        "architectures": [kind.architecture],
        "dtype": "float32",
    }
    closed = getattr(model.network, "closed", False)
    names = [TOKENIZER] if getattr(config.tokens, "joint", True) else [TOKENIZER, TARGET_TOKENIZER]
    state = kind.theirs(checkpoint.weights_of(model.network), config, vocabularies)
    writing = {key: facts[key] for key in GENERATION if facts.get(key) is not None}
    files = {
        CONFIG: _json({key: value for key, value in facts.items() if key not in SEARCH}),
        "generation_config.json": _json(writing),
        WEIGHTS: _as_bytes(state | kind.fixed(facts)),
    }
    for name, vocabulary in zip(names, vocabularies, strict=False):
        tokenizer, about = published(vocabulary, config.task, closed=closed)
        files[name] = _json(tokenizer)
        files.setdefault(TOKENIZER_CONFIG, _json(about))
    with sums.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            sums.write_whole(folder / name, content)
    return _verified(model, kind, folder)


def _kind_of(config: Config) -> Kind:
    found = [kind for kind in KINDS.values() if kind.task == config.task]
    if not found:
        tasks = ", ".join(sorted({kind.task for kind in KINDS.values()}))
        raise UserError(
            f"A model that {TASKS[config.task].does} has no published kind here: expected a run for one of {tasks}."
        )
    before = getattr(config.model, "norm", "post") == "pre"
    return found[-1] if before else found[0]


def _verified(model: Model, kind: Kind, folder: Path) -> float:
    """Import what was exported, and compare: ids of texts, and logits of rows of several lengths."""
    home = Path(tempfile.mkdtemp(prefix="regard-"))
    try:
        again = take_up(folder, home / "run")
        for text in _texts(model):
            for own, other in zip(model.task.vocabularies, again.task.vocabularies, strict=True):
                if own.encode(text) != other.encode(text):
                    raise UserError(f"{folder}: the tokenizer.json cuts {text[:40]!r} otherwise; do not use it.")
        with torch.no_grad():
            ids = _rows(min(vocabulary.size for vocabulary in model.task.vocabularies))
            found, expected = (kind.logits(network.eval(), ids) for network in (again.network, model.network))
        difference = float((found - expected).abs().max())
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if not difference <= TOLERANCE:
        raise UserError(f"{folder}: the exported model differs by {difference:.1e} in its logits; do not use it.")
    return difference


def _texts(model: Model) -> Iterator[str]:
    """Some texts, and the first of the model's data where it can be read; as they are when they are encoded."""
    yield from (" ".join(text.split()) for text in EXAMPLES)
    try:
        for pair, _ in zip(
            read(model.config.data.train, model.config.task, model.config.data), range(100), strict=False
        ):
            yield from (" ".join(text.split()) for text in (pair.source, pair.target))
    except UserError:
        return


def _rows(size: int) -> Tensor:
    """Rows of 1 to 12 tokens, padded."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(min(4, size - 1), size, (4, 12), generator=generator)
    return ids.masked_fill(torch.arange(12) >= torch.tensor([[12], [7], [1], [10]]), 0)


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def _as_bytes(state: dict[str, Tensor]) -> bytes:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    return save(plain, metadata={"format": "pt"})
