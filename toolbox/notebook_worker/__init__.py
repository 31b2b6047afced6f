"""Tests a runtime on a target: runs its shell checks, Python checks and notebooks, and records the results.

The package is sent to targets. It imports the standard library, jupyter_client, nbclient, nbformat and papermill. The
modules that prepare the environments import only the standard library, because they run before these packages exist.
"""
