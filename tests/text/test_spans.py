"""Span tags: prefix and type, in all schemes and with either separator."""

import pytest

from regard.text.spans import are_span_tags, is_span_tag, parse_span_tag


@pytest.mark.parametrize(
    ("tag", "prefix", "type"),
    [
        ("O", "O", ""),
        ("B-PER", "B", "PER"),
        ("I_PER", "I", "PER"),
        ("B-creative-work", "B", "creative-work"),
        ("B_creative_work", "B", "creative_work"),
        ("E_a-b", "E", "a-b"),
        ("L-x", "E", "x"),
        ("U_x", "S", "x"),
        ("W-x", "S", "x"),
        ("M_x", "I", "x"),
        ("B", "B", ""),
        ("NOUN", "O", ""),
        ("BIG-x", "O", ""),
        ("O-x", "O", ""),
        ("b-x", "O", ""),
        ("", "O", ""),
    ],
)
def test_parts_of_a_tag(tag: str, prefix: str, type: str) -> None:
    assert parse_span_tag(tag) == (prefix, type)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-x I-x", True),
        ("O B_x I_x", True),
        ("B-x I-x", True),
        ("W-x", True),
        ("O", False),
        ("", False),
        ("B I O", False),
        ("O B-", False),
        ("O B-x NOUN", False),
    ],
)
def test_a_set_of_tags_marks_spans_or_not(tags: str, expected: bool) -> None:
    assert are_span_tags(tags.split()) is expected


def test_outside_is_a_span_tag_and_a_prefix_alone_is_none() -> None:
    assert is_span_tag("O")
    assert not is_span_tag("B")
    assert not is_span_tag("B_")
