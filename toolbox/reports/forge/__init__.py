"""A run as forges (GitHub and the like) show it."""
