"""Masks in whole blocks: BigBird against its rule laid out densely, against Hugging Face, and its cost."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from regard.attention import MultiHead, attend, causal, fast, masks, padding, positions, sparse
from regard.attention.mixing import ShawValues
from regard.attention.patterns import bigbird, chance, chosen, landmarks, near
from tests.attention.parts import gradients
from tests.attention.test_linear import padded, tensors

fast_forms = sys.modules["regard.attention.fast"]  # the package has a function of the same name


def rows(mask: masks.Mask, length: int) -> torch.Tensor:
    line = torch.arange(length)
    return mask.on(line, line).rows(line)


def test_the_rule_of_bigbird_by_loops() -> None:
    size, count = 4, 9
    allowed = rows(bigbird(size, random=2, seed=5), size * count)
    blocked = allowed.unflatten(0, (count, size)).unflatten(-1, (count, size))
    assert blocked.any(1).any(-1).equal(blocked.all(1).all(-1))  # whole blocks
    table = blocked.any(1).any(-1)
    for i in range(count):
        for j in range(count):
            if i in (0, count - 1) or j in (0, count - 1) or abs(i - j) <= 1:
                assert table[i, j]
        if 0 < i < count - 1:
            expected = {0, count - 1, i - 1, i, i + 1}
            assert int(table[i].sum()) == len(expected) + 2


def test_random_blocks_are_a_function_of_seed_block_and_number_of_blocks() -> None:
    assert rows(bigbird(2, seed=3), 60).equal(rows(bigbird(2, seed=3), 60))
    assert not rows(bigbird(2, seed=3), 60).equal(rows(bigbird(2, seed=4), 60))
    counts = torch.stack([rows(chance(1, 3, seed=seed), 12) for seed in range(2000)]).float().mean(0)
    assert (counts - 3 / 12).abs().max() < 0.05  # all blocks are as likely


def test_the_causal_pattern_does_not_depend_on_what_follows() -> None:
    pattern = bigbird(4, back=True, seed=1)
    assert pattern.ahead == 0
    long = rows(pattern, 80)
    assert rows(pattern, 37).equal(long[:37, :37])
    assert not bool(long.triu(1).any())
    assert bool(long[:, :4].tril().equal(torch.ones(80, 4, dtype=torch.bool).tril()))
    assert int(long[79].sum()) == 3 * 4 + 4 + 3 * 4


@given(
    st=some.data(),
    batch=some.integers(1, 3),
    groups=some.sampled_from([1, 2, 4]),
    length=some.sampled_from([0, 1, 3, 16, 35, 48, 61, 64]),
    back=some.booleans(),
    with_padding=some.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_blocks_equal_the_dense_mask(
    st: some.DataObject, batch: int, groups: int, length: int, *, back: bool, with_padding: bool
) -> None:
    torch.manual_seed(st.draw(some.integers(0, 10**6)))
    pattern = bigbird(
        st.draw(some.sampled_from([1, 3, 4])),
        window=st.draw(some.sampled_from([1, 3])),
        first=st.draw(some.integers(0, 2)),
        last=st.draw(some.integers(0, 2)),
        random=st.draw(some.integers(0, 2)),
        seed=st.draw(some.integers(0, 99)),
        back=back,
    )
    if st.draw(some.booleans()):
        pattern = pattern & masks.document(torch.arange(max(1, length)) // 20)
    q, k, v = tensors(batch, 4, groups, length)
    where = padded(batch, length) if with_padding else torch.arange(length)
    laid = pattern.on(where, where)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "CHUNK", st.draw(some.sampled_from([8, 4096])))
        patch.setattr(sparse, "SCORES", st.draw(some.sampled_from([1, 500, 2**18])))
        if st.draw(some.booleans()):
            patch.setattr(fast_forms, "_plain", lambda *_: None)
        ours, reference = fast(q, k, v, mask=laid), attend(q, k, v, mask=pattern.on(where, where))[0]
    assert ours.allclose(reference, rtol=0, atol=1e-9)
    up = torch.randn_like(ours)
    for mine, other in zip(gradients(ours, (q, k, v), up), gradients(reference, (q, k, v), up), strict=True):
        assert mine.allclose(other, rtol=0, atol=1e-9)


def test_it_is_computed_by_blocks_with_any_parts() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 128, 8, dtype=torch.float64) for _ in range(3))
    line = torch.arange(128)
    pattern = bigbird(8, random=1)
    assert sparse.chosen_of(pattern.on(line, line)) is not None
    for parts in (
        {"bias": positions.Alibi(2).double()},
        {"bias": positions.T5(2).double()},
        {"bias": positions.Shaw(4, 8).double(), "mix": ShawValues(4, 8).double()},
    ):
        assert fast(q, k, v, mask=pattern, **parts).allclose(attend(q, k, v, mask=pattern, **parts)[0], atol=1e-9)


def test_rows_that_are_dense_anyway_or_start_elsewhere_are_not_cut() -> None:
    line = torch.arange(64)
    assert sparse.chosen_of(bigbird(8).on(line, line)) is None  # as many slots as blocks
    assert sparse.chosen_of(bigbird(4).on(line + 1, line + 1)) is None
    assert sparse.chosen_of(bigbird(4).on(line, line)) is not None
    assert sparse.chosen_of((bigbird(4) | masks.window(1, 1)).on(line, line)) is None
    assert sparse.chosen_of((near(4) | landmarks(4)).on(line, line)) is not None


def test_the_number_of_scores_is_linear_in_length() -> None:
    def scores(length: int) -> int:
        line = torch.arange(length)
        cut = sparse.chosen_of(bigbird(16).on(line, line))
        assert cut is not None
        return cut.mask.numel()

    assert scores(4096) == 4 * scores(1024)


def test_a_layer_has_a_rule_of_its_own() -> None:
    torch.manual_seed(0)
    own = bigbird(2, random=1, seed=3)
    layer, plain = MultiHead(8, 2, mask=own), MultiHead(8, 2)
    plain.load_state_dict(layer.state_dict())
    x, where = torch.randn(2, 30, 8), padded(2, 30)
    for given_mask in (padding, padding.at(where), None):
        assert layer(x, None, where, given_mask)[0].allclose(plain(x, None, where, own)[0], atol=1e-6)
    assert layer(x, mask=causal)[0].allclose(plain(x, mask=own & causal)[0], atol=1e-6)
    with pytest.raises(ValueError, match="takes a rule, found Tensor"):
        layer(x, mask=torch.ones(30, 30, dtype=torch.bool))


def test_it_is_the_layer_of_hugging_face_in_training() -> None:
    """In evaluation theirs gathers block 0 again and again instead of random blocks, so training is compared."""
    transformers: Any = pytest.importorskip("transformers")
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

    torch.manual_seed(0)
    size, count, heads, width, random = 8, 12, 2, 16, 2
    config = transformers.BigBirdConfig(
        hidden_size=heads * width,
        num_attention_heads=heads,
        block_size=size,
        num_random_blocks=random,
        max_position_embeddings=size * count,
        use_bias=True,
    )
    theirs = BigBirdBlockSparseAttention(config, seed=1).double().train()
    drawn = theirs._bigbird_block_rand_mask_with_head
    plans: list[Any] = []

    def recorded(**how: Any) -> Any:
        plans.append(drawn(**how))
        return plans[-1]

    theirs._bigbird_block_rand_mask_with_head = recorded
    x = torch.randn(2, size * count, heads * width, dtype=torch.float64)
    ones = torch.ones(2, size * count, dtype=torch.float64)
    blocked, band, start, end = BigBirdModel.create_masks_for_block_sparse_attn(ones, size)
    answer = theirs(
        x, band_mask=band, from_mask=start, to_mask=end, from_blocked_mask=blocked, to_blocked_mask=blocked
    )[0]
    keys = np.full((heads, count, random), -1)
    keys[:, 1:-1] = np.stack(plans[0])  # without the first and the last block, which are global
    assert len(np.unique(keys)) > random
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        q, k, v = (f(x)[..., part].unsqueeze(1) for f in (theirs.query, theirs.key, theirs.value))
        mask = near(size) | landmarks(size) | chosen(size, keys[head])
        ours = fast(q, k, v, mask=mask)[:, 0]
        assert ours.allclose(answer.view(2, size * count, -1)[..., part], atol=1e-5)
