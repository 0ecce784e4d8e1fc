"""The metrics against sacrebleu, jiwer and plain loops."""

import json
import random
import time
from collections.abc import Callable, Sequence

import jiwer
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF

from regard.errors import UserError
from regard.metrics import (
    Score,
    as_json,
    bleu,
    bootstrap,
    by_length,
    character_error_rate,
    chrf,
    compound_bleu,
    evaluate,
    exact_match,
    render,
    render_buckets,
    resample,
    sequence_error_rate,
    symbol_error_rate,
    word_error_rate,
)

ALL = [
    bleu,
    chrf,
    compound_bleu,
    exact_match,
    sequence_error_rate,
    symbol_error_rate,
    word_error_rate,
    character_error_rate,
]
WORDS = ["the", "cat", "sat", "on", "a", "mat", ",", "The", "Cat", "."]
sentences = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
items = st.lists(st.tuples(sentences, st.lists(sentences, min_size=1, max_size=3)), min_size=1, max_size=6)


def corpus(count: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Sentences with words dropped from their references."""
    generator = random.Random(seed)
    words = [f"word{number}" for number in range(300)]
    references = [generator.choices(words, k=generator.randint(3, 30)) for _ in range(count)]
    hypotheses = [[word for word in words if generator.random() > 0.15] for words in references]
    return [" ".join(words) for words in hypotheses], [[" ".join(words)] for words in references]


def slow_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Levenshtein's distance by the textbook's table."""
    table = [[row + column for column in range(len(other) + 1)] for row in range(len(one) + 1)]
    for row in range(1, len(one) + 1):
        for column in range(1, len(other) + 1):
            table[row][column] = min(
                table[row - 1][column] + 1,
                table[row][column - 1] + 1,
                table[row - 1][column - 1] + (one[row - 1] != other[column - 1]),
            )
    return table[-1][-1]


def streams(references: list[list[str]]) -> list[list[str | None]]:
    """References as sacrebleu takes them."""
    return [[item[k] if k < len(item) else None for item in references] for k in range(max(map(len, references)))]


@settings(max_examples=50, deadline=None)
@given(items, st.sampled_from(["13a", "none", "char"]), st.booleans())
def test_bleu_and_chrf_are_sacrebleus(pairs: list[tuple[str, list[str]]], tokenize: str, lowercase: bool) -> None:
    hypotheses, references = [hypothesis for hypothesis, _ in pairs], [allowed for _, allowed in pairs]
    oracle = BLEU(tokenize=tokenize, lowercase=lowercase)
    score = bleu(hypotheses, references, tokenize=tokenize, lowercase=lowercase, samples=0)
    assert score.value == pytest.approx(oracle.corpus_score(hypotheses, streams(references)).score)
    assert score.signature == str(oracle.get_signature())
    oracle = CHRF(lowercase=lowercase)
    score = chrf(hypotheses, references, lowercase=lowercase, samples=0)
    assert score.value == pytest.approx(oracle.corpus_score(hypotheses, streams(references)).score)
    assert score.signature == str(oracle.get_signature())


def test_tokenised_lower_case_bleu_has_another_signature() -> None:
    hypotheses, references = ["a Man runs ."], [["a man runs ."]]
    assert bleu(hypotheses, references, tokenize="none", lowercase=True).value == pytest.approx(100)
    assert bleu(hypotheses, references).value < 100
    signature = bleu(hypotheses, references, tokenize="none", lowercase=True).signature
    assert "case:lc" in signature
    assert "tok:none" in signature


@pytest.mark.parametrize(
    ("text", "changed", "name"),
    [
        ("我们明天去学校上课。", "我们今天去学校上课。", "zh"),
        ("我们用Python和torch写代码,很快。", "我们用Python和torch写文章,很快。", "zh"),
        ("私は毎朝コーヒーを飲みます。", "私は毎晩コーヒーを飲みます。", "char"),
        ("แมวเห็นแอปเปิลบนโต๊ะ", "แมวเห็นแอปเปิลใต้โต๊ะ", "char"),
        ("Wir sagen 你好 auf dem Weg zur Schule.", "Wir sagen 你好 auf dem Weg in die Schule.", "13a"),
        ("Мы завтра пойдём в школу.", "Мы сегодня пойдём в школу.", "13a"),
    ],
)
def test_bleu_of_scripts_without_spaces_is_of_their_characters(text: str, changed: str, name: str) -> None:
    found = bleu([changed] * 3, [[text]] * 3, samples=0)
    assert f"tok:{name}" in found.signature
    assert found.value > 30, "tokens between spaces would be one or two, and BLEU nought"
    assert found.value == pytest.approx(BLEU(tokenize=name).corpus_score([changed] * 3, [[text] * 3]).score)
    assert "tok:13a" in bleu([changed], [[text]], tokenize="13a", samples=0).signature


def test_error_rates_are_jiwers_with_one_reference() -> None:
    hypotheses, references = corpus(200, seed=1)
    single = [allowed[0] for allowed in references]
    words = 100 * jiwer.wer(single, hypotheses)
    assert word_error_rate(hypotheses, references).value == pytest.approx(words)
    assert symbol_error_rate(hypotheses, references).value == pytest.approx(words)
    characters = 100 * jiwer.cer(single, hypotheses)
    assert character_error_rate(hypotheses, references).value == pytest.approx(characters)


@settings(max_examples=50, deadline=None)
@given(items, st.sampled_from([(word_error_rate, str.split), (character_error_rate, list)]))
def test_error_rates_take_the_nearest_reference(
    pairs: list[tuple[str, list[str]]],
    rate: tuple[Callable[..., Score], Callable[[str], list[str]]],
) -> None:
    metric, split = rate
    edits = symbols = 0
    for hypothesis, allowed in pairs:
        nearest = min(
            ((slow_distance(split(hypothesis), split(text)), -len(split(text))) for text in allowed),
        )
        edits, symbols = edits + nearest[0], symbols - nearest[1]
    score = metric([hypothesis for hypothesis, _ in pairs], [allowed for _, allowed in pairs], samples=0)
    assert score.value == pytest.approx(100 * edits / max(symbols, 1))
    turned = metric([hypothesis for hypothesis, _ in pairs], [allowed[::-1] for _, allowed in pairs], samples=0)
    assert turned.value == score.value


def test_the_two_word_error_rates_are_kept_apart() -> None:
    hypotheses = ["K AE T", "D AO G", "B ER D  Z", "F IH SH"]
    references = [["K AE T"], ["D AA G", "D AO G"], ["B ER D Z"], ["F IY SH IH"]]
    assert sequence_error_rate(hypotheses, references).value == 25
    assert word_error_rate(hypotheses, references).value == pytest.approx(100 * 2 / 14)
    assert symbol_error_rate(hypotheses, references).value == pytest.approx(100 * 2 / 14)
    assert exact_match(hypotheses, references).value == 50, "a doubled space is a different string"


def test_empty_references_do_not_divide_by_nothing() -> None:
    assert word_error_rate([""], [[""]]).value == 0
    assert word_error_rate(["a b"], [[""]]).value == 200
    assert bleu([""], [["a b c d"]]).value == 0


def test_interval_is_the_percentile_of_explicitly_resampled_corpora() -> None:
    """Draw the same items, write the resampled corpora out, score each from its texts."""
    hypotheses, references = corpus(12, seed=3)
    generator, values = np.random.default_rng(7), []
    for _ in range(60):
        drawn = generator.integers(12, size=12)
        chosen = [hypotheses[item] for item in drawn]
        values.append(BLEU().corpus_score(chosen, [[references[item][0] for item in drawn]]).score)
    score = bleu(hypotheses, references, samples=60, seed=7)
    assert (score.low, score.high) == pytest.approx(tuple(np.percentile(values, [2.5, 97.5])))
    assert score.low is not None
    assert score.high is not None
    assert score.low < score.value < score.high


def test_interval_of_a_share_is_about_the_binomials() -> None:
    hypotheses = ["a"] * 300 + ["b"] * 700
    score = exact_match(hypotheses, [["a"]] * 1000)
    assert score.low is not None
    assert score.high is not None
    half_width = 1.96 * (0.3 * 0.7 / 1000) ** 0.5 * 100
    assert score.high - score.low == pytest.approx(2 * half_width, rel=0.1)
    assert (score.low + score.high) / 2 == pytest.approx(30, abs=0.5)


def test_resampling_is_paired_and_repeats() -> None:
    generator = np.random.default_rng(0)
    better = np.stack([generator.integers(0, 2, size=50), np.ones(50, dtype=np.int64)], axis=1)
    worse = better.copy()
    worse[:10, 0] = 0

    def share(counts: list[int]) -> float:
        return 100 * counts[0] / counts[1]

    differences = resample(better, share, samples=200) - resample(worse, share, samples=200)
    assert differences.min() >= 0, "with the same items drawn, what is nowhere worse never loses"
    assert bootstrap(better, share, seed=1) == bootstrap(better, share, seed=1)
    assert not np.array_equal(resample(better, share, seed=1), resample(better, share, seed=2))
    wide, narrow = bootstrap(better, share), bootstrap(better, share, confidence=50)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_a_thousand_resamples_of_bleu_are_quick() -> None:
    hypotheses, references = corpus(1000)
    start = time.perf_counter()
    bleu(hypotheses, references, samples=1000)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("text", ["bleu", "chrf", "exact_match"]),
        ("symbols", ["sequence_error_rate", "symbol_error_rate", "exact_match"]),
        ("characters", ["exact_match", "character_error_rate"]),
    ],
)
def test_evaluate_picks_what_fits(kind: str, names: list[str]) -> None:
    scores = evaluate(["a b c d"], [["a b c d"]], kind=kind, samples=20)  # type: ignore[arg-type]
    assert [score.name for score in scores] == names
    for score in scores:
        perfect = pytest.approx(100 if score.higher_is_better else 0)
        assert (score.value, score.low, score.high) == (perfect, perfect, perfect)


