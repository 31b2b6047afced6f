"""Output in a terminal: the live view and the table of a run, logs, plans, and rows of results."""
