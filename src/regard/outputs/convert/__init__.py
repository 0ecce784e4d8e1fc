"""convert: a sequence out, its length decided by the model."""
