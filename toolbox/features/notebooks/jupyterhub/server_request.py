"""The request for a named server, and its entry on the ledger."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolbox.features.notebooks.jupyterhub import hub_address, hub_tokens
from toolbox.features.notebooks.jupyterhub.hub_replies import LABELS
from toolbox.ground.model.resources import Resource

KIND: Final = "jupyterhub_server"
"""The module in `toolbox/orchestration/resources/` that deletes servers."""
_HASH: Final = 16
_LONGEST_RUN: Final = 8  # JupyterHub 6 refuses names of more than 30 characters


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A named server.

    Args:
        url: the address of the hub.
        labels: the labels of the owner.
        options: the options for the spawner of the hub, such as `profile`.
        ttl: see `toolbox.ground.model.resources.Resource`.
    """

    url: str
    user: str
    name: str
    labels: Mapping[str, str]
    ttl: float
    ca_file: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spawner_options(self) -> dict[str, Any]:
        """The options with the labels, which the hub stores with the server."""
        return {**self.options, LABELS: dict(self.labels)}

    @property
    def server_url(self) -> str:
        """The address of the server."""
        return hub_address.server_url(self.url, self.user, self.name)

    @property
    def resource(self) -> Resource:
        """The entry on the ledger."""
        return ledger_entry(self.url, self.user, self.name, self.ca_file, self.ttl)


def server_name(run: str, attempt: str) -> str:
    """Return the name of a server. The name is unique, and depends only on the run and the attempt. It contains the
    last, random part of the name of the run.
    """
    digest = hashlib.sha256(f"{run}\0{attempt}".encode()).hexdigest()[:_HASH]
    words = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")[-_LONGEST_RUN:].rpartition("-")[2]
    return f"tg-{words}-{digest}" if words else f"tg-{digest}"


def ledger_entry(url: str, user: str, name: str, ca_file: Path | None, ttl: float) -> Resource:
    """Return the entry of a server on the ledger. The entry contains no token."""
    deletion = {"url": url, "user": user, "server": name, "ca_file": str(ca_file) if ca_file else None}
    authority = f"--cacert {shlex.quote(str(ca_file))} " if ca_file else ""
    address = shlex.quote(f"{url}{hub_address.server_path(user, name)}")
    command = (
        f'curl --request DELETE {authority}--header "Authorization: token ${hub_tokens.VARIABLE}" '
        f"--data '{{\"remove\": true}}' {address}"
    )
    return Resource(KIND, f"{url}{hub_address.server_path(user, name)}", deletion, ttl, command)
