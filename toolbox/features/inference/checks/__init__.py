"""The checks of this feature."""
