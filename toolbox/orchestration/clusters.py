"""The clusters of a run: `clusters.access("sut")` is how one is reached; see docs/clusters.md.

They are the run's from before its first phase until after its last, whatever ends it. Where a lease is lost the run
ends: the cluster is another's then, and not even a cleanup may touch it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from toolbox.config.configuration import Configuration
from toolbox.config.contracts import clusters as contract
from toolbox.kubernetes.leases import leases
from toolbox.kubernetes.leases.leases import Claim
from toolbox.model.clusters import Access
from toolbox.model.errors import ConfigurationError, Interrupted, StepError
from toolbox.model.events import LeaseAwaited, LeaseLost, Note, StepKind
from toolbox.model.nearest import did_you_mean
from toolbox.model.verdicts import Cause, Verdict
from toolbox.orchestration import run, session
from toolbox.orchestration.created_clusters import CreatedCluster
from toolbox.orchestration.session import Session
from toolbox.orchestration.shared_clusters import SharedCluster, access_of
from toolbox.runs import steps
from toolbox.runs.run_state import ClusterState, RunState
from toolbox.runs.steps import Step
from toolbox.system import cancellation, extras, signals
from toolbox.system.cancellation import CancelScope

BLOCK: Final = "clusters"
_ACQUIRE: Final = "acquire_clusters"
_RELEASE: Final = "release_clusters"
_LEFT_ALONE: Final = "the run does not touch it any more; `project resume` waits for it, continues and cleans up"


def access(name: str) -> Access:
    """Return how a cluster of the run is reached.

    Args:
        name: in the block `clusters`.

    Raises:
        ConfigurationError: the run has no such cluster.
    """
    found = session.current().clusters
    if name not in found:
        raise ConfigurationError(f"this run has no cluster `{name}`: {did_you_mean(name, found, label='it has')}")
    return found[name]


def arguments(name: str) -> dict[str, str | None]:
    """Return how a cluster of the run is reached, as toolbox commands take it: `kubeconfig` and `context`."""
    found = access(name)
    return {"kubeconfig": found.kubeconfig, "context": found.context}


def known(configuration: Configuration) -> dict[str, Access | None]:
    """Return how the clusters are reached that a run will have; None where that is known only once it has them.

    Known beforehand are the existing ones. A machine is no cluster.
    """
    root = configuration.root
    return {
        name: None if cluster.existing is None else access_of(cluster.existing, root)
        for name, cluster in _wanted(configuration).items()
        if cluster.machine is None
    }


class Reservation:
    """What a run has of clusters, from `acquire` to `release`.

    Raises:
        ConfigurationError: it is not known how to reach one of them, or the client is not installed.
    """

    def __init__(self, configuration: Configuration, project: str) -> None:
        self._project = project
        self._wanted = _wanted(configuration)
        if (first := next((name for name, each in self._wanted.items() if each.machine is None), None)) is not None:
            extras.require("kubernetes", f"the cluster `{first}`")
        root = configuration.root
        shared = [SharedCluster(name, each, root) for name, each in self._wanted.items() if each.create is None]
        self._shared = sorted(shared, key=lambda cluster: cluster.order)
        self._created: list[CreatedCluster] = []
        self._states: dict[str, ClusterState] = {}
        self._notes: Path | None = None
        self._has_all = False
        self._loss = ""
        self._scope: CancelScope | None = None

    @property
    def is_ours(self) -> bool:
        """Whether the run may touch them."""
        return self._has_all and not self._loss

    def marks(self, directory: Path) -> list[Path]:
        """Return the steps of a run whose processes may be clusters, which last until they are removed."""
        states = self._states | {cluster.name: cluster.state for cluster in self._created}
        made = [state.planned for state in states.values() if state.is_made]
        return [directory / planned.step for planned in made if planned is not None]

    def recall(self, past: RunState) -> None:
        """Take up what the run had before it was resumed."""
        self._states = dict(past.clusters)

    def acquire(self, work: Session, top: Step) -> None:
        """Wait for them, and make them.

        Raises:
            StepError: one of them cannot be had.
        """
        if self._wanted:
            for name, wanted in self._wanted.items():
                state = self._states.setdefault(name, ClusterState(name))
                if state.chosen is not None:
                    work.clusters = {**work.clusters, name: state.chosen.access}
                if wanted.create is not None:
                    self._created.append(CreatedCluster(wanted.create, top, state))
            with (
                cancellation.opened_by_process() as scope,
                steps.opened(_ACQUIRE, kind=StepKind.GROUP) as step,
                signals.exposed(),
                self.guarding(scope),
            ):
                self._notes = step.directory
                self._share(work, step)
                for cluster in self._created:
                    cluster.make()
                    work.clusters = {**work.clusters, cluster.name: cluster.access}
        self._has_all = True

    @contextmanager
    def guarding(self, scope: CancelScope) -> Iterator[None]:
        """End the body when a lease is lost, as an error of the infrastructure.

        Args:
            scope: of what runs in it.
        """
        self._scope = scope
        try:
            self._check()
            yield
        except BaseException as error:
            if self._loss and not isinstance(error, Interrupted):
                raise self._lost() from error
            raise
        else:
            self._check()
        finally:
            self._scope = None

    def release(self, *, compare: bool) -> list[BaseException]:
        """Remove what was made, let others have what is theirs too, and return what went wrong with that.

        Args:
            compare: whether the run has cleaned up, so that they have to be as they were.
        """
        errors: list[BaseException] = []
        try:
            self._end(compare=compare and self.is_ours)
        except BaseException as error:  # noqa: BLE001  # it becomes the end of the run
            errors.append(error)
        for cluster in self._shared:
            cluster.release()
        return errors

    def _share(self, work: Session, step: Step) -> None:
        name, taken = step.recorder.root.name, set[str]()
        for cluster in self._shared:
            lease = cluster.wanted.lease
            claim = Claim(name, leases.me(), lease.purpose or self._project, name, lease.ttl)
            before = self._states[cluster.name].chosen
            cluster.take(claim, taken, before, partial(_say, step, cluster.name))
            signals.check()  # one that came while the lease was written
            taken.add(cluster.key)
            if cluster.lease is not None:
                cluster.lease.start(partial(self._lose, step, cluster))
            step.recorder.record(cluster.chosen)
            step.recorder.record(Note(step.identity, f"{cluster.name}: {cluster.title} was acquired"))
            if cluster.wanted.machine is None:
                work.clusters = {**work.clusters, cluster.name: cluster.chosen.access}
            if (comparison := cluster.comparison) is not None:
                comparison.note(step.directory)

    def _end(self, *, compare: bool) -> None:
        compared = [found for cluster in self._shared if compare and (found := cluster.comparison) is not None]
        removed = [cluster for cluster in reversed(self._created) if cluster.is_to_end]
        if compared or removed:
            with steps.opened(_RELEASE, kind=StepKind.GROUP) as step:
                noted_in = self._notes or step.directory
                judged = [partial(comparison.judge, noted_in, step.directory) for comparison in compared]
                run.run_all(*judged, *(cluster.end for cluster in removed))

    def _lose(self, step: Step, cluster: SharedCluster) -> None:
        """Learn, in the thread of the heartbeats, that a cluster is another's now."""
        assert cluster.lease is not None, "it has lost it"
        self._loss = cluster.lease.loss
        try:
            step.recorder.record(LeaseLost(cluster.name, self._loss))
            step.recorder.record(Note(step.identity, self._loss))
        finally:
            if (scope := self._scope) is not None:
                scope.cancel(self._loss)

    def _check(self) -> None:
        if self._loss:
            raise self._lost()

    def _lost(self) -> StepError:
        return StepError(f"{self._loss}\n{_LEFT_ALONE}", verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)


def _say(step: Step, name: str, text: str) -> None:
    step.recorder.record(LeaseAwaited(name, text))
    step.recorder.record(Note(step.identity, text))


def _wanted(configuration: Configuration) -> dict[str, contract.Cluster]:
    block = configuration.block(BLOCK, contract.Contract).root
    return {name: cluster for name, cluster in block.items() if cluster is not None and cluster.kind is not None}
