"""Buffers are state: saved in their own dtypes, resumed, published, never averaged; only BatchNorm is estimated anew."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from regard.errors import UserError
from regard.inputs.input import Batch
from regard.runs import checkpoint, checksums, verify
from regard.training import averaging, device
from regard.training.loop import Interrupted, Trainer
from tests.training.toys import buffered, toy, trainer

BUFFERS = {
    "backbone.norm.running_mean", "backbone.norm.running_var", "backbone.norm.num_batches_tracked",
    "backbone.first.parametrizations.weight.0._u", "backbone.first.parametrizations.weight.0._v", "backbone.features",
    "head.seen",
}  # fmt: skip
CPU = torch.device("cpu")


def made(run: Path, **training: object) -> Trainer:
    torch.manual_seed(1)
    return trainer(toy(buffered()), run, **training)


def outcome(run: Path) -> list[str]:
    newest = checkpoint.states(run)[-1]
    return [checksums.sha256(path) for path in (newest / "weights.safetensors", newest / "optimiser.safetensors")] + [
        checksums.sha256(run / "model.safetensors")
    ]


def finished(one: Trainer) -> Trainer:
    one.train()
    one.finish()
    return one


def stopped(run: Path, step: int) -> None:
    """A run that somebody stops after a step."""
    one = made(run)
    inner = one._step

    def stepping() -> tuple[float, int]:
        found = inner()
        one.stop = one.at.step == step
        return found

    one._step = stepping  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        one.train()


def resumed(run: Path) -> Trainer:
    one = made(run)
    torch.manual_seed(99)  # what the state does not bring back is lost
    assert one.resume(lambda _: None)
    return finished(one)


def test_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    finished(made(tmp_path / "whole"))
    stopped(tmp_path / "parts", 6)
    resumed(tmp_path / "parts")
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    assert verify.verify(tmp_path / "parts") == []


@pytest.mark.parametrize(
    "name", sorted(BUFFERS - {"backbone.first.parametrizations.weight.0._u"})
)  # torch makes it of _v
def test_dropping_any_buffer_from_the_state_shows(name: str, tmp_path: Path) -> None:
    """The control: each of them has a part in the equality above."""
    finished(made(tmp_path / "whole"))
    stopped(tmp_path / "parts", 6)
    newest = checkpoint.states(tmp_path / "parts")[-1]
    tensors = load_file(newest / "weights.safetensors")
    torch.manual_seed(7)
    tensors[name] = checkpoint.buffers_of(buffered())[name]
    save_file(tensors, newest / "weights.safetensors")
    names = [path for path in newest.iterdir() if path.name != checksums.SUMS]
    checksums.write_sums(newest, {path.name: [checksums.sha256(path)] for path in names})
    resumed(tmp_path / "parts")
    assert outcome(tmp_path / "parts") != outcome(tmp_path / "whole")


def test_a_state_without_a_buffer_is_refused(tmp_path: Path) -> None:
    stopped(tmp_path, 6)
    newest = checkpoint.states(tmp_path)[-1]
    tensors = load_file(newest / "weights.safetensors")
    del tensors["head.seen"]
    save_file(tensors, newest / "weights.safetensors")
    names = [path for path in newest.iterdir() if path.name != checksums.SUMS]
    checksums.write_sums(newest, {path.name: [checksums.sha256(path)] for path in names})
    with pytest.raises(UserError, match=r"'head\.seen' differs"):
        made(tmp_path).resume(lambda _: None)


def test_they_are_published_in_their_own_dtypes(tmp_path: Path) -> None:
    network = finished(made(tmp_path)).network
    model = load_file(tmp_path / "model.safetensors")
    assert {*model} == {*dict(network.named_parameters())} | BUFFERS
    assert "backbone.constant" not in model
    assert (model["head.seen"].dtype, model["backbone.features"].dtype) == (torch.int64, torch.float64)
    assert checkpoint.shapes_in(tmp_path / "model.safetensors") == checkpoint.shapes_of(buffered())
    fresh = buffered()
    checkpoint.put_weights(fresh, model, tmp_path)
    assert all(value.equal(model[name]) for name, value in checkpoint.tensors_of(fresh).items())
    model["head.seen"] = model["head.seen"].float()
    with pytest.raises(UserError, match=r"'head\.seen': expected int64, found float32"):
        checkpoint.put_weights(fresh, model, tmp_path)


# ---- averaging -----------------------------------------------------------------------------------------------------


def test_only_parameters_are_averaged_and_statistics_estimated_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.metrics.as_good", lambda *_: (True, "as the test says"))
    one = finished(made(tmp_path))
    model = load_file(tmp_path / "model.safetensors")
    paths = sorted((tmp_path / "checkpoints").glob("*.safetensors"))[-3:]
    kept = [load_file(path) for path in paths]
    for name in dict(one.network.named_parameters()):
        torch.testing.assert_close(model[name], torch.stack([each[name] for each in kept]).mean(0))
    for name in BUFFERS - {"backbone.norm.running_mean", "backbone.norm.running_var"}:
        assert model[name].equal(kept[-1][name]), name
    assert not kept[-1]["head.seen"].equal(kept[0]["head.seen"])
    # By hand: the mean of the statistics of all batches of an epoch, with the mean weights.
    network = one.network.eval()
    means, variances = [], []
    for number in range(one.batches.count(0)):
        source = one.task.batch(one.reader.content(one.batches.batch_at(0, number))).source
        with torch.no_grad():
            states = network.backbone.first(source.values[0][source.real])
        means.append(states.mean(0))
        variances.append(states.var(0, unbiased=True))
    torch.testing.assert_close(model["backbone.norm.running_mean"], torch.stack(means).mean(0))
    torch.testing.assert_close(model["backbone.norm.running_var"], torch.stack(variances).mean(0))
    assert not torch.allclose(model["backbone.norm.running_mean"], kept[-1]["backbone.norm.running_mean"])


def test_estimating_anew_leaves_the_rest_alone() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=0.3), nn.Dropout(0.9))
    network[2].eval()
    network[1].num_batches_tracked += 5
    network.forward = lambda batch, turn: nn.Sequential.forward(network, batch)  # type: ignore[assignment]
    random = torch.get_rng_state()
    averaging.reestimate(network, [torch.randn(8, 3, generator=torch.Generator().manual_seed(1))])
    assert torch.get_rng_state().equal(random)
    assert [module.training for module in network] == [True, True, False]
    assert (network[1].momentum, int(network[1].num_batches_tracked)) == (0.3, 5)
    assert network[1].running_mean.any()
    assert [*averaging.normalised(nn.BatchNorm1d(2, track_running_stats=False)).__iter__()] == []


# ---- what is not applied -------------------------------------------------------------------------------------------


def test_what_is_tried_before_the_first_step_leaves_no_trace(tmp_path: Path) -> None:
    one = made(tmp_path)
    before = {name: value.clone() for name, value in one.network.state_dict().items()}
    random = torch.get_rng_state()
    one._foretell()
    one._try_largest()
    assert all(value.equal(before[name]) for name, value in one.network.state_dict().items())
    assert torch.get_rng_state().equal(random)
    with device.trial(one.network, CPU):
        one.network(one.task.batch(one.reader.content(one.batches.largest())), "all")
        assert int(one.network.head.seen) == 1  # it would have left one
    assert int(one.network.head.seen) == 0


def test_a_step_that_is_not_applied_leaves_the_statistics_alone(tmp_path: Path) -> None:
    one = made(tmp_path)
    one._step()
    before = {name: value.clone() for name, value in one.network.state_dict().items()}
    inner = one.task.batch

    def spoiled(rows: Any, draws: Any = None) -> Batch:
        source, target = inner(rows)
        return Batch(source._replace(values=(source.values[0] * float("nan"),)), target)

    one.task.batch = spoiled  # type: ignore[method-assign]
    one._step()
    assert one.at.bad == 1
    assert all(value.equal(before[name]) for name, value in one.network.state_dict().items())
    one.task.batch = inner  # type: ignore[method-assign]
    one._step()
    assert one.at.bad == 0
    assert int(one.network.head.seen) == 2
