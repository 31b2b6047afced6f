"""The metric source of this feature."""
