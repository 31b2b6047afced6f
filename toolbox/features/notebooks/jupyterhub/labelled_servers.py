"""Finds the servers of any owner that have labels of Topgallant, to delete leftovers without a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from toolbox.features.notebooks.jupyterhub import server_request
from toolbox.features.notebooks.jupyterhub.hub_api import HubApi
from toolbox.ground.model.resources import OpenResource, Owner, expiry_of


def find(api: HubApi, user: str, ttl: float) -> Iterator[OpenResource]:
    """Yield the named servers of a user that have labels of Topgallant, also stopped ones.

    Args:
        ttl: the time to live in seconds, for a server whose labels contain no expiry.

    Raises:
        HubError: the hub does not answer, or refuses the request.
    """
    for server in api.run(api.servers(user)).values():
        owner = Owner.from_labels(server.labels)
        if owner is not None:
            begun = server.started or datetime.now(UTC)
            expires = expiry_of(server.labels) or begun + timedelta(seconds=ttl)
            left = max(0.0, (expires - begun).total_seconds())
            entry = server_request.ledger_entry(api.access.url, user, server.name, api.access.ca_file, left)
            yield OpenResource(entry, owner, begun, expires, is_created=True)
