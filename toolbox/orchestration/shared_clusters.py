"""Clusters and machines that others use too: one of them is the run's while it holds the lease of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolbox.config.contracts import clusters as contract
from toolbox.kubernetes.api.connection import Cluster
from toolbox.kubernetes.leases.heartbeats import Lease
from toolbox.kubernetes.leases.lease_objects import LeaseObject
from toolbox.kubernetes.leases.leases import Claim, Lock
from toolbox.kubernetes.leases.lock_files import LockFile
from toolbox.kubernetes.leases.taking import take
from toolbox.model.clusters import Access
from toolbox.model.errors import ConfigurationError
from toolbox.model.events import ClusterChosen
from toolbox.orchestration.cluster_comparison import Comparison
from toolbox.system import environ


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may become the run's.

    Args:
        member: its name in the pool; empty where there is none.
        cluster: None for a machine.
        lock: None where nobody is asked.
    """

    member: str
    access: Access
    cluster: Cluster | None
    lock: Lock | None

    @property
    def key(self) -> str:
        """The same for all who mean the same one."""
        if self.lock is not None:
            return self.lock.key
        assert self.cluster is not None, "a machine is nothing without its lock file"
        return str(self.cluster.credentials.configuration.host)


class SharedCluster:
    """One entry of the block `clusters`, of the kind `existing`, `pool` or `machine`.

    Args:
        root: where relative paths of the configuration begin.

    Raises:
        ConfigurationError: nobody says how to reach it.
    """

    def __init__(self, name: str, wanted: contract.Cluster, root: Path) -> None:
        self.name = name
        self.wanted = wanted
        self._candidates = _candidates(name, wanted, root)
        self._had: Candidate | None = None
        self.lease: Lease | None = None

    @property
    def order(self) -> tuple[bool, list[str]]:
        """In which order runs take what they need, so that no two have what the other waits for. Choice comes last."""
        return self.wanted.pool is not None, sorted(candidate.key for candidate in self._candidates)

    @property
    def key(self) -> str:
        """See `Candidate`."""
        return self._candidate.key

    @property
    def title(self) -> str:
        """What messages call it."""
        lock = self._candidate.lock
        return f"the lease of {lock.label}" if lock is not None else "the cluster, without a lease,"

    @property
    def chosen(self) -> ClusterChosen:
        """What the journal keeps of it."""
        return ClusterChosen(self.name, self._candidate.member, *dataclasses.astuple(self._candidate.access))

    def take(
        self, claim: Claim, taken: Collection[str], before: ClusterChosen | None, say: Callable[[str], object]
    ) -> None:
        """Make it the run's.

        Args:
            taken: the keys of what the run has already. An existing one may be that; one of a pool is another one.
            before: what the run had before it was resumed.
            say: told for whom we wait.

        Raises:
            StepError: it could not be had.
        """
        candidates = self._candidates
        if self.wanted.pool is not None:
            candidates = [candidate for candidate in candidates if candidate.key not in taken]
            if before is not None:
                candidates = [candidate for candidate in candidates if candidate.member == before.member] or candidates
        if not candidates:
            raise ConfigurationError(f"clusters.{self.name}: the other clusters of this run have all of its pool")
        locks = [candidate.lock for candidate in candidates if candidate.lock is not None]
        if not locks or candidates[0].key in taken:
            self._had = candidates[0]
            return
        self.lease = take(locks, claim, wait=self.wanted.lease.wait, say=say)
        self._had = next(candidate for candidate in candidates if candidate.lock is self.lease.lock)

    @property
    def _candidate(self) -> Candidate:
        assert self._had is not None, "it was taken"
        return self._had

    def release(self) -> None:
        """Let others have it."""
        if self.lease is not None:
            self.lease.release()
        for candidate in self._candidates:
            if candidate.cluster is not None:
                candidate.cluster.close()

    @property
    def comparison(self) -> Comparison | None:
        """What holds it against how it was found, where that is wanted."""
        cluster = self._candidate.cluster
        return Comparison(self.name, cluster) if self.wanted.compare and cluster is not None else None


def access_of(existing: contract.Existing, root: Path) -> Access:
    """Return how a cluster is reached."""
    file = existing.kubeconfig and str(root / environ.expanded(existing.kubeconfig))
    return Access(file, existing.context, existing.namespace)


def _candidates(name: str, wanted: contract.Cluster, root: Path) -> list[Candidate]:
    if wanted.machine is not None:
        path = root / environ.expanded(wanted.machine.lock_file)
        return [Candidate("", Access(), None, LockFile(path, name))]
    members: Sequence[contract.Existing] = wanted.pool or [wanted.existing or contract.Existing()]
    found = []
    for member in members:
        title = member.name if isinstance(member, contract.Member) else ""
        access = access_of(member, root)
        cluster = Cluster(access, label=f"{title} (of the pool {name})" if title else name)
        lease = wanted.lease
        lock = LeaseObject(cluster, lease.name, lease.namespace) if lease.enabled else None
        found.append(Candidate(title, access, cluster, lock))
    return found
