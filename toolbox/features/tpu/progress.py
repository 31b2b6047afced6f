"""Computes the progress of a TPU from the states of its nodes and of its queued resource. Sends no requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from toolbox.features.tpu import api_errors
from toolbox.features.tpu.tpu_states import Fault, Node, Phase, QueuedResource
from toolbox.ground.model import accelerators, backoff
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.text import duration
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.system import cancellation

_GONE: Final = frozenset({Phase.LOST, Phase.DELETING})
_SUSPENDING: Final = "SUSPENDING"
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 15.0
_EXPIRED: Final = frozenset({"OK", "DEADLINE_EXCEEDED"})  # the codes of a request that waited for longer than allowed


class TpuLost(StepError):
    """The nodes were taken away, are broken, or were deleted by another user."""

    def __init__(self, message: str) -> None:
        super().__init__(message, cause=Cause.INFRASTRUCTURE)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a TPU until its nodes run.

    Args:
        phase: `WAITING`, `CREATING` or `UP`. Other phases are raised as errors.
        message: the state and its reason, for people.
        nodes: the nodes in the order of their slices, once all of them are `UP`.
    """

    phase: Phase
    message: str
    nodes: tuple[Node, ...] = ()

    @property
    def is_up(self) -> bool:
        """Whether all nodes run and are healthy."""
        return self.phase is Phase.UP


def of_nodes(nodes: Sequence[Node]) -> Progress:
    """Return the progress of a TPU whose nodes all exist.

    Raises:
        TpuLost: a node is lost, or is being deleted.
    """
    if lost := next((node for node in nodes if node.phase in _GONE), None):
        raise TpuLost(lost.message)
    if waiting := next((node for node in nodes if node.phase is not Phase.UP), None):
        return Progress(Phase.CREATING, waiting.message)
    for node in nodes:
        if len(node.endpoints) < (expected := _hosts(node)):
            text = f"the node {node.id} has the addresses of {len(node.endpoints)} of {expected} workers"
            return Progress(Phase.CREATING, text)
    return Progress(Phase.UP, f"{', '.join(node.id for node in nodes)}: READY", tuple(nodes))


def of_queued_resource(
    queued: QueuedResource, nodes: Sequence[Node | None], *, valid_until: float | None = None
) -> Progress:
    """Return the progress of a TPU that a queued resource creates.

    Args:
        nodes: the nodes in the order of their slices; None for each node that does not exist.
        valid_until: how many seconds the request may wait for capacity; None if it is unknown.

    Raises:
        CapacityError: there was no capacity in time.
        TpuLost: a node is lost, or the TPU is being deleted.
        TpuApiError: the request failed.
    """
    if queued.phase is Phase.FAILED:
        raise _failure(queued, valid_until)
    if queued.state == _SUSPENDING:
        # The next state tells whether the creation failed, for example without capacity, or the nodes were taken away.
        return Progress(Phase.CREATING, queued.message)
    if queued.phase in _GONE:
        raise TpuLost(queued.message)
    if queued.phase is not Phase.UP:
        return Progress(queued.phase, queued.message)
    existing = [node for node in nodes if node is not None]
    if len(existing) < len(nodes):
        return Progress(Phase.CREATING, f"{queued.message}: {len(existing)} of {len(nodes)} nodes exist")
    return of_nodes(existing)


def wait_up(look: Callable[[], Progress], *, timeout: float, report: Callable[[str], None]) -> Progress:
    """Wait until all nodes of a TPU run and are healthy. Their workers may still execute the startup script.

    Args:
        look: returns the progress of the TPU.
        report: called with the message of the progress when the message changes.

    Raises:
        StepError: the TPU does not come up, or not in time.
    """
    deadline = time.monotonic() + timeout
    tries, latest = 0, ""
    while True:
        progress = look()
        if progress.message != latest:
            report(progress.message)
            latest, tries = progress.message, 0
        if progress.is_up:
            return progress
        left = deadline - time.monotonic()
        if left <= 0:
            raise _timeout_error(progress, timeout)
        pause = backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)
        cancellation.current().sleep(min(left, pause))
        tries += 1


def _timeout_error(progress: Progress, seconds: float) -> StepError:
    """Return the error for a TPU that is not up in time. A TPU that waits for capacity has the cause `capacity`."""
    cause = Cause.CAPACITY if progress.phase is Phase.WAITING else Cause.TIMEOUT
    return StepError(f"the TPU is not up after {duration(seconds, digits=0)}: {progress.message}", cause=cause)


def _failure(queued: QueuedResource, valid_until: float | None) -> StepError:
    """Return the error for a failed queued resource. Without a reason, the request waited for too long."""
    action = f"{queued.name} failed"
    if queued.fault is not None and queued.fault.code not in _EXPIRED:
        return api_errors.error_of(queued.fault, action)
    limit = f" ({duration(valid_until, digits=0)})" if valid_until is not None else ""
    reason = f": {queued.fault.message}" if queued.fault is not None and queued.fault.message else ""
    message = f"there was no capacity while the request was valid{limit}{reason}"
    return api_errors.error_of(Fault("RESOURCE_EXHAUSTED", message), action)


def _hosts(node: Node) -> int:
    """Return the number of workers that a node must have; 1 if its type is unknown to this version."""
    try:
        return accelerators.parse(node.accelerator_type).hosts
    except ValueError:
        return 1
