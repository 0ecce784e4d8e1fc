"""imagine: new things of the same kind."""