def test_buckets_by_length_part_the_items() -> None:
    hypotheses, references = corpus(60, seed=5)
    sources = [allowed[0] for allowed in references]
    buckets = by_length(sources, hypotheses, references, bleu, (2, 10, 20))
    longest = max(len(source.split()) for source in sources)
    assert [(low, high) for low, high, _, _ in buckets] == [(3, 10), (11, 20), (21, longest)], "0–2 is empty"
    assert sum(count for _, _, count, _ in buckets) == 60
    for low, high, count, score in buckets:
        chosen = [item for item in range(60) if low <= len(sources[item].split()) <= high]
        assert count == len(chosen) == score.count
        expected = BLEU().corpus_score(
            [hypotheses[item] for item in chosen], [[references[item][0] for item in chosen]]
        )
        assert score.value == pytest.approx(expected.score)


def test_buckets_by_characters() -> None:
    buckets = by_length(["abc", "a b", "abcd"], ["x"] * 3, [["x"]] * 3, exact_match, (3,), length=len)
    assert [(low, high, count) for low, high, count, _ in buckets] == [(0, 3, 2), (4, 4, 1)]


@pytest.mark.parametrize(
    ("lengths", "names"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], ["1–2", "3–4", "5–6", "7–8", "9–10"]),
        ([3] * 50 + [4] * 30 + [9], ["3", "4", "5–9"]),
        ([2], ["2"]),
        ([0, 0, 1200, 7, 7], ["0", "1–7", "8–1,200"]),
    ],
)
def test_buckets_are_chosen_by_the_lengths_that_there_are(lengths: list[int], names: list[str]) -> None:
    sources = ["x" * length for length in lengths]
    buckets = by_length(sources, ["a"] * len(sources), [["a"]] * len(sources), exact_match, length=len)
    for low, high, count, _ in buckets:
        assert count == sum(low <= length <= high for length in lengths)
    assert sum(bucket.items for bucket in buckets) == len(lengths)
    head, *rows = render_buckets(buckets).splitlines()
    assert head.split("  ")[-1].strip() == "exact match"
    assert [row.split()[0] for row in rows] == names
    assert {row.index("100.00") + 6 for row in rows} == {len(head)}, "the digits end where their name does"


