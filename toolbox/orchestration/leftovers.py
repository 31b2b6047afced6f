"""Finds remote resources that runs and commands have left, and deletes them: `resources list` and `resources reap`.

A resource is found in the ledgers of this user, or by its labels on the remote side, which a project describes. The
resources of a run that is being executed on this machine are never deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path

from toolbox.config.configuration import Configuration
from toolbox.ground.extensions.protocols import OwningTarget
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import InfrastructureError, ToolboxError, describe
from toolbox.ground.model.resources import OpenResource
from toolbox.ground.model.text import duration
from toolbox.ground.system import places
from toolbox.ground.system.redaction import Redactor
from toolbox.matrix import targets
from toolbox.orchestration import cluster_connections, clusters, remote_resources, session
from toolbox.orchestration.remote_resources import DeletionFailed, Failure
from toolbox.records.runs import journal, layout, ledger, run_reader, steps, summary
from toolbox.records.runs.journal import Journal, RunInUse
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.run_state import State
from toolbox.records.runs.steps import Step

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A remote resource that may exist.

    Args:
        run: the directory of the run whose ledger contains the resource; None if no ledger of a run contains it.
        is_running: whether the run to which the resource belongs is being executed on this machine.
        is_paused: whether the run waits for its next step, which needs the resource.
        is_on_ledger: whether a ledger contains the resource; otherwise its labels were found.
    """

    entry: OpenResource
    run: Path | None = None
    is_running: bool = False
    is_on_ledger: bool = True
    is_paused: bool = False

    def reason_to_keep(self, older_than: float | None, now: datetime) -> str:
        """Return why `reap` keeps the resource; empty if `reap` deletes it.

        Args:
            older_than: the age in seconds from which resources are deleted; None for the usual rules.
        """
        entry = self.entry
        if self.is_running:
            return "its run is being executed"
        if older_than is not None:
            is_older = now - entry.planned >= timedelta(seconds=older_than)
            return "" if is_older else f"it is not older than {duration(older_than, digits=0)}"
        if entry.is_kept:
            return "it was created with `keep`; --older_than deletes it"
        if (self.run is not None and not self.is_paused) or entry.expires <= now:
            return ""
        reason = "its run waits for its next step, and " if self.is_paused else ""
        return f"{reason}it expires in {duration((entry.expires - now).total_seconds(), digits=0)}"


@dataclass(slots=True)
class Search:
    """The remote resources that may exist.

    Args:
        faults: what could not be searched, and damaged lines of ledgers.
        has_labels: whether resources were also searched by their labels.
    """

    leftovers: list[Leftover] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    has_labels: bool = False

    def add_ledgers(self) -> None:
        """Add the resources on all ledgers of this user."""
        for run in ledger.runs():
            if run.is_dir():
                with self._reporting(f"the ledger of {run}"):
                    self._add(RunDirectory(run).ledger, run, is_running=journal.is_locked(run))
            else:
                hint = f"remove {ledger.pointer(run)} when these resources no longer exist"
                self.faults.append(f"{run} no longer exists, but had remote resources: {hint}")
        with self._reporting("the ledger of this user"):
            self._add(ledger.of_user().file, None)

    def add_labelled(self, configuration: Configuration) -> None:
        """Add the resources that the targets and the existing clusters of a project find by labels."""
        self.has_labels = True
        known = {leftover.entry.resource.key for leftover in self.leftovers if leftover.entry.is_sealed}
        running = {run.name for run in [*ledger.runs(), *layout.runs(places.artifacts())] if journal.is_locked(run)}
        for label, find in _finders(configuration):
            with self._reporting(label):
                for entry in find():
                    key = entry.resource.key
                    if key not in known:
                        known.add(key)
                        self.leftovers = [each for each in self.leftovers if each.entry.resource.key != key]
                        is_running = entry.owner.run in running
                        self.leftovers.append(Leftover(entry, is_running=is_running, is_on_ledger=False))

    def _add(self, file: Path, run: Path | None, *, is_running: bool = False) -> None:
        contents = ledger.load(file)
        if file.exists() and not ledger.is_private(file):  # its commands would be executed
            raise InfrastructureError(f"{file} belongs to another user, or other users can write it")
        is_paused = run is not None and run_reader.fold(journal.read(run)).state is State.PAUSED
        self.leftovers += [Leftover(entry, run, is_running, is_paused=is_paused) for entry in contents.resources]
        advice = "this line is ignored: remove the line when its resource no longer exists"
        self.faults += [f"{file.parent}/{damage} ({advice})" for damage in contents.damage]

    @contextmanager
    def _reporting(self, label: str) -> Iterator[None]:
        """Add an expected error of the body to the faults."""
        try:
            yield
        except (ToolboxError, OSError) as error:
            self.faults.append(f"{label} could not be searched: {describe(error)}")


def labelled(configuration: Configuration) -> list[OpenResource]:
    """Return the resources, of any owner, that the targets and the existing clusters of a project find by labels.

    If a target or a cluster does not answer, the failure is logged.
    """
    search = Search()
    search.add_labelled(configuration)
    for fault in search.faults:
        log.warning("%s", fault)
    return [leftover.entry for leftover in search.leftovers]


class Outcome(StrEnum):
    """What `reap` did with a resource, or would do."""

    DELETED = "deleted"
    WOULD_DELETE = "would delete"
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Reaped:
    """What `reap` did with a resource, or would do, and why."""

    leftover: Leftover
    outcome: Outcome
    reason: str = ""


