"""A Kubernetes cluster that runs share: its lease, its state before and after a run, and the objects that runs own."""

from __future__ import annotations

from pathlib import Path

from toolbox.features.kubernetes import owned_objects
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.cluster_comparison import Comparison
from toolbox.features.kubernetes.lease_objects import LeaseObject
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.resources import OpenResource


class Connection:
    """A connection to one cluster. See `toolbox.orchestration.cluster_connections.ClusterConnection`."""

    def __init__(self, access: Access, label: str) -> None:
        self._cluster = Cluster(access, label=label)

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._cluster.credentials.configuration.host)

    def lease(self, name: str, namespace: str | None) -> LeaseObject:
        """Return the lease, which is an object of the cluster."""
        return LeaseObject(self._cluster, name, namespace)

    def owned_resources(self) -> list[OpenResource]:
        """Return the owner objects of runs, and the namespaces that commands created."""
        return list(owned_objects.find(self._cluster))

    def write_snapshot(self, name: str, directory: Path) -> None:
        """Write the names and digests of the objects of the cluster."""
        Comparison(name, self._cluster).write_before(directory)

    def compare(self, name: str, before_directory: Path, directory: Path) -> None:
        """Compare the objects with those of the snapshot."""
        Comparison(name, self._cluster).judge(before_directory, directory)

    def close(self) -> None:
        """Close the connection."""
        self._cluster.close()
