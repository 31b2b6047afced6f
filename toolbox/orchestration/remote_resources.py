"""Deletes remote resources on a ledger: at the end of a run, before a resumed run creates one again, and for `reap`.

The resources are deleted in parallel. A deletion that fails is repeated, and its failure is recorded on the ledger.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from toolbox.ground.extensions import loading
from toolbox.ground.extensions.protocols import RESOURCES
from toolbox.ground.model import backoff
from toolbox.ground.model.errors import StepError, ToolboxError, describe, outcome_of
from toolbox.ground.model.events import Note, StepKind
from toolbox.ground.model.resources import OpenResource, ResourceLedger
from toolbox.ground.model.text import counted, first_of, truncate
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import cancellation, environ, signals
from toolbox.ground.system.cancellation import CancelScope
from toolbox.records.runs import journal, run_reader, steps
from toolbox.records.runs.layout import DELETION
from toolbox.records.runs.steps import Step

log = logging.getLogger(__name__)

CLUSTER: Final = "cluster"
_MAX_THREADS: Final = 16
_MAX_TRIES: Final = 3
_FIRST_PAUSE: Final = 2.0
_LONGEST_PAUSE: Final = 10.0
_WAIT_SECONDS: Final = 10.0  # most requests are carried out within this time, even if their process was killed
_MAX_LINES: Final = 3
_LONGEST_LINE: Final = 600
UNSEALED: Final = "its entry was written by another user or on another machine, and is not executed"


@dataclass(frozen=True, slots=True)
class Failure:
    """A deletion that failed, although it was repeated."""

    entry: OpenResource
    message: str

    def __str__(self) -> str:
        """Return what failed, why, and what a person can do."""
        resource = self.entry.resource
        return f"{resource.kind} {resource.name}: {self.message.partition(chr(10))[0]}; by hand: {resource.command}"


class DeletionFailed(StepError):
    """Remote resources could not be deleted.

    Args:
        count: the number of resources that should have been deleted.
    """

    def __init__(self, failures: Sequence[Failure], count: int) -> None:
        self.failures = tuple(failures)
        is_sealed = any(failure.entry.is_sealed for failure in failures)
        hint = "try again with `{} resources reap`" if is_sealed else "find them with `{} resources list PROJECT`"
        resources = counted(count, "remote resource")
        heading = f"of {resources}, {len(failures)} could not be deleted: {hint.format(environ.program())}"
        lines = first_of([truncate(str(failure), _LONGEST_LINE) for failure in failures], _MAX_LINES)
        super().__init__("\n".join([heading, *lines]), verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)


class NotDeleted(StepError):
    """Remote resources were not deleted, because the third signal has ended the cleanup of the run.

    Args:
        count: the number of resources that remain.
    """

    def __init__(self, count: int) -> None:
        remain = f"{counted(count, 'remote resource')} may still exist, because a signal ended the cleanup"
        hint = f"`{environ.program()} resources reap` or the end of a resumed run deletes them"
        super().__init__(f"{remain}: {hint}", verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)


def delete_at_end(
    top: Step,
    find_labelled: Callable[[], Iterable[OpenResource]] = tuple,
    *,
    lost_servers: Collection[str] = (),
) -> None:
    """Delete the remote resources of the run, except kept ones, as a step of the run.

    Raises:
        DeletionFailed: a deletion failed.
    """
    if entries := to_delete(top, find_labelled, lost_servers=lost_servers):
        delete_as_step(top, entries)


def to_delete(
    top: Step,
    find_labelled: Callable[[], Iterable[OpenResource]] = tuple,
    *,
    lost_servers: Collection[str] = (),
) -> list[OpenResource]:
    """Return the entries of the ledger that are to be deleted at the end of the run.

    Args:
        top: the top step of the run.
        find_labelled: searches for resources by their labels. The run needs the search to delete the resources of an
            earlier session on another machine, because it does not execute the ledger of another machine.
        lost_servers: the API servers of clusters whose lease the run has lost. Another run may be using them.
    """
    entries = [entry for entry in top.recorder.ledger.open_resources() if not entry.is_kept]
    if not all(entry.is_sealed for entry in entries):
        labelled = _labelled(top.recorder.ledger, find_labelled)
        entries = [entry if entry.is_sealed else labelled.get(entry.resource.key, entry) for entry in entries]
    entries = [entry for entry in entries if _text(entry, "server") not in lost_servers]
    if any(map(_waits_for_attempts, entries)) and _has_open_attempts(top):
        entries = [entry for entry in entries if not _waits_for_attempts(entry)]
    return entries


def _labelled(
    ledger: ResourceLedger, find: Callable[[], Iterable[OpenResource]]
) -> dict[tuple[str, str], OpenResource]:
    """Return the resources whose labels name the owner of a ledger."""
    labels = ledger.owner.labels()
    try:
        with cancellation.entered(CancelScope()):  # not the scope of the run, which may be cancelled
            return {entry.resource.key: entry for entry in find() if entry.owner.labels() == labels}
    except Exception as error:  # noqa: BLE001  # the code of an extension may raise any error
        log.warning("resources of the run on another machine could not be searched: %s", describe(error))
        return {}


def delete_as_step(top: Step, entries: Sequence[OpenResource]) -> None:
    """Delete resources of a run as a step of the run. `top` is the current step.

    The step has a note for each resource that does not exist, but whose request may still be carried out.

    Raises:
        DeletionFailed: a deletion failed.
    """
    with ExitStack() as stack:
        try:
            step = stack.enter_context(steps.opened(DELETION, kind=StepKind.GROUP))
        except Exception:  # the step cannot be recorded, for example because the disk is full: delete all the same
            delete(top.recorder.ledger, entries)
            raise
        failures = delete(top.recorder.ledger, entries)
        for entry in awaited(top.recorder.ledger, entries):
            text = f"{entry.resource.kind} {entry.resource.name} {entry.state}: {reap_later(entry)}"
            top.recorder.record(Note(step.identity, text))
        if failures:
            raise DeletionFailed(failures, len(entries))


def awaited(ledger: ResourceLedger, entries: Sequence[OpenResource]) -> list[OpenResource]:
    """Return which of these resources do not exist, but may still be created by a request with an unknown outcome."""
    keys = {entry.resource.key for entry in entries}
    return [entry for entry in ledger.open_resources() if entry.is_absent and entry.resource.key in keys]


def reap_later(entry: OpenResource) -> str:
    """Return how a person can delete a resource that may still be created."""
    return f"use `{environ.program()} resources reap` after {entry.awaited_until:%H:%M} UTC to delete it"


def delete(ledger: ResourceLedger, entries: Sequence[OpenResource]) -> list[Failure]:
    """Delete resources in parallel, record the results on their ledger, and return the failures.

    If a created cluster is deleted, all resources on the ledger that are inside the cluster are deleted with it.
    """
    clusters = {_kubeconfig(entry): entry for entry in entries if entry.resource.kind == CLUSTER and entry.is_sealed}
    others = [entry for entry in (ledger.open_resources() if clusters else ()) if entry.resource.kind != CLUSTER]
    inside = [entry for entry in others if _kubeconfig(entry) in clusters]
    scope = CancelScope()  # not the scope of the run, which may be cancelled

    def work(entry: OpenResource) -> list[Failure]:
        with cancellation.entered(scope):
            message, existed = _delete(entry)
        together = [entry, *(each for each in inside if clusters[_kubeconfig(each)] is entry)]
        for each in together:
            if message:
                ledger.mark_failed(each.resource, message)
            elif existed is False:
                ledger.mark_absent(each.resource)
            else:
                ledger.mark_deleted(each.resource)
        return [Failure(each, message) for each in together if message and each.resource.key in keys]

    keys = {entry.resource.key for entry in entries}
    separate = [entry for entry in entries if entry.resource.kind == CLUSTER or _kubeconfig(entry) not in clusters]
    with signals.deferred(), ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="delete") as threads:
        try:
            futures = [threads.submit(contextvars.copy_context().run, work, entry) for entry in separate]
            _await(futures)
        except BaseException as error:
            scope.cancel(str(error))  # otherwise, the end of the block would wait for all deletions
            raise
        failures = [failure for future in futures for failure in future.result()]
    for tidy in {tidy for entry in entries if (tidy := _attribute(entry, "tidy")) is not None}:
        tidy(ledger)
    return failures


def _await(futures: Iterable[Future[list[Failure]]]) -> None:
    """Wait for all futures.

    Raises:
        Interrupted: a signal has arrived that ends the deletion.
    """
    pending = set(futures)
    while pending:
        _, pending = wait(pending, timeout=signals.WAIT_SECONDS)
        signals.check()


def _delete(entry: OpenResource) -> tuple[str, bool | None]:
    """Delete a resource, and return why this failed, and whether the resource existed; None if this is unknown.

    The reason is empty if the resource does not exist (any more).
    """
    resource = entry.resource
    if not entry.is_sealed:
        return UNSEALED, None
    for tries in range(_MAX_TRIES):
        cancellation.current().check()
        try:
            existed = _delete_once(entry)
        except Exception as error:  # the code of an extension may raise any error
            message = describe(error)
            if outcome_of(error)[1] in {Cause.CONFIGURATION, Cause.INTERNAL}:
                break  # the next try would fail as well
            if not isinstance(error, ToolboxError):
                log.debug("the deletion of %s failed", resource.name, exc_info=error)
        else:
            return "", existed
        if tries < _MAX_TRIES - 1:
            cancellation.current().sleep(backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE))
    return message or "the deletion failed without a message", None


def _delete_once(entry: OpenResource) -> bool | None:
    """Delete a resource, and return whether it existed. Try again if a recent request may create the resource late."""
    resource = entry.resource
    loaded = loading.parse(RESOURCES, {**resource.deletion, RESOURCES.key: resource.kind})
    existed = loaded.delete(entry.owner)
    seconds = _WAIT_SECONDS - (datetime.now(UTC) - entry.planned).total_seconds()
    if existed is False and not entry.is_created and 0 < seconds <= _WAIT_SECONDS:
        cancellation.current().sleep(seconds)
        return loaded.delete(entry.owner)
    return existed


def _kubeconfig(entry: OpenResource) -> str | None:
    return _text(entry, "kubeconfig")


def _text(entry: OpenResource, field: str) -> str | None:
    """Return a field of the deletion; None if it is not a text, which an entry of another user may contain."""
    value = entry.resource.deletion.get(field)
    return value if isinstance(value, str) else None


def _waits_for_attempts(entry: OpenResource) -> bool:
    return bool(_attribute(entry, "waits_for_attempts"))


def _attribute(entry: OpenResource, name: str) -> Any:
    """Return an optional attribute of a kind of resources; None if the kind does not have it."""
    try:
        return getattr(loading.load(RESOURCES, entry.resource.kind), name, None)
    except ValueError:
        return None  # `delete` reports that the kind is missing or broken


def _has_open_attempts(top: Step) -> bool:
    state = run_reader.fold(journal.read(top.directory))
    return bool(state.open_attempts or state.abandoned_attempts)
