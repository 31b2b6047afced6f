"""Explains why an attempt has not started yet. The text is for people: no decision depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolbox.kubernetes.pods.views import JobView, PodView


def reason(
    job: JobView | None, pods: Sequence[PodView], *, queue: str | None = None, events: Mapping[str, str] | None = None
) -> str:
    """Return why an attempt has not started; an empty text once all of its pods have.

    Args:
        job: the Job of the attempt; None if it has not been seen yet.
        pods: the pods that the Job has so far.
        queue: the Kueue queue of the Job.
        events: the newest event about each object, by the name of the object.
    """
    newest = events or {}
    if job is not None and job.is_suspended:
        return f"waiting in the queue {queue}" if queue else "waiting: its Job is suspended"
    if not pods:
        return _with_event("waiting for its pod", newest.get(job.name if job is not None else "", ""))
    late = next((pod for pod in pods if not pod.has_started), None)
    return "" if late is None else _of_pod(late, newest)


def needs_events(job: JobView | None, pods: Sequence[PodView]) -> bool:
    """Return whether events are needed to explain why an attempt has not started."""
    if job is not None and job.is_suspended:
        return False
    return not pods or any(pod.node and not pod.has_started and not pod.waiting[1] for pod in pods)


def _of_pod(pod: PodView, events: Mapping[str, str]) -> str:
    if not pod.node:
        return f"waiting for a node: {pod.unschedulable or 'the scheduler has not decided yet'}"
    state, message = pod.waiting
    text = f"starting on {pod.node}" + (f": {state}" if state else "")
    return f"{text}: {message}" if message else _with_event(text, events.get(pod.name, ""))


def _with_event(text: str, event: str) -> str:
    return f"{text}: {event}" if event else text
