"""Labels, tags and likelihoods: equal to scikit-learn, seqeval and hand-worked examples of conlleval."""

import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score as seqeval_f1
from seqeval.metrics import precision_score as seqeval_precision
from seqeval.metrics import recall_score as seqeval_recall
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from regard.errors import UserError
from regard.metrics import (
    Score,
    accuracy,
    as_json,
    bits_per_character,
    confusion,
    cross_entropy,
    evaluate,
    exact_match,
    macro_f1,
    perplexity,
    render,
    render_confusion,
    resample,
    single_tags,
    span_f1,
    span_precision,
    span_recall,
    spans,
    tag_accuracy,
)

labels = st.sampled_from(["yes", "no", "perhaps", "so_so", "ß"])
answers = st.lists(st.tuples(labels, labels), min_size=1, max_size=30)


def one_each(texts: Sequence[str]) -> list[list[str]]:
    return [[text] for text in texts]


def random_labels(seed: int, count: int, kinds: int) -> tuple[list[str], list[str]]:
    """References, and answers that are right in about 7 cases of 10."""
    chosen = random.Random(seed)
    names = [f"label{number}" for number in range(kinds)]
    expected = chosen.choices(names, weights=[1 / (number + 1) for number in range(kinds)], k=count)
    return expected, [label if chosen.random() < 0.6 else chosen.choice(names) for label in expected]


# ---- labels ---------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(answers)
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_labels_are_scored_as_scikit_learn_does(pairs: list[tuple[str, str]]) -> None:
    expected, found = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    references = one_each(expected)
    assert accuracy(found, references, samples=0).value == pytest.approx(100 * accuracy_score(expected, found))
    macro = f1_score(expected, found, average="macro", zero_division=0)
    assert macro_f1(found, references, samples=0).value == pytest.approx(100 * macro)
    names, matrix = confusion(found, references)
    assert names == sorted({*expected, *found})
    np.testing.assert_array_equal(matrix, confusion_matrix(expected, found, labels=names))


def test_a_label_may_have_alternatives() -> None:
    found, references = ["a", "b", "c"], [["b", "a"], ["a"], ["a", "b"]]
    assert accuracy(found, references, samples=0).value == pytest.approx(100 / 3)
    # (a, a), (a, b), (a, c): F1 of a is 2 · 1 / (1 + 3), of b and c nothing.
    assert macro_f1(found, references, samples=0).value == pytest.approx(50 / 3)


@pytest.mark.parametrize("metric", [accuracy, macro_f1])
def test_the_interval_is_that_of_resampled_items(metric: Callable[..., Score]) -> None:
    expected, found = random_labels(1, 60, 12)  # rare labels are missing in some of the resamples
    score = metric(found, one_each(expected), samples=80, seed=3)
    generator, values = np.random.default_rng(3), []
    for _ in range(80):
        drawn = generator.integers(60, size=60)
        chosen = [expected[i] for i in drawn], [found[i] for i in drawn]
        share = accuracy_score(*chosen) if metric is accuracy else f1_score(*chosen, average="macro", zero_division=0)
        values.append(100 * share)
    assert (score.low, score.high) == pytest.approx(tuple(np.percentile(values, [2.5, 97.5])))
    assert score.low < score.value < score.high


def test_rows_may_be_kept_once() -> None:
    generator = np.random.default_rng(0)
    distinct, rows = generator.integers(9, size=(4, 3)), generator.integers(4, size=50)
    every = resample(distinct[rows], lambda sums: sums[0] / sums[1] + sums[2], samples=20)
    once = resample(distinct, lambda sums: sums[0] / sums[1] + sums[2], samples=20, rows=rows)
    np.testing.assert_array_equal(every, once)


# ---- spans ----------------------------------------------------------------------------------------------------------

CONLLEVAL = [
    ("O O O", []),
    ("B-PER I-PER O", [(0, 1, "PER")]),
    ("B-PER B-PER", [(0, 0, "PER"), (1, 1, "PER")]),
    ("I-PER I-PER O I-LOC", [(0, 1, "PER"), (3, 3, "LOC")]),  # IOB1
    ("I-PER B-PER I-PER", [(0, 0, "PER"), (1, 2, "PER")]),  # IOB1: B only parts two of a kind
    ("B-PER I-LOC I-LOC", [(0, 0, "PER"), (1, 2, "LOC")]),  # another kind is another span
    ("I-LOC B-PER I-LOC", [(0, 0, "LOC"), (1, 1, "PER"), (2, 2, "LOC")]),
    ("B-creative-work I-creative-work", [(0, 1, "creative-work")]),
    ("S-PER B-LOC I-LOC E-LOC O", [(0, 0, "PER"), (1, 3, "LOC")]),  # BIOES
    ("S-PER S-PER E-PER", [(0, 0, "PER"), (1, 1, "PER"), (2, 2, "PER")]),
    ("B-PER E-PER I-PER E-PER", [(0, 1, "PER"), (2, 3, "PER")]),
    ("B-PER E-PER B-PER I-PER", [(0, 1, "PER"), (2, 3, "PER")]),
    ("U-PER B-LOC M-LOC L-LOC W-ORG", [(0, 0, "PER"), (1, 3, "LOC"), (4, 4, "ORG")]),  # other letters
    ("B_PER I_PER O B_PER_NAME", [(0, 1, "PER"), (3, 3, "PER_NAME")]),
    ("B_PER I-PER", [(0, 1, "PER")]),
    ("B I O B", [(0, 1, ""), (3, 3, "")]),
    ("NOUN VERB", []),
]


