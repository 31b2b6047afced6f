"""Topgallant: the library behind `run_toolbox.py`. It imports nothing from `projects/`."""
