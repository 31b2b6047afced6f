"""Results that last: the store of all runs, and what many runs say together: bounds, changes, flakiness, cost."""
