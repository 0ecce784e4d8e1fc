"""classify: one label for the whole input."""
