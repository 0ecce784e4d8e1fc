"""Fair comparisons: variants under equal budgets and several seeds, with intervals, checks and baselines."""
