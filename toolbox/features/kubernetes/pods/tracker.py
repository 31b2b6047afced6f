"""Tracks the attempts of a run on one cluster.

`object_store` has the Jobs and pods that the watches report. `outcome_rules` decides whether and how an attempt has
ended, and `stopping` how to stop an attempt. The tracker applies these rules after each change, and notifies the
backend. `attempt_clock` calls it as time passes.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.objects import JOB, JOB_SET, POD, Kind
from toolbox.features.kubernetes.api.watching import Watch
from toolbox.features.kubernetes.pods import fetching, outcome_rules, pod_results
from toolbox.features.kubernetes.pods.log_followers import LogFollowers
from toolbox.features.kubernetes.pods.object_store import Store
from toolbox.features.kubernetes.pods.pod_attempts import PodAttempt
from toolbox.features.kubernetes.pods.pod_state import PodView
from toolbox.features.kubernetes.pods.stopping import AgentCanceller, Stop
from toolbox.ground.model.workloads import AttemptState, AttemptStatus, EndedBy, WorkloadOutcome
from toolbox.ground.system import cancellation
from toolbox.ground.system.cancellation import CancelScope
from toolbox.targets.attempt_book import AttemptBook

log = logging.getLogger(__name__)

_FINISHERS: Final = 8
_DOUBT_SECONDS: Final = 1.0
_BY_ITSELF: Final = (EndedBy.EXIT, EndedBy.SIGNAL)
_FETCH_SECONDS: Final = 30.0  # to wait for logs that are being fetched from a pod that has ended


class Tracker:
    """The attempts of one run in one namespace.

    Args:
        selector: the label selector for the objects of the run.
        notify: called with the name of an attempt when its status changes, from a thread of the tracker.
        remove: removes a Job, and returns whether the Job is gone.

    Attributes:
        book: the attempts, by the names of their Jobs.
        store: the Jobs and pods of the run.
        followers: the threads that follow logs.
    """

    def __init__(
        self,
        cluster: Cluster,
        selector: str,
        notify: Callable[[str], None],
        remove: Callable[[str], bool],
    ) -> None:
        self._cluster = cluster
        self._remove = remove
        self.book: AttemptBook[PodAttempt] = AttemptBook(notify)
        self._lock = self.book.lock
        self.store = Store(cluster, selector, self.review, self._lock)
        self._starting = threading.Lock()
        self._watches: list[Watch] = []
        self._watches_sets = False
        self.followers = LogFollowers(cluster)
        self._finishers = ThreadPoolExecutor(_FINISHERS, thread_name_prefix="ends")
        self._canceller = AgentCanceller()

    def start(self, timeout: float) -> bool:
        """Start the watches, unless they have been started, and return whether this call has started them.

        Raises:
            StepError: the cluster does not answer.
        """
        with self._starting:
            if self._watches:
                return False
            watches = [self.store.watch(kind, self.report_silence) for kind in (JOB, POD)]
            try:
                for watch in watches:
                    watch.start(timeout)
            except BaseException:
                for watch in watches:
                    watch.close()
                raise
            self._watches = watches
            return True

    def watch_sets(self, timeout: float) -> None:
        """Start the watch of JobSets, unless it has been started. Some clusters don't have this kind.

        Raises:
            StepError: the cluster does not answer, or does not have the kind JobSet.
        """
        with self._starting:
            if not self._watches_sets:
                sets = self.store.watch(JOB_SET, self.report_silence)
                sets.start(timeout)
                self._watches.append(sets)
                self._watches_sets = True

    def has_job(self, job: str) -> bool:
        """Return whether a Job is known to exist."""
        view = self.store.job(job)
        return view is not None and not view.is_deleted

    def kind_of(self, job: str) -> Kind:
        """Return the kind of the object with this name: a Job or a JobSet."""
        with self._lock:
            view, attempt = self.store.job(job), self.book.get(job)
        if view is not None:
            return JOB_SET if view.is_set else JOB
        return attempt.pod.kind if attempt is not None else JOB

    def add(self, attempt: PodAttempt) -> None:
        """Start tracking an attempt, unless the attempt of its Job is tracked already."""
        with self._lock:
            self.book.add(attempt)
            self.store.track(attempt.job)
        self.review(attempt.job)

    def pods_of(self, attempt: PodAttempt) -> list[PodView]:
        """Return the known pods of an attempt, ordered by index."""
        return self.store.members(attempt.job, attempt.expected)

    def cancel(self, attempt: PodAttempt) -> None:
        """Cancel an attempt: by its agents, or by deleting its Job if no agent can be reached."""
        with self._lock:
            if not attempt.is_open:
                return
            self._request_stop(attempt, cancel=True)
        self.review(attempt.job)

    def forget(self, attempt: PodAttempt) -> None:
        """Stop tracking an attempt."""
        with self._lock:
            self.book.forget(attempt.job)
            self.store.forget(attempt.job)
        attempt.close_logs()

    def end(self, attempt: PodAttempt, outcome: WorkloadOutcome) -> None:
        """Decide the outcome of an attempt. Only the first decision counts."""
        if self.book.change(attempt, dataclasses.replace(attempt.status, state=AttemptState.ENDING, outcome=outcome)):
            # Writing to disk must not block the thread of a watch.
            self.in_background(self._finish, attempt, outcome)

    def close(self) -> None:
        """Stop tracking all attempts. Running workloads go on."""
        self.book.close()
        for watch in self._watches:
            watch.close()
        for attempt in self.book.attempts():
            attempt.close_logs()
        self._canceller.close()
        self.followers.close()
        self._finishers.shutdown(wait=False, cancel_futures=True)

    def report_silence(self, seconds: float, reason: str) -> None:
        """Report attempts as unreachable if the server has sent nothing for longer than their time limit."""
        for attempt in self.book.open_attempts():
            if seconds > attempt.wait:
                self._report(attempt, AttemptStatus(AttemptState.UNREACHABLE, message=reason))

    # Decisions after a change

    def review(self, job: str, *, is_fresh: bool = False, is_certain: bool = False) -> None:
        """Check whether the attempt of a Job has ended.

        Args:
            is_fresh: whether the state has just been read from the server.
            is_certain: whether, in addition, no pod of the attempt can still report anything.
        """
        with self._lock:
            attempt = self.book.get(job)
            if attempt is None or not attempt.is_open:
                return
            self.continue_stop(attempt)
            pods, view = self.pods_of(attempt), self.store.job(job)
            self._note_start(attempt, pods)
            if not self.book.is_closed:
                self.followers.note(attempt, pods)
            is_cancelled = attempt.is_cancelled
            is_deleted = any(pod.is_deleted for pod in pods) and not is_cancelled
            if is_deleted and not is_fresh and not outcome_rules.is_deletion_explained(pods, view):
                attempt.inquiry.plan(_DOUBT_SECONDS)
                return
            is_deleted = is_deleted and not outcome_rules.is_by_deadline(pods, view)
        outcome = outcome_rules.conclude(pods, view, expected=attempt.expected, is_cancelled=is_cancelled)
        outcome = outcome or next(filter(None, map(outcome_rules.outcome_if_unstartable, pods)), None)
        if outcome is None and view is not None:
            outcome = outcome_rules.outcome_from_job(
                view, pods, is_cancelled=is_cancelled, is_discarded=attempt.is_discarded
            )
            if outcome is not None and not is_certain:
                # The reports of its pods arrive on another connection, and may be late.
                attempt.inquiry.plan(_DOUBT_SECONDS)
                return
        if attempt.stop is not None:
            outcome = attempt.stop.outcome or outcome
        is_lost = attempt.is_discarded or is_deleted or (outcome is not None and outcome.ended_by is EndedBy.LOST)
        if outcome is not None and (is_certain or not (is_lost and self._may_go_on(attempt))):
            self.end(attempt, outcome)
        elif is_lost:
            self._discard(attempt, outcome)

    def _discard(self, attempt: PodAttempt, outcome: WorkloadOutcome | None) -> None:
        """Remove the Job of an attempt that has lost a pod: otherwise a new pod would run the workload again.

        Other hosts of the cell may still run. Before Kubernetes 1.28, a replacement of a deleted pod may run too. The
        next attempt begins only when no pod runs.
        """
        with self._lock:
            if not attempt.is_open:
                return
            is_new = not attempt.is_discarded
            stop = self._request_stop(attempt, cancel=False)
            if outcome is not None:
                stop.outcome = outcome
                attempt.inquiry.plan(_DOUBT_SECONDS)
        if is_new:
            self.continue_stop(attempt)

    def _note_start(self, attempt: PodAttempt, pods: Sequence[PodView]) -> None:
        if attempt.has_started or sum(pod.has_started for pod in pods) < attempt.expected:
            return
        if attempt.stop is not None:
            attempt.stop.has_started = True
        else:
            self.book.change(attempt, AttemptStatus(AttemptState.RUNNING))

    def _may_go_on(self, attempt: PodAttempt) -> bool:
        """Return whether any pod of the attempt's Job may still run, or may be created to replace a deleted pod."""
        with self._lock:
            own, view = self.pods_of(attempt), self.store.job(attempt.job)
            is_replaced = view is not None and view.is_at_work and view.replaces and any(pod.is_deleted for pod in own)
            return is_replaced or any(pod.may_run for pod in self.store.pods(attempt.job))

    def _request_stop(self, attempt: PodAttempt, *, cancel: bool) -> Stop:
        """Stop an attempt: because the run cancels it, or so that a lost pod is not replaced. Return its progress."""
        attempt.stop = attempt.stop or Stop(time.monotonic(), has_started=attempt.has_started)
        attempt.stop.is_cancellation |= cancel
        attempt.stop.is_discard |= not cancel
        self.book.change(attempt, dataclasses.replace(attempt.status, state=AttemptState.STOPPING))
        return attempt.stop

    def continue_stop(self, attempt: PodAttempt) -> None:
        """Continue to stop an attempt, if a stop was requested."""
        with self._lock:
            stop, now = attempt.stop, time.monotonic()
            if stop is None or stop.is_over or self.book.is_closed:
                return
            own, view = self.pods_of(attempt), self.store.job(attempt.job)
            names = {pod.name for pod in own}
            pods = [pod for pod in self.store.pods(attempt.job) if pod.name not in names]
            more = view is not None and view.replaces and not pods and any(pod.is_deleted for pod in own)
            if attempt.is_cancelled:
                more = more or len(own) < attempt.expected
                pods += own
            more = more and (view is None or view.is_at_work)
            cancel = functools.partial(
                fetching.cancel, self._cluster, python=attempt.pod.interpreter, there=attempt.there
            )
            self._canceller.request(stop, pods, cancel, now)
            has_ended = attempt.is_cancelled and sum(pod.ended is not None for pod in own) >= attempt.expected
            if has_ended or stop.awaits(pods, now, more=more):
                return
            stop.is_over = True
        self.in_background(self._remove_job, attempt)

    def _remove_job(self, attempt: PodAttempt) -> None:
        """Remove the Job of an attempt. Running pods report their outcome when they are deleted."""
        self._remove(attempt.job)
        with self._lock:
            attempt.inquiry.plan(_DOUBT_SECONDS)  # the watches may be behind

    def _finish(self, attempt: PodAttempt, outcome: WorkloadOutcome) -> None:
        """Write the outcome of an attempt, and report it even if writing fails."""
        pods = self.pods_of(attempt)
        message = ""
        try:
            attempt.close_logs()
            attempt.await_logs(_FETCH_SECONDS)
            pod_results.write_logs(attempt, pods)
            settled = pod_results.settled(self._cluster, attempt, pods, outcome)
            has_lost_logs = settled.log_fault != outcome.log_fault and settled.ended_by in _BY_ITSELF
            if attempt.is_cancelled and has_lost_logs:
                # A resumed run repeats a cancelled attempt, but not an attempt with incomplete logs.
                settled = dataclasses.replace(settled, ended_by=EndedBy.CANCELLED)
            outcome = settled
            pod_results.keep(attempt, outcome)
            has_more = any(pod.is_deleted or pod.ended is None for pod in pods) or len(pods) < attempt.expected
            if has_more and not any(pod.holds_files for pod in pods) and not self._remove(attempt.job):
                # Remove the Job, because a waiting pod might start, and a deleted pod might be replaced. A Job whose
                # pods hold files is kept: the backend releases it soon.
                message = "its Job could not be removed, and may still run"
        finally:
            status = AttemptStatus(AttemptState.ENDED, outcome)
            if message:
                status = AttemptStatus(AttemptState.UNREACHABLE, message=f"{outcome.message}\n{message}")
            self._report(attempt, status)

    def _report(self, attempt: PodAttempt, status: AttemptStatus) -> None:
        """Report the final status of an attempt, unless one was reported before."""
        attempt.close_logs()
        self.book.change(attempt, status)

    def in_background(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do work in another thread, unless the tracker is closed."""

        def tried() -> None:
            try:
                with cancellation.entered(CancelScope()):  # finish attempts even if the run is cancelled
                    work(*arguments)
            except Exception:  # a thread pool would not report it
                log.exception("%s has failed", self._cluster.label)

        with self._lock:
            if not self.book.is_closed:
                self._finishers.submit(tried)
