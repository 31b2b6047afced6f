"""Tests a runtime on a target: runs its shell checks, Python checks and notebooks, and records the results.

The package is sent to targets. It imports only the standard library, `toolbox.ground.kit`, jupyter_client, nbclient,
nbformat, papermill, pynvml and tornado. The modules that prepare the environments import only the standard library and
the kit, because they run before the other packages are installed.
"""
