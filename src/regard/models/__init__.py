"""Models: one builder per paper, from parts."""
