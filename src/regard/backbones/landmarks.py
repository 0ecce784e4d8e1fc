"""Learned global tokens before the input: they look at all, all look at them (ETC; Zaheer et al. 2020, section 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention import Context, Watchable
from regard.backbones.transformer import Encoder


class Landmarks(nn.Module):
    """An encoder that reads `count` learned vectors before each input, at positions 0 … count − 1; the input's own move
    up. Their features are left out of the answer."""

    def __init__(self, encoder: Encoder, count: int, width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.tokens = nn.Parameter(torch.empty(count, width))
        nn.init.normal_(self.tokens, std=0.02)
        for part in encoder.modules():
            if isinstance(part, Watchable):
                part.before = count

    def forward(self, context: Context) -> Context:
        if context.mask is not None:
            raise ValueError(
                "learned global tokens move the positions that a mask is about: leave the mask out, or set extra to 0"
            )
        count, x, positions = len(self.tokens), context.values, context.where()
        moved = pad(positions + count * (positions >= 0), (count, 0))
        moved[..., :count] = torch.arange(count, device=positions.device)
        values: Tensor = torch.cat((self.tokens.to(x.dtype).expand(x.shape[0], -1, -1), x), 1)
        features: Context = self.encoder(context._replace(values=values, positions=moved))
        return context._replace(values=features.values[:, count:], positions=positions)
