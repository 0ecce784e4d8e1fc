"""Words with characters: spellings against plain loops, forgetting, and that padding says nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.inputs.words import SPELLINGS, Convolved, Forgetting, Spelled, SpelledWords
from regard.text.tokenizer import END, UNKNOWN

WORDS = [[4, 5, 6, 7, 8], [9], [5, 5], [4, 9, 8, 7, 6, 5, 4]]


def padded(words: list[list[int]], more: int = 0) -> torch.Tensor:
    width = max(map(len, words)) + more
    return torch.tensor([word + [0] * (width - len(word)) for word in words])


def test_convolved_is_the_best_window_of_three_characters() -> None:
    torch.manual_seed(1)
    spelling = Convolved(10, 6, nn.Identity())
    found = spelling(padded(WORDS))
    weight, bias = spelling.filters.weight, spelling.filters.bias  # (width, inner, 3)
    for word, answer in zip(WORDS, found, strict=True):
        beyond = torch.zeros(weight.shape[1])
        vectors = [beyond, *(spelling.table.weight[id] for id in word), beyond]
        windows = []
        for t in range(len(word)):
            total = bias.clone()
            for k in range(3):
                total = total + weight[:, :, k] @ vectors[t + k]
            windows.append(total.clamp(min=0))
        torch.testing.assert_close(answer, torch.stack(windows).amax(0))


def test_spelled_is_the_last_state_of_each_direction() -> None:
    torch.manual_seed(1)
    spelling = Spelled(10, 6, nn.Identity())
    found = spelling(padded(WORDS))
    for word, answer in zip(WORDS, found, strict=True):
        states, _ = spelling.rnn(spelling.table(torch.tensor([word])))
        torch.testing.assert_close(answer, torch.cat((states[0, -1, :3], states[0, 0, 3:])))


@pytest.mark.parametrize("kind", SPELLINGS)
def test_padding_says_nothing(kind: str) -> None:
    spelling = SPELLINGS[kind](10, 6, nn.Identity())
    nn.init.normal_(spelling.table.weight)  # whatever the padding's own vector is
    torch.testing.assert_close(spelling(padded(WORDS, 4)), spelling(padded(WORDS)))


def test_words_are_the_table_beside_the_spelling() -> None:
    words = SpelledWords(20, 10, Convolved(10, 4, nn.Identity()), None, nn.Identity())
    ids, which = torch.tensor([[7, 8, 7]]), torch.tensor([[0, 1, 0]])
    x = words(ids, torch.arange(3), padded([[4, 5], [9]]), which)
    assert x.shape == (1, 3, 10)
    torch.testing.assert_close(x[0, 1, :6], words.table.weight[8])
    torch.testing.assert_close(x[0, 2], x[0, 0])
    torch.testing.assert_close(x[0, :2, 6:], words.spelling(padded([[4, 5], [9]])))


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 0.95), st.integers(0, 2**31))
def test_forgetting_takes_its_share_of_known_tokens_only(p: float, seed: int) -> None:
    forget = Forgetting(p)
    ids = torch.arange(20_000) % 10
    torch.manual_seed(seed)
    once = forget(ids)
    torch.manual_seed(seed)
    assert torch.equal(forget(ids), once), "torch's generator alone decides"
    assert torch.equal(once[ids <= END], ids[ids <= END])
    known = ids > END
    assert set((once[known & (once != ids)]).tolist()) == {UNKNOWN}
    assert float((once[known] != ids[known]).float().mean()) == pytest.approx(p, abs=0.03)
    assert torch.equal(forget.eval()(ids), ids)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="even, found 7"):
        Spelled(10, 7, nn.Identity())
    with pytest.raises(ValueError, match="leaves nothing of the width 8"):
        SpelledWords(20, 8, Convolved(10, 8, nn.Identity()), None, nn.Identity())
    with pytest.raises(ValueError, match="below 1, found 1"):
        Forgetting(1.0)
