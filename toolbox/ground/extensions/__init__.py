"""The protocols that extensions implement, and how extensions are found and imported."""
