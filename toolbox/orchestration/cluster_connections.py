"""Connects to the clusters of the block `clusters`, by the extension `clusters/kubernetes.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

from toolbox.ground.extensions import discovery, loading
from toolbox.ground.extensions.protocols import Kind
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.resources import OpenResource
from toolbox.ground.system import extras
from toolbox.records.leases.leases import Lock

_KUBERNETES: Final = "kubernetes"


class ClusterConnection(Protocol):
    """A connection to one cluster: the class `Connection` of a module in `clusters/`.

    The class is called with the access to the cluster, and with a label for messages. It raises `ConfigurationError` if
    the access is missing or invalid, and does not send a request.
    """

    @property
    def server(self) -> str:
        """The address of the API server, which identifies the cluster."""

    def lease(self, name: str, namespace: str | None) -> Lock:
        """Return the lease of the cluster.

        Args:
            name: the name of the object that stores the lease.
            namespace: the namespace of the object; None for the namespace of the access.
        """

    def owned_resources(self) -> Iterable[OpenResource]:
        """Return the resources with labels of Topgallant in the cluster, of any owner.

        Raises:
            ToolboxError: the cluster does not answer, or refuses the request.
        """

    def write_snapshot(self, name: str, directory: Path) -> None:
        """Write the state of the cluster before a run, unless the directory already contains it.

        Args:
            name: the beginning of the name of the file.

        Raises:
            StepError: the cluster cannot be read.
        """

    def compare(self, name: str, before_directory: Path, directory: Path) -> None:
        """Compare the cluster with the snapshot in `before_directory`, and put both states into `directory`.

        Raises:
            CheckFailed: the cluster has changed. The message names the changes.
            InfrastructureError: the snapshot cannot be read.
            StepError: the cluster cannot be read.
        """

    def close(self) -> None:
        """Close the connection."""


CLUSTERS: Final[Kind[Callable[[Access, str], ClusterConnection]]] = Kind("clusters", "Connection", ClusterConnection)


def require(purpose: str) -> None:
    """Raise `ConfigurationError` if Topgallant cannot connect to clusters, for example without the Kubernetes client.

    Args:
        purpose: what needs the connection, for the message.
    """
    _connector()
    extras.require(extras.of_feature(_KUBERNETES), purpose)


def connect(access: Access, label: str = "") -> ClusterConnection:
    """Return a connection to a cluster.

    Args:
        label: the name of the cluster in messages; empty for the name of its context.

    Raises:
        ConfigurationError: the access is missing or invalid, or Topgallant cannot connect to clusters.
    """
    return _connector()(access, label)


def _connector() -> Callable[[Access, str], ClusterConnection]:
    available = discovery.available(CLUSTERS.folder)
    if _KUBERNETES not in available:
        raise ConfigurationError(f"this installation has no `{CLUSTERS.folder}/{_KUBERNETES}.py`, which clusters need")
    try:
        return loading.function(CLUSTERS, available[_KUBERNETES])
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
