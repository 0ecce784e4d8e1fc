"""Converting: loss, search over real models, invariance under batching, alignments, and watching during a search."""

import threading
from pathlib import Path

import pytest
import torch
from torch.nn.functional import log_softmax

import regard
from regard import config, running
from regard.errors import UserError
from regard.inputs.tokens import START, Tokenizer
from regard.models.bahdanau import recurrent
from regard.models.transformer import transformer
from regard.outputs import aligning
from regard.outputs.classify import Classify
from regard.outputs.convert import FINIS, Batch, Convert, Search
from regard.outputs.fill import Fill
from regard.outputs.tag import Tag
from regard.outputs.task import Survey, Task
from regard.outputs.together import Together
from regard.page import BEGINNING
from tests.conftest import write_numbers

WORDS = ["abc", "cab", "bca", "aabbcc", "c", "abcabcabc", "bb", "acacac"]


def make(kind: str) -> Convert:
    torch.manual_seed(1)
    source, target = Tokenizer.train(WORDS, "characters"), Tokenizer.train([w.upper() for w in WORDS], "characters")
    if kind in ("transformer", "ngrams"):
        runs = {"ngrams": 4, "buckets": 50} if kind == "ngrams" else {}
        network = transformer(source.size, target.size, layers=2, width=16, hidden=32, heads=2, **runs)
    else:
        network = recurrent(source.size, target.size, width=16, attention="none" if kind == "plain" else "additive")
    for parameter in network.parameters():  # sharper than a fresh model, so that answers differ between texts
        torch.nn.init.normal_(parameter, std=0.5)
    return Convert(network, source, target)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_from_the_formula(smoothing: float) -> None:
    task = make("transformer")
    task.network.eval()
    batch = Batch(torch.tensor([[4, 5], [6, 0]]), torch.tensor([[4, 5, 3], [6, 3, 0]]))
    loss, count = task.network.loss(batch, smoothing)
    expected = 0.0
    logs = log_softmax(task.network(batch).double(), -1)
    for b, t in (batch.target != 0).nonzero().tolist():
        expected -= (1 - smoothing) * logs[b, t, batch.target[b, t]].item() + smoothing * logs[b, t].mean().item()
    assert count == 5
    assert loss.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["transformer", "ngrams", "recurrent", "plain"])
@pytest.mark.parametrize("how", [Search(beam=1), Search(beam=4, n_best=3), Search(seed=7)])
def test_the_same_alone_in_a_batch_and_in_any_order(kind: str, how: Search) -> None:
    task = make(kind)
    together = task.predict(WORDS, how)
    if how.seed is None:
        assert [[a.text for a in task.predict([w], how)[0]] for w in WORDS] == [[a.text for a in x] for x in together]
        backwards = task.predict(WORDS[::-1], how)[::-1]
        assert [[a.text for a in x] for x in backwards] == [[a.text for a in x] for x in together]
        small = task.predict(WORDS, Search(**{**how.__dict__, "budget": 1}))
        assert [[a.text for a in x] for x in small] == [[a.text for a in x] for x in together]
    for answers in together:
        assert [a.normalised for a in answers] == sorted((a.normalised for a in answers), reverse=True)
        assert len({tuple(a.ids) for a in answers}) == len(answers)


@pytest.mark.parametrize("kind", ["transformer", "ngrams", "recurrent"])
def test_scores_are_the_models_log_probabilities(kind: str) -> None:
    task = make(kind)
    for text, answers in zip(WORDS, task.predict(WORDS, Search(beam=3, n_best=2)), strict=True):
        for answer in answers:
            batch = Batch(torch.tensor([task.source.encode(text)]), torch.tensor([[*answer.ids, 3]]))
            logs = log_softmax(task.network(batch)[0], -1)
            assert answer.score == pytest.approx(logs.gather(1, batch.target[0][:, None]).sum().item(), abs=1e-4)


def test_an_empty_text_has_an_empty_answer() -> None:
    answers = make("transformer").predict(["abc", "", "cab"], Search(minimum=1))
    assert answers[1][0].text == ""
    assert answers[0][0].text
    assert answers[2][0].text


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_alignments_are_rows_of_weights_for_each_token_and_the_end(kind: str) -> None:
    task = make(kind)
    rows = [(task.source.encode(w), task.predict([w], Search())[0][0].ids) for w in WORDS]
    together = task.alignments(rows)
    for row, weights in zip(rows, together, strict=True):
        assert weights.shape == (len(row[1]) + 1, len(row[0]))
        assert weights.sum(-1) == pytest.approx(1, abs=1e-5)
        assert weights == pytest.approx(task.alignments([row])[0], abs=1e-5)


