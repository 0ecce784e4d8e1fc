"""Backbones: from a batch's vectors to features."""
