"""The migrations of the tables of the store: one module per change in `versions/`, in the order of their numbers."""
