"""Runs cells in pods: the description of a pod, its manifest, its state, its logs and its files."""
