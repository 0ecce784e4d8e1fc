"""Tagging: scores against loops, words and sub-words, invariances, and the commands on tags learned in seconds."""

import json
import random
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import log_softmax

import regard
from regard.attention import Context
from regard.data.example import Example
from regard.data.tagged import split_words
from regard.errors import UserError
from regard.inputs.input import Batch, Row
from regard.inputs.sentences import Sentences
from regard.inputs.tokens import Tokens
from regard.outputs.tag.output import Tag, TagSettings
from regard.task import Task
from regard.training.prepare import counts_of
from tests.conftest import Regard
from tests.outputs.tasks import check_resuming, check_shown, config_of, fresh

TINY = [
    "model.width=24", "model.heads=2", "model.layers=1", "tokens.spelling_width=8", "training.budget=600",
    "training.every=20", "training.rate=0.02", "training.warmup=5", "training.schedule=constant", "data.held_out=30",
    "model.dropout=0.1",
]  # fmt: skip
SPEECH = {"DET": ["the", "a", "this"], "PRON": ["I", "she", "we"], "ADV": ["here", "now"]}
STEMS = ["walk", "jump", "open", "talk", "call", "look", "turn", "work"]


def sentence(chosen: random.Random) -> tuple[list[str], list[str]]:
    """`I saw a saw`: the same word is a verb after a pronoun and a noun after a determiner; endings tell of new words."""
    stem = chosen.choice([*STEMS, "".join(chosen.choices("bcdfgaeiou", k=5))])
    words = [chosen.choice(SPEECH["PRON"]), stem, chosen.choice(SPEECH["DET"]), chosen.choice(STEMS)]
    tags = ["PRON", "VERB", "DET", "NOUN"]
    if chosen.random() < 0.5:
        words.append("".join(chosen.choices("bcdfgaeiou", k=4)) + "ly")
        tags.append("ADV")
    return words, tags


def write_speech(path: Path, count: int = 300, seed: int = 0) -> Path:
    chosen = random.Random(seed)
    blocks = ["".join(f"{w}\t{t}\n" for w, t in zip(*sentence(chosen), strict=True)) for _ in range(count)]
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def write_names(path: Path, count: int = 200, seed: int = 0) -> Path:
    """Names of one or two capitalised words among others, in BIO."""
    chosen = random.Random(seed)
    blocks = []
    for _ in range(count):
        lines = []
        for _ in range(chosen.randint(2, 4)):
            lines.append(f"{chosen.choice(STEMS)} O")
            kind = chosen.choice(["PER", "LOC"])
            first = "Mr" if kind == "PER" else "Lake"
            lines += [f"{first} B-{kind}", f"{chosen.choice(STEMS).capitalize()} I-{kind}"][: chosen.randint(1, 2)]
        blocks.append("\n".join(lines) + "\n")
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def task_of(kind: str, level: str = "words", output: str = "softmax", smoothing: float = 0.0) -> Task:
    sizes: dict[str, Any] = {"width": 16, "dropout": 0.0}
    deep = {"layers": 2, "hidden": 32, "heads": 2, **sizes}
    models = {"recurrent": sizes, "attentive": {"kind": "recurrent", "heads": 2, **sizes}}
    config = config_of(
        task="tag",
        data={"train": ["a"], "longest": 20},
        tokens={"level": level, "spelling": "lstm" if kind == "recurrent" else "cnn", "spelling_width": 6},
        output={"kind": output},
        model={"kind": kind, **models.get(kind, deep)},
        training={"smoothing": smoothing},
    )
    assert isinstance(config, TagSettings)
    chosen = random.Random(3)
    pairs = [Example(" ".join(words), " ".join(tags), "f", 1) for words, tags in (sentence(chosen) for _ in range(30))]
    task = fresh(config, pairs)
    assert isinstance(task.output, Tag)
    for parameter in task.network.parameters():  # sharper than a fresh model, so that answers differ between texts
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.5)
    return task


def sentences_of(task: Task) -> Sentences:
    assert isinstance(task.input, Tokens)
    assert task.input.sentences is not None
    return task.input.sentences


