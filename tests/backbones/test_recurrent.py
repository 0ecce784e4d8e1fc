"""The recurrent encoder–decoder against torch's cells and an additive-attention loop written from the paper."""

import pytest
import torch
from torch import nn

from regard.attention import Context
from regard.backbones.recurrent import BidirectionalRNN, CausalRNN
from regard.inputs.embedding import positions_of
from regard.models.bahdanau import SCORES, recurrent
from regard.models.lstm import bilstm
from tests.models.networks import Converter, embedded


def cell_of(rnn: nn.RNNBase, kind: str, layer: str = "l0") -> nn.RNNCellBase:
    width = rnn.hidden_size
    cell: nn.RNNCellBase = (nn.LSTMCell if kind == "lstm" else nn.GRUCell)(rnn.input_size, width)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    cell.load_state_dict({name: getattr(rnn, f"{name}_{layer}") for name in names})
    return cell


def walk(cell: nn.RNNCellBase, xs: torch.Tensor) -> tuple[list[torch.Tensor], object]:
    zero = torch.zeros(cell.hidden_size)
    state: object = (zero, zero) if isinstance(cell, nn.LSTMCell) else zero
    out = []
    for x in xs:
        state = cell(x, state)
        out.append(state[0] if isinstance(cell, nn.LSTMCell) else state)
    return out, state


def by_loop(model: Converter, sources: torch.Tensor, targets: torch.Tensor, kind: str) -> torch.Tensor:
    """One row at a time, one step at a time: Bahdanau's equations with Luong's input feeding."""
    encoder, decoder, logits = model.backbone, model.head.decoder, []
    for source, target in zip(sources, targets, strict=True):
        words = model.stem.table(source[source != 0])
        width = words.shape[-1]
        forward, backward = (cell_of(encoder.rnn, kind, name) for name in ("l0", "l0_reverse"))
        ahead, last_ahead = walk(forward, words)
        back, last_back = walk(backward, words.flip(0))
        states = encoder.states_proj(torch.stack([torch.cat(p) for p in zip(ahead, back[::-1], strict=True)]))
        ends = zip(last_ahead, last_back, strict=True) if kind == "lstm" else [(last_ahead, last_back)]
        hidden = [torch.tanh(proj(torch.cat(p))) for proj, p in zip(encoder.hidden_proj, ends, strict=True)]
        state = tuple(hidden) if kind == "lstm" else hidden[0]
        cell, score, output, rows = (
            cell_of(decoder.rnn, kind),
            decoder.glimpse.score,
            torch.zeros(width),
            [],
        )
        for token in [2, *target[target != 0][:-1].tolist()]:
            state = cell(torch.cat((model.head.target.table.weight[token], output)), state)
            h = state[0] if kind == "lstm" else state
            e = torch.stack(
                [score.output.weight[0] @ torch.tanh(score.q_proj.weight @ h + score.k_proj.weight @ s) for s in states]
            )
            output = torch.tanh(decoder.output_proj(torch.cat((h, e.softmax(0) @ states))))
            rows.append(model.head.output(output))
        logits.append(torch.stack(rows))
    return torch.cat(logits)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_equals_a_loop_over_the_papers_equations(kind: str) -> None:
    torch.manual_seed(0)
    pair = recurrent(cell=kind, width=8, attention="additive", feeding=True, dropout=0.0)
    model = Converter(pair, 12, 11).double().eval()
    source, target = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]]), torch.tensor([[4, 5, 3], [6, 3, 0]])
    torch.set_default_dtype(torch.float64)
    try:
        expected = by_loop(model, source, target, kind)
    finally:
        torch.set_default_dtype(torch.float32)
    assert model.logits(source, target)[target != 0].allclose(expected, atol=1e-10)


KINDS = [("none", 0), ("mean", 0), *((score, heads) for score in SCORES for heads in (0, 1, 4))]


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("feeding", [True, False])
@pytest.mark.parametrize(("attention", "heads"), KINDS)
def test_every_kind_steps_as_it_trains_and_ignores_padding(
    cell: str, feeding: bool, attention: str, heads: int
) -> None:
    torch.manual_seed(0)
    pair = recurrent(cell=cell, width=8, layers=2, attention=attention, heads=heads, feeding=feeding, dropout=0.0)
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


@pytest.mark.parametrize("kind", ["lstm", "gru"])
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


@pytest.mark.parametrize("kind", ["lstm", "gru"])
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
