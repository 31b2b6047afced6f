"""The gateway to JupyterHub: starts, follows and deletes named servers by the REST API of a hub."""
