"""Parts that comparisons with other people's models share."""

import torch
from torch import Tensor, nn


def shake(model: nn.Module) -> nn.Module:
    """Every parameter away from 0 and 1, where mistakes could hide."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model


def assert_same_gradients(module: nn.Module, expected: dict[str, Tensor], atol: float = 1e-4) -> None:
    found = dict(module.named_parameters())
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        grad = found[name].grad
        assert grad is not None, name
        assert grad.allclose(gradient, atol=atol, rtol=1e-4), (name, (grad - gradient).abs().max())
