"""The metric sources of this feature."""
