"""Outputs: from features to a loss, a prediction and a score. Each owns its head, loss, decoding and metric."""
