"""Cells in pods: what a pod is asked for, its manifest, what becomes of it, its logs and its files."""
