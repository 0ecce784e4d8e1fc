"""`regard import` and `regard export --to huggingface`: published BERT, GPT-2, Marian and ViT models, both ways."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from regard.config import Config, render
from regard.errors import UserError
from regard.exchange import bert, conversion, gpt2, marian, vit
from regard.exchange.folder import CONFIG, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS, Facts, Weights, need
from regard.exchange.kind import Ids, PublishedKind
from regard.exchange.marian import TARGET_TOKENIZER
from regard.exchange.tokenizer import published
from regard.inputs import INPUTS
from regard.layers.stem import Marks
from regard.outputs import OUTPUTS
from regard.outputs.abilities import contents_of
from regard.runs import checkpoint, checksums, settings
from regard.runs.build import Parts, read, shapes
from regard.runs.folder import quoted, refuse_unwritable
from regard.runs.model import Model, load

# By the model_type of a config.json.
KINDS: dict[str, PublishedKind] = {
    "bert": bert.KIND,
    "gpt2": gpt2.KIND,
    "marian": marian.MARIAN,
    "pegasus": marian.PEGASUS,
    "vit": vit.KIND,
}
SEARCH = ("bad_words_ids", "num_beams", "length_penalty", "max_length")
GENERATION = (
    "bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id", "forced_eos_token_id", *SEARCH
)  # fmt: skip
TOLERANCE = 1e-5  # between the logits of a model and of what was exported of it
EXAMPLES = ("Yes, it's 7 o'clock.", "a b c", "Ärger über Öl; naïve  façade")


def take_up(folder: Path, run: Path) -> Model:
    """Write a run folder from a published model, to be used or to start a training from, and load it."""
    refuse_unwritable(folder, run)
    facts = Facts.read(need(folder, CONFIG))
    kind = KINDS.get(str(facts.get("model_type")))
    if kind is None:
        raise UserError(f"{facts.path}: model_type is {facts.get('model_type')!r}, expected one of {', '.join(KINDS)}.")
    named = facts.get("architectures")
    if named and kind.architecture not in named:
        raise UserError(f"{facts.path}: the model is a {named[0]}, expected a {kind.architecture}.")
    path = need(folder, WEIGHTS)
    weights = Weights(path, lambda name: kind.canonical(facts, name))
    parts = kind.parts(folder, facts)
    given = kind.settings(facts, parts)
    given["data"] = {"train": [str(folder)]} | given.get("data", {})
    config = settings.make({"task": kind.task, "input": kind.input} | given, str(facts.path))
    weights.refuse_unfit(_published_shapes(kind, config, parts))
    state = kind.ours(weights.load(), config, parts)
    return _write_run(run, config, parts, state, f"{kind.architecture} imported from {folder.name}")


def _published_shapes(kind: PublishedKind, config: Config, parts: Parts) -> checkpoint.Shapes:
    """Return the published names and shapes of the weights of a model of these settings; none of them is allocated."""
    own = {name: torch.empty(shape, device="meta") for name, shape in shapes(config, parts).items()}
    return {name: tuple(tensor.shape) for name, tensor in kind.theirs(own, config, parts).items()}


def _write_run(run: Path, config: Config, parts: Parts, state: dict[str, Tensor], what: str) -> Model:
    conversion.refuse_taken(run)
    input, output = parts
    count, name = sum(tensor.numel() for tensor in state.values()), quoted(run)
    card = [
        f"# {run.name}",
        "",
        f"A {what}: it {output.does}.",
        "",
        f"- parameters: {count:,}",
        f"- use it: `regard predict {name}`; train it further on your data: `regard train DATA --from {name}`",
    ]
    files: dict[str, bytes | Path] = {
        "config.yaml": render(config, {"data.train": "a published model: its data is not known"}).encode(),
        "model.safetensors": checkpoint.as_bytes(state),
        "README.md": ("\n".join(card) + "\n").encode(),
        **input.contents(),
        **contents_of(output),
    }
    with checksums.writing(run):
        run.mkdir(parents=True, exist_ok=True)
        checksums.publish(run, files)
    return load(run)


def export(model: Model, folder: Path) -> float:
    """Write a folder in the Hugging Face layout, read it back, and return the largest difference of logits."""
    config, parts = model.config, (model.task.input, model.task.output)
    kind = _kind_of(config)
    kind.refuse(config)
    conversion.refuse_taken(folder)
    facts = kind.facts(config, parts, model.network) | {
        "architectures": [kind.architecture],
        "dtype": "float32",
    }
    closed = Marks.LAST in model.task.input.marks
    names = [TOKENIZER] if config.joint else [TOKENIZER, TARGET_TOKENIZER]
    state = kind.theirs(checkpoint.weights_of(model.network), config, parts)
    writing = {key: facts[key] for key in GENERATION if facts.get(key) is not None}
    files = {
        CONFIG: _json({key: value for key, value in facts.items() if key not in SEARCH}),
        WEIGHTS: _as_bytes(state | kind.fixed(facts)),
        **({"generation_config.json": _json(writing)} if writing else {}),
        **{name: _json(content) for name, content in kind.beside(config, parts).items()},
    }
    for name, vocabulary in zip(names, kind.vocabularies(parts), strict=False):
        tokenizer, about = published(vocabulary, config.task, closed=closed)
        files[name] = _json(tokenizer)
        files.setdefault(TOKENIZER_CONFIG, _json(about))
    with checksums.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            checksums.write_whole(folder / name, content)
    return _verified(model, kind, folder)


def _kind_of(config: Config) -> PublishedKind:
    """Return the kind that a run may be exported as."""
    kinds = [kind for kind in KINDS.values() if (kind.task, kind.input) == (config.task, config.input)]
    if not kinds and config.input != "tokens":
        raise UserError(
            f"A model that reads {INPUTS[config.input].noun} has no counterpart in Hugging Face Transformers: expected "
            "one that reads texts."
        )
    if not kinds:
        tasks = ", ".join(sorted({kind.task for kind in KINDS.values() if kind.input == config.input}))
        raise UserError(
            f"A model that {OUTPUTS[config.task].does} has no counterpart in Hugging Face Transformers: expected a run "
            f"for one of {tasks}."
        )
    before = getattr(config.model, "norm", "post") == "pre"
    return kinds[-1] if before else kinds[0]


def _verified(model: Model, kind: PublishedKind, folder: Path) -> float:
    """Import what was exported, and compare: ids of texts, and logits of rows of several lengths."""
    home = Path(tempfile.mkdtemp(prefix="regard-"))
    try:
        again = take_up(folder, home / "run")
        tasks = again.task, model.task
        copies, originals = (kind.vocabularies((task.input, task.output)) for task in tasks)
        for text in _texts(model.config) if originals else ():
            for copy, original in zip(copies, originals, strict=True):
                if copy.encode(text) != original.encode(text):
                    raise UserError(f"{folder}: the tokenizer.json cuts {text[:40]!r} differently; do not use it.")
        rows = _rows(min((vocabulary.size for vocabulary in originals), default=8), model.task.most)
        with torch.no_grad():
            for task in tasks:
                task.network.eval()
            copied, expected = (kind.logits(task, rows) for task in tasks)
        difference = float((copied - expected).abs().max())
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if not difference <= TOLERANCE:
        raise UserError(f"{folder}: the exported model differs by {difference:.1e} in its logits; do not use it.")
    return difference


def _texts(config: Config) -> Iterator[str]:
    """Yield some texts, and the first of the model's data where it can be read; as they are when they are encoded."""
    yield from (" ".join(text.split()) for text in EXAMPLES)
    try:
        for example in islice(read(config, config.data.train), 100):
            yield from (" ".join(text.split()) for text in (example.source, example.target))
    except UserError:
        return


def _rows(size: int, most: int) -> Ids:
    """Return rows of 1 to 12 tokens, but at most `most`."""
    generator = torch.Generator().manual_seed(1)
    ids: Ids = torch.randint(min(4, size - 1), size, (4, 12), generator=generator).tolist()
    return [row[: min(length, most)] for row, length in zip(ids, (12, 7, 1, 10), strict=True)]


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def _as_bytes(state: dict[str, Tensor]) -> bytes:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    return save(plain, metadata={"format": "pt"})
