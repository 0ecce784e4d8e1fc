"""Examples: read from files, checked, stored on disk, and cut into batches."""
