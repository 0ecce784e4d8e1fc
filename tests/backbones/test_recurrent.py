"""The recurrent encoder–decoder, in both orders, against torch's cells and loops written from the papers."""

from typing import Any

import pytest
import torch
from torch import nn

from regard.attention import Context
from regard.backbones.recurrent import BidirectionalRNN, CausalRNN
from regard.inputs.embedding import positions_of
from regard.models.lstm import bilstm
from regard.models.parts import SCORES
from regard.models.recurrent import recurrent
from tests.models.networks import Converter, embedded
from tests.models.test_parts import FORMULAS, WEIGHTS

CELLS = ["lstm", "gru", "rnn", "forgetting"]


class Forgets(nn.Module):
    """h ← σ(θ_λᵀ x̄) ⊙ h + θ_xᵀ x̄, x̄ being x with a 1 appended, as it is lectured."""

    def __init__(self, map: nn.Linear, width: int) -> None:
        super().__init__()
        theta = torch.cat((map.weight.T, map.bias.unsqueeze(0)))
        self.theta_gate, self.theta_x, self.hidden_size = theta[:, :width], theta[:, width:], width

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        longer = torch.cat((x, torch.ones(1)))
        return torch.sigmoid(self.theta_gate.T @ longer) * h + self.theta_x.T @ longer


def cell_of(rnn: Any, kind: str, layer: str = "l0") -> Any:
    if kind == "forgetting":
        return Forgets(rnn.maps[layer == "l0_reverse"], rnn.hidden_size)
    cells = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}
    cell = cells[kind](rnn.input_size, rnn.hidden_size)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    for name in names:  # the same parameters, so that their gradients can be compared
        delattr(cell, name)
        setattr(cell, name, getattr(rnn, f"{name}_{layer}"))
    return cell


def walk(cell: Any, xs: torch.Tensor) -> tuple[list[torch.Tensor], object]:
    zero = torch.zeros(cell.hidden_size)
    state: object = (zero, zero) if isinstance(cell, nn.LSTMCell) else zero
    out = []
    for x in xs:
        state = cell(x, state)
        out.append(state[0] if isinstance(cell, nn.LSTMCell) else state)
    return out, state


def read_by_loop(encoder: Any, words: torch.Tensor, kind: str) -> tuple[torch.Tensor, Any]:
    """The encoder's states, and the decoder's first one: both directions projected, or one as it is."""
    ahead, last_ahead = walk(cell_of(encoder.rnn, kind), words)
    if not encoder.both_ways:
        return torch.stack(ahead), last_ahead
    back, last_back = walk(cell_of(encoder.rnn, kind, "l0_reverse"), words.flip(0))
    states = encoder.states_proj(torch.stack([torch.cat(p) for p in zip(ahead, back[::-1], strict=True)]))
    ends = zip(last_ahead, last_back, strict=True) if kind == "lstm" else [(last_ahead, last_back)]
    hidden = [torch.tanh(proj(torch.cat(p))) for proj, p in zip(encoder.hidden_proj, ends, strict=True)]
    return states, tuple(hidden) if kind == "lstm" else hidden[0]


def by_loop(model: Converter, sources: torch.Tensor, targets: torch.Tensor, how: dict[str, Any]) -> torch.Tensor:
    """One row at a time, one step at a time. before: w_i(t) = a(h_i, s_(t−1)), s_t = f([e(y_(t−1)); c_t], s_(t−1)).
    after: s_t = f([e(y_(t−1)); o_(t−1)], s_(t−1)), w_i(t) = a(h_i, s_t). Both: o_t = tanh(W [s_t; c_t])."""
    encoder, decoder, logits = model.backbone, model.head.decoder, []
    kind, before = how["cell"], how["order"] == "before"
    fed = how.get("feeding", not before)
    cell = cell_of(decoder.rnn, kind)
    for source, target in zip(sources, targets, strict=True):
        states, state = read_by_loop(encoder, model.stem.table(source[source != 0]), kind)

        def context(s: torch.Tensor, states: torch.Tensor = states) -> torch.Tensor:
            if how["attention"] == "mean":
                return sum(states) / len(states)
            a = FORMULAS[how["attention"]]
            scores = torch.stack([a(decoder.glimpse.score, s, h) for h in states])
            return WEIGHTS[how.get("normaliser", "softmax")](scores) @ states

        output, rows = torch.zeros(states.shape[-1]), []
        for token in [2, *target[target != 0][:-1].tolist()]:
            given = [model.head.target.table.weight[token], *([output] if fed else [])]
            c = context(state[0] if kind == "lstm" else state) if before else None
            state = cell(torch.cat(given if c is None else [*given, c]), state)
            s = state[0] if kind == "lstm" else state
            c = context(s) if c is None else c
            output = torch.tanh(decoder.output_proj(torch.cat((s, c))))
            rows.append(model.head.output(output))
        logits.append(torch.stack(rows))
    return torch.cat(logits)


