"""Filling: what is hidden and how, both networks against others, blanks in texts, vectors, and all commands."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.attention import Context
from regard.config import render
from regard.data.batches import pad
from regard.errors import UserError
from regard.inputs.embedding import positions_of
from regard.inputs.input import Batch, Source
from regard.inputs.tokens import TokenStem
from regard.inspection import packing
from regard.inspection.figure import figure_of
from regard.models.bert import bert
from regard.network import Network
from regard.outputs.fill import masking
from regard.outputs.fill.head import Hidden, MaskedHead, targets_of
from regard.outputs.fill.output import Fill, Filled, cut
from regard.pictures.maps import LONGEST_LABEL
from regard.runs import checkpoint
from regard.runs.settings import load as load_settings
from regard.task import Task
from regard.text.blanks import parse
from regard.text.display import visible
from regard.text.tokenizer import END, PAD, START, UNKNOWN, Tokenizer
from regard.training.prepare import counts_of
from tests.conftest import Regard
from tests.models.networks import embedded
from tests.models.networks import ids as plain_ids
from tests.models.same import shake
from tests.models.test_bert import translated
from tests.outputs.tasks import config_of, fresh
from tests.outputs.tasks import lines as pairs

LINES = [
    "the cat sat on the mat , and the dog ran .",
    "a small red house stands near the old river .",
    "the dog saw the cat ; the cat saw the dog .",
    "an old man reads a book in the small house .",
    "don't wait : the river runs , the man waits .",
]
SHAPE: dict[str, Any] = {"layers": 2, "width": 16, "hidden": 24, "heads": 2, "dropout": 0.0}


def make(kind: str = "bert", level: str = "bpe", size: int | None = 60, **more: Any) -> Task:
    """An untrained model whose weights are large enough to matter."""
    hiding = {name: more.pop(name) for name in ("rate", "whole") if name in more}
    output = {"text": "paragraph" if more.pop("paragraphs", False) else "line"}
    data, tokens = {"train": ["a"], "longest": more.pop("longest", 24)}, {"level": level, "size": size}
    assert not more
    found = config_of(
        task="fill", data=data, tokens=tokens, output=output, hiding=hiding, model={"kind": kind, **SHAPE}
    )
    task = fresh(found, pairs(LINES * 3))
    torch.manual_seed(1)
    for parameter in task.network.parameters():  # sharper than a fresh model, so that answers differ between texts
        torch.nn.init.normal_(parameter, std=0.4)
    task.network.requires_grad_(False)
    return task


def fill(task: Task) -> Fill:
    assert isinstance(task.output, Fill)
    return task.output


def enclosed(rows: list[list[int]]) -> torch.Tensor:
    """Rows between START and END, padded."""
    return torch.from_numpy(pad([np.array([START, *row, END]) for row in rows]))


def windows_of(task: Task, windows: list[tuple[list[int], list[int]]]) -> Batch:
    """A batch of rows of which some places are hidden."""
    return fill(task).hidden(task.input.collate([(ids,) for ids, _ in windows]), windows)


# ---- hiding ------------------------------------------------------------------------------------------------------


def test_80_of_100_become_the_mask_10_another_token_and_10_stay() -> None:
    torch.manual_seed(0)
    truth = torch.full((400, 100), 50)
    hidden = torch.rand(truth.shape) < 0.5
    seen = masking.replace(truth, hidden, 200, 200)
    assert seen[~hidden].eq(50).all()
    count = int(hidden.sum())
    shares = [float(seen[hidden].eq(value).sum()) / count for value in (200, 50)]
    assert shares == pytest.approx([0.8, 0.1 + 0.1 / 196], abs=0.01)
    other = seen[hidden & (seen != 200) & (seen != 50)]
    assert len(other) / count == pytest.approx(0.1 * 195 / 196, abs=0.01)
    assert {int(other.min()), int(other.max())} == {4, 199}, "any token of the text, no special one"
    assert len(other.unique()) == 195


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_single_tokens_are_hidden_in_the_exact_number_and_never_special_ones(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=5))
    rate = data.draw(st.sampled_from([0.05, 0.15, 1 / 6, 0.5, 0.9]))
    ids = enclosed([[4 + (7 * i) % 20 for i in range(n)] for n in lengths])
    words = torch.arange(ids.shape[1]).expand(len(ids), -1)
    count = masking.how_many(np.array(lengths), rate)
    hidden = masking.hide(
        ids, words, torch.from_numpy(count), torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    )
    assert hidden.sum(1).tolist() == count.tolist() == [max(1, math.floor(rate * n + 0.5)) for n in lengths]
    for special in (PAD, START, END):
        assert not hidden[ids == special].any()


def test_every_token_is_hidden_equally_often() -> None:
    torch.manual_seed(0)
    ids = enclosed([list(range(4, 24))]).expand(4000, -1)
    words = torch.arange(ids.shape[1]).expand(len(ids), -1)
    often = masking.hide(ids, words, torch.full((4000,), 3)).float().mean(0)
    assert often[[0, -1]].eq(0).all()
    assert often[1:-1].tolist() == pytest.approx([0.15] * 20, abs=0.025)


@pytest.mark.parametrize("level", ["bpe", "unigram", "characters"])
def test_words_are_hidden_whole_and_about_as_many_tokens_as_said(level: str) -> None:
    torch.manual_seed(0)
    task = make(level=level, longest=200)
    rows = list(task.rows(pairs(LINES * 40)))
    batch = task.batch(rows)
    words = fill(task).starts(batch.target.truth)
    for row in range(len(rows)):
        for word in words[row].unique():
            part = batch.target.hidden[row][(words[row] == word) & (batch.target.truth[row] >= 4)]
            assert part.all() or not part.any()
    assert not batch.target.hidden[batch.target.truth < 4].any()
    (said,) = task.predictions(counts_of(rows))
    assert int(batch.target.hidden.sum()) / said == pytest.approx(1, abs=0.12)
    assert batch.target.hidden.any(1).all(), "every row has something to learn from"


def test_words_and_marks_from_ids() -> None:
    vocabulary = Tokenizer.train(["Yes , we don't go ."] * 3, "bpe", 30)
    ids = vocabulary.encode("we don't go, Yes.")
    numbers = masking.WordStarts(vocabulary)(torch.tensor([ids]))[0].tolist()
    grouped: dict[int, str] = {}
    for number, piece in zip(numbers, vocabulary.pieces("we don't go, Yes."), strict=True):
        grouped[number] = grouped.get(number, "") + piece.strip("▁")
    assert list(grouped.values()) == ["we", "don", "'", "t", "go", ",", "Yes", "."]


def test_unknown_tokens_are_not_hidden() -> None:
    task = make(level="words", whole=False)
    (row,) = task.rows(pairs(["the zebra sat on the quagga"]))
    assert list(row[0]).count(UNKNOWN) == 2
    hidden = torch.stack([task.batch([row]).target.hidden[0] for _ in range(60)]).any(0)
    assert hidden.tolist() == [False, True, False, True, True, True, False, False]


def test_torchs_generator_governs_what_is_hidden() -> None:
    for kind in ("bert", "xlnet"):
        task = make(kind)
        rows = list(task.rows(pairs(LINES)))
        state = torch.get_rng_state()
        first, second = task.batch(rows), task.batch(rows)
        torch.set_rng_state(state)
        again = task.batch(rows)
        assert first.source.values[0].equal(again.source.values[0])
        assert all(a.equal(b) for a, b in zip(first.target, again.target, strict=True))
        assert not first.target.hidden.equal(second.target.hidden)


def test_the_order_of_xlnet_is_a_permutation_of_what_is_hidden() -> None:
    task = make("xlnet", rate=1 / 6, whole=False)
    batch = task.batch(list(task.rows(pairs(LINES * 5))))
    assert batch.source.values[0].equal(batch.target.truth), "two streams hide by order, not by another token"
    orders = set()
    for hidden, order in zip(batch.target.hidden, batch.target.order, strict=True):
        count = int(hidden.sum())
        assert sorted(order[hidden].tolist()) == list(range(1, count + 1))
        assert not order[~hidden].any()
        orders.add(tuple(order[hidden].tolist()))
    assert len(orders) > 2
    lengths = (batch.target.truth >= 4).sum(1)
    assert batch.target.hidden.sum(1).tolist() == [max(1, math.floor(n / 6 + 0.5)) for n in lengths.tolist()]


# ---- networks ----------------------------------------------------------------------------------------------------


def test_loss_equals_hugging_faces_masked_language_model() -> None:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=16, pad_token_id=0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs = shake(BertForMaskedLM(shape).eval())
    parts = {**SHAPE, "norm": "post"}
    embedding, backbone = embedded(bert(length=16, **parts), 31)
    ours = Network(TokenStem(embedding, 0.0), backbone, MaskedHead(31, 16)).eval()
    state = theirs.state_dict()
    inner = translated({k.removeprefix("bert."): v for k, v in state.items() if k.startswith("bert.")})
    last = {
        "transform.0.weight": "transform.dense.weight", "transform.0.bias": "transform.dense.bias",
        "transform.2.weight": "transform.LayerNorm.weight", "transform.2.bias": "transform.LayerNorm.bias", "bias": "bias",
    }  # fmt: skip
    found = {name: state[f"cls.predictions.{their}"] for name, their in last.items()}
    found = {f"head.{name}": value for name, value in found.items()}
    for part, weights in zip(("stem.embedding", "backbone"), inner, strict=True):
        found |= {f"{part}.{name}": value for name, value in weights.items()}
    ours.load_state_dict(found)
    truth = enclosed([[*range(4, 16)], [20, 21, 22], [25]])
    hidden = torch.zeros_like(truth, dtype=torch.bool)
    hidden[0, [2, 5, 9]] = hidden[1, 3] = hidden[2, 1] = True
    seen = masking.replace(truth, hidden, 30, 30)
    batch = Batch(Source((seen,), positions_of(truth)), Hidden(truth, hidden, hidden.long()))
    labels = truth.masked_fill(~hidden, -100)
    their = theirs(input_ids=seen, attention_mask=(truth != 0).long(), labels=labels)
    (loss,) = ours(batch)
    assert loss.item() / 5 == pytest.approx(their.loss.item(), abs=1e-5)
    assert ours.scores(batch)[:, 0].allclose(their.logits[hidden], atol=1e-5)
    for model in (ours, theirs):
        model.zero_grad()
    (loss / 5).backward()
    their.loss.backward()
    gradient = theirs.bert.embeddings.word_embeddings.weight.grad
    assert ours.stem.table.weight.grad.allclose(gradient, atol=1e-5), "the output layer is the table"


def test_xlnet_predicts_each_hidden_token_from_the_given_and_those_before_it() -> None:
    """Against one pass of the content stream for each hidden token, in which only what it may see stands."""
    task = make("xlnet", rate=0.4, whole=False)
    task.network.double()
    (row,) = list(task.rows(pairs(LINES[:1])))
    batch = task.batch([row])
    together = task.network.scores(batch)[:, 0]
    backbone = task.network.backbone
    x = task.network.stem(batch.source).values
    for number, place in enumerate(batch.target.hidden[0].nonzero()[:, 0].tolist()):
        seen = (batch.target.order[0] < batch.target.order[0, place]).nonzero()[:, 0]
        ranks = torch.where(batch.target.order[0] < batch.target.order[0, place], batch.target.order[0], 99)[seen]
        # the same tokens in their order, without the others: relative positions are kept by the positions given
        positions = torch.cat((seen, torch.tensor([place])))
        full = torch.full((batch.source.values[0].shape[1],), 99)
        full[seen] = ranks
        _, query = backbone.streams(Context(x[:, seen], positions[:-1]), full, torch.tensor([place]))
        expected = torch.nn.functional.linear(query[0, 0], task.network.stem.table.weight, task.network.head.bias)
        assert together[number].allclose(expected, atol=1e-9)


def test_targets_of_rows_with_different_numbers() -> None:
    hidden = torch.tensor([[False, True, False, True], [False, False, False, False], [True, False, False, False]])
    assert targets_of(hidden).tolist() == [[1, 3], [-1, -1], [0, -1]]


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_what_must_hold_for_every_model(kind: str) -> None:
    task = make(kind)
    found = dict(task.invariances(list(task.rows(pairs(LINES)))))
    assert len(found) == 3
    assert max(found.values()) < 1e-4


# ---- rows --------------------------------------------------------------------------------------------------------


@given(count=st.integers(0, 100), longest=st.integers(1, 30))
def test_long_rows_are_cut_and_nothing_is_lost(count: int, longest: int) -> None:
    ids = list(range(count))
    parts = cut(ids, longest)
    assert [id for part in parts for id in part] == ids
    assert all(1 <= len(part) <= longest for part in parts)
    assert len(parts) == math.ceil(count / longest)
    assert not parts or max(map(len, parts)) - min(map(len, parts)) <= len(parts)


def test_lines_or_paragraphs() -> None:
    lines = ["one  two", "", "three", "four", " ", "five"]
    for paragraphs, expected in (
        (False, ["one two", "three", "four", "five"]),
        (True, ["one two", "three four", "five"]),
    ):
        task = make(level="characters", size=None, paragraphs=paragraphs)
        found = [item.example.source for item in task.output.items(pairs(lines))]
        assert [" ".join(text.split()) for text in found] == expected
        assert [[*row[0]] for row in task.rows(pairs(lines))] == [task.input.alphabet.encode(text) for text in expected]


# ---- blanks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "text", "pieces"),
    [
        ("bpe", "the ___ sat", ["▁the", "▁___", "▁sat"]),
        ("bpe", "the [MASK], and ___.", ["▁the", "▁___", ",", "▁and", "▁___", "."]),
        ("bpe", "the [MASK][MASK] ran", ["▁the", "▁___", "___", "▁ran"]),
        ("unigram", "the [MASK][MASK] ran", ["▁the", "▁___", "___", "▁ran"]),
        ("bpe", "_____ sat", ["▁___", "▁sat"]),
        ("words", "the ___ , and [MASK]", ["the", "___", ",", "and", "___"]),
        ("characters", "c__ t", ["c", "_", "_", "␣", "t"]),
        ("characters", "c___t[MASK]", ["c", "_", "_", "_", "t", "_"]),
    ],
)
def test_blanks_become_tokens(level: str, text: str, pieces: list[str]) -> None:
    vocabulary = Tokenizer.train([*LINES * 3, "c_t"], level, None if level in ("characters", "words") else 400)
    row = parse(text, vocabulary, 999)
    assert row.pieces == pieces
    assert [row.ids[place] for place in row.blanks] == [999] * len(row.blanks)
    assert len(row.blanks) == sum(row.sizes)
    if level != "characters":
        assert len(row.blanks) == sum("___" in piece for piece in pieces)
    known = [id for place, id in enumerate(row.ids) if place not in row.blanks]
    assert UNKNOWN not in known
    assert 999 not in known


def test_a_text_without_blanks_has_the_tokens_it_always_has() -> None:
    for level in ("bpe", "unigram", "words", "characters"):
        vocabulary = Tokenizer.train(LINES * 3, level, 60 if level in ("bpe", "unigram") else None)
        for line in LINES:
            row = parse(line, vocabulary, 999)
            assert row.ids == vocabulary.encode(line)
            assert row.groups == vocabulary.groups(line)
            assert row.filled([]) == line


def test_whole_words_cannot_hold_a_blank_inside() -> None:
    with pytest.raises(UserError, match="'un___' is a part of a word"):
        make(level="words", size=None).predict(["the un___ cat"])


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
@pytest.mark.parametrize("level", ["bpe", "words", "characters"])
def test_answers_are_the_same_alone_together_and_in_any_order(kind: str, level: str) -> None:
    task = make(kind, level, None if level != "bpe" else 60)
    texts = ["the ___ sat on the ___ .", "", "no blank  here", "[MASK] dog", "the old ___ and ___ saw a ___ .", "a ___"]
    together = task.predict(texts)
    assert [task.predict([text])[0] for text in texts] == together
    assert task.predict(texts[::-1])[::-1] == together
    assert together[1] == ""
    assert together[2] == "no blank here"
    assert not any("___" in text or "[MASK]" in text for text in together)
    assert together[0].startswith("the ")
    assert together[0].endswith(" .")


def test_the_best_for_one_blank_are_sorted_distinct_and_log_probabilities() -> None:
    task = make()
    (answer,) = task.answers(["the ___ sat"], n_best=5)
    found = answer.guesses
    scores = [score for score, _ in found]
    assert scores == sorted(scores, reverse=True)
    assert len({parts[0] for _, parts in found}) == 5
    head, alphabet = task.network.head, task.input.alphabet
    state = task.network.features(plain_ids(enclosed([fill(task).parse("the ___ sat").ids]))).values[0, 2]
    table = torch.nn.functional.linear(head.transform(state), task.network.stem.table.weight, head.bias)
    expected = table[: alphabet.size].log_softmax(-1)
    for score, (text,) in found:
        (id,) = alphabet.encode(text)
        assert score == pytest.approx(float(expected[id]), abs=1e-4)
    assert task.answers(["the ___ sat"])[0].guesses[0][1] == found[0][1]
    with pytest.raises(UserError, match="one blank to a text, found 2"):
        task.answers(["___ and ___"], n_best=2)


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_several_blanks_are_filled_the_most_certain_first(kind: str) -> None:
    """Against a loop that looks at one blank at a time."""
    task = make(kind, level="words", size=None)
    text = "the ___ saw ___ old ___ ."
    row = fill(task).parse(text)
    ids, left, total = list(row.ids), list(row.blanks), 0.0
    while left:
        best = (-math.inf, 0, 0)
        for place in left:
            logits = task.network.scores(windows_of(task, [(ids, left)]))[sorted(left).index(place), 0]
            logs = logits[: task.input.alphabet.size].log_softmax(-1)
            logs[:4] = -math.inf
            best = max(best, (float(logs.max()), place, int(logs.argmax())))
        ids[best[1]] = best[2]
        left.remove(best[1])
        total += best[0]
    ((score, parts),) = task.answers([text])[0].guesses
    assert [task.input.alphabet.encode(part)[0] for part in parts] == [ids[place] for place in row.blanks]
    assert score == pytest.approx(total, abs=1e-4)


def test_a_long_text_is_filled_from_what_stands_near() -> None:
    task = make(level="words", size=None, longest=12)
    far = " ".join(["the dog ran"] * 20)
    text = f"{far} the ___ sat on the mat {far} a ___ house"
    answer = task.predict([text])[0].split()
    assert len(answer) == len(text.split())
    assert "___" not in answer
    assert [a for a, b in zip(answer, text.split(), strict=True) if b != "___"] == [
        w for w in text.split() if w != "___"
    ]
    row = fill(task).parse(text)
    ids = row.ids
    for part, places, start in fill(task)._near(ids, row.blanks):
        assert len(part) == 12
        assert part == ids[start : start + 12]
        assert [part[place] for place in places] == [fill(task).mask] * len(places)


# ---- vectors and pictures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_vectors_of_words_and_texts(kind: str) -> None:
    task = make(kind)
    texts = ["the cat sat .", "", "the river runs , the man waits ."]
    found: list[Filled] = task.answers(texts, embeddings=True)
    assert [len(each.words) for each in found] == [4, 0, 8]
    assert found[0].words == ["the", "cat", "sat", "."]
    ids = task.input.alphabet.encode(texts[0])
    states = task.network.features(plain_ids(enclosed([ids]))).values[0, 1:-1].numpy()
    groups = np.array(task.input.alphabet.groups(texts[0]))
    for word in range(4):
        assert found[0].vectors[word] == pytest.approx(states[groups == word].mean(0), abs=1e-5)
    asked = {"embeddings": True}
    lines = list(task.lines(texts, 0, asked, with_score=False, as_json=False))
    assert json.loads(lines[0]) == pytest.approx(found[0].vectors.mean(0).tolist(), abs=1e-5)
    assert lines[1] == "[]"
    full = json.loads(next(task.lines(texts[2:], 0, asked, with_score=False, as_json=True)))
    assert [each["word"] for each in full["words"]] == found[2].words
    assert full["embedding"] == json.loads(lines[2])


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
@pytest.mark.parametrize("text", ["the small cat sat .", "the ___ cat sat on ___ ."])
def test_maps_of_attention(kind: str, text: str) -> None:
    task = make(kind)
    example = task.exhibit(text, None)
    assert len(example.source) == len(fill(task).parse(text).ids) + 2
    (found,) = example.maps
    weights = np.asarray(found.weights)
    assert weights.shape == (2, 2, len(example.source), len(example.source))
    assert weights.sum(-1) == pytest.approx(1, abs=1e-4)
    for place in fill(task).parse(text).blanks if kind == "xlnet" else ():
        assert not weights[..., place + 1, place + 1].any(), "the query stream cannot see what stands there"
    packing.packed(example, "Example 1")
    figure = figure_of(example, grid=False)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    filled = task.predict([text])[0].split()
    expected = [f"[{word}]" if blank == "___" else word for word, blank in zip(filled, text.split(), strict=True)]
    assert labels == [visible(word, LONGEST_LABEL) for word in expected]
    assert len(figure_of(example, grid=True).axes) >= 4


def test_what_cannot_be_shown() -> None:
    task = make()
    for text, answer, sentence in (
        ("", None, "0 tokens"),
        ("the cat " * 30, None, "expected 1 to 24"),
        ("the cat", "x", "answer: a model that"),
    ):
        with pytest.raises(UserError, match=sentence):
            task.exhibit(text, answer)


# ---- evaluation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
def test_scores_by_a_plain_loop_and_the_same_every_time(whole: bool) -> None:
    task = make(whole=whole, longest=9)
    held = task.held(pairs(LINES))
    torch.manual_seed(3)
    scores, answers = task.evaluate(held, samples=0)
    torch.manual_seed(4)
    assert task.evaluate(held, samples=0) == (scores, answers)
    right = words = tokens = 0
    surprise = 0.0
    for number, item in enumerate(held.items):
        for part, ids in enumerate(cut(task.input.alphabet.encode(item.example.source), 9)):
            places = fill(task)._fixed(task.passes, 1009 * number + part, ids)
            logs = task.network.scores(windows_of(task, [(ids, places)]))[:, 0, : task.input.alphabet.size].log_softmax(
                -1
            )
            names = fill(task).starts(enclosed([ids]))[0, 1:].tolist() if whole else list(range(len(ids)))
            good: dict[int, list[bool]] = {}
            for place, row in zip(places, logs, strict=True):
                good.setdefault(names[place], []).append(int(row.argmax()) == ids[place])
                surprise -= float(row[ids[place]])
            right += sum(all(parts) for parts in good.values())
            words += len(good)
            tokens += len(places)
    assert scores[0].value == pytest.approx(100 * right / words)
    assert scores[1].value == pytest.approx(math.exp(surprise / tokens), rel=1e-3)
    assert [score.higher_is_better for score in scores] == [True, False]
    assert len(answers) == len(held.items)


# ---- training and commands -----------------------------------------------------------------------------------------

SAYS = {"dog": "woof", "cat": "meow", "cow": "moo", "duck": "quack", "owl": "hoot", "bee": "buzz"}
SMALL = [
    "model.layers=2", "model.width=32", "model.hidden=64", "model.heads=2", "model.dropout=0", "tokens.size=80",
    "training.rate=0.01", "training.warmup=10", "training.every=50", "training.budget=1500",
]  # fmt: skip


def write_sounds(path: Path, count: int = 300) -> Path:
    """Sentences in which the animal tells the sound, and the sound the animal."""
    chosen = random.Random(0)
    lines = []
    for _ in range(count):
        animal, size = chosen.choice(list(SAYS)), chosen.choice(["small", "big", "old"])
        lines.append(f"the {size} {animal} says {SAYS[animal]} .")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def sounds(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A run of each kind: text, bert/ and xlnet/."""

    def make_runs(folder: Path) -> None:
        write_sounds(folder / "text")
        for kind in ("bert", "xlnet"):
            chosen = [f"model.kind={kind}", *SMALL, "hiding.rate=0.3"]  # often two of six words at once
            regard.train(folder / "text", folder / kind, task="fill", steps=200, set=chosen, quiet=True)

    return once("sounds", make_runs)


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_trained_models_fill_in_what_must_stand_there(sounds: Path, cli: Regard, kind: str) -> None:
    given = "".join(f"the big {animal} says ___ .\n\nthe ___ {animal} says [MASK] .\n" for animal in SAYS)
    lines = cli.lines("predict", sounds / kind, given=given)
    assert len(lines) == 3 * len(SAYS)
    for number, (animal, sound) in enumerate(SAYS.items()):
        first, empty, second = lines[3 * number : 3 * number + 3]
        assert first == f"the big {animal} says {sound} ."
        assert empty == ""
        assert second.endswith(f" {animal} says {sound} .")
        assert second.split()[1] in ("small", "big", "old")


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_all_commands(sounds: Path, cli: Regard, kind: str) -> None:
    run = sounds / kind
    scored = [line.split("\t") for line in cli.lines("predict", run, "--n-best", "3", "--with-score", "a ___ dog says")]
    assert len(scored) == 3
    assert [float(score) for score, _ in scored] == sorted((float(score) for score, _ in scored), reverse=True)
    assert cli.lines("predict", run, "the old dog   says woof .") == ["the old dog   says woof ."]
    (found,) = cli.objects("predict", run, "the old ___ says woof .")
    assert found["source"] == "the old ___ says woof ."
    assert found["answers"][0]["words"] == ["dog"]
    vector, nothing = cli.lines("predict", run, "--embeddings", given="the old dog\n\n")
    assert len(json.loads(vector)) == 32
    assert nothing == "[]"
    (full,) = cli.objects("predict", run, "--embeddings", "the old dog")
    assert [each["word"] for each in full["words"]] == ["the", "old", "dog"]
    out = cli.run("evaluate", run, sounds / "text", "--json")
    scores = json.loads(out)["scores"]
    assert [score["name"] for score in scores] == ["accuracy", "pseudo_perplexity"]
    assert scores[0]["value"] > 50
    assert scores[0]["low"] <= scores[0]["value"] <= scores[0]["high"]
    assert cli.run("evaluate", run, sounds / "text", "--json") == out
    report = cli.run("check", run)
    assert "FAIL" not in report
    assert report.count("ok ") >= 3
    for name in ("map.png", "map.svg", "page.html", "numbers.npz"):
        assert cli.lines("show", run, "the ___ dog says woof .", "-o", name) == [name]
        assert (cli.folder / name).stat().st_size > 1000
    cli.run("show", run, "the old dog", "--grid", "-o", "grid.png")