NETWORKS = [
    ("recurrent", "words", "softmax"),
    ("attentive", "words", "crf"),
    ("transformer", "words", "softmax"),
    ("bert", "bpe", "softmax"),
    ("recurrent", "unigram", "crf"),
]
TEXTS = [
    "I walk the jump",
    "",
    "she",
    "we unseenly\u00a0word a call now",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx this open",
    "a",
]


@cache
def fixed(level: str) -> Task:
    """One network for each level, for tests that change nothing in it."""
    return task_of("recurrent") if level == "words" else task_of("bert", level)


# ---- networks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", NETWORKS)
def test_alone_in_a_batch_and_in_any_order(network: tuple[str, str, str]) -> None:
    task = task_of(*network)
    together = task.answers(TEXTS)
    for text, found in zip(TEXTS, together, strict=True):
        assert found.words == split_words(text)
        assert len(found.tags) == len(found.words) == len(found.probabilities)
        (alone,) = task.answers([text])
        assert alone.tags == found.tags
        assert alone.score == pytest.approx(found.score, abs=1e-3)
        assert alone.probabilities == pytest.approx(found.probabilities, abs=1e-4)
    assert [a.tags for a in task.answers(TEXTS[::-1])][::-1] == [a.tags for a in together]
    rows = list(task.rows([Example(t, " ".join(["DET"] * len(split_words(t))), "f", 1) for t in TEXTS if t]))
    with torch.no_grad():
        for name, difference in task.invariances(rows):
            assert difference < 1e-4, name


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_from_the_formula(smoothing: float) -> None:
    task = task_of("attentive", smoothing=smoothing)
    pairs = [Example("I walk the jump", "PRON VERB DET NOUN", "f", 1), Example("she", "PRON", "f", 2)]
    rows = list(task.rows(pairs))
    batch = task.batch(rows)
    (loss,) = task.network(batch)
    logs = log_softmax(task.network.scores(batch).double(), -1)
    expected = 0.0
    for b, pair in enumerate(pairs):
        for i, tag in enumerate(pair.target.split()):
            right = logs[b, i, task.output.classes.names.index(tag)].item()
            expected -= (1 - smoothing) * right + smoothing * logs[b, i].mean().item()
    assert task.predictions(counts_of(rows)) == (5,)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_the_first_piece_speaks_for_its_word() -> None:
    task = task_of("bert", "bpe")
    (row,) = sentences_of(task).encode([["we", "unseenly", "a"]])
    lengths = pieces_of(row)
    assert lengths[1] > 1
    source = task.input.collate([row])
    (ids,) = source.values[0].tolist()
    assert ids[0] == 2
    assert ids[-1] == 3
    network = task.network
    positions = torch.arange(len(ids))
    states = network.backbone(Context(network.stem.embedding(torch.tensor([ids]), positions), positions)).values[0]
    place = 1
    found = network.scores(Batch(source, None))[0]
    assert len(found) == 3
    for length, scores in zip(lengths, found, strict=True):
        torch.testing.assert_close(scores, network.head.output(states[place]))
        place += length


def pieces_of(row: Row) -> list[int]:
    """Return how many sub-words each word of a row has."""
    return np.diff([*np.flatnonzero(row[1]), len(row[0])]).tolist()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30), min_size=1, max_size=8))
def test_any_words_have_one_token_each_and_come_back(texts: list[str]) -> None:
    words = [word for text in texts for word in split_words(text)]
    whole, cut = (sentences_of(fixed(level)).encode([words])[0] for level in ("words", "bpe"))
    assert len(whole[0]) == len(words) == fixed("words").input.units(whole)
    assert sum(cut[1]) == len(words) == fixed("bpe").input.units(cut)
    for task, row in ((fixed("words"), whole), (fixed("bpe"), cut)):
        assert task.input.view(" ".join(words)).unit_names() == [unicodedata.normalize("NFC", word) for word in words]
        parts = task.input.parts(row, 7)
        assert sum(task.input.units(part) for part in parts) == len(words)
        assert all(0 < len(part[0]) <= 7 for part in parts), "no part is longer than what the network reads at once"
    inside = [id for part in fixed("words").input.parts(whole, 7) for id in part[1]]
    assert inside == [*whole[1]], "every word keeps its characters"
    if max(pieces_of(cut), default=0) <= 7:
        assert [id for part in fixed("bpe").input.parts(cut, 7) for id in part[0]] == [*cut[0]]


