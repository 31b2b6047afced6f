"""The site of the backend `jupyterhub`: a real hub, whose servers start in a moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.conformance.sites import RUN, Site
from tests.features.notebooks.servers.jupyterhub import Hub
from toolbox.features.notebooks.jupyterhub import server_request
from toolbox.features.notebooks.jupyterhub.hub_replies import LABELS
from toolbox.ground.model.workloads import Handle


@dataclass(frozen=True, slots=True)
class HubSite(Site):
    """A hub with one user."""

    hub: Hub = field(kw_only=True)

    @property
    def is_apart(self) -> bool:
        """See `Site`. The files of an attempt are in the run directory, and its server is on the hub."""
        return False

    def remains(self, handle: Handle) -> list[str]:
        """See `Site`."""
        name = server_request.server_name(RUN, handle.name)
        return [name] if name in self.hub.servers() else []

    def remains_of(self, run: str) -> list[str]:
        """See `Site`."""
        servers = self.hub.servers().items()
        return [name for name, server in servers if server["user_options"][LABELS]["topgallant-run"] == run]

    def remove(self, handle: Handle) -> None:
        """See `Site`."""
        self.hub.remove_server(server_request.server_name(RUN, handle.name))
