"""Continue: what is stored of a text, what is measured of it, what is drawn after it, and that nobody sees the future."""

import io
import json
import math
import random
from functools import cache
from itertools import pairwise
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
from regard.commands import predict
from regard.commands.app import main
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inputs.input import Source, Use
from regard.inputs.tokens import Tokens, TokenSettings
from regard.outputs.continuation.head import ContinueHead
from regard.outputs.continuation.output import Continue
from regard.outputs.continuation.settings import ContinueSettings
from regard.runs.settings import load as load_settings
from regard.runs.settings import make as make_settings
from regard.task import Task
from regard.text.stream import Growing
from regard.text.tokenizer import END, UNKNOWN, Tokenizer
from regard.training.prepare import counts_of
from regard.training.split import Split, examples_of, survey
from tests.outputs.tasks import check_resuming, config_of, fresh
from tests.outputs.tasks import lines as pairs

KINDS = ["gpt", "recurrent", "transformer-xl"]
SMALL: dict[str, dict[str, Any]] = {
    "gpt": {"kind": "gpt", "layers": 2, "width": 16, "hidden": 32, "heads": 2, "dropout": 0.0},
    "recurrent": {"kind": "recurrent", "layers": 2, "width": 16, "dropout": 0.0},
    "transformer-xl": {
        "kind": "transformer-xl", "layers": 2, "width": 16, "hidden": 32, "heads": 2, "segment": 3, "memory": 4, "dropout": 0.0
    },
}  # fmt: skip
LINES = ["To be, or not", "", "  to be:\tthat is", "the question\\ here."]
TINY = [
    "output.context=16", "model.layers=1", "model.width=16", "model.hidden=32", "model.heads=2", "model.dropout=0.1",
    "training.budget=136", "training.rate=0.03", "training.warmup=5", "training.every=30", "decoding.longest=20",
]  # fmt: skip


def make(kind: str = "gpt", level: str = "characters", context: int = 8, **model: Any) -> Task:
    """An untrained model whose weights are large enough to matter."""
    tokens = {"level": level, "size": 40 if level == "bpe" else None}
    found = config_of(task="continue", tokens=tokens, output={"context": context}, model=SMALL[kind] | model)
    task = fresh(found, pairs(LINES * 3))
    assert isinstance(task.output, Continue)
    with torch.no_grad():
        for parameter in task.network.parameters():
            parameter.mul_(3.0 if kind == "recurrent" else 5.0)
    return task


def encode(task: Task, text: str) -> list[int]:
    """The stream of a text of one or several lines."""
    assert isinstance(task.output, Continue)
    return task.output.prompt(task.input, text)


def logits(task: Task, ids: list[int]) -> torch.Tensor:
    """The scores of what follows each token, all read at once."""
    with torch.no_grad():
        return task.network.scores(task.batch([([*ids, 0],)]))[0]


def at_once(task: Task, ids: list[int]) -> torch.Tensor:
    """The same through the backbone alone, however long the row is."""
    network, head = task.network, task.network.head
    assert isinstance(head, ContinueHead)
    with torch.no_grad():
        x = network.stem(Source((torch.tensor([ids]),), torch.arange(len(ids))))
        return head.output(network.backbone(x).values)[0]