ORDERS: list[dict[str, Any]] = [
    *(
        {"cell": cell, "order": order, "both_ways": both_ways, "attention": "additive"}
        for cell in CELLS
        for order in ("before", "after")
        for both_ways in (True, False)
    ),
    *({"order": order, "feeding": order == "before", "attention": "additive"} for order in ("before", "after")),
    *({"order": order, "attention": attention} for order in ("before", "after") for attention in ("mean", *SCORES)),
    *({"order": order, "normaliser": "sigmoid", "attention": "dot"} for order in ("before", "after")),
]


@pytest.mark.parametrize("how", ORDERS, ids=lambda how: ", ".join(map(str, how.values())))
def test_each_order_equals_a_loop_over_its_equations_in_values_and_gradients(how: dict[str, Any]) -> None:
    torch.manual_seed(0)
    how = {"cell": "gru", **how}
    pair = recurrent(width=8, dropout=0.0, **how)
    model = Converter(pair, 12, 11).double().eval()
    source, target = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]]), torch.tensor([[4, 5, 3], [6, 3, 0]])
    torch.set_default_dtype(torch.float64)
    try:
        expected = by_loop(model, source, target, how)
    finally:
        torch.set_default_dtype(torch.float32)
    found = model.logits(source, target)[target != 0]
    assert found.allclose(expected, atol=1e-10)
    upstream, weights = torch.randn_like(found), [*model.parameters()]
    ours, theirs = (
        torch.autograd.grad((y * upstream).sum(), weights, materialize_grads=True, allow_unused=True)
        for y in (found, expected)
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.allclose(other, atol=1e-10)


def test_the_orders_differ_and_a_decoder_without_attention_has_none() -> None:
    with pytest.raises(ValueError, match="pass a glimpse"):
        recurrent(width=8, attention="none", order="before")
    widths = {
        order: recurrent(width=8, order=order, feeding=fed).decoder.rnn.input_size
        for order, fed in (("after", None), ("before", None), ("both", False))
    }
    assert widths == {"after": 16, "before": 16, "both": 8}


KINDS = [("none", 0), ("mean", 0), *((score, heads) for score in SCORES for heads in (0, 1, 4))]


VARIANTS = [
    *((cell, "after", fed, True, *kind) for cell in ("lstm", "gru") for fed in (True, False) for kind in KINDS),
    *(("gru", "before", fed, True, *kind) for fed in (True, False) for kind in KINDS[1:]),
    *((cell, order, None, False, "dot", 0) for cell in CELLS for order in ("before", "after")),
]


@pytest.mark.parametrize(("cell", "order", "feeding", "both_ways", "attention", "heads"), VARIANTS)
def test_every_kind_steps_as_it_trains_and_ignores_padding(
    cell: str, order: str, feeding: bool | None, both_ways: bool, attention: str, heads: int
) -> None:
    torch.manual_seed(0)
    how: dict[str, Any] = {"order": order, "feeding": feeding, "both_ways": both_ways}
    pair = recurrent(cell=cell, width=8, layers=2, attention=attention, heads=heads, dropout=0.0, **how)
    model = Converter(pair, 12, 11).double()
    source, target = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]]), torch.tensor([[4, 5, 7, 3], [6, 3, 0, 0]])
    full = model.logits(source, target)
    full[target != 0].sum().backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None]
    assert not unused
    model.eval()
    with torch.no_grad():
        state, tokens = model.start(source), torch.tensor([2, 2])
        for t in range(4):
            logits, state = model.step(tokens, state)
            real = target[:, t] != 0
            assert logits[real].allclose(full[real, t], atol=1e-10)
            tokens = target[:, t]
            if t == 1:
                state, full, target, tokens = (
                    state.reorder(torch.tensor([1, 0])),
                    full.flip(0),
                    target.flip(0),
                    tokens.flip(0),
                )
        alone = model.logits(torch.tensor([[9, 4]]), torch.tensor([[6, 3]]))
        assert alone[0].allclose(full[0, :2], atol=1e-10)


