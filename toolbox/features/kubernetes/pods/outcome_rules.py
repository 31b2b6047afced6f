"""Decides how an attempt ended, from the state of its pods and its Job.

The agent of a pod reports how its workload ended, which holds unless the system ended the workload. Without a report,
the states of the container, the pod and the Job decide. An attempt of several pods has ended when all pods have ended,
or when one of them has failed, because the others cannot go on without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolbox.features.kubernetes.api import readiness
from toolbox.features.kubernetes.pods.pod_state import Ended, JobView, PodView
from toolbox.ground.model.workloads import EndedBy, WorkloadOutcome

_KILLED: Final = 137
_CANNOT_START: Final = ("StartError", "ContainerCannotRun", "RunContainerError")
_DEADLINE: Final = "DeadlineExceeded"
_TICK: Final = 1.0
_ABSENT: Final = ("not found", "references non-existent")
_MISCONFIGURED: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


def conclude(
    pods: Sequence[PodView], job: JobView | None, *, expected: int, is_cancelled: bool
) -> WorkloadOutcome | None:
    """Return the outcome of an attempt; None if the attempt has not ended.

    Args:
        pods: the pods of the attempt, ordered by index.
        job: the Job of the attempt; None if it has not been seen yet.
    """
    outcomes = [outcome_of(pod, job, is_cancelled=is_cancelled) for pod in pods]
    ended = [outcome for outcome in outcomes if outcome is not None]
    bad = [(pod, outcome) for pod, outcome in zip(pods, outcomes, strict=True) if outcome and not _is_good(outcome)]
    if bad:
        pod, outcome = bad[0]
        where = f"host {pod.index}: " if expected > 1 and pod.index is not None and outcome.message else ""
        return dataclasses.replace(outcome, message=f"{where}{outcome.message}")
    return ended[0] if len(ended) >= expected else None


def outcome_from_job(
    job: JobView, pods: Sequence[PodView], *, is_cancelled: bool, is_discarded: bool
) -> WorkloadOutcome | None:
    """Return the outcome of an attempt by its Job, if the pods show no outcome; None if the Job goes on.

    Args:
        is_discarded: whether the run deletes the Job because it has lost a pod.
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
    """Return the outcome of the workload in a pod; None if it has not ended."""
    by_deadline = job is not None and _is_by_deadline(pod, job)
    if pod.ended is not None:
        return _by_container(pod, pod.ended, is_cancelled=is_cancelled, by_deadline=by_deadline)
    if pod.may_run or not (pod.disruption or (pod.is_deleted and not is_cancelled and not by_deadline)):
        return None
    return _evicted(pod)


def is_by_deadline(pods: Sequence[PodView], job: JobView | None) -> bool:
    """Return whether the cluster ended pods for the deadline of their Job; such pods are not replaced."""
    return job is not None and (job.reason == _DEADLINE or any(_is_by_deadline(pod, job) for pod in pods))


def is_deletion_explained(pods: Sequence[PodView], job: JobView | None) -> bool:
    """Return whether it is known why pods were deleted.

    A Job reports that its deadline has passed only after it has begun to delete its pods. By then the deletion times
    of the pods show the reason too.
    """
    if job is None:
        return False
    return bool(job.condition or job.is_deleted) or all(pod.deleted_at is not None for pod in pods if pod.is_deleted)


def outcome_if_unstartable(pod: PodView) -> WorkloadOutcome | None:
    """Return the outcome of a pod that can never start; None if it may start."""
    reason, message = pod.waiting
    if readiness.cannot_be_pulled(reason, message):
        return WorkloadOutcome(EndedBy.NOT_STARTED, message=f"{reason}: {message}", host=pod.node)
    return None


def is_stuck(pod: PodView) -> bool:
    """Return whether a pod cannot start now: it lacks a node, its image, or an object that it refers to."""
    return bool(pod.unschedulable and not pod.node) or pod.waiting[0] in (*readiness.PULLING, *_MISCONFIGURED)