def test_lines_have_as_many_answers_as_are_asked_for_until_one_is_refused(sounds: Path, cli: Regard) -> None:
    three = ["predict", sounds / "bert", "--n-best", "3"]
    assert len(cli.lines(*three, given="\na ___ dog says\nno blank\n")) == 9
    lines = cli.lines(*three, "--with-score", given="\na ___ dog says\nno blank\n")
    assert [lines[i] for i in (0, 1, 2, 6, 7, 8)] == [
        "0.0000\t",
        "-inf\t",
        "-inf\t",
        "0.0000\tno blank",
        "-inf\t",
        "-inf\t",
    ]
    out = cli.run(*three, given="a ___ dog says\n___ and ___\n", code=1)
    assert out.count("\n") == 3
    assert cli.said.startswith("regard: standard input:2: --n-best goes with one blank")


def test_what_means_nothing_to_it_is_said(sounds: Path, cli: Regard) -> None:
    run, text = sounds / "bert", sounds / "text"
    for arguments, sentence in (
        (("predict", run, "--beam", "3", "a ___"), "--beam: a model that"),
        (("predict", run, "--alignment", "hard", "a ___"), "--alignment: a model that"),
        (("predict", run, "--n-best", "2", "___ and ___"), "one blank to a text"),
        (("evaluate", run, text, "--by-length"), "--by-length: a model that"),
        (("show", run, "the dog", "--answer", "cat"), "--answer: a model that"),
        (("show", run, " ", "-o", "a.png"), "0 tokens"),
        (("train", text, "--task", "fill", "--set", "hiding.rate=2"), "hiding.rate"),
        (("train", text, "--task", "fill", "--set", "hiding.ratio=.2"), "did you mean 'hiding.rate'"),
        (("train", text, "--task", "fill", "--set", "model.heads=3", "-o", "r"), "heads"),
    ):
        cli.run(*arguments, code=1)
        assert sentence in cli.said
        assert "Traceback" not in cli.said


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_resumed_equals_uninterrupted(tmp_path: Path, kind: str) -> None:
    text = write_sounds(tmp_path / "text", 80)
    steady = [f"model.kind={kind}", *SMALL, "training.schedule=constant", "training.warmup=0", "model.dropout=0.1"]
    for name, parts in (("whole", (6,)), ("parts", (2, 6))):
        for steps in parts:
            regard.train(text, tmp_path / name, task="fill", steps=steps, set=steady, quiet=True)
    ends = [checkpoint.read_state(checkpoint.states(tmp_path / name)[-1])[0] for name in ("whole", "parts")]
    for group in ("weights", "optimiser", "random"):
        assert ends[0][group].keys() == ends[1][group].keys()
        assert all(value.equal(ends[1][group][name]) for name, value in ends[0][group].items())


