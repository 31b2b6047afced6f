"""Imports nbformat for the tests of this feature."""

from toolbox.features.notebooks.worker import nbformat_import

nbformat_import.load()  # without a parser whose import takes seconds of CPU time in each worker of pytest-xdist
