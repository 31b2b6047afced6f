"""Does what the attempts on a cluster need as time passes, in a thread of its own.

The clock ends attempts that have not started in time, continues to stop attempts, starts to follow logs, and asks the
server for the state of an attempt if the watches do not show how it ended.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.pods import outcome_rules, unready
from toolbox.features.kubernetes.pods.pod_attempts import PodAttempt
from toolbox.features.kubernetes.pods.pod_state import JobView, PodView
from toolbox.features.kubernetes.pods.tracker import Tracker
from toolbox.features.kubernetes.pods.unready import NewestEvents
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.workloads import AttemptState

log = logging.getLogger(__name__)

_CLOCK_SECONDS: Final = 1.0
_WAITING_SECONDS: Final = 5.0  # time after which the view shows why an attempt still waits: most start sooner
_KILL_SECONDS: Final = 30.0  # time for a busy node to kill a pod after its grace period


class Clock:
    """The time limits of the attempts of one tracker.

    Args:
        events: returns the cluster's events about a Job or a pod, by its name.
    """

    def __init__(self, cluster: Cluster, tracker: Tracker, events: Callable[[str], list[str]]) -> None:
        self._label = cluster.label
        self._tracker = tracker
        self._store = tracker.store
        self._events = events
        self._newest_events = NewestEvents(cluster, self._store)
        self._is_closed = threading.Event()

    def start(self) -> None:
        """Start the clock."""
        threading.Thread(target=self._keep_time, name="clock", daemon=True).start()

    def close(self) -> None:
        """Stop the clock."""
        self._is_closed.set()

    def _keep_time(self) -> None:
        """End attempts that have not started in time, and start to follow logs."""
        while not self._is_closed.wait(_CLOCK_SECONDS):
            try:
                self._tick(time.monotonic())
            except Exception:  # without the clock, attempts might wait for ever
                log.exception("%s: a check of the time limits failed; the checks continue", self._label)

    def _tick(self, now: float) -> None:
        with self._store.lock:
            attempts = [attempt for attempt in self._tracker.book.open_attempts() if attempt.is_open]
            for attempt in attempts:
                self._tracker.followers.start_due(attempt, now)
                self._tracker.continue_stop(attempt)
                view = self._store.job(attempt.job)
                if view is not None and view.is_suspended:
                    attempt.queued_until = now
            due = [each for each in attempts if each.is_late(now) or each.inquiry.is_due(now)]
            due = [attempt for attempt in due if not attempt.inquiry.is_running]
            for attempt in due:
                attempt.inquiry.is_running = True
            waiting = [attempt for attempt in attempts if attempt.status.state is AttemptState.SUBMITTED]
        self._show_reasons([each for each in waiting if now - each.submitted > _WAITING_SECONDS], now)
        for attempt in due:
            self._tracker.in_background(self._inquire, attempt, attempt.is_late(now))

    def _show_reasons(self, attempts: Iterable[PodAttempt], now: float) -> None:
        """Set the status message of each attempt to the reason why it has not started yet."""
        needs_events = False
        for attempt in attempts:
            with self._store.lock:
                pods, view = self._tracker.pods_of(attempt), self._store.job(attempt.job)
                needs_events = needs_events or unready.needs_events(view, pods)
                reason = unready.reason(view, pods, queue=attempt.pod.queue, events=self._newest_events.by_object)
            self._tracker.book.show_waiting(attempt, reason)
        if needs_events and self._newest_events.are_due(now):
            self._tracker.in_background(self._newest_events.fetch)

    def _inquire(self, attempt: PodAttempt, is_late: bool) -> None:
        """Read the pods and the Job of an attempt from the server, and check whether the attempt has ended.

        The clock thread repeats a failed request.

        Args:
            is_late: whether to end the attempt if it has not started by now.
        """
        try:
            is_certain = self._store.refresh(
                attempt.job, attempt.pod.kind, functools.partial(self._is_certain, attempt)
            )
            self._tracker.review(attempt.job, is_fresh=True, is_certain=is_certain)
            if is_late:
                self._end_late(attempt)
        except StepError as error:
            log.debug("%s: %s", attempt.name, error)
        finally:
            with self._store.lock:
                attempt.inquiry.is_running = False

    def _is_certain(self, attempt: PodAttempt, job: JobView, pods: Sequence[PodView]) -> bool:
        """Return whether no pod can still report anything. A deleted pod reports its end unless its node is lost."""
        is_ending = (
            (attempt.stop is not None and attempt.stop.outcome is not None)
            or job.is_deleted
            or bool(job.condition)
            or any(pod.is_deleted for pod in pods)
        )
        silent = [pod.grace_seconds for pod in pods if pod.may_run] if is_ending else []
        now, inquiry = time.monotonic(), attempt.inquiry
        if silent and inquiry.patient_until is None:
            inquiry.patient_until = now + max(silent) + _KILL_SECONDS
        is_certain = not silent or now >= (inquiry.patient_until or 0)
        inquiry.due = None if is_certain else inquiry.patient_until
        return is_certain

    def _end_late(self, attempt: PodAttempt) -> None:
        """End an attempt that has not started and does not wait in a queue."""
        with self._store.lock:
            pods, view = self._tracker.pods_of(attempt), self._store.job(attempt.job)
        if attempt.has_started or not attempt.is_open or (view is not None and view.is_suspended):
            return
        names = [attempt.job, *[pod.name for pod in pods if not pod.has_started][:1]]
        try:
            events = [event for name in names for event in self._events(name)]
        except StepError as error:
            events = [str(error)]
        if not attempt.has_started:
            self._tracker.end(attempt, outcome_rules.outcome_if_late(pods, attempt.wait, events))
