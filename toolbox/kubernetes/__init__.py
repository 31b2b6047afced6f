"""Kubernetes: `api` talks to the API server, `leases` reserves shared clusters and machines, `pods` runs cells.

The backend is `toolbox/backends/kubernetes.py`; the Ansible modules for clusters are in `toolbox/ansible/modules/`.
"""
