"""ViT and Swin against Hugging Face's at toy size with identical weights; windows against dense attention."""

import pytest
import torch
from torch import Tensor, nn
from transformers import SwinConfig, SwinForImageClassification, ViTConfig, ViTForImageClassification

from regard.attention import Context, attend
from regard.attention.windows import WindowAttention, WindowBias, windows
from regard.layers.stem import Shape
from regard.models.swin import swin
from regard.models.vit import PATCHES, vit

BLOCK = {
    "attention.q_proj": ("attention.q_proj", "attention.self.query"),
    "attention.k_proj": ("attention.k_proj", "attention.self.key"),
    "attention.v_proj": ("attention.v_proj", "attention.self.value"),
    "attention.output_proj": ("attention.o_proj", "attention.output.dense"),
    "around_attention.norm": ("layernorm_before", "layernorm_before"),
    "around_feed.norm": ("layernorm_after", "layernorm_after"),
    "feed.inner": ("mlp.fc1", "intermediate.dense"),
    "feed.outer": ("mlp.fc2", "output.dense"),
}


def copy(ours: nn.Module, theirs: nn.Module) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Copy the weights of a module of theirs to one of ours; the pairs, whose gradients must be equal."""
    pairs = list(zip(ours.parameters(), theirs.parameters(), strict=True))
    with torch.no_grad():
        for own, other in pairs:
            own.copy_(other.reshape(own.shape))
    return pairs


def found(module: nn.Module, names: tuple[str, ...]) -> nn.Module:
    known = dict(module.named_modules())
    return next(known[name] for name in names if name in known)


def copy_layer(ours: nn.Module, theirs: nn.Module) -> list[tuple[nn.Parameter, nn.Parameter]]:
    return [pair for own, names in BLOCK.items() for pair in copy(ours.get_submodule(own), found(theirs, names))]


def close(pairs: list[tuple[nn.Parameter, nn.Parameter]]) -> None:
    for own, other in pairs:
        assert own.grad is not None
        assert other.grad is not None
        assert torch.allclose(own.grad, other.grad.reshape(own.grad.shape), atol=1e-5)


@pytest.mark.parametrize("size", [12, 20])
def test_vit_equals_hugging_face(size: int) -> None:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=12, patch_size=4,
        num_channels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=5,
    )  # fmt: skip
    theirs = ViTForImageClassification(config).train()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
    stem, backbone = vit(layers=2, width=16, hidden=24, heads=2, dropout=0.0)
    assert stem.pixels is not None
    pixels = stem.pixels(Shape(12, 12, 3, 4, marks=1))
    embeddings = theirs.vit.embeddings
    pairs = copy(pixels.patches.map, embeddings.patch_embeddings.projection)
    with torch.no_grad():
        pixels.mark.copy_(embeddings.cls_token[0] + embeddings.position_embeddings[0, :1])
        pixels.place.table.copy_(embeddings.position_embeddings[0, 1:].view(3, 3, 16))
    layers = theirs.vit.layers if hasattr(theirs.vit, "layers") else theirs.vit.encoder.layer
    for own, other in zip(backbone.layers, layers, strict=True):
        pairs += copy_layer(own, other)
    pairs += copy(backbone.norm, theirs.vit.layernorm)
    x = torch.randn(3, 3, size, size)
    expected = theirs(x, interpolate_pos_encoding=size != 12).logits
    states: Tensor = backbone(pixels(x)).values
    logits = theirs.classifier(states[:, 0])
    assert torch.allclose(logits, expected, atol=1e-5)
    upstream = torch.randn_like(logits)
    (expected * upstream).sum().backward()
    theirs_classifier = [p.grad.clone() for p in theirs.classifier.parameters()]
    assert theirs_classifier
    (theirs.classifier(backbone(pixels(x)).values[:, 0]) * upstream).sum().backward()
    close(pairs)
    assert torch.allclose(pixels.mark.grad, embeddings.cls_token.grad[0], atol=1e-5)
    assert torch.allclose(pixels.place.table.grad.flatten(0, 1), embeddings.position_embeddings.grad[0, 1:], atol=1e-5)


@pytest.mark.parametrize(("stem", "reach"), [("linear", 0), ("convolutional", 1), ("pairs", 2)])
def test_a_vector_of_a_stem_stands_for_its_patch_and_what_is_near(stem: str, reach: int) -> None:
    torch.manual_seed(0)
    patches, side = PATCHES[stem](3, 4, 16).eval(), 10
    for part in patches.modules():
        if isinstance(part, nn.GroupNorm):  # it is of the whole picture
            part.forward = lambda x: x
    x = torch.randn(1, 3, 4 * side, 4 * side)
    other = x.clone()
    other[0, :, 17, 22] += 10
    changed = (patches(x) - patches(other)).norm(dim=-1).view(side, side) > 1e-6
    rows, columns = changed.nonzero().T
    assert changed[4, 5]
    assert (rows - 4).abs().max() <= reach
    assert (columns - 5).abs().max() <= reach
    assert int(changed.sum()) > 1 or reach == 0


def test_swin_equals_hugging_face() -> None:
    torch.manual_seed(0)
    config = SwinConfig(
        image_size=16, patch_size=2, num_channels=3, embed_dim=8, depths=[2, 2], num_heads=[2, 4], window_size=4,
        mlp_ratio=2.0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, drop_path_rate=0.0, num_labels=5,
    )  # fmt: skip
    theirs = SwinForImageClassification(config).train()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
    stem, backbone = swin(layers=2, stages=2, width=16, hidden=32, heads=4, window=4, dropout=0.0)
    assert stem.pixels is not None
    pixels = stem.pixels(Shape(16, 16, 3, 2))
    pairs = copy(pixels.patches.map, theirs.swin.embeddings.patch_embeddings.projection)
    pairs += copy(pixels.norm, theirs.swin.embeddings.norm)
    for number, (own, other) in enumerate(zip(backbone.stages, theirs.swin.encoder.layers, strict=True)):
        for ours, block in zip(own.layers, other.blocks, strict=True):
            pairs += copy_layer(ours, block)
            table = next(p for n, p in block.named_parameters() if n.endswith("relative_position_bias_table"))
            with torch.no_grad():
                ours.attention.attention.table.copy_(table)
            pairs.append((ours.attention.attention.table, table))
        if number == 0:
            merge = backbone.stages[1].merge
            pairs += copy(merge.norm, other.downsample.norm) + copy(merge.map, other.downsample.reduction)
    pairs += copy(backbone.norm, theirs.swin.layernorm)
    x = torch.randn(3, 3, 16, 16)
    expected = theirs(x).logits
    features: Context = backbone(pixels(x))
    assert features.grid == (1, 4, 4)
    assert features.stride == (1, 4, 4)
    logits = theirs.classifier(features.values.mean(1))
    assert torch.allclose(logits, expected, atol=1e-5)
    upstream = torch.randn_like(logits)
    (expected * upstream).sum().backward()
    (theirs.classifier(backbone(pixels(x)).values.mean(1)) * upstream).sum().backward()
    close(pairs)


@pytest.mark.parametrize(
    ("rows", "columns", "side", "shift"), [(8, 8, 4, 0), (8, 8, 4, 2), (7, 10, 4, 2), (3, 3, 4, 0), (6, 6, 3, 1)]
)
def test_windows_equal_dense_attention_with_a_block_mask(rows: int, columns: int, side: int, shift: int) -> None:
    torch.manual_seed(1)
    attention = WindowAttention(2, side).double()
    q, k, v = (torch.randn(3, 2, rows * columns, 5, dtype=torch.float64, requires_grad=True) for _ in "qkv")
    mask, where = windows(rows, columns, side, shift), torch.arange(rows * columns)
    fast = attention(q, k, v, mask, where, where)
    plain, weights = attend(q, k, v, mask=mask, bias=WindowBias(attention, columns))
    assert torch.allclose(fast, plain, atol=1e-10)
    upstream = torch.randn_like(plain)
    inputs = (q, k, v, attention.table)
    for one, other in zip(
        torch.autograd.grad((fast * upstream).sum(), inputs),
        torch.autograd.grad((plain * upstream).sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-10)
    assert torch.allclose(attention.weights(q, k, mask, where, where), weights)
    allowed = mask.on(where, where).rows(where)
    blocks = [
        ((r - shift) // side if mask.shift else r // side, (c - shift) // side if mask.shift else c // side)
        for r in range(rows)
        for c in range(columns)
    ]
    assert allowed.tolist() == [[one == other for other in blocks] for one in blocks]
