"""Reading pairs of sequences, checking them, keeping their tokens on disk, and cutting them into batches."""
