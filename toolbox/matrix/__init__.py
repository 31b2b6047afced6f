"""The matrix: turns the axes of a configuration into cells, plans them, and executes the plan."""
