"""Run folders: settings, checkpoints, checksums, and the models loaded from them."""
