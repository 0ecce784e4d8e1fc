"""`regard export --to ctranslate2`: Transformers that convert, for the C++ engine CTranslate2.

The weights go over as they are, with the queries, keys and values of a self-attention in one matrix, as that engine has
them. Positions that are added to the embeddings go over as a table of vectors, whatever they are computed by.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.backbones.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, FeedForward
from regard.errors import UserError
from regard.exchange import conversion
from regard.exchange.kind import refuse_parts
from regard.inputs.embedding import Embedding
from regard.inputs.tokens import TokenStem
from regard.layers.stem import Marks
from regard.models.settings import TransformerPair
from regard.network import Network
from regard.outputs.convert.head import ConvertHead
from regard.outputs.convert.output import Convert
from regard.outputs.convert.settings import ConvertSettings
from regard.runs import checksums
from regard.runs.build import read
from regard.runs.model import Model
from regard.task import Task
from regard.text.published import PublishedTokenizer
from regard.text.tokenizer import END, PAD, SPECIALS, START, UNKNOWN, Tokenizer

TOLERANCE = 1e-4  # between the log-probabilities of a model and of what was exported of it
MOST = 16_384  # positions of a table
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "swish": "SWISH"}
INSIDE = ("rotary", "shaw")  # position kinds that act inside its self-attentions as they do in ours
REASONS = {
    "alibi": "its encoder has no linear biases",
    "t5": "all its layers share one table of distances",
    "transformer-xl": "it has no such attention",
}
Ids = list[list[int]]  # rows of tokens


class Vocabularies(NamedTuple):
    """The vocabularies of source and target."""

    source: Tokenizer
    target: Tokenizer


class _Sides(NamedTuple):
    """The parts of a network, as CTranslate2 divides it."""

    source: Embedding
    encoder: Encoder
    target: Embedding
    decoder: Decoder
    output: nn.Linear


def library() -> Any:
    """Return the module of CTranslate2."""
    try:
        return importlib.import_module("ctranslate2")
    except ImportError as error:
        raise UserError("CTranslate2 is not installed: install it with `pip install 'regard[fast]'`.") from error


def translator(folder: Path, kind: str = "float32", workers: int = 1) -> Any:
    """Load a converted model, to answer by workers of one thread each.

    CTranslate2 shares OpenMP with torch and leaves it with one thread: torch gets its own back.
    """
    threads = torch.get_num_threads()
    try:
        return library().Translator(str(folder), compute_type=kind, inter_threads=workers, intra_threads=1)
    finally:
        torch.set_num_threads(threads)


def refuse(model: Model) -> None:
    """Refuse a model that CTranslate2 cannot express, with the reason."""
    task, settings = model.task, model.config.model
    if not isinstance(task.output, Convert) or task.input.alphabet is None:
        what = task.does if task.input.alphabet is not None else f"reads {task.input.noun}"
        raise UserError(
            f"A model that {what} is not converted for CTranslate2: expected a Transformer of the task convert."
        )
    if not isinstance(settings, TransformerPair):
        raise UserError(
            f"model.kind is {settings.kind}: CTranslate2 cannot express it, because it runs Transformers only."
        )
    assert isinstance(model.config, ConvertSettings)
    encoder = model.config.encoder.kind
    if encoder != "own":
        raise UserError(f"encoder.kind is {encoder}: CTranslate2 cannot express it, because it has its own encoder.")
    refuse_parts(model.config, "CTranslate2")
    if settings.position in REASONS:
        reason = REASONS[settings.position]
        raise UserError(f"model.position is {settings.position}: CTranslate2 cannot express it, because {reason}.")
    if settings.ngrams > 1:
        raise UserError(
            f"model.ngrams is {settings.ngrams}: CTranslate2 cannot express it, because it has vectors of tokens only: "
            "train with --set model.ngrams=1."
        )


def vocabularies(task: Task) -> Vocabularies:
    """Return the vocabularies of a task that was not refused."""
    assert isinstance(task.output, Convert)
    assert task.input.alphabet is not None
    return Vocabularies(task.input.alphabet, task.output.vocabulary)


def export(model: Model, folder: Path) -> float:
    """Write a new folder for CTranslate2, read it back, and return the largest difference of log-probabilities."""
    conversion.refuse_taken(folder)
    return write(model, folder)


def write(model: Model, folder: Path, more: Mapping[str, bytes] | None = None) -> float:
    """Write the converted model and `more` files; return the largest difference of log-probabilities."""
    described = specification(model)

    def fill(partial: Path) -> float:
        with checksums.writing(folder):
            described.save(str(partial))
            for name, content in (more or {}).items():
                (partial / name).write_bytes(content)
        return compared(model, partial)

    return conversion.write(folder, fill)


# ---- the model by CTranslate2's names --------------------------------------------------------------------------------


def specification(model: Model) -> Any:
    """Return the network with CTranslate2's names."""
    refuse(model)
    settings, specs = model.config.model, library().specs
    assert isinstance(settings, TransformerPair)
    own, count = _sides(model.network), settings.layers
    given: dict[str, Any] = {
        "pre_norm": settings.norm == "pre",
        "activation": getattr(specs.Activation, ACTIVATIONS[settings.activation]),
        "relative_position": settings.position == "shaw",
    }
    if settings.position == "rotary":
        given |= {"rotary_dim": settings.width // settings.heads, "rotary_interleave": False, "rotary_base": 10000.0}
    # The layer that our own alignments are taken from, as a mean over its heads.
    aligning = {"alignment_layer": max(0, count - 2), "alignment_heads": 0}
    try:
        spec = specs.TransformerSpec(
            specs.TransformerEncoderSpec(count, settings.heads, **given),
            specs.TransformerDecoderSpec(count, settings.heads, **given, **aligning),
        )
    except TypeError as error:
        raise UserError(
            f"CTranslate2 {library().__version__} is too old for this model ({error}): upgrade it."
        ) from error
    length = positions(model)
    _embed(spec.encoder, spec.encoder.embeddings[0], own.source, settings.position, length)
    _embed(spec.decoder, spec.decoder.embeddings, own.target, settings.position, length)
    for ours, theirs in zip(_layers(own.encoder), spec.encoder.layer, strict=True):
        _encoder_layer(ours, theirs)
    for ours, theirs in zip(_layers(own.decoder), spec.decoder.layer, strict=True):
        _decoder_layer(ours, theirs)
    if settings.norm == "pre":
        _norm(own.encoder.norm, spec.encoder.layer_norm)
        _norm(own.decoder.norm, spec.decoder.layer_norm)
    _linear(spec.decoder.projection, own.output)
    _register(spec, model.task, epsilon=_layers(own.decoder)[0].around_feed.norm.eps)
    spec.validate()
    spec.optimize()  # what is tied is written once
    return spec


def _sides(network: Network) -> _Sides:
    """Return the parts of a network that was not refused."""
    stem, encoder, head = network.stem, network.backbone, network.head
    assert isinstance(stem, TokenStem)
    assert isinstance(stem.embedding, Embedding)
    assert isinstance(encoder, Encoder)
    assert isinstance(head, ConvertHead)
    assert isinstance(head.decoder, Decoder)
    return _Sides(stem.embedding, encoder, head.target, head.decoder, head.output)


def positions(model: Model) -> int:
    """Return how many positions the converted model has on either side: those of every source and answer that the
    run's own settings allow. Torch does what is longer."""
    output = model.task.output
    assert isinstance(output, Convert)
    table = model.network.longest
    return min(MOST, 2 + max(output.longest, output.how.longest)) if table is None else table


def _layers(side: nn.Module) -> Any:
    return side.layers


def _embed(side: Any, embeddings: Any, ours: Embedding, position: str, length: int) -> None:
    embeddings.weight = _numbers(ours.table.weight)
    side.scale_embeddings = ours.scale != 1.0
    if position in INSIDE:
        return
    with torch.no_grad():
        if ours.place is None:
            table = torch.zeros(length, ours.table.embedding_dim)
        else:
            table = ours.place.table(torch.arange(length))  # type: ignore[operator]
    side.position_encodings.encodings = _numbers(table)


def _encoder_layer(ours: EncoderLayer, theirs: Any) -> None:
    assert isinstance(ours.attention, MultiHead)
    _self_attention(ours.attention, theirs.self_attention)
    _norm(ours.around_attention.norm, theirs.self_attention.layer_norm)
    _feed(ours.feed, ours.around_feed.norm, theirs.ffn)


def _decoder_layer(ours: DecoderLayer, theirs: Any) -> None:
    assert isinstance(ours.own, MultiHead)
    assert isinstance(ours.cross, MultiHead)
    _self_attention(ours.own, theirs.self_attention)
    _norm(ours.around_own.norm, theirs.self_attention.layer_norm)
    _linear(theirs.attention.linear[0], ours.cross.q_proj)
    _linear(theirs.attention.linear[1], ours.cross.k_proj, ours.cross.v_proj)
    _linear(theirs.attention.linear[2], ours.cross.output_proj)
    _norm(ours.around_cross.norm, theirs.attention.layer_norm)
    _feed(ours.feed, ours.around_feed.norm, theirs.ffn)


def _self_attention(ours: MultiHead, theirs: Any) -> None:
    _linear(theirs.linear[0], ours.q_proj, ours.k_proj, ours.v_proj)
    _linear(theirs.linear[1], ours.output_proj)
    bias, mix = ours.attention.bias, ours.attention.mix
    if hasattr(theirs, "relative_position_keys"):
        theirs.relative_position_keys = _numbers(bias.table)
        theirs.relative_position_values = _numbers(mix.table)


def _feed(ours: FeedForward, norm: nn.Module, theirs: Any) -> None:
    _norm(norm, theirs.layer_norm)
    _linear(theirs.linear_0, ours.inner)
    _linear(theirs.linear_1, ours.outer)


def _linear(theirs: Any, *ours: nn.Module) -> None:
    """Write linear maps of one input as one."""
    theirs.weight = np.concatenate([_numbers(each.weight) for each in ours])
    theirs.bias = np.concatenate([_numbers(each.bias) for each in ours])


def _norm(ours: Any, theirs: Any) -> None:
    theirs.gamma, theirs.beta = _numbers(ours.weight), _numbers(ours.bias)


def _numbers(tensor: Any) -> NDArray[np.float32]:
    numbers: NDArray[np.float32] = tensor.detach().cpu().float().numpy()
    return numbers


# ---- vocabularies --------------------------------------------------------------------------------------------------


def _register(spec: Any, task: Task, *, epsilon: float) -> None:
    """Write the vocabularies and the special tokens."""
    source, target = map(names, vocabularies(task))
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    config = spec.config
    config.unk_token, config.bos_token, config.eos_token = target[UNKNOWN], target[START], target[END]
    config.decoder_start_token, config.add_source_eos = target[START], Marks.LAST in task.input.marks
    config.layer_norm_epsilon = epsilon


def names(vocabulary: Tokenizer) -> list[str]:
    """Return a different name for each id: the token itself, or its number where there is no token."""
    if isinstance(vocabulary, PublishedTokenizer):
        tokens = [vocabulary.token(id) for id in range(vocabulary.size)]
    else:
        listed = vocabulary.content()["model"]["vocab"]
        tokens = (
            sorted(listed, key=lambda piece: int(listed[piece]))
            if isinstance(listed, dict)
            else [piece for piece, _ in listed]
        )
    tokens[: len(SPECIALS)] = [name or own for name, own in zip(tokens, SPECIALS, strict=False)]
    taken: set[str] = set()
    for id, name in enumerate(tokens):
        tokens[id] = f"< {id} >" if not name or name in taken else name
        taken.add(tokens[id])
    return tokens


# ---- comparison with the torch model -------------------------------------------------------------------------------


def compared(model: Model, folder: Path) -> float:
    """Return the largest difference of log-probabilities to the torch model; refuse more than the tolerance.

    Random ids of several lengths, and texts of the run's data where there are any; each token of greedy answers must be
    the best of the torch model too.
    """
    task = model.task
    engine = translator(folder)
    sources, targets = _examples(model)
    source_names, target_names = map(names, vocabularies(task))
    given = [[source_names[id] for id in row] for row in sources]
    scored = engine.score_batch(given, [[target_names[id] for id in row] for row in targets], max_input_length=0)
    theirs = torch.tensor([value for each in scored for value in each.log_probs])
    expected = torch.cat([_log_probabilities(task, *row)[1] for row in zip(sources, targets, strict=True)])
    difference = float((theirs - expected).abs().max())
    ids = {name: id for id, name in enumerate(target_names)}
    answers = engine.translate_batch(
        given, beam_size=1, max_input_length=0, max_decoding_length=16, min_decoding_length=0,
        suppress_sequences=[[target_names[PAD]], [target_names[START]]], return_end_token=True,
    )  # fmt: skip
    for source, answer in zip(sources, answers, strict=True):
        written = [ids[name] for name in answer.hypotheses[0]]
        best, chosen = _log_probabilities(task, source, written[: len(written) - (written[-1] == END)])
        difference = max(difference, float((best - chosen)[: len(written)].max()))
    if not difference <= TOLERANCE:
        raise UserError(
            f"The log-probabilities of the model in CTranslate2 differ by {difference:.1e}, expected at most "
            f"{TOLERANCE:.0e}: use --engine torch."
        )
    return difference


@torch.no_grad()
def _log_probabilities(task: Task, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
    """Return, for each token of a target and its end, the best log-probability of all allowed tokens, and its own."""
    task.network.eval()
    wanted = [*target, END]
    logs = task.network.scores(task.batch([(source, wanted)]))[0].float().log_softmax(-1)
    allowed = logs.clone()
    allowed[:, [PAD, START]] = -torch.inf
    return allowed.max(-1).values, logs[range(len(wanted)), wanted]


def _examples(model: Model) -> tuple[Ids, Ids]:
    """Return sources and targets that the converted model has positions for."""
    most, generator = min(64, positions(model) - 2), np.random.default_rng(1)
    lengths = [n for n in (1, 2, 5, 12, 30, most) if n <= most]

    def rows(size: int, counts: list[int]) -> Ids:
        return [generator.integers(min(4, size - 1), size, n).tolist() for n in counts]

    source, target = vocabularies(model.task)
    sources, targets = rows(source.size, lengths), rows(target.size, [*reversed(lengths)])
    for text, answer in islice(_pairs(model), 20):
        sources.append(source.encode(text)[:most] or [UNKNOWN])
        targets.append(target.encode(answer)[:most])
    return sources, targets


def _pairs(model: Model) -> Iterator[tuple[str, str]]:
    """Yield the run's data, where it can be read."""
    try:
        for example in read(model.config, model.config.data.train):
            yield example.source, example.target
    except UserError:
        return
