"""A named server of a JupyterHub."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from toolbox.features.notebooks.jupyterhub import hub_tokens, server_deletion
from toolbox.features.notebooks.jupyterhub.hub_address import HubUrl, ServerName, UserName
from toolbox.features.notebooks.jupyterhub.hub_api import HubApi
from toolbox.ground.model.resources import Owner


class Resource(BaseModel):
    """A server. The token is not part of the ledger entry: see `toolbox.features.notebooks.jupyterhub.hub_tokens`.

    Args:
        url: the address of the hub.
        user: the user of the server.
        ca_file: the certificates of the authorities that verify the hub's certificate; None for those of the system.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    url: HubUrl
    user: UserName
    server: ServerName
    ca_file: str | None = Field(default=None, max_length=4096)

    def delete(self, owner: Owner) -> bool:
        """See `RemoteResource`."""
        ca_file = Path(self.ca_file) if self.ca_file else None
        with HubApi(hub_tokens.access(self.url, self.user, ca_file)) as api:
            return api.run(server_deletion.delete(api, self.user, self.server, owner))