def test_table_is_aligned_and_complete() -> None:
    scores = evaluate(*corpus(30), kind="text", samples=50)
    table, signatures = render(scores).split("\n\n")
    assert len({len(line) for line in table.splitlines()}) == 1
    for score, line in zip(scores, table.splitlines()[1:], strict=True):
        assert f"{score.value:.2f}" in line
        assert f"{score.low:.2f} – {score.high:.2f}" in line
        assert score.signature in signatures
    assert "None" not in render(evaluate(["a"], [["b"]], kind="symbols", samples=0))


def test_json_holds_everything() -> None:
    scores = evaluate(*corpus(5), kind="symbols", samples=10)
    back = json.loads(json.dumps(as_json(scores), allow_nan=False))
    assert [Score(**each) for each in back] == scores


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ([], [], "nothing to score"),
        (["a"], [["a"], ["b"]], "found 2 for 1"),
        (["a", "b"], [["a"], []], "Item 2 has no reference"),
        (["a", "b"], [["a"], "b"], "item 2 must be a list of strings, found the string 'b'"),
    ],
)
def test_faults_of_input(
    metric: Callable[..., Score], hypotheses: list[str], references: list[list[str]], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        metric(hypotheses, references)


def test_faults_of_settings() -> None:
    one: tuple[list[str], list[list[str]]] = (["a"], [["a"]])
    with pytest.raises(UserError, match="'14a'; choose one of 13a, none"):
        bleu(*one, tokenize="14a")
    with pytest.raises(UserError, match="'songs'; choose one of text, closed, symbols, characters"):
        evaluate(*one, kind="songs")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"increasing numbers from 0 on, found \[5, 5\]"):
        by_length(["a"], *one, exact_match, (5, 5))
    with pytest.raises(UserError, match="found 2 for 1"):
        by_length(["a", "b"], *one, exact_match)
    with pytest.raises(UserError, match="at least 1 resample, found -1"):
        exact_match(*one, samples=-1)
    with pytest.raises(UserError, match="between 0 and 100 per cent, found 100"):
        bootstrap(np.ones((2, 2), dtype=np.int64), sum, confidence=100)


def test_compounds_are_split_as_published_figures_have_them() -> None:
    """The published script rewrites `a-b` and counts n-grams of tokens: a compound that is half right counts half."""
    answers, expected = ["das Start-Ziel Rennen war gut , sehr gut"], [["das Start-Sieg Rennen war gut , sehr gut"]]
    ours = compound_bleu(answers, expected, samples=0)
    by_hand = [text.replace("-", " ##AT##-##AT## ") for text in (answers[0], expected[0][0])]
    assert ours.value == bleu(by_hand[:1], [by_hand[1:]], tokenize="none", samples=0).value
    whole = ["ein Start-Ziel Sieg"], [["ein Start-Ziel-Sieg"]]
    assert compound_bleu(*whole, samples=0).value != bleu(*whole, samples=0).value
    assert "compounds split" in ours.signature
    assert compound_bleu(["a-b-c d e f"], [["a-b-c d e f"]], samples=0).value == pytest.approx(100)
