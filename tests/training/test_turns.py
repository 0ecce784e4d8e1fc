"""A step by hand: terms with totals of their own, accumulated batches, players that take turns, outputs without scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from regard.errors import UserError
from regard.inputs.input import Batch
from regard.network import Network
from regard.runs import checkpoint, checksums
from regard.training import distributed
from regard.training.loop import Interrupted, Trainer
from regard.training.optimiser import optimiser, rate_at
from tests.training.toys import adversaries, toy, trainer, two_terms


def double(network: Network) -> Network:
    torch.manual_seed(3)
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    return network.double()


def union(one: Trainer, step: int, accumulate: int) -> Batch:
    """All rows of a step as one batch; steps are of the first epoch."""
    numbers = range(step * accumulate, (step + 1) * accumulate)
    rows = np.concatenate([one.batches.batch_at(0, number) for number in numbers])
    return one.task.batch(one.reader.content(rows))


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_accumulated_batches_are_one_step_on_their_union(accumulate: int, tmp_path: Path) -> None:
    """Losses and weights beside a step computed by hand, in float64: Σ over terms of the sum divided by its own total."""
    one = trainer(toy(double(two_terms())), tmp_path, accumulate=accumulate, clip=0.5)
    other = double(two_terms())
    head = other.head
    steps = optimiser(other, one.how, fused=False)
    assert one.batches.count(0) >= 3 * accumulate
    for step in range(3):
        source, target = union(one, step, accumulate)
        frames, wanted = source.values[0][source.real].double(), target.wanted[source.real]
        marked, marks = source.values[0][target.real].double(), target.marks[target.real]
        assert 0 < len(marks) < len(frames)  # the others are holes
        for group in steps.param_groups:
            group["lr"] = rate_at(step + 1, 12, one.how)
        by_frame = (head.frame(frames).squeeze(-1) - wanted).square().sum() / len(frames)
        by_mark = cross_entropy(head.mark(marked), marks, reduction="sum") / len(marks)
        steps.zero_grad()
        (by_frame + by_mark).backward()
        nn.utils.clip_grad_norm_(other.parameters(), 0.5)
        steps.step()
        loss, tokens = one._step()
        assert loss == pytest.approx((by_frame + by_mark).item(), rel=1e-12)
        assert tokens == len(frames)  # marks cost nothing
        for mine, theirs in zip(one.network.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_a_term_with_nothing_to_predict_counts_nothing(tmp_path: Path) -> None:
    one = trainer(toy(double(two_terms())), tmp_path)
    one.task.predictions = lambda counts: (float(counts[:, 0].sum()), 0.0)  # type: ignore[method-assign]
    before = one.network.head.mark.weight.detach().clone()
    loss, _ = one._step()
    assert np.isfinite(loss)
    assert one.at.bad == 0
    assert one.network.head.mark.weight.equal(before)
    one.task.predictions = lambda counts: (1.0, 1.0, 1.0)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"the loss has the shape \(2,\), expected \(3,\)"):
        one._step()


# ---- two players ---------------------------------------------------------------------------------------------------

TURNS = ("critic", "generator")


def duel(run: Path, **training: Any) -> Trainer:
    return trainer(toy(double(adversaries()), TURNS, scored=False), run, **training)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_players_take_turns_as_by_hand(accumulate: int, tmp_path: Path) -> None:
    one, other = duel(tmp_path, accumulate=accumulate, clip=0.3), double(adversaries())
    players = {
        turn: torch.optim.AdamW(getattr(other.head, turn).parameters(), weight_decay=0.0, betas=(0.9, 0.98), eps=1e-9)
        for turn in TURNS
    }
    for step in range(4):
        batch = union(one, step, accumulate)
        total = 0.0
        for turn, factor in (("critic", 2.0), ("generator", 1.0)):  # the generator meets the critic after its step
            other.zero_grad()
            loss = other(batch, turn).sum() / int(batch.source.real.sum())
            loss.backward()
            nn.utils.clip_grad_norm_(getattr(other.head, turn).parameters(), 0.3)
            players[turn].param_groups[0]["lr"] = factor * rate_at(step + 1, 12, one.how)
            players[turn].step()
            total += loss.item()
        found, _ = one._step()
        assert found == pytest.approx(total, rel=1e-12)
        assert one.at.step == step + 1
        for mine, theirs in zip(one.network.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_both_players_see_the_same_batch(tmp_path: Path) -> None:
    one = duel(tmp_path)
    one._step()
    assert len(one.task.output.seen) == 1  # collated once


def test_resumed_in_the_middle_equals_uninterrupted(tmp_path: Path) -> None:
    whole = duel(tmp_path / "whole")
    whole.train()
    whole.finish()
    parts = duel(tmp_path / "parts")
    inner = parts._step

    def stepping() -> tuple[float, int]:
        parts.stop = parts.at.step == 6
        return inner()

    parts._step = stepping  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        parts.train()
    parts = duel(tmp_path / "parts")
    with torch.no_grad():
        parts.network.head.critic.weight.zero_()
    assert parts.resume(lambda _: None)
    parts.train()
    parts.finish()
    newest = [checkpoint.states(tmp_path / name)[-1] for name in ("whole", "parts")]
    for name in ("weights.safetensors", "optimiser.safetensors"):
        assert checksums.sha256(newest[0] / name) == checksums.sha256(newest[1] / name)
    assert whole.at.step == parts.at.step == 12


def test_a_turn_that_is_not_finite_is_named_and_ends_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = duel(tmp_path)
    said: list[str] = []
    one.progress.say = said.append  # type: ignore[method-assign]
    inner = one.network.forward
    one.loss.forward = lambda batch, turn: inner(batch, turn) * (1 if turn == "critic" else float("nan"))  # type: ignore[method-assign]
    before = [one.network.head.critic.weight.detach().clone(), one.network.head.generator.weight.detach().clone()]
    one._step()
    assert "step of the generator not applied" in said[0]
    assert one.at.bad == 1
    assert not one.network.head.critic.weight.equal(before[0])
    assert one.network.head.generator.weight.equal(before[1])


class TwoProcesses(distributed.World):
    def __init__(self) -> None:
        self.size, self.rank, self.device = 2, 0, torch.device("cpu")


def test_unused_parameters_are_looked_for_with_two_players_only(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bool] = []
    monkeypatch.setattr(
        nn.parallel,
        "DistributedDataParallel",
        lambda loss, find_unused_parameters: given.append(find_unused_parameters),
    )
    network = adversaries()
    distributed.wrap(network, TwoProcesses(), "ddp")
    distributed.wrap(network, TwoProcesses(), "ddp", TURNS)
    assert given == [False, True]
    with pytest.raises(UserError, match=r'trained in turns \(critic, generator\): set={"training.parallel": "ddp"}'):
        distributed.wrap(network, TwoProcesses(), "fsdp", TURNS)


# ---- without metrics -----------------------------------------------------------------------------------------------


def test_an_output_without_scores_trains_to_the_end_and_keeps_the_last_weights(tmp_path: Path) -> None:
    """Neither patience nor averaging: nothing would say when to stop, or whether a mean is better."""
    one = duel(tmp_path, every=1, patience=1e-9, average=5)
    one.train()
    one.finish()
    assert (one.at.step, one.at.best, one.at.best_step, one.at.better_step) == (12, [], 12, 12)
    newest = checkpoint.load_weights(checkpoint.states(tmp_path)[-1] / "weights.safetensors")
    model = checkpoint.load_weights(tmp_path / "model.safetensors")
    assert {name: value.tolist() for name, value in model.items()} == {n: v.tolist() for n, v in newest.items()}
    assert [entry["step"] for entry in one.at.history] == [*range(1, 13)]
    assert len([*(tmp_path / "checkpoints").iterdir()]) <= checkpoint.KEEP
