"""Texts of two parts: END between them, a segment for each in BERT, and a view that shows the border."""

import pytest
import torch

from regard.data.columns import JOINED
from regard.inputs.input import Use
from regard.inputs.tokens import EDGE, Tokens, TokenSettings
from regard.layers.stem import Marks
from regard.models.bert import bert
from regard.text.tokenizer import END, START

PAIRS = [f"a man eats{JOINED}nobody eats", f"nobody runs{JOINED}a man runs", "a man"]


@pytest.mark.parametrize("level", ["words", "characters", "bpe"])
def test_a_pair_is_both_parts_with_end_between_them(level: str) -> None:
    tokens = Tokens.learn(TokenSettings(level=level, size=60), Use.LABEL, PAIRS, None)
    assert not any("|" in piece for piece in tokens.alphabet.pieces_of(range(4, tokens.alphabet.size)))
    for text, (row,) in zip(PAIRS, tokens.encode(PAIRS), strict=True):
        parts = [tokens.alphabet.encode(part) for part in text.split(JOINED)]
        assert list(row) == (parts[0] if len(parts) == 1 else [*parts[0], END, *parts[1]])
        view = tokens.view(text)
        assert len(view.names) == len(row)
        assert view.names.count(EDGE) == len(parts) - 1
        if view.groups is not None:
            assert sorted(set(view.groups)) == [*range(len(view.labels))]
    source = tokens.marked(Marks.BOTH).collate(tokens.encode(PAIRS[:1]))
    assert [source.values[0][0, 0], source.values[0][0, -1]] == [START, END]


def test_a_stream_and_a_sentence_to_tag_have_no_parts() -> None:
    tokens = Tokens.learn(TokenSettings(level="characters"), Use.STREAM, PAIRS, None)
    assert END not in tokens.encode(PAIRS[:1])[0][0]


def test_bert_gives_the_second_sentence_a_segment_of_its_own() -> None:
    torch.manual_seed(0)
    stem, _ = bert(layers=1, width=8, hidden=8, heads=2, length=12, dropout=0.0)
    assert stem.whole is not None
    embedding = stem.whole(20)
    ids = torch.tensor([[START, 7, 8, END, 9, END], [START, 7, 8, 9, 9, END]])
    assert embedding.segments_of(ids).tolist() == [[0, 0, 0, 0, 1, 1], [0] * 6]
    given = torch.tensor([[0, 0, 0, 0, 1, 1], [0] * 6])
    where = torch.arange(6)
    assert embedding(ids, where).equal(embedding(ids, where, given))
    table, places, segments = embedding.table.weight, embedding.places.table, embedding.segments.weight
    by_hand = torch.stack([embedding.norm(table[i] + places[t] + segments[int(t > 3)]) for t, i in enumerate(ids[0])])
    assert embedding(ids, where)[0].allclose(by_hand)
