"""Settings that change how a network is trained, not what it is."""

from regard.backbones.transformer import Stack
from regard.config import Training
from regard.network import Network


def arrange(network: Network, how: Training) -> None:
    """Freeze what does not learn, and let stacks compute their layers again, as the settings say."""
    if how.frozen:
        for frozen in (network.stem, network.backbone):
            frozen.requires_grad_(False)
    for part in network.modules():
        if isinstance(part, Stack):
            part.checkpointing = how.checkpointing
