"""CTC: prefix scores against enumeration and torch's loss, and a search by weighted scorers."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from regard.attention import Context
from regard.inference import search
from regard.inference.ctc import PrefixScores
from regard.inference.scorers import ScorersState, Weighted
from regard.inference.search import Limits
from regard.outputs.convert.ctc import CTC
from regard.text.tokenizer import END, PAD, START

A, B, SIZE = 4, 5, 6


def spoken(rows: int, length: int, seed: int = 0) -> Tensor:
    """Log-probabilities of blanks and of two tokens."""
    torch.manual_seed(seed)
    logits = 2 * torch.randn(rows, length, SIZE, dtype=torch.double)
    logits[..., [i for i in range(SIZE) if i not in (PAD, A, B)]] = -1e30
    return logits.log_softmax(-1)


def collapsed(path: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(key for key, _ in itertools.groupby(path) if key != PAD)


def enumerated(logs: Tensor, length: int) -> dict[tuple[int, ...], float]:
    """The probability of each transcript: a sum over every path."""
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product((PAD, A, B), repeat=length):
        said = collapsed(path)
        found[said] = found.get(said, 0.0) + math.exp(sum(float(logs[t, c]) for t, c in enumerate(path)))
    return found


def test_prefix_scores_equal_the_sum_over_all_paths() -> None:
    logs, lengths = spoken(2, 5), torch.tensor([5, 3])
    scorer = PrefixScores(PAD, END)
    for prefix in itertools.chain.from_iterable(itertools.product((A, B), repeat=n) for n in range(4)):
        state, tokens = scorer.start(logs, lengths), torch.tensor([START, START])
        scores, state = scorer.step(tokens, state)
        for token in prefix:
            scores, state = scorer.step(torch.tensor([token, token]), state)
        for row in range(2):
            known = enumerated(logs[row], int(lengths[row]))
            begins = sum(p for said, p in known.items() if said[: len(prefix)] == prefix)
            if begins == 0:
                continue
            for token in (A, B):
                wanted = sum(p for said, p in known.items() if said[: len(prefix) + 1] == (*prefix, token)) / begins
                assert math.isclose(math.exp(scores[row, token]), wanted, abs_tol=1e-12)
            assert math.isclose(math.exp(scores[row, END]), known.get(prefix, 0.0) / begins, abs_tol=1e-12)
            assert math.isclose(float(scores[row].exp().sum()), 1.0, abs_tol=1e-9)


def test_a_whole_transcript_has_the_probability_of_torchs_loss() -> None:
    logs = spoken(1, 12, 3)
    scorer, said = PrefixScores(PAD, END), [A, A, B, A]
    scores, state = scorer.step(torch.tensor([START]), scorer.start(logs, torch.tensor([12])))
    total = 0.0
    for token in said:
        total += float(scores[0, token])
        scores, state = scorer.step(torch.tensor([token]), state)
    total += float(scores[0, END])
    wanted = ctc_loss(logs.transpose(0, 1), torch.tensor([said]), [12], [4], blank=PAD, reduction="sum")
    assert math.isclose(-total, float(wanted), rel_tol=1e-9)


def test_the_head_equals_torchs_loss_row_by_row_and_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    head, x = CTC(3, SIZE).double(), torch.randn(2, 9, 3, dtype=torch.double)
    where = torch.tensor([[*range(9)], [*range(6), -1, -1, -1]])
    ids, real = torch.tensor([[A, B, B, END], [B, END, 0, 0]]), torch.tensor([[True] * 4, [True, True, False, False]])
    loss = head.loss(Context(x, where), ids, real)
    apart = sum(
        ctc_loss(
            head.output(x[i, :n]).log_softmax(-1).unsqueeze(1),
            torch.tensor([said]),
            [n],
            [len(said)],
            blank=PAD,
            reduction="sum",
        )
        for i, n, said in ((0, 9, [A, B, B]), (1, 6, [B]))
    )
    assert loss.allclose(apart, atol=1e-9)  # type: ignore[arg-type]
    short = head.loss(Context(x[:1, :2]), ids[:1], real[:1])
    assert float(short) == 0.0  # two vectors cannot say A B B


def test_a_joint_search_finds_the_best_sum_of_both() -> None:
    """A beam as wide as there are sequences, against all sequences scored one by one."""
    logs, lengths = spoken(1, 4, 7), torch.tensor([4])
    table = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(1))

    class Nothing:
        def reorder(self, index: Tensor) -> "Nothing":
            return self

    def bigram(tokens: Tensor, state: Nothing) -> tuple[Tensor, Nothing]:
        said = table[tokens].clone()
        said[:, [i for i in range(SIZE) if i not in (A, B, END)]] = -1e9
        return said, state

    scorer = PrefixScores(PAD, END)
    both = Weighted([(bigram, 0.6), (scorer.step, 0.4)])
    state = ScorersState((Nothing(), scorer.start(logs, lengths)))
    (found,) = search.beam(
        both.step,
        state,
        1,
        start=START,
        end=END,
        pad=PAD,
        limits=Limits(maximum=4),
        size=40,
        n_best=5,
        length_penalty=0.0,
        summed=True,
    )
    known = enumerated(logs[0], 4)

    def scored(said: tuple[int, ...]) -> float:
        before, total = START, 0.0
        for token in (*said, END):
            row = bigram(torch.tensor([before]), Nothing())[0].log_softmax(-1)
            total, before = total + float(row[0, token]), token
        return 0.6 * total + 0.4 * math.log(known.get(said, 0.0) or 1e-300)

    every = itertools.chain.from_iterable(itertools.product((A, B), repeat=n) for n in range(5))
    wanted = sorted((said for said in every if known.get(said, 0.0) > 0), key=scored, reverse=True)[:5]
    assert [tuple(one.tokens) for one in found] == wanted
    assert [one.score for one in found] == pytest.approx([scored(said) for said in wanted], abs=1e-4)
