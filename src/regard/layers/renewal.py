"""Modules whose buffers change as a training goes on."""

from abc import ABC, abstractmethod

from torch import nn


class Renewed(nn.Module, ABC):
    """A module with something to renew after each training step, such as random features.

    It happens between steps, not in the forward pass: batches of one step, a second pass for activation checkpointing
    and all processes then see the same, and what is renewed is a buffer, so it is saved and resumed.
    """

    @abstractmethod
    def renew(self) -> None:
        """Take note of a step that was applied."""
