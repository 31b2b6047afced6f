"""Clusters and machines that several runs share. A run uses such a cluster only while the run holds its lease."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolbox.config.contracts import clusters as contract
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.events import ClusterChosen
from toolbox.ground.system import environ
from toolbox.orchestration import cluster_connections
from toolbox.orchestration.cluster_connections import ClusterConnection
from toolbox.records.leases.heartbeats import Lease
from toolbox.records.leases.leases import Claim, Lock
from toolbox.records.leases.lock_files import LockFile
from toolbox.records.leases.taking import take


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cluster or machine that a run may take.

    Args:
        member: the name in the pool; empty without a pool.
        connection: the connection to the cluster; None for a machine.
        lock: the lease; None if the configuration disables leases for this cluster.
    """

    member: str
    access: Access
    connection: ClusterConnection | None
    lock: Lock | None

    @property
    def key(self) -> str:
        """A string that identifies the cluster or machine, even if several entries of a configuration describe it."""
        if self.lock is not None:
            return self.lock.key
        return self.server

    @property
    def server(self) -> str:
        """The URL of the API server; empty for a machine."""
        return self.connection.server if self.connection is not None else ""


class SharedCluster:
    """One entry of the block `clusters`, of the kind `existing`, `pool` or `machine`.

    Raises:
        ConfigurationError: the configuration does not tell how to reach the cluster.
    """

    def __init__(self, name: str, settings: contract.Cluster, root: Path) -> None:
        self.name = name
        self.settings = settings
        self._candidates = _candidates(name, settings, root)
        self._acquired: Candidate | None = None
        self.lease: Lease | None = None

    @property
    def order(self) -> tuple[bool, list[str]]:
        """The sort key for acquisition. Pools come last.

        All runs acquire their clusters in this order, so that no two runs wait for each other.
        """
        return self.settings.pool is not None, sorted(candidate.key for candidate in self._candidates)

    @property
    def key(self) -> str:
        """The key of the cluster or machine that was acquired."""
        return self._candidate.key

    @property
    def server(self) -> str:
        """The URL of the API server that was acquired; empty for a machine."""
        return self._candidate.server

    @property
    def title(self) -> str:
        """What was acquired, for messages."""
        lock = self._candidate.lock
        return f"the lease of {lock.label}" if lock is not None else "the cluster, without a lease,"

    @property
    def chosen(self) -> ClusterChosen:
        """The event for the journal that names the cluster or machine that was acquired."""
        return ClusterChosen(self.name, self._candidate.member, *dataclasses.astuple(self._candidate.access))

    def acquire(
        self,
        claim: Claim,
        acquired_keys: Collection[str],
        earlier_choice: ClusterChosen | None,
        on_wait: Callable[[str], object],
    ) -> None:
        """Take the lease of the cluster, or of the first free cluster of the pool, and wait for it if necessary.

        Args:
            acquired_keys: the keys of the clusters that the run already has. An entry of the kind `existing` may be one
                of these clusters. From a pool, the run takes another cluster.
            earlier_choice: the cluster that the run had before it was resumed. From a pool, the run takes the same
                cluster if the pool still contains it.
            on_wait: receives a message about the current holder while this call waits.

        Raises:
            StepError: the lease was not free in time, or could not be read or written.
            ConfigurationError: other entries of the configuration have taken all clusters of the pool.
        """
        candidates = self._candidates
        if self.settings.pool is not None:
            candidates = [candidate for candidate in candidates if candidate.key not in acquired_keys]
            if earlier_choice is not None:
                same = [candidate for candidate in candidates if candidate.member == earlier_choice.member]
                candidates = same or candidates
        if not candidates:
            raise ConfigurationError(f"clusters.{self.name}: other entries have acquired all clusters of its pool")
        locks = [candidate.lock for candidate in candidates if candidate.lock is not None]
        if not locks or candidates[0].key in acquired_keys:
            self._acquired = candidates[0]
            return
        self.lease = take(locks, claim, wait=self.settings.lease.wait, report=on_wait)
        self._acquired = next(candidate for candidate in candidates if candidate.lock is self.lease.lock)

    @property
    def _candidate(self) -> Candidate:
        assert self._acquired is not None, "call `acquire` first"
        return self._acquired

    def release(self) -> None:
        """Release the lease, and close the connections."""
        if self.lease is not None:
            self.lease.release()
        for candidate in self._candidates:
            if candidate.connection is not None:
                candidate.connection.close()

    def suspend(self) -> None:
        """Keep the lease for the next step of the run, as long as the configuration says, and close the connections."""
        if self.lease is not None and not self.lease.loss and self.settings.lease.between_steps:
            self.lease.suspend(self.settings.lease.between_steps)
            self.lease = None
        self.release()

    @property
    def compared(self) -> ClusterConnection | None:
        """The cluster to compare with its state before the run; None for a machine, or without `compare`."""
        return self._candidate.connection if self.settings.compare else None


def access_of(existing: contract.Existing, root: Path) -> Access:
    """Return how to reach a cluster that the configuration describes. A relative kubeconfig is relative to `root`."""
    file = existing.kubeconfig and str(root / environ.expanded(existing.kubeconfig))
    return Access(file, existing.context, existing.namespace)


def _candidates(name: str, settings: contract.Cluster, root: Path) -> list[Candidate]:
    if settings.machine is not None:
        path = root / environ.expanded(settings.machine.lock_file)
        return [Candidate("", Access(), None, LockFile(path, name))]
    members: Sequence[contract.Existing] = settings.pool or [settings.existing or contract.Existing()]
    candidates = []
    for member in members:
        title = member.name if isinstance(member, contract.Member) else ""
        access = access_of(member, root)
        connection = cluster_connections.connect(access, f"{title} (of the pool {name})" if title else name)
        lease = settings.lease
        lock = connection.lease(lease.name, lease.namespace) if lease.enabled else None
        candidates.append(Candidate(title, access, connection, lock))
    return candidates
