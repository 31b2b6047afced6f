"""How the tables of the store came to be what they are: one module a step, in `versions/`, by their numbers."""
