"""Tests of notebooks on machines and on a JupyterHub: runtimes, cells, and the results that `worker` writes."""