def test_weights_of_pieces_become_weights_of_words() -> None:
    task = fixed("bpe")
    text = "we unseenly a"
    (row,) = task.input.encode([text])
    lengths = pieces_of(row)
    assert lengths[1] > 1
    n = len(row[0]) + 2
    weights = np.random.default_rng(0).random((2, n, n)).astype(np.float32)
    view = task.input.view(text)
    assert view.shown == ["▶", "we", "unseenly", "a", "■"]
    found = view.columns(weights[:, view.units])
    assert found.shape == (2, 3, 5)
    start = 1
    for number in range(3):
        own = weights[:, start]
        ends = np.cumsum([1, *lengths, 1])
        expected = [own[:, a:b].sum(-1) for a, b in zip([0, *ends], ends, strict=False)]
        assert found[:, number] == pytest.approx(np.stack(expected, -1), rel=1e-5)
        start += lengths[number]


def test_a_long_text_is_tagged_in_parts() -> None:
    task = fixed("bpe")
    words = (STEMS * 5)[:37]
    (found,) = task.answers([" ".join(words)])
    assert found.words == words
    assert len(found.tags) == 37
    with pytest.raises(UserError, match="too long to show"):
        task.exhibit(" ".join(words), None)


# ---- the commands --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def speech(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    def make(folder: Path) -> None:
        write_speech(folder / "data.conll")
        write_speech(folder / "test.conll", 40, seed=1)
        regard.train(folder / "data.conll", folder / "run", steps=60, set=TINY, quiet=True)

    return once("speech", make)


