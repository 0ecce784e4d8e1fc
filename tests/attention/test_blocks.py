"""Windows across several chunks, and their cost: memory and number of scores grow linearly."""

import pytest
import torch

from regard.attention import attend, blocks, fast, masks, positions
from regard.attention.mixing import ShawValues
from regard.attention.patterns import bigbird
from regard.attention.scores import Additive
from tests.attention.parts import gradients


@pytest.mark.parametrize(("left", "right"), [(40, 0), (0, 40), (33, 17), (200, 10), (1, 1), (0, 0)])
def test_several_chunks_equal_the_dense_form(left: int, right: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "CHUNK", 96)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 517, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = masks.window(left, right)
    assert blocks.blocks_of(mask.on(torch.arange(517), torch.arange(517))) is not None
    ours, reference = fast(q, k, v, mask=mask), attend(q, k, v, mask=mask)[0]
    assert ours.allclose(reference, atol=1e-10)
    up = torch.randn_like(ours)
    for mine, other in zip(gradients(ours, (q, k, v), up), gradients(reference, (q, k, v), up), strict=True):
        assert mine.allclose(other, atol=1e-10)


def test_any_parts_run_in_blocks() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 300, 8, dtype=torch.float64) for _ in range(3))
    for parts in (
        {"score": Additive(8, 8, 4).double()},
        {"bias": positions.Shaw(4, 8).double(), "mix": ShawValues(4, 8).double()},
        {"mask": masks.window(15, 0) & masks.document(torch.arange(300) // 50)},
        {"mask": masks.window(15, 0) & masks.document((torch.arange(600) // 50).view(2, 300) % 5)},
        {"mask": masks.window(15, 3) & masks.Mask(lambda q, k: (q - k) % 3 != 1)},
    ):
        given = {"mask": masks.window(20, 5), **parts}
        assert fast(q, k, v, **given).allclose(attend(q, k, v, **given)[0], atol=1e-10)


def test_a_window_of_whole_blocks_with_positions_by_batch() -> None:
    q = torch.randn(2, 2, 300, 8, dtype=torch.float64)
    line = torch.arange(300)
    for where in (line, torch.stack((line, line.masked_fill(line >= 180, -1)))):
        given = {"mask": masks.window(8, 8) & bigbird(16), "q_pos": where, "k_pos": where}
        assert blocks.blocks_of(given["mask"].on(where, where)) is not None
        assert fast(q, q, q, **given).allclose(attend(q, q, q, **given)[0], atol=1e-10)


def test_a_users_function_is_never_cut_into_blocks() -> None:
    """It may close over tensors of the whole batch: correctness goes before speed."""
    table = torch.randn(300, 300)
    q = torch.randn(1, 2, 300, 8)
    given = {"mask": masks.window(10, 10), "bias": lambda q, k, q_pos, k_pos: table}
    assert fast(q, q, q, **given).allclose(attend(q, q, q, **given)[0], atol=1e-5)


def test_masks_without_a_finite_reach_or_with_gaps_stay_dense() -> None:
    line, gaps = torch.arange(300), torch.arange(300) * 2
    assert blocks.blocks_of(masks.causal.on(line, line)) is None
    assert blocks.blocks_of(masks.window(3, 3).on(gaps, gaps)) is None
    assert blocks.blocks_of(masks.window(3, 3).on(line[:5], line)) is None
    assert blocks.blocks_of(masks.window(200, 200).on(line, line)) is None


def test_the_number_of_scores_is_linear_in_length() -> None:
    def scores(length: int) -> int:
        cut = blocks.blocks_of(masks.window(64, 0).on(torch.arange(length), torch.arange(length)))
        assert cut is not None
        return cut.mask.numel()

    assert scores(8192) == 4 * scores(2048)
    assert scores(2048) < 2048 * 64 * 3
