"""continue: the next elements."""
