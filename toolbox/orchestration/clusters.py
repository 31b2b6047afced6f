"""The clusters of a run: `clusters.access("sut")` tells how to reach the cluster `sut`; see docs/clusters.md.

A run acquires its clusters before its first phase, and releases them after its last phase, however the run ends. If the
run loses the lease of a cluster, the run ends without a cleanup, because another run may be using the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from toolbox.config.configuration import Configuration
from toolbox.config.contracts import clusters as contract
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError, Interrupted, StepError
from toolbox.ground.model.events import LeaseAwaited, LeaseLost, Note, StepKind
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import cancellation, ci_job, signals
from toolbox.ground.system.cancellation import CancelScope
from toolbox.orchestration import cluster_connections, run, session
from toolbox.orchestration.created_clusters import CreatedCluster
from toolbox.orchestration.session import Session
from toolbox.orchestration.shared_clusters import SharedCluster, access_of
from toolbox.records.leases import leases
from toolbox.records.leases.leases import Claim
from toolbox.records.runs import steps
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.run_state import ClusterState
from toolbox.records.runs.steps import Step

BLOCK: Final = "clusters"
_ACQUIRE: Final = "acquire_clusters"
_RELEASE: Final = "release_clusters"
_AFTER_LOSS: Final = (
    "the run no longer uses the cluster; `project resume` waits for its lease, continues the run and cleans up"
)


def access(name: str) -> Access:
    """Return how to reach the cluster of this name in the block `clusters`.

    Raises:
        ConfigurationError: the run has no cluster of this name.
    """
    available = session.current().clusters
    if name not in available:
        raise ConfigurationError(f"this run has no cluster `{name}`: {did_you_mean(name, available, label='clusters')}")
    return available[name]


def arguments(name: str) -> dict[str, str | None]:
    """Return the arguments `kubeconfig` and `context` with which toolbox commands reach a cluster of the run."""
    cluster = access(name)
    return {"kubeconfig": cluster.kubeconfig, "context": cluster.context}


def known_access(configuration: Configuration) -> dict[str, Access | None]:
    """Return how to reach each cluster of the configuration, as far as this is known before the run.

    Only `existing` clusters are known before the run: the value of other clusters is None. Machines are left out.
    """
    root = configuration.root
    return {
        name: None if cluster.existing is None else access_of(cluster.existing, root)
        for name, cluster in _configured_clusters(configuration).items()
        if cluster.machine is None
    }


class Reservation:
    """The clusters and machines of a run, from `acquire` to `release`.

    Raises:
        ConfigurationError: the configuration does not tell how to reach a cluster, or the Kubernetes client is missing.
    """

    def __init__(self, configuration: Configuration, project: str) -> None:
        self._project = project
        self._settings = _configured_clusters(configuration)
        if (first := next((name for name, entry in self._settings.items() if entry.machine is None), None)) is not None:
            cluster_connections.require(f"the cluster `{first}`")
        root = configuration.root
        self._to_create = {name: entry.create for name, entry in self._settings.items() if entry.create is not None}
        shared = [SharedCluster(name, entry, root) for name, entry in self._settings.items() if entry.create is None]
        self._shared = sorted(shared, key=lambda cluster: cluster.order)
        self._states: dict[str, ClusterState] = {}
        self._snapshot_directory: Path | None = None
        self._is_complete = False
        self._loss = ""
        self._lost_servers: set[str] = set()
        self._scope: CancelScope | None = None

    @property
    def is_held(self) -> bool:
        """Whether the run has acquired all clusters, and has not lost a lease."""
        return self._is_complete and not self._loss

    @property
    def lost_servers(self) -> frozenset[str]:
        """The API servers of the clusters whose lease the run has lost, which the run must not use any more."""
        return frozenset(self._lost_servers)

    def restore(self, recorder: Recorder) -> None:
        """Restore the clusters that the run had before it was resumed. Call this before `acquire`."""
        self._states = dict(recorder.past.clusters)

    def acquire(self, work: Session, top: Step) -> None:
        """Take the leases of the shared clusters, waiting if necessary, and create the other clusters.

        Args:
            work: receives how to reach each cluster.
            top: the top step of the run.

        Raises:
            StepError: a cluster could not be acquired or created.
        """
        if self._settings:
            for name in self._settings:
                state = self._states.setdefault(name, ClusterState(name))
                if state.chosen is not None:
                    work.clusters = {**work.clusters, name: state.chosen.access}
            with (
                cancellation.opened_by_process() as scope,
                steps.opened(_ACQUIRE, kind=StepKind.GROUP) as step,
                signals.exposed(),
                self.guarding(scope),
            ):
                self._snapshot_directory = step.directory
                self._acquire_shared(work, step)
                for name, settings in self._to_create.items():
                    cluster = CreatedCluster(name, settings, top.recorder)
                    cluster.create()
                    work.clusters = {**work.clusters, cluster.name: cluster.access}
        self._is_complete = True

    @contextmanager
    def guarding(self, scope: CancelScope) -> Iterator[None]:
        """Cancel `scope`, the cancel scope of the body, when a lease is lost, and raise an infrastructure error."""
        self._scope = scope
        try:
            self._check()
            yield
        except BaseException as error:
            if self._loss and not isinstance(error, Interrupted):
                raise self._loss_error() from error
            raise
        else:
            self._check()
        finally:
            self._scope = None

    def release(self, *, compare: bool) -> list[BaseException]:
        """Release the leases of the shared clusters, and return the errors.

        Args:
            compare: check that the shared clusters are as they were before the run. Only a run with a cleanup can pass
                this comparison.
        """
        errors: list[BaseException] = []
        try:
            if compare and self.is_held:
                self._compare()
        except BaseException as error:  # noqa: BLE001  # the caller reports the error
            errors.append(error)
        for cluster in self._shared:
            cluster.release()
        return errors

    def suspend(self) -> None:
        """Keep the leases of the shared clusters for the next step of the run."""
        for cluster in self._shared:
            cluster.suspend()

    @property
    def created(self) -> list[str]:
        """The names of the clusters that a command of the configuration creates."""
        return list(self._to_create)

    @property
    def has_only_new_clusters(self) -> bool:
        """Whether the run has clusters, and creates all of them."""
        return bool(self._to_create) and not self._shared

    def _acquire_shared(self, work: Session, step: Step) -> None:
        name, acquired_keys = step.recorder.root.name, set[str]()
        for cluster in self._shared:
            lease = cluster.settings.lease
            purpose = f"{self._project}: {lease.purpose}" if lease.purpose else self._project
            # The address of the CI job tells other people more than the user and the host of its runner.
            claim = Claim(name, ci_job.url() or leases.current_user(), purpose, name, lease.ttl)
            earlier_choice = self._states[cluster.name].chosen
            cluster.acquire(claim, acquired_keys, earlier_choice, partial(_record_wait, step, cluster.name))
            signals.check()  # react to a signal that `acquire` held back while it wrote the lease
            acquired_keys.add(cluster.key)
            if cluster.lease is not None:
                cluster.lease.start(partial(self._on_lease_lost, step, cluster))
            step.recorder.record(cluster.chosen)
            step.recorder.record(Note(step.identity, f"{cluster.name}: {cluster.title} was acquired"))
            if cluster.settings.machine is None:
                work.clusters = {**work.clusters, cluster.name: cluster.chosen.access}
            if (connection := cluster.compared) is not None:
                connection.write_snapshot(cluster.name, step.directory)

    def _compare(self) -> None:
        compared = [(each.name, connection) for each in self._shared if (connection := each.compared) is not None]
        if compared:
            with steps.opened(_RELEASE, kind=StepKind.GROUP) as step:
                before_directory = self._snapshot_directory or step.directory
                run.run_all(*(partial(each.compare, name, before_directory, step.directory) for name, each in compared))

    def _on_lease_lost(self, step: Step, cluster: SharedCluster) -> None:
        """Record that a lease is lost, and cancel the current scope. Called in the thread of the heartbeats."""
        assert cluster.lease is not None, "only a cluster with a lease can lose its lease"
        self._loss = cluster.lease.loss
        self._lost_servers.add(cluster.server)
        try:
            step.recorder.record(LeaseLost(cluster.name, self._loss))
            step.recorder.record(Note(step.identity, self._loss))
        finally:
            if (scope := self._scope) is not None:
                scope.cancel(self._loss)

    def _check(self) -> None:
        if self._loss:
            raise self._loss_error()

    def _loss_error(self) -> StepError:
        return StepError(f"{self._loss}\n{_AFTER_LOSS}", verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)


def _record_wait(step: Step, name: str, text: str) -> None:
    step.recorder.record(LeaseAwaited(name, text))
    step.recorder.record(Note(step.identity, text))


def _configured_clusters(configuration: Configuration) -> dict[str, contract.Cluster]:
    block = configuration.block(BLOCK, contract.Contract).root
    return {name: cluster for name, cluster in block.items() if cluster is not None and cluster.kind is not None}