def reap(leftovers: Iterable[Leftover], older_than: float | None, redactor: Redactor) -> list[Reaped]:
    """Delete the resources that `Leftover.reason_to_keep` does not keep, and return what was done with each.

    Args:
        older_than: the age in seconds from which resources are deleted; None for the usual rules.
    """
    now = datetime.now(UTC)
    reaped: list[Reaped] = []
    chosen: dict[Path | None, list[Leftover]] = {run: [] for run in [*ledger.runs(), None]}
    for leftover in leftovers:
        if reason := leftover.reason_to_keep(older_than, now):
            reaped.append(Reaped(leftover, Outcome.KEPT, reason))
        else:
            chosen.setdefault(leftover.run, []).append(leftover)
    for run, group in chosen.items():
        if run is not None and run.is_dir():
            reaped += _reap_run(run, group, redactor)
        elif group:
            reaped += _reap_outside_runs(group, redactor)
    return reaped


def preview(leftovers: Iterable[Leftover], older_than: float | None) -> list[Reaped]:
    """Return what `reap` would do with each resource."""
    now = datetime.now(UTC)
    return [_preview(leftover, leftover.reason_to_keep(older_than, now)) for leftover in leftovers]


def _preview(leftover: Leftover, reason_to_keep: str) -> Reaped:
    if reason_to_keep:
        return Reaped(leftover, Outcome.KEPT, reason_to_keep)
    if not leftover.entry.is_sealed:
        return Reaped(leftover, Outcome.FAILED, remote_resources.UNSEALED)
    return Reaped(leftover, Outcome.WOULD_DELETE)


def _reap_run(run: Path, group: Sequence[Leftover], redactor: Redactor) -> list[Reaped]:
    """Delete resources on the ledger of a run. An error, such as a full disk, does not affect other runs."""
    try:
        return _reap_ended_run(run, group, redactor)
    except (ToolboxError, OSError) as error:
        message = f"{run} cannot be read or written: {describe(error)}"
        try:
            contents = ledger.load(RunDirectory(run).ledger)
        except InfrastructureError:
            return [Reaped(leftover, Outcome.FAILED, message) for leftover in group]
        log.warning("%s", message)
        remaining = [leftover for leftover in group if contents.find(leftover.entry.resource) is not None]
        return _results(group, [Failure(leftover.entry, message) for leftover in remaining], ())


def _reap_ended_run(run: Path, group: Sequence[Leftover], redactor: Redactor) -> list[Reaped]:
    """Delete resources on the ledger of a run, while the journal is locked so that the run is not resumed."""
    try:
        opened = Journal(run)
    except RunInUse as error:
        return [Reaped(leftover, Outcome.KEPT, describe(error)) for leftover in group]
    with opened:
        contents = ledger.load(RunDirectory(run).ledger)
        if not contents.has_sealed and not contents.damage:
            ledger.remove_pointer(run)
        entries = [entry for leftover in group if (entry := contents.find(leftover.entry.resource)) is not None]
        if not entries:  # another process has deleted the resources
            return [Reaped(leftover, Outcome.DELETED) for leftover in group]
        past = run_reader.fold(journal.read(run), run)
        layout.reserve(run, past.directories)
        resources = ledger.of_run(run, past.project, redactor)
        top = Step(run, Recorder(run, redactor, journal=opened, past=past, ledger=resources), past.project)
        try:
            with steps.entered(top):
                remote_resources.delete_as_step(top, entries)
            failures: Sequence[Failure] = ()
        except DeletionFailed as error:
            failures = error.failures
        awaited = remote_resources.awaited(resources, entries)
    summary.refresh(run)
    return _results(group, failures, awaited)


def _reap_outside_runs(group: Sequence[Leftover], redactor: Redactor) -> list[Reaped]:
    """Delete resources on the ledger of the user, and resources on no ledger."""
    entries = [leftover.entry for leftover in group]
    with steps.entered(session.step_outside_run(redactor=redactor)) as top:
        failures = remote_resources.delete(top.recorder.ledger, entries)
        return _results(group, failures, remote_resources.awaited(top.recorder.ledger, entries))


def _results(group: Iterable[Leftover], failures: Iterable[Failure], awaited: Iterable[OpenResource]) -> list[Reaped]:
    """Return what was done with each resource.

    Args:
        awaited: the resources that do not exist, but may still be created.
    """
    failed = {failure.entry.resource.key: (Outcome.FAILED, failure.message) for failure in failures}
    kept = {
        entry.resource.key: (Outcome.KEPT, f"it {entry.state}; {remote_resources.reap_later(entry)}")
        for entry in awaited
    }
    results = {**kept, **failed}
    return [Reaped(each, *results.get(each.entry.resource.key, (Outcome.DELETED, ""))) for each in group]


def _finders(configuration: Configuration) -> Iterator[tuple[str, Callable[[], Iterable[OpenResource]]]]:
    """Yield a label and a function for each target and each existing cluster whose resources can be found."""
    access = clusters.known_access(configuration)
    for name, target in targets.read(configuration).items():
        if isinstance(target.description, OwningTarget):
            yield f"the target `{name}`", partial(target.description.resources, name, access)
    for name, cluster in access.items():
        if cluster is not None:
            yield f"the cluster `{name}`", partial(_find_in_cluster, name, cluster)


def _find_in_cluster(name: str, access: Access) -> list[OpenResource]:
    with closing(cluster_connections.connect(access, name)) as connection:
        return list(connection.owned_resources())
