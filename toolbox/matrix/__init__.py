"""The matrix: from the axes of a configuration to cells, their plan, and its execution."""
