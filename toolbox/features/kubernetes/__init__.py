"""Kubernetes: `api` talks to the API server, `pods` runs cells, `lease_objects` stores leases.

The backend is `toolbox/features/kubernetes/backends/kubernetes.py`; the Ansible modules for clusters are in
`toolbox/features/kubernetes/library/`.
"""
