"""fill: the hidden elements."""
