"""Clusters: the one way in which anything of ours speaks to a Kubernetes API server.

`connection.py` asks, again where the server is away; `watching.py` is told what happens; the rest is built on these.
Nothing here knows of cells.
"""
