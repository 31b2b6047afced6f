"""The kind of remote resources of this feature."""