@pytest.fixture(scope="session")
def named(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Spans: a chain is chosen for them, and F1 comes first."""

    def make(folder: Path) -> None:
        write_names(folder / "data.conll")
        write_names(folder / "test.conll", 40, seed=1)
        quick = [*TINY, "model.heads=0"]
        regard.train(folder / "data.conll", folder / "run", steps=60, set=quick, quiet=True)

    return once("named", make)


def test_it_learns_tags_from_context_and_from_endings(speech: Path) -> None:
    model = regard.load(speech / "run")
    scores, _ = model.evaluate([speech / "test.conll"])
    assert scores[0].name == "tag_accuracy"
    assert scores[0].value >= 97
    assert model.predict(["I walk a walk cacagoly", ""]) == ["PRON VERB DET NOUN ADV", ""]


def test_spans_are_chained_and_measured(named: Path) -> None:
    model = regard.load(named / "run")
    assert isinstance(model.config, TagSettings)
    assert model.config.output.kind == "crf"
    scores, answers = model.evaluate([named / "test.conll"])
    assert scores[0].name == "span_f1"
    assert scores[0].value >= 95
    for answer in answers:
        tags = answer.split()
        for before, tag in zip(["O", *tags], tags, strict=False):
            assert not tag.startswith("I-") or before[2:] == tag[2:], answer


def test_predict_one_line_for_each(cli: Regard, speech: Path) -> None:
    given_lines = "I walk a walk\n\n  she open this call \n"
    lines = cli.lines("predict", speech / "run", given=given_lines)
    assert lines == ["I/PRON walk/VERB a/DET walk/NOUN", "", "she/PRON open/VERB this/DET call/NOUN"]
    scored = cli.lines("predict", speech / "run", "--with-score", given=given_lines)
    assert scored[1] == ""
    assert float(scored[0].split("\t")[0]) < 0
    objects = cli.objects("predict", speech / "run", given=given_lines)
    assert objects[0]["words"] == ["I", "walk", "a", "walk"]
    assert objects[0]["tags"] == ["PRON", "VERB", "DET", "NOUN"]
    assert all(0 < p <= 1 for p in objects[0]["probabilities"])
    assert objects[0]["score"] == pytest.approx(np.log(objects[0]["probabilities"]).sum(), abs=1e-4)
    assert objects[1]["tags"] == []
    cli.run("predict", speech / "run", "a", "--beam", "3", code=1)
    assert "--beam: a model that tags parts of texts" in cli.said


def test_evaluate_show_and_check(cli: Regard, speech: Path, named: Path) -> None:
    report = cli.run("evaluate", speech / "run", speech / "test.conll", "--by-length")
    assert "accuracy" in report
    assert "expected ↓  answered →" in report
    assert json.loads(cli.run("evaluate", named / "run", named / "test.conll", "--json"))["scores"]
    for run in (speech, named):  # with self-attention, and without any
        text = "I walk a walk"
        for name in ("a.png", "a.html", "a.npz"):
            cli.run("show", run / "run", text, "-o", name)
            assert Path(name).stat().st_size > 500
        cli.run("show", run / "run", text, "--grid", "-o", "grid.svg")
        assert cli.run("check", run / "run").count("  ok  ") == 2
    cli.run("show", speech / "run", "I walk", "--answer", "PRON NOUN", "-o", "other.png")
    for arguments, words in [
        (["I walk", "--answer", "PRON"], "--answer has 1 tags, expected one for each of 2 words"),
        (["I walk", "--answer", "PRON X"], "'X', which is not a tag of this model, expected some of"),
        (["  "], "is empty: there is nothing to look at"),
    ]:
        cli.run("show", speech / "run", *arguments, code=1)
        assert words in cli.said


@pytest.mark.parametrize(
    "setting",
    [
        ["model.kind=transformer", "model.width=24", "model.heads=2", "tokens.spelling=lstm", "output.kind=crf"],
        ["model.kind=bert", "tokens.level=bpe", "tokens.size=60", "model.width=24", "model.layers=2"],
        ["model.kind=recurrent", "model.width=24", "model.cell=gru", "tokens.level=unigram", "tokens.size=80"],
    ],
)
def test_every_network_trains_and_shows(tmp_path: Path, setting: list[str]) -> None:
    data = write_names(tmp_path / "data.conll", 60)
    small = [s for s in TINY if not s.startswith("model.")]
    model = regard.train(data, tmp_path / "run", steps=4, set=[setting[0], *small, *setting[1:]], quiet=True)
    text = "Mr Walk open"
    answer, empty = model.task.answers([text, ""])
    known = {tag for line in data.read_text(encoding="utf-8").splitlines() if line for tag in line.split()[1:]}
    assert model.predict([text, ""]) == [" ".join(answer.tags), ""]
    assert len(answer.tags) == 3
    assert {*answer.tags} <= known
    assert all(0 < chance <= 1 for chance in answer.probabilities)
    assert empty.tags == []
    check_shown(model, text, answer.tags)


def test_resumed_equals_uninterrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_names(tmp_path / "data.conll", 60)
    wanted = [*TINY, "training.every=5", "tokens.unknown=0.3"]
    check_resuming(tmp_path, monkeypatch, data, 12, set=wanted)


@pytest.mark.parametrize(
    ("given_settings", "words"),
    [
        (["model.kind=bert"], "model.kind=bert reads sub-words: set tokens.level to bpe or unigram"),
        (["tokens.spelling_width=200"], "leaves nothing of the width 24 for words"),
        (["model.heads=5"], "the heads must divide the width"),
        (["output.kind=best"], "output.kind"),
        (["tokens.level=characters"], "tokens.level"),
    ],
)
def test_faults_are_one_sentence(tmp_path: Path, given_settings: list[str], words: str) -> None:
    data = write_speech(tmp_path / "data.conll", 60)
    with pytest.raises(UserError, match=words):
        regard.train(data, tmp_path / "run", steps=1, set=[*TINY, *given_settings], quiet=True)


def test_what_is_chosen_has_its_reasons(cli: Regard, tmp_path: Path) -> None:
    report = cli.run("check", write_names(tmp_path / "data.conll", 60))
    for key in ("tokens.size", "model.kind", "output.kind"):
        assert f"  {key}: " in report
