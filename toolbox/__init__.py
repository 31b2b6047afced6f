"""Topgallant, the library that `run_toolbox.py` runs. The library imports nothing from `projects/`."""
