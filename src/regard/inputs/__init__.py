"""From raw data to the numbers a model reads."""
