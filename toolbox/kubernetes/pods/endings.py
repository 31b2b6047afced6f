"""How an attempt ended, from what its pods and its Job say: each cause by itself, none guessed from another.

The agent of a pod tells how its workload ended; that holds unless the system ended it. Where an agent could not tell,
the container, the pod and the Job say why. An attempt of several pods has ended when all of them have, or the first
one badly: the others cannot go on without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolbox.kubernetes.api import readiness
from toolbox.kubernetes.pods.views import Ended, JobView, PodView
from toolbox.model.workloads import EndedBy, WorkloadOutcome

_KILLED: Final = 137
_CANNOT_START: Final = ("StartError", "ContainerCannotRun", "RunContainerError")
_DEADLINE: Final = "DeadlineExceeded"
_TICK: Final = 1.0
_ABSENT: Final = ("not found", "references non-existent")
_MISCONFIGURED: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


def conclude(
    pods: Sequence[PodView], job: JobView | None, *, expected: int, is_cancelled: bool
) -> WorkloadOutcome | None:
    """Return how an attempt ended; None while it has not.

    Args:
        pods: by their index.
        job: None where it has not been seen yet.
        expected: how many pods it has.
        is_cancelled: whether we asked for its end.
    """
    outcomes = [outcome_of(pod, job, is_cancelled=is_cancelled) for pod in pods]
    ended = [outcome for outcome in outcomes if outcome is not None]
    bad = [(pod, outcome) for pod, outcome in zip(pods, outcomes, strict=True) if outcome and not _is_good(outcome)]
    if bad:
        pod, outcome = bad[0]
        where = f"host {pod.index}: " if expected > 1 and pod.index is not None and outcome.message else ""
        return dataclasses.replace(outcome, message=f"{where}{outcome.message}")
    return ended[0] if len(ended) >= expected else None


def untold(job: JobView, pods: Sequence[PodView], *, is_cancelled: bool, is_discarded: bool) -> WorkloadOutcome | None:
    """Return how an attempt ended whose pods do not say it, by its Job; None where that goes on.

    Args:
        is_discarded: whether we end the Job, since a pod was taken from it.
    """
    if job.reason == _DEADLINE or (is_by_deadline(pods, job) and not is_cancelled):
        return WorkloadOutcome(EndedBy.TIMEOUT, message=_DEADLINE_TEXT)
    if job.is_deleted:
        if is_cancelled:
            return WorkloadOutcome(EndedBy.CANCELLED)
        for pod in pods:
            if pod.disruption or (is_discarded and pod.is_deleted):
                return _evicted(pod)
        return WorkloadOutcome(EndedBy.EVICTED, message=f"its Job {job.name} was deleted, but not by Topgallant")
    if job.condition:
        text = f"its Job is {job.condition} ({job.reason}: {job.message}), and no pod says how it ended"
        return WorkloadOutcome(EndedBy.LOST, message=text)
    return None


def outcome_of(pod: PodView, job: JobView | None, *, is_cancelled: bool) -> WorkloadOutcome | None:
    """Return how the workload of a pod ended; None while it has not."""
    by_deadline = job is not None and _is_by_deadline(pod, job)
    if pod.ended is not None:
        return _by_container(pod, pod.ended, is_cancelled=is_cancelled, by_deadline=by_deadline)
    if pod.may_run or not (pod.disruption or (pod.is_deleted and not is_cancelled and not by_deadline)):
        return None
    return _evicted(pod)


def is_by_deadline(pods: Sequence[PodView], job: JobView | None) -> bool:
    """Tell whether the cluster has ended pods for the deadline of their Job: none takes their place."""
    return job is not None and (job.reason == _DEADLINE or any(_is_by_deadline(pod, job) for pod in pods))


def is_told(pods: Sequence[PodView], job: JobView | None) -> bool:
    """Tell whether it is known what pods were deleted for.

    That the deadline of a Job was the reason is said by the Job, and only when its pods are being deleted already; but
    by then their times tell it too.
    """
    if job is None:
        return False
    return bool(job.condition or job.is_deleted) or all(pod.deleted_at is not None for pod in pods if pod.is_deleted)


def hopeless(pod: PodView) -> WorkloadOutcome | None:
    """Return why a pod will never start, however long one waits; None where it may."""
    reason, message = pod.waiting
    if readiness.never_comes(reason, message):
        return WorkloadOutcome(EndedBy.NOT_STARTED, message=f"{reason}: {message}", host=pod.node)
    return None


def is_stuck(pod: PodView) -> bool:
    """Tell whether a pod does not start now: it has no node and gets none, or no image, or not what it names."""
    return bool(pod.unschedulable and not pod.node) or pod.waiting[0] in (*readiness.PULLING, *_MISCONFIGURED)


def overdue(pods: Sequence[PodView], seconds: float, events: Sequence[str]) -> WorkloadOutcome:
    """Return why an attempt has not started in time.

    Args:
        seconds: how long it was waited for.
        events: what the cluster says of the Job and of its first pod.
    """
    waited = f"in {seconds:.0f} s"
    for pod in pods:
        reason, message = pod.waiting
        if pod.unschedulable and not pod.node:
            return WorkloadOutcome(EndedBy.NO_CAPACITY, message=f"no node took its pod {waited}: {pod.unschedulable}")
        if reason in readiness.PULLING:
            text = f"its image was not pulled {waited}: {reason}: {message}"
            return WorkloadOutcome(EndedBy.IMAGE, message=text, host=pod.node)
        if reason in _MISCONFIGURED:
            text = f"its container did not start {waited}: {reason}: {message}"
            return WorkloadOutcome(EndedBy.NOT_STARTED, message=text, host=pod.node)
    told = f": {events[-1]}" if events else ""
    late = [pod for pod in pods if not pod.has_started]
    if late and (absent := next(filter(_is_of_absence, events), None)):
        text = f"its pod {late[0].name} did not start {waited}: {absent}"
        return WorkloadOutcome(EndedBy.NOT_STARTED, message=text, host=late[0].node)
    if late:
        text = f"its pod {late[0].name} did not start {waited} on {late[0].node or 'any node'}{told}"
        return WorkloadOutcome(EndedBy.LOST, message=text, host=late[0].node)
    missing = "some of its pods did not exist" if pods else "it had no pod"
    return WorkloadOutcome(EndedBy.NO_CAPACITY, message=f"{missing} {waited}{told}")


def _is_by_deadline(pod: PodView, job: JobView) -> bool:
    """Tell whether the cluster has ended a pod for the deadline of its Job. Its clocks count whole seconds."""
    return job.reason == _DEADLINE or (pod.deleted_at is not None and pod.deleted_at + _TICK >= job.ends_at)


def _is_of_absence(event: str) -> bool:
    """Tell whether a volume is not to be had because somebody has named what there is not."""
    return event.startswith("MountVolume") and any(sign in event for sign in _ABSENT)


def _by_container(pod: PodView, ended: Ended, *, is_cancelled: bool, by_deadline: bool) -> WorkloadOutcome:
    told = _told(pod, ended.told) if ended.told is not None else None
    # A part of it that was killed for memory, and that it got over, is its own affair.
    if ended.reason == "OOMKilled" and (told is None or _is_bad_end(told)):
        limit = f" ({pod.memory_limit})" if pod.memory_limit else ""
        text = f"it was killed because it used more memory than its limit{limit}"
        known = told or WorkloadOutcome(EndedBy.OUT_OF_MEMORY, ended.exit_code, host=pod.node)
        return dataclasses.replace(known, ended_by=EndedBy.OUT_OF_MEMORY, message=text)
    is_ended_by_us = told is None or told.ended_by is EndedBy.CANCELLED
    if is_ended_by_us and not is_cancelled and not by_deadline and (pod.disruption or pod.is_deleted):
        known = told or WorkloadOutcome(EndedBy.EVICTED, host=pod.node)
        return dataclasses.replace(known, ended_by=EndedBy.EVICTED, message=_evicted(pod).message)
    if is_ended_by_us and by_deadline:
        known = told or WorkloadOutcome(EndedBy.TIMEOUT, ended.exit_code, host=pod.node)
        return dataclasses.replace(known, ended_by=EndedBy.TIMEOUT, message=_DEADLINE_TEXT)
    return told or _untold(pod, ended, is_cancelled=is_cancelled)


_DEADLINE_TEXT: Final = "the cluster ended it: its Job exceeded activeDeadlineSeconds"


def _untold(pod: PodView, ended: Ended, *, is_cancelled: bool) -> WorkloadOutcome:
    if is_cancelled:
        return WorkloadOutcome(EndedBy.CANCELLED, ended.exit_code, host=pod.node)
    if ended.reason in _CANNOT_START:
        text = f"its container cannot start, which needs Python 3.8 or later in the image: {ended.message}"
        return WorkloadOutcome(EndedBy.NOT_STARTED, ended.exit_code, message=text, host=pod.node)
    said = ended.message or ended.reason
    text = f"its agent ended with status {ended.exit_code} and left no outcome" + (f": {said}" if said else "")
    if ended.exit_code == _KILLED:
        return WorkloadOutcome(EndedBy.LOST, message=text, host=pod.node)
    return WorkloadOutcome(EndedBy.NOT_STARTED, ended.exit_code, message=text, host=pod.node)


def _told(pod: PodView, told: Mapping[str, Any]) -> WorkloadOutcome:
    """Return what the agent says; the machine is the node, which the pod does not know by that name."""
    outcome = WorkloadOutcome.parse(told)
    return dataclasses.replace(outcome, host=pod.node or outcome.host)


def _is_bad_end(told: WorkloadOutcome) -> bool:
    """Tell whether it ended by itself, and badly."""
    return told.ended_by is EndedBy.SIGNAL or (told.ended_by is EndedBy.EXIT and told.exit_code != 0)


def _is_good(outcome: WorkloadOutcome) -> bool:
    return outcome.ended_by is EndedBy.EXIT and outcome.exit_code == 0


def _evicted(pod: PodView) -> WorkloadOutcome:
    why = pod.disruption or f"its pod {pod.name} was deleted, but not by Topgallant"
    text = f"{why} (node {pod.node})" if pod.node else why
    return WorkloadOutcome(EndedBy.EVICTED, message=text, host=pod.node)
