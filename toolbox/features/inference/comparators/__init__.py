"""Comparators, one file per comparator: they compare a generated text with the expected one."""
