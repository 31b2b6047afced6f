"""The Kubernetes API: every request to an API server goes through this package.

`connection.py` sends requests, and repeats them while the server is unavailable. `watching.py` reports changes of
objects. The other modules use these two modules. This package does not depend on cells.
"""
