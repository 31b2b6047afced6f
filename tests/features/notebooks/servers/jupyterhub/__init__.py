"""A real JupyterHub on loopback, with the proxy of configurable-http-proxy and single-user servers as processes.

with jupyterhub.serving(directory) as hub:
    httpx.get(f"{hub.url}/hub/api/user", headers={"Authorization": f"token {hub.token}"})
"""

from tests.features.notebooks.servers.jupyterhub.hub_server import ACCESS_SCOPES, KERNELS, TOKEN_SCOPES, Hub, serving

__all__ = ["ACCESS_SCOPES", "KERNELS", "TOKEN_SCOPES", "Hub", "serving"]