def outcome_if_late(pods: Sequence[PodView], seconds: float, events: Sequence[str]) -> WorkloadOutcome:
    """Return the outcome of an attempt that has not started in time.

    Args:
        seconds: how long the attempt has waited.
        events: the cluster's events about the Job and its first pod that has not started.
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
    last_event = f": {events[-1]}" if events else ""
    late = [pod for pod in pods if not pod.has_started]
    if late and (absent := next(filter(_is_of_absence, events), None)):
        text = f"its pod {late[0].name} did not start {waited}: {absent}"
        return WorkloadOutcome(EndedBy.NOT_STARTED, message=text, host=late[0].node)
    if late:
        text = f"its pod {late[0].name} did not start {waited} on {late[0].node or 'any node'}{last_event}"
        return WorkloadOutcome(EndedBy.LOST, message=text, host=late[0].node)
    missing = "some of its pods did not exist" if pods else "it had no pod"
    return WorkloadOutcome(EndedBy.NO_CAPACITY, message=f"{missing} {waited}{last_event}")


def _is_by_deadline(pod: PodView, job: JobView) -> bool:
    """Return whether the cluster ended a pod for the deadline of its Job. The cluster's times are whole seconds."""
    return job.reason == _DEADLINE or (pod.deleted_at is not None and pod.deleted_at + _TICK >= job.ends_at)


def _is_of_absence(event: str) -> bool:
    """Return whether an event says that a volume cannot be mounted because its source does not exist."""
    return event.startswith("MountVolume") and any(sign in event for sign in _ABSENT)


def _by_container(pod: PodView, ended: Ended, *, is_cancelled: bool, by_deadline: bool) -> WorkloadOutcome:
    reported = _outcome_from_report(pod, ended.report) if ended.report is not None else None
    # A killed child process is only a remark if the workload recovered from it.
    if ended.reason == "OOMKilled" and (reported is None or _is_bad_end(reported)):
        limit = f" ({pod.memory_limit})" if pod.memory_limit else ""
        text = f"it was killed because it used more memory than its limit{limit}"
        known = reported or WorkloadOutcome(EndedBy.OUT_OF_MEMORY, ended.exit_code, host=pod.node)
        return dataclasses.replace(known, ended_by=EndedBy.OUT_OF_MEMORY, message=text)
    is_ended_by_agent = reported is None or reported.ended_by is EndedBy.CANCELLED
    if is_ended_by_agent and not is_cancelled and not by_deadline and (pod.disruption or pod.is_deleted):
        known = reported or WorkloadOutcome(EndedBy.EVICTED, host=pod.node)
        return dataclasses.replace(known, ended_by=EndedBy.EVICTED, message=_evicted(pod).message)
    if is_ended_by_agent and by_deadline:
        known = reported or WorkloadOutcome(EndedBy.TIMEOUT, ended.exit_code, host=pod.node)
        return dataclasses.replace(known, ended_by=EndedBy.TIMEOUT, message=_DEADLINE_TEXT)
    if reported is not None and ended.reason == "OOMKilled":
        return dataclasses.replace(reported, oom_kills=max(1, reported.oom_kills))
    return reported or _outcome_without_report(pod, ended, is_cancelled=is_cancelled)


_DEADLINE_TEXT: Final = "the cluster ended it: its Job exceeded activeDeadlineSeconds"


def _outcome_without_report(pod: PodView, ended: Ended, *, is_cancelled: bool) -> WorkloadOutcome:
    if is_cancelled:
        return WorkloadOutcome(EndedBy.CANCELLED, ended.exit_code, host=pod.node)
    if ended.reason in _CANNOT_START:
        text = f"its container cannot start (the image needs Python 3.8 or later): {ended.message}"
        return WorkloadOutcome(EndedBy.NOT_STARTED, ended.exit_code, message=text, host=pod.node)
    reason = ended.message or ended.reason
    text = f"its agent ended with status {ended.exit_code} and left no outcome" + (f": {reason}" if reason else "")
    if ended.exit_code == _KILLED:
        return WorkloadOutcome(EndedBy.LOST, message=text, host=pod.node)
    return WorkloadOutcome(EndedBy.NOT_STARTED, ended.exit_code, message=text, host=pod.node)


def _outcome_from_report(pod: PodView, report: Mapping[str, Any]) -> WorkloadOutcome:
    """Return the outcome that the agent reports, with the name of the node, which the agent does not know."""
    outcome = WorkloadOutcome.parse(report)
    return dataclasses.replace(outcome, host=pod.node or outcome.host)


def _is_bad_end(outcome: WorkloadOutcome) -> bool:
    """Return whether the workload ended by itself, and failed."""
    return outcome.ended_by is EndedBy.SIGNAL or (outcome.ended_by is EndedBy.EXIT and outcome.exit_code != 0)


def _is_good(outcome: WorkloadOutcome) -> bool:
    return outcome.ended_by is EndedBy.EXIT and outcome.exit_code == 0


def _evicted(pod: PodView) -> WorkloadOutcome:
    why = pod.disruption or f"its pod {pod.name} was deleted, but not by Topgallant"
    text = f"{why} (node {pod.node})" if pod.node else why
    return WorkloadOutcome(EndedBy.EVICTED, message=text, host=pod.node)
