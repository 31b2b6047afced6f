"""The store of the results of all runs, and what is computed from many runs: bounds, changes, flakiness, cost."""
