"""Exported runs: the storage of exports, the search for secrets, and the files that describe an exported run."""
