"""The first weights of GPT, BERT and those after them."""

import torch
from torch import nn


def first_weights(*modules: nn.Module, std: float = 0.02) -> None:
    """Draw normal weights; biases and the vector of padding are zero."""
    for module in (part for whole in modules for part in whole.modules()):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            with torch.no_grad():
                module.weight[module.padding_idx] = 0