@pytest.mark.parametrize(("tags", "expected"), CONLLEVAL, ids=[case[0] for case in CONLLEVAL])
def test_spans_by_the_rules_of_conlleval(tags: str, expected: list[tuple[int, int, str]]) -> None:
    assert spans(tags.split()) == expected


def test_a_hand_worked_example_of_conlleval() -> None:
    """Five spans expected, four answered, two of them right: precision 50, recall 40, F1 44.44 %; 10 of 13 tags."""
    references = ["B-PER I-PER O B-LOC O", "B-ORG O B-LOC I-LOC", "O O B-PER O"]
    found = ["B-PER I-PER O B-ORG O", "B-ORG O B-LOC O", "O O O O"]
    scores = {score.name: score.value for score in evaluate(found, one_each(references), kind="tags", samples=0)}
    assert scores == pytest.approx(
        {"span_f1": 400 / 9, "span_precision": 50, "span_recall": 40, "tag_accuracy": 1000 / 13, "exact_match": 0}
    )


letters = st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y", "E-x", "S-x", "E-y", "S-y"])
sentence = st.lists(st.tuples(letters, letters), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None)
@given(st.lists(sentence, min_size=1, max_size=6))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_spans_are_scored_as_seqeval_does(rows: list[list[tuple[str, str]]]) -> None:
    expected = [[pair[0] for pair in row] for row in rows]
    found = [[pair[1] for pair in row] for row in rows]
    texts = [" ".join(tags) for tags in found], one_each([" ".join(tags) for tags in expected])
    for metric, oracle in ((span_f1, seqeval_f1), (span_precision, seqeval_precision), (span_recall, seqeval_recall)):
        value = oracle(expected, found, zero_division=0)
        assert metric(*texts, samples=0).value == pytest.approx(100 * value), metric
    flat = [tag for tags in expected for tag in tags], [tag for tags in found for tag in tags]
    assert tag_accuracy(*texts, samples=0).value == pytest.approx(100 * accuracy_score(*flat))
    singles = single_tags(*texts)
    assert singles == (flat[1], one_each(flat[0]))
    assert macro_f1(*singles, samples=0).value == pytest.approx(100 * f1_score(*flat, average="macro", zero_division=0))


@settings(max_examples=25, deadline=None)
@given(st.lists(sentence, min_size=1, max_size=6))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_an_underscore_scores_as_a_hyphen(rows: list[list[tuple[str, str]]]) -> None:
    expected, found = ([[pair[side] for pair in row] for row in rows] for side in (0, 1))
    written = [[" ".join(tags).replace("-", "_") for tags in side] for side in (expected, found)]
    score = span_f1(written[1], one_each(written[0]), samples=0)
    assert score.value == pytest.approx(100 * seqeval_f1(expected, found, zero_division=0))
    scores = evaluate(written[1], one_each(written[0]), kind="tags", samples=0)
    any_span = any(tag != "O" for row in expected for tag in row)
    assert (scores[0].name == "span_f1") == any_span


def test_the_interval_of_spans_is_that_of_resampled_sentences() -> None:
    chosen = random.Random(4)
    expected = [chosen.choices(["O", "B-x", "I-x", "B-y"], k=chosen.randint(1, 9)) for _ in range(60)]
    found = [[tag if chosen.random() < 0.8 else "O" for tag in tags] for tags in expected]
    score = span_f1([" ".join(tags) for tags in found], one_each([" ".join(tags) for tags in expected]), samples=50)
    generator, values = np.random.default_rng(12345), []
    for _ in range(50):
        drawn = generator.integers(60, size=60)
        values.append(100 * seqeval_f1([expected[i] for i in drawn], [found[i] for i in drawn]))
    assert (score.low, score.high) == pytest.approx(tuple(np.percentile(values, [2.5, 97.5])))


def test_the_nearest_row_of_tags_counts() -> None:
    assert tag_accuracy(["A B C"], [["A C C", "A B C", "A B"]], samples=0).value == 100


