"""The kind of clusters of this feature."""
