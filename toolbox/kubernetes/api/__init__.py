"""The Kubernetes API: every request to an API server goes through this package.

`connection.py` sends requests and retries while the server is unavailable. `watching.py` reports changes of objects.
The other modules build on these two. No module here knows about cells.
"""