SCATTERED = torch.tensor([[0, 1, 2, 3], [-1, 0, -1, 1], [0, -1, -1, -1], [-1, -1, -1, -1]])


@pytest.mark.parametrize("kind", CELLS)
def test_a_reader_equals_cells_walked_both_ways_over_what_is_no_padding(kind: str) -> None:
    torch.manual_seed(0)
    reader, x = BidirectionalRNN(kind, 6, 10, 1, 0.0), torch.randn(4, 4, 6)
    states = reader(Context(x, SCATTERED)).values
    assert states.shape == (4, 4, 10)
    for row, where, found in zip(x, SCATTERED, states, strict=True):
        real = where >= 0
        ahead, _ = walk(cell_of(reader.rnn, kind), row[real])
        back, _ = walk(cell_of(reader.rnn, kind, "l0_reverse"), row[real].flip(0))
        expected = [torch.cat(pair) for pair in zip(ahead, back[::-1], strict=True)]
        assert found[real].allclose(torch.stack(expected) if expected else found[real], atol=1e-6)
        assert found[~real].eq(0).all()


@pytest.mark.parametrize("kind", CELLS)
def test_a_row_of_padding_leaves_its_state_alone(kind: str) -> None:
    torch.manual_seed(0)
    causal = CausalRNN(kind, 6, 6, 2, 0.0)
    _, state = causal.steps(Context(torch.randn(4, 3, 6), torch.arange(3)))
    _, later = causal.steps(Context(torch.randn(4, 4, 6), SCATTERED), state)
    for before, after in zip(state.hidden, later.hidden, strict=True):
        assert after[:, 3].equal(before[:, 3])
        assert not after[:, 2].allclose(before[:, 2], atol=1e-3)
    _, fresh = causal.steps(Context(torch.randn(4, 4, 6), SCATTERED))
    assert all(hidden[:, 3].eq(0).all() for hidden in fresh.hidden)


def test_self_attention_over_a_reader_equals_torchs() -> None:
    torch.manual_seed(0)
    embedding, network = embedded(bilstm(layers=2, width=8, heads=2, dropout=0.0), 12)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    own = network.attention
    with torch.no_grad():
        for p in own.parameters():
            p.normal_(0, 0.3)
        theirs.in_proj_weight.copy_(torch.cat([m.weight for m in (own.q_proj, own.k_proj, own.v_proj)]))
        theirs.in_proj_bias.copy_(torch.cat([m.bias for m in (own.q_proj, own.k_proj, own.v_proj)]))
        theirs.out_proj.load_state_dict(own.output_proj.state_dict())
    ids = torch.tensor([[5, 6, 7], [8, 0, 0]])
    positions = positions_of(ids)
    x = Context(embedding(ids, positions), positions)
    states = network.reader(x).values
    looked, _ = theirs(states, states, states, key_padding_mask=ids == 0)
    ours = network(x)
    assert ours.values[ids != 0].allclose(network.around.norm(states + looked)[ids != 0], atol=1e-6)
    ours.values[ids != 0].pow(3).sum().backward()
    assert not [n for part in (embedding, network) for n, p in part.named_parameters() if p.grad is None]


def test_a_readers_width_is_shared_by_two_directions() -> None:
    with pytest.raises(ValueError, match="must be even, found 7"):
        BidirectionalRNN("lstm", 4, 7, 1, 0.0)
