"""Explains why an attempt has not started yet. The text is for people: no decision depends on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from toolbox.features.kubernetes.api import readiness
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.objects import Objects
from toolbox.features.kubernetes.pods.object_store import Store
from toolbox.features.kubernetes.pods.pod_state import JobView, PodView
from toolbox.ground.model.errors import StepError

log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 15.0
_REQUEST_SECONDS: Final = 10.0
# The reasons of events that every Job or pod has. They do not explain why a pod waits.
_ROUTINE: Final = ("SuccessfulCreate", "Scheduled", "Created", "Started")


class NewestEvents:
    """The newest event of the cluster about each Job and pod of a run, without routine events.

    Attributes:
        by_object: the text of the event, by the name of its object.
    """

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self._requested = 0.0  # the monotonic time of the last request
        self.by_object: Mapping[str, str] = {}

    def are_due(self, now: float) -> bool:
        """Return whether it is time to fetch the events again. The caller then does so."""
        is_due = now - self._requested > _PERIOD_SECONDS
        self._requested = now if is_due else self._requested
        return is_due

    def fetch(self) -> None:
        """Fetch the events of the namespace, in one request for all waiting attempts."""
        fields = ",".join(f"reason!={reason}" for reason in _ROUTINE)
        try:
            events = Objects(self._cluster).events(self._cluster.namespace, fields=fields, timeout=_REQUEST_SECONDS)
        except StepError as error:
            log.debug("%s: %s", self._cluster.label, error)
            return
        newest = {str(event["involvedObject"].get("name")): str(event.get("message", "")) for event in events}
        self.by_object = {name: newest[name] for name in newest if self._store.has_object(name)}


def reason(
    job: JobView | None, pods: Sequence[PodView], *, queue: str | None = None, events: Mapping[str, str] | None = None
) -> str:
    """Return why an attempt has not started; an empty text once all of its pods have.

    Args:
        job: the Job of the attempt; None if it has not been seen yet.
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
    text = f"starting on {pod.node}"
    if state and state not in readiness.STARTING:
        text += f": {state}"
    return f"{text}: {message}" if message else _with_event(text, events.get(pod.name, ""))


def _with_event(text: str, event: str) -> str:
    return f"{text}: {event}" if event else text
