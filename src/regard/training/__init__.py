"""Training: preparing data, the loop, optimisers, devices and processes."""