def test_kinds_choose_their_metrics() -> None:
    def names(found: list[str], expected: list[str], kind: str) -> list[str]:
        return [score.name for score in evaluate(found, one_each(expected), kind=kind, samples=0)]  # type: ignore[arg-type]

    assert names(["a"], ["b"], "labels") == ["accuracy", "macro_f1"]
    assert names(["NOUN VERB"], ["NOUN NOUN"], "tags") == ["tag_accuracy", "exact_match"]
    assert names(["O O"], ["O O"], "tags")[0] == "tag_accuracy", "no span is expected anywhere"
    assert names(["NOUN O"], ["B-x O"], "tags")[0] == "span_f1"
    assert names(["B-x O"], ["B-x X"], "tags")[0] == "tag_accuracy"
    assert names(["B_x O"], ["B_x O"], "tags")[0] == "span_f1"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tag_accuracy(["A B"], [["A B C"]]), "Item 1 has 2 tags, expected 3"),
        (lambda: span_f1(["A", "A"], [["A"]]), "as many reference items"),
        (lambda: macro_f1([], []), "nothing to score"),
        (lambda: accuracy(["a"], ["a"]), "must be a list"),
        (lambda: confusion(["a"], [[]]), "has no reference"),
        (lambda: perplexity([], []), "nothing to score"),
        (lambda: perplexity([1.0], [0]), "nothing to score"),
        (lambda: bits_per_character([1.0], [1, 2]), "1 losses and 2 counts"),
        (
            lambda: evaluate(["a"], [["a"]], kind="pictures"),
            "choose one of text, closed, symbols, characters, labels, tags, speech, segments",
        ),
    ],
)
def test_faults_are_one_sentence(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


# ---- likelihoods ----------------------------------------------------------------------------------------------------


def test_likelihoods() -> None:
    # Uniform over 8: perplexity 8, 3 bits a token; two tokens a character would make 6 bits a character.
    losses, tokens = [math.log(8) * count for count in (5, 9, 2)], [5, 9, 2]
    assert perplexity(losses, tokens).value == pytest.approx(8)
    assert cross_entropy(losses, tokens).value == pytest.approx(math.log(8))
    assert bits_per_character(losses, [count / 2 for count in tokens]).value == pytest.approx(6)  # type: ignore[misc]
    # Totals are divided, so that the cut does not matter.
    assert perplexity([1.0, 2.0, 6.0], [1, 4, 3], samples=0).value == pytest.approx(
        perplexity([9.0], [8], samples=0).value
    )
    score = perplexity([1.0, 2.0, 6.0, 4.0, 3.0], [1, 4, 3, 3, 2])
    assert score.low < score.value < score.high
    assert not score.higher_is_better
    assert perplexity([1e6], [1], samples=0).value == math.inf


def test_scores_are_rendered_with_digits_that_suit_them() -> None:
    scores = [
        cross_entropy([1.8861], [1], samples=0),
        bits_per_character([1.8861], [1], samples=0),
        *evaluate(["a", "b"], one_each(["a", "a"]), kind="labels", samples=0),
    ]
    text = render(scores)
    assert "cross entropy" in text
    assert "1.8861" in text
    assert "2.7211" in text
    assert "accuracy" in text
    assert "50.00 %" in text
    assert "macro F1" in text
    assert as_json(scores)[0]["name"] == "cross_entropy"


# ---- confusions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [2, 6, 12, 30, 60])
def test_confusions_stay_readable(kinds: int) -> None:
    expected, found = random_labels(5, 3_000, kinds)
    names, matrix = confusion(found, one_each(expected))
    text = render_confusion(names, matrix)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= kinds + 2
    if kinds <= 6:  # the whole matrix
        assert [[int(cell.replace(",", "").replace("·", "0")) for cell in line.split()[1:]] for line in lines[2:]] == (
            matrix.tolist()
        )
    if kinds == 60:  # each label with what it is most often taken for
        for name, row, line in zip(names, matrix, lines[1:], strict=True):
            index = names.index(name)
            other = max((count, -place) for place, count in enumerate(row.tolist()) if place != index)
            assert f"  {names[-other[1]]} {other[0]}" in line
            assert f"{100 * row[index] / row.sum():.1f} %" in line
            assert f"{100 * row[index] / matrix[:, index].sum():.1f} %" in line


def test_a_small_confusion() -> None:
    text = render_confusion(*confusion(["a", "b", "b", "a"], one_each(["a", "a", "b", "a"])))
    assert text == "expected ↓  answered →\n   a  b\na  2  1\nb  ·  1"
    unanswered = render_confusion(
        *confusion([f"x{n:>30}" for n in range(40)], one_each([f"y{n:>30}" for n in range(40)]))
    )
    assert "–" in unanswered


def test_perfect_answers() -> None:
    tags = ["B-x I-x O", "O S-y"]
    assert [score.value for score in evaluate(tags, one_each(tags), kind="tags", samples=0)] == [100] * 5
    assert exact_match(tags, one_each(tags), samples=0).value == 100