def write_text(path: Path, count: int = 200) -> Path:
    """Counting, line by line: soon learned."""
    chosen = random.Random(0)
    lines = []
    for number in range(count):
        lines += [f"{chosen.choice(['ann', 'bob'])}:", "\t" + " ".join(str((number + i) % 10) for i in range(5)), ""]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text.txt and a run on it, made by the command that a user would give."""
    folder = tmp_path_factory.mktemp("continue")
    model = regard.train(write_text(folder / "text.txt"), folder / "run", steps=60, set=TINY, quiet=True)
    assert isinstance(model.task.output, Continue)
    return folder


# ---- what is stored ------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    lines=st.lists(st.text(alphabet="ab \t;é.", max_size=9), min_size=1, max_size=12),
    context=st.integers(2, 9),
)
def test_rows_hold_the_whole_text_and_predict_each_token_once(lines: list[str], context: int) -> None:
    vocabulary = Tokenizer.train(["ab ;é.\ufdd0"], "characters")
    output, reader = Continue(context), Tokens(vocabulary, None, TokenSettings(), Use.STREAM)
    stored = list(output.rows(reader, iter(pairs(lines))))
    rows = [list(row[0]) for row in stored]
    assert all(len(row) == context + 1 for row in rows[:-1])
    assert all(a[-1] == b[0] for a, b in pairwise(rows))
    stream = rows[0] + [id for row in rows[1:] for id in row[1:]]
    assert stream[0] == END
    growing = Growing(vocabulary, "", stream[:1])
    assert "".join(growing.add(id) for id in stream[1:]) == "".join(line + "\n" for line in lines), "nothing is lost"
    assert output.predictions(counts_of(stored)) == (len(stream) - 1,)


def test_chunks_of_lines_do_not_show_in_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    task, lines = make(), LINES * 5
    whole = list(task.rows(pairs(lines)))
    monkeypatch.setattr("regard.outputs.continuation.output.CHUNK", 3)
    assert list(task.rows(pairs(lines))) == whole


@pytest.mark.parametrize("level", ["characters", "words", "bpe", "symbols"])
@pytest.mark.parametrize("prompt", ["To be", "to be ", "the\nquestion\n", "", "To be\n\n  to", "zzz"])
def test_a_growing_text_is_what_is_decoded_whole(level: str, prompt: str) -> None:
    task = make(level=level)
    ids = encode(task, prompt)
    new = encode(task, "to be: that is\nthe question here.")[1:]
    growing = Growing(task.input.alphabet, prompt, ids)
    grown = prompt + "".join(growing.add(id) for id in new)
    lines: list[list[int]] = [[]]
    for id in ids[1:] + new:
        if id == END:
            lines.append([])
        else:
            lines[-1].append(id)
    decoded = [task.input.alphabet.decode(line) for line in lines]
    assert grown.startswith(prompt)
    assert grown.split("\n")[-1] == decoded[-1]
    if UNKNOWN not in ids:
        assert "".join(grown.split()) == "".join("".join(decoded).split())


# ---- the network ---------------------------------------------------------------------------------------------------


@cache
def causal(kind: str) -> Task:
    if kind == "gru":
        return make("recurrent", cell="gru")
    return make(kind) if kind in KINDS else make(position=kind)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), kind=st.sampled_from([*KINDS, "rotary", "alibi", "gru"]))
def test_a_later_token_never_changes_an_earlier_prediction(data: st.DataObject, kind: str) -> None:
    task = causal(kind)
    size = task.input.alphabet.size
    ids = data.draw(st.lists(st.integers(3, size - 1), min_size=2, max_size=8))
    place = data.draw(st.integers(1, len(ids) - 1))
    other = [*ids[:place], *data.draw(st.lists(st.integers(3, size - 1), min_size=1, max_size=8 - place))]
    one, two = (logits(task, row)[:place] for row in (ids, other))
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_a_sum_over_real_tokens(kind: str) -> None:
    task = make(kind)
    rows = [[3, 5, 6, 7, 8, 9, 5, 4, 6], [3, 9, 4], [3, 3]]
    stored = [(np.array(row),) for row in rows]
    (total,) = task.network(task.batch(stored))
    expected = 0.0
    for row in rows:  # one token after another, from the definition
        for t in range(1, len(row)):
            expected -= log_softmax(logits(task, row[:t])[-1], -1)[row[t]].item()
    assert task.predictions(counts_of(stored)) == (11,)
    assert float(total) == pytest.approx(expected, rel=1e-4)


def test_segments_of_a_row_are_joined_by_memory_without_gradient() -> None:
    """Dai et al. 3.2: what a segment reads of an earlier one is its hidden states, and no gradient flows there."""
    network = make("transformer-xl", context=6).network
    ids = torch.tensor([[3, 5, 6, 7, 8, 9]])
    whole = network.backbone(Context(network.stem.embedding(ids, torch.arange(6)))).values
    cut = network.head.features(network, Source((ids,), torch.arange(6)))
    torch.testing.assert_close(cut, whole, rtol=1e-4, atol=1e-4)
    (grad,) = torch.autograd.grad(cut[:, 3:].square().sum(), network.stem.table.weight)
    assert grad[[3, 5, 6]].abs().max() == 0, "tokens of the first segment are in memory only"
    assert grad[[7, 8, 9]].abs().min(1).values.max() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_more_padding_and_other_rows_change_nothing(kind: str) -> None:
    task = make(kind)
    found = dict(task.invariances(list(task.rows(pairs(LINES)))))
    assert len(found) == 4
    assert max(found.values()) < 1e-3, found


# ---- measuring -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [None, 1, 3])
def test_perplexity_of_gpt_by_blocks_and_by_windows_equals_a_loop(stride: int | None) -> None:
    task = make(context=8)
    lines = LINES * 2
    stream = encode(task, "\n".join(lines) + "\n")
    nats = 0.0
    for t in range(1, len(stream)):
        if stride is None:
            start = (t - 1) // 8 * 8
        else:  # the window that first predicts t ends at 8, 8 + stride, …
            end = max(8, 8 + math.ceil((t - 8) / stride) * stride)
            start = max(0, min(end, len(stream) - 1) - 8)
        nats -= float(log_softmax(logits(task, stream[start:t])[-1], -1)[stream[t]])
    scores, answers = task.evaluate(task.held(pairs(lines)), samples=0, **({"stride": stride} if stride else {}))
    assert [score.name for score in scores] == ["perplexity", "bits_per_character", "cross_entropy"]
    assert answers == []
    mean = nats / (len(stream) - 1)
    characters = sum(len(line) + 1 for line in lines)
    expected = [math.exp(mean), nats / math.log(2) / characters, mean]
    assert [score.value for score in scores] == pytest.approx(expected, rel=1e-3)
    assert not any(score.higher_is_better for score in scores)
    assert ("none overlapping" if stride is None else f"move on by {stride}") in scores[0].signature


@pytest.mark.parametrize("kind", ["recurrent", "transformer-xl"])
def test_the_state_runs_through_the_whole_text(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make(kind)
    monkeypatch.setattr("regard.outputs.continuation.head.PIECE", 5)
    stream = encode(task, "\n".join(LINES))
    expected = -log_softmax(at_once(task, stream[:-1]), -1).gather(1, torch.tensor(stream[1:])[:, None])[:, 0]
    found = task.network.head.surprise(task.network, stream, 8, 8)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-3)


def test_scores_have_intervals_and_a_stride_is_checked() -> None:
    task = make()
    held = task.held(pairs(LINES * 4))
    scores, _ = task.evaluate(held, samples=50)
    assert all(s.low is not None and s.high is not None and s.low <= s.value <= s.high for s in scores)
    assert {s.count for s in scores} == {16}, "lines"
    assert task.evaluate(held, samples=0)[0][0].value == scores[0].value
    with pytest.raises(UserError, match="The stride is 9, expected 1 to 8"):
        task.evaluate(held, stride=9)


def test_unknown_tokens_are_said() -> None:
    task = make()
    plain, strange = (task.held(pairs([line])).items for line in ("To be", "To Ω"))
    assert task.output.details(task.passes, plain, []) == ""
    assert "% of the tokens are unknown" in task.output.details(task.passes, strange, [])


# ---- writing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, "alibi"])
def test_batched_prompts_of_different_lengths_give_the_same_as_alone(kind: str) -> None:
    task = make("gpt", position="alibi") if kind == "alibi" else make(kind)
    task.network.double()  # a draw on the border between two tokens would be decided by rounding
    texts = ["To be", "t", "that is the question here. that is", "", "be\n", "question", "To be"]
    how = {"longest": 30, "temperature": 2.0}
    together = task.answers(texts, **how)
    for place, text in enumerate(texts):
        (alone,) = task.answers([text], first=place, **how)
        assert alone.text == together[place].text
        assert alone.score == pytest.approx(together[place].score)
        assert together[place].text.startswith(text)
        assert len(together[place].ids) == (30 if text else 0)
    assert together[0].text != together[-1].text, "the same text at another place is drawn anew"


def test_gpt_writes_beyond_its_context_from_the_last_half_of_it() -> None:
    """The plain form: keep the tokens seen, cut them to half when they are more than the window, read all of them anew."""
    task = make(context=8)
    (answer,) = task.answers(["To be"], longest=25, top_k=1)
    seen, written = encode(task, "To be"), []
    for _ in range(25):
        if len(seen) > 8:
            seen = seen[-4:]
        scores = logits(task, seen)[-1]
        scores[[0, UNKNOWN, 2]] = -math.inf
        written.append(int(scores.argmax()))
        seen.append(written[-1])
    assert answer.ids == written


@pytest.mark.parametrize("kind", ["recurrent", "transformer-xl"])
def test_the_others_write_on_without_a_limit(kind: str) -> None:
    task = make(kind)
    (answer,) = task.answers(["To be"], longest=25, top_k=1)
    seen = encode(task, "To be")
    for id in answer.ids:
        scores = at_once(task, seen)[-1]
        scores[[0, UNKNOWN, 2]] = -math.inf
        assert id == int(scores.argmax())
        seen.append(id)


def test_the_score_is_the_log_probability_of_what_was_written() -> None:
    task = make(context=40)
    (answer,) = task.answers(["To be"], longest=12)
    ids = encode(task, "To be")
    scores = logits(task, ids + answer.ids)
    scores[:, UNKNOWN] = -math.inf
    chosen = log_softmax(scores, -1)[len(ids) - 1 : -1].gather(1, torch.tensor(answer.ids)[:, None])
    assert answer.score == pytest.approx(float(chosen.sum()), rel=1e-4)


def test_tokens_are_told_as_they_are_drawn() -> None:
    task = make()
    pieces: list[str] = []
    assert task.stream("To be", {"longest": 9, "seed": 4}, pieces.append)
    assert len(pieces) == 10
    assert "".join(pieces) == task.predict(["To be"], longest=9, seed=4)[0]
    assert "".join(pieces) != task.predict(["To be"], longest=9, seed=5)[0]
    pieces.clear()
    task.stream("", {"longest": 9}, pieces.append)
    assert len(pieces) == 10, "from nothing, too"


def test_one_line_out_for_each_line_in() -> None:
    task = make()
    hot = {"longest": 200, "temperature": 5.0}
    ways = [{"with_score": a, "as_json": b} for a, b in ((False, False), (True, False), (False, True))]
    for way in ways:
        out = list(task.lines(["To", "", "\\ be"], 0, hot, **way))
        assert len(out) == 3
        assert not any("\n" in line for line in out)
    plain, scored, objects = (next(task.lines(["\\ be"], 7, hot, **way)) for way in ways)
    exact = json.loads(objects)["answers"][0]["text"]
    assert "\n" in exact
    assert plain.startswith("\\\\ be")
    assert plain.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\") == exact
    assert scored.split("\t", 1)[1] == plain


def test_watching_sees_prompts_and_continuations_and_changes_nothing() -> None:
    task = make(context=16)
    texts = ["To be", "that"]
    plain = task.predict(texts, longest=5)
    with regard.watch(task) as seen:
        assert task.predict(texts, longest=5) == plain
    weights = seen["backbone.layers.1.attention"].weights
    assert weights.shape == (2, 2, 11, 11), "the line break before, five characters, and five more"
    for row, text in zip(weights, plain, strict=True):
        with regard.watch(task) as alone:
            task.network.scores(task.batch([([*encode(task, text), 0],)]))
        own = alone["backbone.layers.1.attention"].weights[0]
        torch.testing.assert_close(row[:, : own.shape[1], : own.shape[1]], own, rtol=1e-4, atol=1e-5)


# ---- training, from a file -----------------------------------------------------------------------------------------


def run(*arguments: str | Path, code: int = 0) -> None:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    assert left.value.code == code


def test_it_learns(trained: Path) -> None:
    model = regard.load(trained / "run")
    (perplexity, bits, loss), _ = model.evaluate([trained / "text.txt"])
    assert perplexity.value < 4.5, "of 17 tokens"
    assert bits.value == pytest.approx(loss.value / math.log(2), rel=1e-6), "a token is a character"
    history = [json.loads(line) for line in (trained / "run" / "metrics.jsonl").read_text().splitlines()]
    assert history[-1]["perplexity"] < history[0]["perplexity"]
    assert model.task.output.contiguous


def test_the_end_of_the_text_is_held_out(trained: Path) -> None:
    found = load_settings(trained / "run" / "config.yaml")
    written = (trained / "text.txt").read_text().splitlines()
    task = regard.load(trained / "run").task
    stored = sum(len(row[0]) - 1 for row in task.rows(pairs(written)))
    seen = survey(found)
    split = Split(found, seen)
    train, valid = [], []
    for number, example in enumerate(examples_of(found, seen)):
        (valid if split.held_out(number, example) else train).append(example.line)
    assert valid
    assert train + valid == list(range(1, len(written) + 1))
    assert stored > len(train)


def test_predict_streams_one_text_and_answers_lines(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("predict", trained / "run", "ann:\n", "--longest", "12", "--seed", "3")
    streamed = capsys.readouterr().out
    model = regard.load(trained / "run")
    assert streamed == model.predict(["ann:\n"], longest=12, seed=3)[0] + "\n"
    given = trained / "given"
    given.write_text("ann:\n\nbob:\n")
    monkeypatch.setattr("sys.stdin", given.open())
    run("predict", trained / "run", "--temperature", "0.5")
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 4
    assert lines[0].startswith("ann:")
    assert lines[1] == lines[3] == ""
    assert lines[2].startswith("bob:")


def test_a_stream_is_flushed_token_by_token(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flushed: list[str] = []

    class Pipe(io.StringIO):
        def flush(self) -> None:
            flushed.append(self.getvalue())

    out = Pipe()
    assert predict.stream(regard.load(trained / "run"), "bob:", {"longest": 5}, out)
    assert [len(text) for text in flushed] == [4, 5, 6, 7, 8, 9, 10]
    capsys.readouterr()
    run("predict", trained / "run", "bob:", "--longest", "5", "--json")
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["answers"][0]["text"] + "\n" == out.getvalue(), "JSON comes whole"


def test_evaluate_show_and_check(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("evaluate", trained / "run", trained / "text.txt", "--stride", "4")
    assert "windows that move on by 4, of 16 tokens" in capsys.readouterr().out
    for name, more in (("one.png", []), ("all.png", ["--grid"]), ("page.html", []), ("numbers.npz", [])):
        run("show", trained / "run", "ann: 1 2", "-o", trained / name, *more)
        assert (trained / name).stat().st_size > 1000
    arrays = np.load(trained / "numbers.npz")
    (weights,) = (arrays[name] for name in arrays if name not in ("source", "target"))
    assert weights.shape == (1, 2, 16, 16), "nine of the text with the line break before it, and seven that it wrote"
    (answer,) = regard.load(trained / "run").predict(["ann: 1 2"], longest=7)
    assert "".join(arrays["source"]) == "\n" + answer.replace(" ", "␣")
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert np.triu(weights[0, 0], 1).max() == 0, "nobody looks ahead"
    assert list(arrays["source"][:5]) == ["\n", "a", "n", "n", ":"]
    capsys.readouterr()
    run("check", trained / "run")
    report = capsys.readouterr().out
    assert report.count("ok  ") == 4
    assert "FAIL" not in report


def test_resumed_equals_uninterrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = write_text(tmp_path / "text.txt", 60)
    check_resuming(tmp_path, monkeypatch, text, 9, set=[*TINY, "training.every=4", "training.average=1"])


@pytest.mark.parametrize(
    "how",
    [
        ["model.kind=recurrent", "model.width=16", "tokens.level=words"],
        ["model.kind=transformer-xl", "model.layers=1", "model.width=16", "model.hidden=16", "model.heads=2",
         "model.segment=4", "model.memory=6", "tokens.level=bpe", "tokens.size=30"],
    ],
    ids=["recurrent", "transformer-xl"],
)  # fmt: skip
def test_the_other_kinds_train_and_write_at_other_levels(tmp_path: Path, how: list[str]) -> None:
    text = write_text(tmp_path / "text.txt", 60)
    more = ["output.context=16", "training.budget=136", "training.every=4", "training.rate=0.01"]
    model = regard.train(text, tmp_path / "run", steps=8, set=[*how, *more], quiet=True)
    (answer,) = model.predict(["ann: 1"], longest=8)
    assert answer.startswith("ann: 1")
    again = regard.load(tmp_path / "run")
    assert again.predict(["ann: 1"], longest=8) == [answer]
    assert again.evaluate([text])[0][0].value < 40


# ---- faults and choices --------------------------------------------------------------------------------------------


def test_faults_are_one_sentence(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults: list[tuple[list[str | Path], str]] = [
        (["predict", trained / "run", "ann", "--beam", "3"], "--beam: a model that continues texts"),
        (["predict", trained / "run", "ann", "--alignment", "hard"], "--alignment: a model that"),
        (["predict", trained / "run", "ann", "--temperature", "0"], "The temperature is 0.0"),
        (["evaluate", trained / "run", trained / "text.txt", "--stride", "99"], "The stride is 99, expected 1 to 16"),
        (["evaluate", trained / "run", trained / "text.txt", "--by-length"], "--by-length: a model that"),
        (["evaluate", trained / "run", trained / "text.txt", "-o", tmp_path / "x"], "--output: a model that"),
        (["show", trained / "run", "1 2 3 4 5 6 7 8 9 1 2 3", "-o", tmp_path / "x.png"], "too long to show: 24 tokens"),
        (["show", trained / "run", "", "-o", tmp_path / "x.png"], "The text is empty"),
    ]
    for arguments, sentence in faults:
        run(*arguments, code=1)
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1


def test_a_recurrent_model_has_nothing_to_show() -> None:
    with pytest.raises(UserError, match="has no attention"):
        make("recurrent").exhibit("To be", None)


def test_a_longer_context_than_longest_leaves_nothing_out() -> None:
    found = ContinueSettings.model_validate({"data": {"train": ["x"], "longest": 5}, "output": {"context": 900}})
    assert found.data.longest == 901
    assert found.training.smoothing == 0


def chosen_by(lines: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Sections of settings for such a text, and the reasons for them."""
    seen = Survey(len(lines), pairs(lines), range(len(lines)), "plain text")
    tokens, why = Tokens.choose(seen, Continue.use)
    tokens = tokens["tokens"]
    sections, reasons = Continue.choose(seen, tokens)
    return {"tokens": tokens, **sections}, why | reasons


@pytest.mark.parametrize(
    ("lines", "level"),
    [(["whether nobler minds suffer slings"] * 9, "characters"), (["a b c e f g"] * 99, "symbols"), (["whether nobler minds suffer " * 4000] * 99, "bpe")],
)  # fmt: skip
def test_sizes_are_chosen_with_reasons(lines: list[str], level: str) -> None:
    sections, reasons = chosen_by(lines)
    found = make_settings({"task": "continue", "data": {"train": ["x"]}, **sections}, "test")
    assert isinstance(found, ContinueSettings)
    assert found.tokens.level == level
    assert all(len(why) > 10 for why in reasons.values())
    assert {"tokens.level", "model.kind", "model.width"} <= set(reasons)
