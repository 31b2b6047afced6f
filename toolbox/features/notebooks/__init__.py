"""Tests of notebooks: the runtimes and machines of a configuration, and the results that the notebook worker writes."""
