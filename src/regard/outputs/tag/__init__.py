"""tag: one label for each unit of the input."""