@pytest.mark.parametrize("level", ["words", "bpe", "unigram"])
def test_alignments_count_what_stands_between_blanks_at_every_level(level: str) -> None:
    """Also where the tokens are words and punctuation marks: a mark is a part of the word that it touches."""
    text, answer = 'Yes, "she" isn\'t (yet) here.', "Ja, sie - ist (noch) nicht da!"
    source, target = (Tokenizer.train([each, each], level, 60) for each in (text, answer))
    weights = torch.rand(len(target.encode(answer)), len(source.encode(text))).softmax(-1).numpy()
    merged, rows, columns = aligning.in_words(weights, text, target.encode(answer), source, target)
    assert len(weights) > len(rows)
    assert (rows, columns) == (answer.split(), text.split())
    assert merged.shape == (len(rows), len(columns))
    assert merged.sum(-1) == pytest.approx(1, abs=1e-5)


def test_a_model_without_attention_has_nothing_to_align() -> None:
    with pytest.raises(UserError, match="no attention between target and source"):
        make("plain").alignments([([4], [4])])


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
@pytest.mark.parametrize("how", [Search(beam=1), Search(beam=4, n_best=3), Search(seed=7)])
def test_the_same_by_several_workers(kind: str, how: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    task, texts, threads = make(kind), WORDS * 40, torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = [[a.text for a in answers] for answers in task.predict(texts, how)]
        torch.set_num_threads(2)
        searched: list[str] = []
        inner = task._search
        monkeypatch.setattr(
            task, "_search", lambda *given: searched.append(threading.current_thread().name) or inner(*given)
        )
        with regard.watch(task) as seen:
            found = task.predict(texts, how)
    finally:
        torch.set_num_threads(threads)
    assert [[a.text for a in answers] for answers in found] == alone
    assert threading.current_thread().name not in searched
    assert len(searched) > 1
    assert all(call.weights.shape[0] == len(texts) for call in seen.values())  # the final answers, in the caller


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_watching_a_beam_search_shows_the_final_answers_and_changes_nothing(kind: str) -> None:
    task = make(kind)
    plain = task.predict(WORDS, Search(beam=4))
    with regard.watch(task) as seen:
        watched = task.predict(WORDS, Search(beam=4))
    assert watched == plain
    for name in task.crossing():
        weights = seen[name].weights
        assert weights.shape[0] == len(WORDS)
        assert weights.shape[2:] == (1 + max(len(a[0].ids) for a in plain), max(map(len, WORDS)))


def test_a_model_without_capitals_is_scored_without_them() -> None:
    task = make("transformer")
    task.target = Tokenizer.train(["Ein Hund und ein Ball"], "bpe", 40, lowercase=True)
    items = [("x", ["Ein Hund und ein Ball"])]
    scores = task.score(items, ["ein hund und ein ball"], 0)
    assert [score.value for score in scores] == pytest.approx([100.0, 100.0, 100.0])
    assert "case:lc" in scores[0].signature
    task.target = Tokenizer.train(["Ein Hund und ein Ball"], "bpe", 40)
    assert task.score(items, ["ein hund und ein ball"], 0)[0].value < 50


@pytest.mark.parametrize("closed", [False, True])
def test_sub_words_are_shown_with_the_words_they_make_up(closed: bool) -> None:
    torch.manual_seed(1)
    tokens = Tokenizer.train(["ein Hund und ein Ball"] * 3, "bpe", 24)
    network = transformer(tokens.size, tokens.size, layers=2, width=16, hidden=32, heads=2, closed=closed)
    task, text = Convert(network.eval(), tokens, tokens), "ein  Hund "
    example = task.example(text, "Ball und")
    assert example.text == text
    assert len(example.source) > len(example.words["source"].names)
    crossing, *others = example.maps
    weights, rows, columns = example.in_words(crossing)
    assert rows == ["Ball", "und", FINIS]
    assert columns == (["ein", "Hund", FINIS] if closed else ["ein", "Hund"])
    if not closed:
        aligned = task.aligned(text, tokens.encode("Ball und"))  # of two layers the first
        assert weights[0].mean(0)[:-1] == pytest.approx(aligned[0], abs=1e-6)
    own = next(each for each in others if each.columns == "prefix")
    assert example.in_words(own)[2] == [BEGINNING, "Ball", "und"]
    grid = task.picture(text, "Ball und", grid=True)
    assert [label.get_text() for label in grid.axes[0].get_yticklabels()] == rows


# ---- several networks together -------------------------------------------------------------------------------------


def test_together_the_mean_of_the_probabilities_counts() -> None:
    """Against one pass over the whole sequences; before the last step the rows change places."""
    networks = [make(kind).network.eval() for kind in ("transformer", "recurrent")]
    source, target = torch.tensor([[4, 5, 6], [6, 4, 0]]), torch.tensor([[5, 6, 3], [6, 4, 3]])
    together, swapped = Together(networks), torch.tensor([1, 0])
    with torch.no_grad():
        expected = torch.stack([network(Batch(source, target)).softmax(-1) for network in networks]).mean(0).log()
        first, state = together.step(torch.full((2,), START), together.start(source))
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
    stranger.target = Tokenizer.train(["xyz"], "characters")
    with pytest.raises(UserError, match="stranger has another vocabulary: models answer together that were trained"):
        alone.join([stranger], ["stranger"])


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
    sections, reasons = Convert.choose(Survey(count, [pair[0]] * 20, [pair[1]] * 20, "pairs"))
    chosen = config.make({"task": "convert", "data": {"train": ["pairs.tsv"]}, **sections}, "the chosen settings")
    assert (chosen.model.kind, chosen.model.width) == (kind, width)
    assert f"{count:,} pairs" in reasons["model.width"]
    assert (chosen.model.ngrams > 1) == ("model.ngrams" in reasons) == ((pair, count) == (STRINGS, 100_000))
    assert (chosen.training.steps is not None) == ("training.steps" in reasons) == ((pair, count) == (STRINGS, 1_000))


def test_sentences_without_spaces_are_running_text() -> None:
    """Sub-words, a Transformer and BLEU, as for any other; the vocabulary has room for what their letters make up."""
    sources = ["我们明天去学校上课。", "猫看见桌子上的苹果。", "他昨天买了一本新书。"] * 40
    targets = ["私は毎朝学校へ行きます", "彼はコーヒーを飲んでいる", "猫は机の上の林檎を見る"] * 40
    sections, reasons = Convert.choose(Survey(120, sources, targets, "pairs"))
    chosen = config.make({"task": "convert", "data": {"train": ["pairs.tsv"]}, **sections}, "the chosen settings")
    assert (chosen.tokens.source_level, chosen.tokens.target_level, chosen.model.kind) == ("bpe", "bpe", "transformer")
    assert "without spaces" in reasons["tokens.target_level"]
    both = Tokenizer.train(targets, "bpe", 300)
    task = Convert(transformer(both.size, both.size, layers=1, width=8, hidden=8, heads=1), both, both)
    assert [score.name for score in task.score([("", [targets[0]])], [targets[0]], 0)] == [
        "bleu",
        "chrf",
        "exact_match",
    ]
    assert (task.length("我们去学校"), task.length("we go to school")) == (5, 4)
    many = [f"{chr(0x4E00 + n)}{chr(0x5E00 + n)}{chr(0x6E00 + 2 * n)}{chr(0x7E00 + n)}很长的句子" for n in range(400)]
    assert Convert.choose(Survey(400, many, many, "pairs"))[0]["tokens"]["size"] > 1600, "each character has a place"


def test_names_and_words_of_scripts_without_spaces_stay_strings() -> None:
    names = ["王小明", "欧阳娜娜", "東京都", "コンピューター"] * 5
    sections, _ = Convert.choose(Survey(20, names, names, "pairs"))
    assert (sections["tokens"]["target_level"], sections["model"]["kind"]) == ("characters", "recurrent")


@pytest.mark.parametrize("task", [Classify, Fill])
def test_where_whole_words_count_sentences_without_spaces_are_read_by_characters(task: type[Task]) -> None:
    texts = ["我们明天去学校上课。", "猫看见桌子上的苹果。"] * 20
    sections, reasons = task.choose(Survey(40, texts, ["a", "b"] * 20, "texts"))
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
    (tmp_path / "pairs.tsv").write_text(text)
    names = zip(("tokens.source_level", "tokens.target_level"), levels, strict=False)
    changes = [f"{name}={level}" for name, level in names if level]
    chosen, reasons = running._settings([str(tmp_path / "pairs.tsv")], [], [], None, changes)
    tokens = config.override(chosen, changes).tokens
    assert (tokens.size, tokens.joint) == (size, joint)
    assert ("tokens.size" in reasons, "tokens.joint" in reasons) == (size is not None, joint)


@pytest.mark.parametrize("task", [Classify, Fill, Tag])
@pytest.mark.parametrize("level", ["words", "bpe", "characters"])
def test_other_tasks_choose_what_fits_a_given_level_too(task: type[Task], level: str) -> None:
    texts = ["the cat sees an apple on the table", "a dog eats the book in the house"] * 20
    sections, reasons = task.choose(Survey(40, texts, texts, "texts", {"level": level}))
    fits = {"words": "words" if task is not Fill else None, "bpe": "sub-words" if task is Fill else None}.get(level)
    assert (sections["tokens"].get("size") is not None) == ("tokens.size" in reasons) == (fits is not None)
    assert fits is None or f" {fits}: " in reasons["tokens.size"]
