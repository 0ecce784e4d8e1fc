"""Gradients against distance, and tables of positions, against loops."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from regard.attention import Context
from regard.backbones.recurrent import CausalRNN
from regard.errors import UserError
from regard.inspection.gradients import gradient_norms
from regard.inspection.positions import position_tables
from regard.models.encoder import encoder
from regard.models.lstm import lstm
from tests.models.networks import embedded


def test_an_rnns_gradient_is_the_product_of_its_jacobians() -> None:
    """∂h_T/∂x_(T−τ) = ∏ diag(1 − h²) U · diag(1 − h²) W, each direction u of h_T by hand."""
    torch.manual_seed(0)
    rnn = CausalRNN("rnn", 4, 4, 1, 0.0).double()
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    h = rnn(Context(x)).values[0]
    w, u = rnn.rnn.weight_ih_l0, rnn.rnn.weight_hh_l0
    torch.manual_seed(1)
    found = gradient_norms(rnn, x)
    torch.manual_seed(1)
    directions = nn.functional.normalize(torch.randn(8, 1, 4, dtype=torch.float64), dim=-1)
    for tau in range(6):
        jacobian = torch.eye(4, dtype=torch.float64)
        for t in range(5, 5 - tau, -1):
            jacobian = jacobian @ torch.diag(1 - h[t] ** 2) @ u
        jacobian = jacobian @ torch.diag(1 - h[5 - tau] ** 2) @ w
        expected = torch.stack([(d[0] @ jacobian).norm() for d in directions]).mean().item()
        assert found[tau] == pytest.approx(expected)


def test_attention_does_not_forget_with_distance_as_an_rnn_does() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 40, 16)
    forgets = gradient_norms(lstm(layers=1, width=16, cell="rnn", dropout=0.0)[1].eval(), x)
    looks = gradient_norms(encoder(layers=1, width=16, hidden=16, heads=2, length=40, dropout=0.0)[1].eval(), x)
    assert forgets[30] < 1e-4 * forgets[1]
    assert looks[30] > 0.1 * looks[1]


@pytest.mark.parametrize("way", ["added", "concatenated", "heads"])
@pytest.mark.parametrize("position", ["sinusoidal", "learned", "recurrent", "floater"])
def test_tables_of_a_network_are_found_by_name(position: str, way: str) -> None:
    how: dict[str, Any] = {"position": position, "position_way": way, "position_layers": "every"}
    stem, backbone = embedded(encoder(layers=2, width=8, hidden=8, heads=2, length=20, **how), 12)
    network = nn.ModuleDict({"stem": stem, "backbone": backbone})
    tables = position_tables(network, 30)
    assert len(tables) == 2
    for table in tables.values():
        assert table.shape == (20 if position == "learned" else 30, 4 if way == "heads" else 8)
        assert np.isfinite(table).all()
    with pytest.raises(UserError, match="no table of positions"):
        position_tables(nn.Linear(2, 2))
