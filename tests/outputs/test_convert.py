"""Converting: loss, search over real models, invariance under batching, alignments, and watching during a search."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import log_softmax

import regard
from regard.data.example import Example
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inference.ensemble import Ensemble, EnsembleState
from regard.inputs.tokens import Tokens
from regard.inspection.figure import figure_of
from regard.inspection.page import BEGINNING
from regard.outputs import OUTPUTS
from regard.outputs.convert.output import FINIS, Conversions, Convert, Search
from regard.outputs.output import Item
from regard.runs.settings import make as make_settings
from regard.runs.settings import override
from regard.task import Task
from regard.text.tokenizer import END, START, Tokenizer
from regard.training import train
from regard.training.prepare import counts_of
from tests.conftest import write_numbers
from tests.outputs.tasks import config_of, fresh

WORDS = ["abc", "cab", "bca", "aabbcc", "c", "abcabcabc", "bb", "acacac"]


def make(kind: str, smoothing: float = 0.0) -> Task:
    model: dict[str, Any] = {"kind": "recurrent", "layers": 1, "width": 16, "dropout": 0}
    model["attention"] = "none" if kind == "plain" else "additive"
    if kind in ("transformer", "ngrams"):
        model = {"kind": "transformer", "layers": 2, "width": 16, "hidden": 32, "heads": 2, "dropout": 0}
        model |= {"ngrams": 4, "buckets": 50} if kind == "ngrams" else {}
    pairs = [Example(word, word.upper(), "f", number) for number, word in enumerate(WORDS, 1)]
    task = fresh(config_of(task="convert", model=model, training={"smoothing": smoothing}), pairs)
    torch.manual_seed(1)
    for parameter in task.network.parameters():  # sharper than a fresh model, so that answers differ between texts
        torch.nn.init.normal_(parameter, std=0.5)
    return task


def convert(task: Task) -> Convert:
    assert isinstance(task.output, Convert)
    return task.output


def found_by(task: Task, texts: list[str], how: Search) -> list[Conversions]:
    return convert(task).answers(task.passes, texts, how)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_from_the_formula(smoothing: float) -> None:
    task = make("transformer", smoothing)
    rows = [([4, 5], [4, 5, 3]), ([6], [6, 3])]
    batch = task.batch(rows)
    assert batch.source.values[0].tolist() == [[4, 5], [6, 0]]
    target = batch.target.ids
    assert target.tolist() == [[4, 5, 3], [6, 3, 0]]
    (loss,) = task.network(batch)
    expected = 0.0
    logs = log_softmax(task.network.scores(batch).double(), -1)
    for b, t in (target != 0).nonzero().tolist():
        expected -= (1 - smoothing) * logs[b, t, target[b, t]].item() + smoothing * logs[b, t].mean().item()
    assert task.predictions(counts_of(rows)) == (5,)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["transformer", "ngrams", "recurrent", "plain"])
@pytest.mark.parametrize("how", [Search(beam=1), Search(beam=4, n_best=3), Search(seed=7)])
def test_the_same_alone_in_a_batch_and_in_any_order(kind: str, how: Search) -> None:
    task = make(kind)
    together = found_by(task, WORDS, how)
    if how.seed is None:
        alone = [found_by(task, [word], how)[0] for word in WORDS]
        assert [[a.text for a in x] for x in alone] == [[a.text for a in x] for x in together]
        backwards = found_by(task, WORDS[::-1], how)[::-1]
        assert [[a.text for a in x] for x in backwards] == [[a.text for a in x] for x in together]
        small = found_by(task, WORDS, replace(how, budget=1))
        assert [[a.text for a in x] for x in small] == [[a.text for a in x] for x in together]
    for answers in together:
        assert [a.normalised for a in answers] == sorted((a.normalised for a in answers), reverse=True)
        assert len({tuple(a.ids) for a in answers}) == len(answers)


@pytest.mark.parametrize("kind", ["transformer", "ngrams", "recurrent"])
def test_scores_are_the_models_log_probabilities(kind: str) -> None:
    task = make(kind)
    for text, answers in zip(WORDS, found_by(task, WORDS, Search(beam=3, n_best=2)), strict=True):
        for answer in answers:
            target = [*answer.ids, END]
            logs = log_softmax(task.network.scores(task.batch([(*task.input.encode([text])[0], target)]))[0], -1)
            assert answer.score == pytest.approx(logs.gather(1, torch.tensor(target)[:, None]).sum().item(), abs=1e-4)


def test_an_empty_text_has_an_empty_answer() -> None:
    answers = make("transformer").answers(["abc", "", "cab"], minimum=1)
    assert answers[1][0].text == ""
    assert answers[0][0].text
    assert answers[2][0].text


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_alignments_are_rows_of_weights_for_each_token_and_the_end(kind: str) -> None:
    task = make(kind)
    output = convert(task)
    layer = output.crossing(task.network)[0]  # of two layers the first
    answers = task.answers(WORDS, alignment="soft")
    with torch.no_grad(), regard.watch(task, layer) as seen:
        task.network.scores(output.known(task.passes, WORDS, answers))
    for word, (answer,), weights in zip(WORDS, answers, seen[layer].weights.mean(1), strict=True):
        own = weights[: len(answer.ids) + 1, : len(word)].numpy()
        assert own.sum(-1) == pytest.approx(1, abs=1e-5)
        assert weights.sum().item() == pytest.approx(len(answer.ids) + 1, abs=1e-4)
        assert answer.alignment is not None
        assert answer.alignment.weights == pytest.approx(own[:-1], abs=1e-5)
        ((alone,),) = task.answers([word], alignment="soft")
        assert alone.alignment is not None
        assert answer.alignment.weights == pytest.approx(alone.alignment.weights, abs=1e-5)


@pytest.mark.parametrize("level", ["words", "bpe", "unigram"])
def test_alignments_count_what_stands_between_blanks_at_every_level(level: str) -> None:
    """Also where the tokens are words and punctuation marks: a mark is a part of the word that it touches."""
    text, answer = 'Yes, "she" isn\'t (yet) here.', "Ja, sie - ist (noch) nicht da!"
    small = {"kind": "transformer", "layers": 1, "width": 8, "hidden": 8, "heads": 1}
    tokens, target = {"level": level, "size": 60}, {"level": level, "size": 60}
    task = fresh(
        config_of(task="convert", model=small, tokens=tokens, output=target), [Example(text, answer, "f", 1)] * 2
    )
    output = convert(task)
    source, ids = task.input.encode([text])[0][0], output.vocabulary.encode(answer)
    weights = torch.rand(len(ids), len(source)).softmax(-1).numpy()
    one = replace(task.answers([text])[0][0], ids=ids)
    found = output._in_words(task.passes, text, one, weights)
    assert len(weights) > len(found.rows)
    assert (found.rows, found.columns) == (answer.split(), text.split())
    assert found.weights.shape == (len(found.rows), len(found.columns))
    assert found.weights.sum(-1) == pytest.approx(1, abs=1e-5)


def test_a_model_without_attention_has_nothing_to_align() -> None:
    with pytest.raises(UserError, match="no attention between target and source"):
        make("plain").answers(["abc"], alignment="hard", minimum=1)


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
@pytest.mark.parametrize("how", [{"beam": 1}, {"beam": 4, "n_best": 3}, {"seed": 7}], ids=str)
def test_the_same_by_several_workers(kind: str, how: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    task, texts, threads = make(kind), WORDS * 40, torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = [[a.text for a in answers] for answers in task.answers(texts, **how)]
        torch.set_num_threads(2)
        searched: list[str] = []
        inner = convert(task)._search
        monkeypatch.setattr(
            task.output, "_search", lambda *given: searched.append(threading.current_thread().name) or inner(*given)
        )
        with regard.watch(task) as seen:
            found = task.answers(texts, **how)
    finally:
        torch.set_num_threads(threads)
    assert [[a.text for a in answers] for answers in found] == alone
    assert threading.current_thread().name not in searched
    assert len(searched) > 1
    assert all(call.weights.shape[0] == len(texts) for call in seen.values())  # the final answers, in the caller


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_watching_a_beam_search_shows_the_final_answers_and_changes_nothing(kind: str) -> None:
    task = make(kind)
    plain = task.answers(WORDS, beam=4)
    with regard.watch(task) as seen:
        watched = task.answers(WORDS, beam=4)
    assert watched == plain
    assert convert(task).crossing(task.network)
    for name in convert(task).crossing(task.network):
        weights = seen[name].weights
        assert weights.shape[0] == len(WORDS)
        assert weights.shape[2:] == (1 + max(len(a[0].ids) for a in plain), max(map(len, WORDS)))


def test_a_model_without_capitals_is_scored_without_them() -> None:
    text = "Ein Hund und ein Ball"
    items = [Item(Example("x", text, "f", 1), [text])]
    lower, cased = (Convert(Tokenizer.train([text], "bpe", 40, lowercase=lowercase)) for lowercase in (True, False))
    scores = lower.score(items, ["ein hund und ein ball"], 0)
    assert [score.value for score in scores] == pytest.approx([100.0, 100.0, 100.0])
    assert "case:lc" in scores[0].signature
    assert cased.score(items, ["ein hund und ein ball"], 0)[0].value < 50


@pytest.mark.parametrize("closed", [False, True])
def test_sub_words_are_shown_with_the_words_they_make_up(closed: bool) -> None:
    sentence, text = "ein Hund und ein Ball", "ein  Hund "
    model = {"kind": "transformer", "layers": 2, "width": 16, "hidden": 32, "heads": 2, "closed": closed}
    tokens, output = {"level": "bpe", "size": 24}, {"level": "bpe", "joint": True}
    task = fresh(
        config_of(task="convert", model=model, tokens=tokens, output=output), [Example(sentence, sentence, "f", 1)]
    )
    example = task.exhibit(text, "Ball und")
    assert example.text == text
    assert len(example.source) > len(example.words["source"].names)
    crossing, *others = example.maps
    weights, rows, columns = example.in_words(crossing)
    assert rows == ["Ball", "und", FINIS]
    assert columns == (["ein", "Hund", FINIS] if closed else ["ein", "Hund"])
    drawing = example.drawing
    assert drawing is not None
    if not closed:
        assert weights[0].mean(0)[:-1] == pytest.approx(drawing.weights, abs=1e-6)  # of two layers the first
    own = next(each for each in others if each.columns == "prefix")
    assert example.in_words(own)[2] == [BEGINNING, "Ball", "und"]
    grid = figure_of(example, grid=True)
    assert [label.get_text() for label in grid.axes[0].get_yticklabels()] == rows


# ---- several networks together -------------------------------------------------------------------------------------


def test_together_the_mean_of_the_probabilities_counts() -> None:
    """Against one pass over the whole sequences; before the last step the rows change places."""
    tasks = [make(kind) for kind in ("transformer", "recurrent")]
    rows, target = [([4, 5, 6], [5, 6, 3]), ([6, 4], [6, 4, 3])], torch.tensor([[5, 6, 3], [6, 4, 3]])
    together, swapped = Ensemble([task.network.head.step for task in tasks]), torch.tensor([1, 0])
    batch = tasks[0].batch(rows)
    with torch.no_grad():
        expected = torch.stack([task.network.scores(batch).softmax(-1) for task in tasks]).mean(0).log()
        started = [task.network.head.start(task.network, batch.source) for task in tasks]
        first, state = together.step(torch.full((2,), START), EnsembleState(tuple(started)))
        second, state = together.step(target[:, 0], state)
        third, _ = together.step(target[swapped, 1], state.reorder(swapped))
    for found, wanted in ((first, expected[:, 0]), (second, expected[:, 1]), (third, expected[swapped, 2])):
        assert torch.allclose(found, wanted, atol=1e-5)


def test_with_itself_a_model_answers_as_alone_and_with_another_otherwise() -> None:
    alone, same, other, stranger = make("recurrent"), make("recurrent"), make("transformer"), make("recurrent")
    before = [answers[0].score for answers in alone.answers(WORDS)]
    alone.join([same], ["same"])
    assert [answers[0].score for answers in alone.answers(WORDS)] == pytest.approx(before, abs=1e-5)
    alone.join([other], ["other"])
    assert [answers[0].score for answers in alone.answers(WORDS)] != pytest.approx(before, abs=1e-2)
    convert(stranger).vocabulary = Tokenizer.train(["xyz"], "characters")
    with pytest.raises(
        UserError, match="stranger has another vocabulary: only models with the same data and token settings"
    ):
        alone.join([stranger], ["stranger"])


def survey(count: int, sources: list[str], targets: list[str], **given: str) -> Survey:
    """The survey of so many examples, of which these are known."""
    examples = [Example(source, target, "f", 1) for source, target in zip(sources, targets, strict=True)]
    return Survey(
        count, examples, range(len(examples)), "", given={f"tokens.{key}": each for key, each in given.items()}
    )


def chosen_by(task: str, seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
    """Sections of settings for such texts, and the reasons for them."""
    output = OUTPUTS[task]
    tokens, why = Tokens.choose(seen, output.use)
    tokens = tokens["tokens"]
    sections, reasons = output.choose(seen, tokens)
    return {"tokens": tokens, **sections}, why | reasons


STRINGS, TEXTS = (
    ("paris", "p a r i s"),
    ("a man is reading on a bench in the park", "un homme lit sur un banc dans le parc"),
)


@pytest.mark.parametrize(
    ("pair", "count", "kind", "width"),
    [
        (STRINGS, 1_000, "recurrent", 128),
        (STRINGS, 10_000, "recurrent", 192),
        (STRINGS, 100_000, "transformer", 128),
        (TEXTS, 1_000, "transformer", 128),
        (TEXTS, 100_000, "transformer", 128),
        (TEXTS, 1_000_000, "transformer", 256),
    ],
)
def test_the_model_is_chosen_by_what_the_pairs_are_and_how_many(
    pair: tuple[str, str], count: int, kind: str, width: int
) -> None:
    sections, reasons = chosen_by("convert", survey(count, [pair[0]] * 20, [pair[1]] * 20))
    chosen = make_settings({"task": "convert", "data": {"train": ["pairs.tsv"]}, **sections}, "the chosen settings")
    assert (chosen.model.kind, chosen.model.width) == (kind, width)
    assert f"{count:,} pairs" in reasons["model.width"]
    assert (chosen.model.ngrams > 1) == ("model.ngrams" in reasons) == ((pair, count) == (STRINGS, 100_000))
    assert (chosen.training.steps is not None) == ("training.steps" in reasons) == ((pair, count) == (STRINGS, 1_000))


def test_sentences_without_spaces_are_running_text() -> None:
    """Sub-words, a Transformer and BLEU, as for any other; the vocabulary has room for what their letters make up."""
    sources = ["我们明天去学校上课。", "猫看见桌子上的苹果。", "他昨天买了一本新书。"] * 40
    targets = ["私は毎朝学校へ行きます", "彼はコーヒーを飲んでいる", "猫は机の上の林檎を見る"] * 40
    sections, reasons = chosen_by("convert", survey(120, sources, targets))
    chosen = make_settings({"task": "convert", "data": {"train": ["pairs.tsv"]}, **sections}, "the chosen settings")
    assert (chosen.tokens.level, chosen.output.level, chosen.model.kind) == ("bpe", "bpe", "transformer")
    assert "without spaces" in reasons["output.level"]
    both = Tokenizer.train(targets, "bpe", 300)
    items = [Item(Example("", targets[0], "f", 1), [targets[0]])]
    assert [score.name for score in Convert(both).score(items, [targets[0]], 0)] == ["bleu", "chrf", "exact_match"]
    reader = Tokens(both, None, chosen.tokens, Convert.use)
    assert (reader.length("我们去学校"), reader.length("we go to school")) == (5, 4)
    many = [f"{chr(0x4E00 + n)}{chr(0x5E00 + n)}{chr(0x6E00 + 2 * n)}{chr(0x7E00 + n)}很长的句子" for n in range(400)]
    assert chosen_by("convert", survey(400, many, many))[0]["tokens"]["size"] > 1600, "each character has a place"


def test_names_and_words_of_scripts_without_spaces_stay_strings() -> None:
    names = ["王小明", "欧阳娜娜", "東京都", "コンピューター"] * 5
    sections, _ = chosen_by("convert", survey(20, names, names))
    assert (sections["output"]["level"], sections["model"]["kind"]) == ("characters", "recurrent")


@pytest.mark.parametrize("task", ["classify", "fill"])
def test_where_whole_words_count_sentences_without_spaces_are_read_by_characters(task: str) -> None:
    texts = ["我们明天去学校上课。", "猫看见桌子上的苹果。"] * 20
    sections, reasons = chosen_by(task, survey(40, texts, ["a", "b"] * 20))
    assert sections["tokens"]["level"] == "characters"
    assert "without spaces" in reasons["tokens.level"]


@pytest.mark.parametrize(
    ("levels", "size", "joint"),
    [
        ([], 300, True),
        (["words", "words"], None, False),  # there may be more words than sub-words
        (["characters", "characters"], None, False),
        (["unigram", "unigram"], 300, True),
        (["characters", None], 300, False),
        (["unigram", None], 300, False),
        (["words", None], None, False),
    ],
)
def test_what_is_chosen_fits_the_levels_that_are_given(
    tmp_path: Path, levels: list[str | None], size: int | None, joint: bool
) -> None:
    write_numbers(tmp_path / "pairs.tsv")
    text = (tmp_path / "pairs.tsv").read_text().replace("\t", " and one more digit\tin words ")
    lines = (
        f"{line} no{number % 20}\n".replace("\t", f" no{number % 20}\t")
        for number, line in enumerate(text.splitlines())
    )
    (tmp_path / "pairs.tsv").write_text("".join(lines))  # numbers in digits are no closed vocabulary
    names = zip(("tokens.level", "output.level"), levels, strict=False)
    changes = [f"{name}={level}" for name, level in names if level]
    chosen, reasons, _ = train._settings([str(tmp_path / "pairs.tsv")], [], [], None, changes)
    made = override(chosen, changes)
    assert (made.tokens.size, made.output.joint) == (size, joint)
    assert ("tokens.size" in reasons, "output.joint" in reasons) == (size is not None, joint)


@pytest.mark.parametrize("task", ["classify", "fill", "tag"])
@pytest.mark.parametrize("level", ["words", "bpe", "characters"])
def test_other_tasks_choose_what_fits_a_given_level_too(task: str, level: str) -> None:
    texts = ["the cat sees an apple on the table", "a dog eats the book in the house"] * 20
    sections, reasons = chosen_by(task, survey(40, texts, texts, level=level))
    fits = {"words": "words" if task != "fill" else None, "bpe": "sub-words" if task == "fill" else None}.get(level)
    assert (sections["tokens"].get("size") is not None) == ("tokens.size" in reasons) == (fits is not None)
    assert fits is None or f" {fits}" in reasons["tokens.size"]
