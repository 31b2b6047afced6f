"""Checks and metrics that know no test suite."""
