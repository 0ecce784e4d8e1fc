"""detect: a set of boxes, each with a class."""
