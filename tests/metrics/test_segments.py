"""Labels of frames: frame accuracy and segment F1."""

import pytest

from regard import metrics


def test_segments_are_runs_of_one_label() -> None:
    assert metrics.segments("a a b a") == [(0, 2, "a"), (2, 3, "b"), (3, 4, "a")]
    assert metrics.segments("") == []


@pytest.mark.parametrize(
    ("answer", "accuracy", "f1"),
    [
        ("a a a a b b b b", 100.0, 100.0),
        ("a a a b b b b b", 87.5, 100.0),  # 3 of 4 and 4 of 5 overlap by half and more
        ("a b b b b b b b", 62.5, 50.0),  # 1 of 4 does not
        ("a a b a b b b b", 87.5, 200 * 2 / 6),  # a piece too many
        ("c c c c c c c c", 0.0, 0.0),
    ],
)
def test_frame_accuracy_and_segment_f1(answer: str, accuracy: float, f1: float) -> None:
    frames, found = metrics.evaluate([answer], [["a a a a b b b b"]], kind="segments", samples=0)
    assert (frames.name, found.name) == ("frame_accuracy", "segment_f1")
    assert frames.value == pytest.approx(accuracy)
    assert found.value == pytest.approx(f1)


def test_speech_is_scored_by_words_first() -> None:
    scores = metrics.evaluate(["one too three"], [["one two three"]], kind="speech", samples=0)
    assert [score.name for score in scores] == ["word_error_rate", "character_error_rate", "exact_match"]
    assert scores[0].value == pytest.approx(100 / 3)
