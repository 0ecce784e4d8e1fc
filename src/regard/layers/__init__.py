"""Layers that backbones and inputs share: dropout, recurrence, residual paths."""
