"""The kinds of remote resources of this feature."""
