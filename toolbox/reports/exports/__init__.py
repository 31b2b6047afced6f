"""The index of exported runs."""