def test_settings_are_chosen_from_the_text(tmp_path: Path) -> None:
    from regard.training import choose

    play = "".join(f"speaker {n} :\nwhat shall we do now , my good friend {n} ?\nnothing .\n\n" for n in range(300))
    (tmp_path / "play.txt").write_text(play)
    found, reasons, _ = choose.choose([str(tmp_path / "play.txt")], task="fill")
    assert found.model_dump()["output"]["text"] == "paragraph"
    assert {"tokens.level", "output.text", "model.width"} <= reasons.keys()
    assert found.training.smoothing == 0
    again = tmp_path / "config.yaml"
    again.write_text(render(found, reasons))
    assert load_settings(again) == found
    lines = choose.choose([str(write_sounds(tmp_path / "lines"))], task="fill")[0]
    assert lines.model_dump()["tokens"] == {"level": "bpe", "lowercase": False, "size": 300, "decomposed": False}
    assert lines.model_dump()["output"] == {"text": "line"}


def test_the_size_that_is_checked_is_near_the_truth() -> None:
    for kind in ("bert", "xlnet"):
        found = config_of(task="fill", model={"kind": kind}, tokens={"size": 5000})
        small = fresh(config_of(task="fill", model={"kind": kind}, tokens={"size": 40}), pairs(LINES))
        true = sum(p.numel() for p in small.network.parameters())
        assert 0.8 < (found.parameters() - (5000 - small.input.alphabet.size) * 256) / true < 1.2
