"""Tracks the attempts of a run on one cluster by two watches: one of all Jobs, one of all pods.

`endings` decides whether and how an attempt has ended, and `stopping` how to stop an attempt. The tracker applies these
rules after each change, follows the logs of running pods, and notifies the backend. It has one thread per watch, a
clock thread for timeouts, and a bounded number of threads that follow logs, send requests, and write outcomes.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from toolbox.agent.supervisor import STREAMS
from toolbox.kubernetes.api.connection import Cluster, Json
from toolbox.kubernetes.api.objects import EVENT, JOB, JOB_SET, POD, Kind, Objects, Query
from toolbox.kubernetes.api.watching import Watch
from toolbox.kubernetes.pods import endings, fetching, pod_results, unready, views
from toolbox.kubernetes.pods.fetching import Selection
from toolbox.kubernetes.pods.pod_attempts import Attempt
from toolbox.kubernetes.pods.pod_logs import LiveCopy
from toolbox.kubernetes.pods.stopping import Asking, Stop
from toolbox.kubernetes.pods.views import WORKLOAD, JobView, PodView
from toolbox.model.errors import StepError
from toolbox.model.workloads import AttemptState, AttemptStatus, EndedBy, WorkloadOutcome
from toolbox.runs.layout import AttemptDirectory
from toolbox.system import cancellation, filesystem
from toolbox.system.cancellation import CancelScope

log = logging.getLogger(__name__)

_FOLLOWERS: Final = 64  # number of logs to follow at once; more logs take turns
_TURN_SECONDS: Final = 20.0
_SHORT_SECONDS: Final = 1.0  # a workload that ends within this time needs no request for its log
_FINISHERS: Final = 8
_CLOCK_SECONDS: Final = 1.0
_DOUBT_SECONDS: Final = 1.0
_ASK_SECONDS: Final = 10.0
_WAITING_SECONDS: Final = 5.0  # time after which the view shows why an attempt still waits: most start sooner
_EVENTS_SECONDS: Final = 15.0  # interval of requests for events
_KILL_SECONDS: Final = 30.0  # time for a busy node to kill a pod after its grace period


class Tracker:
    """The attempts of one run in one namespace.

    Args:
        cluster: the cluster with the namespace.
        selector: the label selector for the objects of the run.
        notify: called with the name of an attempt when its status changes, from a thread of the tracker.
        remove: removes a Job, and returns whether the Job is gone.
        events: returns the cluster's events about a Job or a pod, by its name.
    """

    def __init__(
        self,
        cluster: Cluster,
        selector: str,
        notify: Callable[[str], None],
        remove: Callable[[str], bool],
        events: Callable[[str], list[str]],
    ) -> None:
        self._cluster = cluster
        self._selector = selector
        self._notify = notify
        self._remove = remove
        self._events = events
        self._lock = threading.RLock()
        self._starting = threading.Lock()
        self._attempts: dict[str, Attempt] = {}  # by their names
        self._by_job: dict[str, Attempt] = {}
        self._jobs: dict[str, JobView] = {}
        self._pods: dict[str, dict[str, PodView]] = {}
        self._watches: list[Watch] = []
        self._watches_sets = False
        self._is_closed = threading.Event()
        self._scope = CancelScope()
        self._followers = ThreadPoolExecutor(_FOLLOWERS, thread_name_prefix="logs")
        self._finishers = ThreadPoolExecutor(_FINISHERS, thread_name_prefix="ends")
        self._followed = 0  # number of logs that are followed, or wait for their turn
        self._asking = Asking()
        self._newest_events: Mapping[str, str] = {}  # the newest event by the name of its object
        self._events_at = 0.0  # monotonic time of the last request for events

    def start(self, timeout: float) -> None:
        """Start the watches, unless they have been started.

        Raises:
            StepError: the cluster does not answer.
        """
        with self._starting:
            if self._watches:
                return
            watches = [self._watch(JOB), self._watch(POD)]
            try:
                for watch in watches:
                    watch.start(timeout)
            except BaseException:
                for watch in watches:
                    watch.close()
                raise
            self._watches = watches
            threading.Thread(target=self._mind_the_time, name="clock", daemon=True).start()

    def watch_sets(self, timeout: float) -> None:
        """Start the watch of JobSets, unless it has been started. Some clusters don't have this kind.

        Raises:
            StepError: the cluster does not answer, or does not have the kind JobSet.
        """
        with self._starting:
            if not self._watches_sets:
                sets = self._watch(JOB_SET)
                sets.start(timeout)
                self._watches.append(sets)
                self._watches_sets = True

    def _watch(self, kind: Kind) -> Watch:
        keep_jobs = functools.partial(self.keep_jobs, are_sets=kind == JOB_SET)
        take, keep = (self._take_pod, self.keep_pods) if kind == POD else (self._take_job, keep_jobs)
        query = Query(kind, self._cluster.namespace, self._selector)
        return Watch(self._cluster, query, _EventHandler(take, keep, self.miss))

    def has_job(self, job: str) -> bool:
        """Return whether a Job is known to exist."""
        with self._lock:
            return job in self._jobs and not self._jobs[job].is_deleted

    def is_set(self, job: str) -> bool:
        """Return whether the attempt of this name runs as a JobSet instead of a Job."""
        with self._lock:
            view, attempt = self._jobs.get(job), self._by_job.get(job)
        return view.is_set if view is not None else attempt is not None and attempt.pod.slices > 1

    def add(self, attempt: Attempt) -> None:
        """Start tracking an attempt."""
        with self._lock:
            self._attempts[attempt.name] = self._by_job[attempt.job] = attempt
        self._look(attempt.job)

    def get(self, name: str) -> Attempt:
        """Return an attempt."""
        with self._lock:
            return self._attempts[name]

    def find(self, name: str) -> Attempt | None:
        """Return an attempt; None if it is not tracked."""
        with self._lock:
            return self._attempts.get(name)

    def pods_of(self, attempt: Attempt) -> list[PodView]:
        """Return the known pods of an attempt, ordered by index."""
        with self._lock:
            return self._members(attempt)

    def cancel(self, attempt: Attempt) -> None:
        """Cancel an attempt: by its agents, or by deleting its Job if no agent can be reached."""
        with self._lock:
            attempt.is_cancelled = True
            attempt.stop = attempt.stop or Stop(time.monotonic())
        self._look(attempt.job)

    def forget(self, attempt: Attempt) -> None:
        """Stop tracking an attempt."""
        with self._lock:
            self._attempts.pop(attempt.name, None)
            self._by_job.pop(attempt.job, None)
            self._jobs.pop(attempt.job, None)
            self._pods.pop(attempt.job, None)
            logs = list(attempt.logs.values())
        for each in logs:
            each.close()

    def end(self, attempt: Attempt, outcome: WorkloadOutcome) -> None:
        """Record the outcome of an attempt. Only the first outcome counts."""
        with self._lock:
            if attempt.outcome is not None or self._is_closed.is_set():
                return
            attempt.outcome = outcome
        # Writing to disk must not block the thread of a watch.
        self._do(self._finish, attempt)

    def close(self) -> None:
        """Stop tracking all attempts. Running workloads go on."""
        with self._lock:
            self._is_closed.set()
            self._scope.cancel("the connection to the cluster is closed")
            logs = [each for attempt in self._attempts.values() for each in attempt.logs.values()]
        for watch in self._watches:
            watch.close()
        for each in logs:
            each.close()
        self._asking.close()
        for pool in (self._followers, self._finishers):
            pool.shutdown(wait=False, cancel_futures=True)

    # Changes that the watches report

    def _take_job(self, found: Json, is_gone: bool) -> None:  # see `_EventHandler`
        meta = found["metadata"]
        # Ignore the Jobs of a JobSet: the JobSet itself is tracked.
        if meta.get("labels", {}).get(views.ATTEMPT_LABEL) == meta["name"]:
            self.see_job(views.job(found, is_gone=is_gone), is_gone=is_gone)

    def see_job(self, view: JobView, *, is_gone: bool = False) -> None:
        """Record the state of a Job."""
        with self._lock:
            if is_gone and view.name not in self._by_job:
                self._jobs.pop(view.name, None)
                return
            self._jobs[view.name] = view
        self._look(view.name)

    def _take_pod(self, found: Json, is_gone: bool) -> None:
        if views.ATTEMPT_LABEL in found["metadata"].get("labels", {}):
            self.see_pod(views.pod(found, is_gone=is_gone), is_gone=is_gone)

    def see_pod(self, view: PodView, *, is_gone: bool = False) -> None:
        """Record the state of a pod."""
        with self._lock:
            of_job = self._pods.setdefault(view.job, {})
            if is_gone and view.job not in self._by_job:
                of_job.pop(view.name, None)
                if not of_job:
                    del self._pods[view.job]
                return
            if of_job.get(view.name) == view:
                return  # the change is in a field that the view leaves out
            of_job[view.name] = view
        self._look(view.job)

    def keep_jobs(self, names: set[str], *, are_sets: bool = False) -> None:
        """Mark all Jobs, or all JobSets, as gone whose names are not in `names`."""
        with self._lock:
            gone = [view for name, view in self._jobs.items() if name not in names and view.is_set == are_sets]
        for view in gone:
            self.see_job(dataclasses.replace(view, is_deleted=True), is_gone=True)

    def keep_pods(self, names: set[str]) -> None:
        """Mark as gone all pods whose names are not in `names`."""
        with self._lock:
            gone = [view for pods in self._pods.values() for name, view in pods.items() if name not in names]
        for view in gone:
            self.see_pod(views.gone(view), is_gone=True)

    def miss(self, seconds: float, reason: str) -> None:
        """Report attempts as unreachable if the server has sent nothing for longer than their time limit."""
        with self._lock:
            lost = [attempt for attempt in self._running() if seconds > attempt.wait]
        for attempt in lost:
            self._tell(attempt, AttemptStatus(AttemptState.UNREACHABLE, message=reason))

    # Reactions to the changes

    def _running(self) -> Iterator[Attempt]:
        return (attempt for attempt in self._attempts.values() if attempt.is_running)

    def _look(self, job: str, *, is_fresh: bool = False, is_certain: bool = False) -> None:
        """Check whether the attempt of a Job has ended.

        Args:
            job: the name of the Job.
            is_fresh: whether the state has just been read from the server.
            is_certain: whether, in addition, no pod of the attempt can still report anything.
        """
        with self._lock:
            attempt = self._by_job.get(job)
            if attempt is None or attempt.outcome is not None:
                return
            self._stop_on(attempt)
            pods, view = self._members(attempt), self._jobs.get(job)
            self._note_start(attempt, pods)
            for pod in pods:
                if pod.is_running and pod.name not in attempt.logs:
                    file = AttemptDirectory(attempt.place(pod.index or 0)).stdout
                    attempt.logs[pod.name] = LiveCopy(self._cluster, pod.name, file, log_bytes=attempt.log_bytes)
            is_cancelled = attempt.is_cancelled
            is_deleted = any(pod.is_deleted for pod in pods) and not is_cancelled
            if is_deleted and not is_fresh and not endings.is_deletion_explained(pods, view):
                attempt.ask_in(_DOUBT_SECONDS)
                return
            is_deleted = is_deleted and not endings.is_by_deadline(pods, view)
        outcome = endings.conclude(pods, view, expected=attempt.expected, is_cancelled=is_cancelled)
        outcome = outcome or next(filter(None, map(endings.hopeless, pods)), None)
        if outcome is None and view is not None:
            outcome = endings.outcome_from_job(view, pods, is_cancelled=is_cancelled, is_discarded=attempt.is_discarded)
            if outcome is not None and not is_certain:
                # The reports of its pods arrive on another connection, and may be late.
                attempt.ask_in(_DOUBT_SECONDS)
                return
        outcome = attempt.found or outcome
        is_taken = attempt.is_discarded or is_deleted or (outcome is not None and outcome.ended_by is EndedBy.LOST)
        if outcome is not None and (is_certain or not (is_taken and self._may_go_on(attempt))):
            self.end(attempt, outcome)
            return
        if outcome is not None:
            # Other hosts of the cell may still run. Before Kubernetes 1.28, a replacement of a deleted pod may run too.
            # The next attempt begins only when no pod runs.
            attempt.found = outcome
            attempt.ask_in(_DOUBT_SECONDS)
        if is_taken and not attempt.is_discarded:
            # Otherwise the Job would create a new pod, which would run the workload again.
            with self._lock:
                attempt.is_discarded = True
                attempt.stop = attempt.stop or Stop(time.monotonic())
            self._stop_on(attempt)

    def _note_start(self, attempt: Attempt, pods: Sequence[PodView]) -> None:
        if not attempt.has_started and sum(pod.has_started for pod in pods) >= attempt.expected:
            attempt.has_started = True
            self._set_waiting(attempt, "")

    def _may_go_on(self, attempt: Attempt) -> bool:
        """Return whether any pod of the attempt's Job may still run, or may be created to replace a deleted pod."""
        with self._lock:
            own, view = self._members(attempt), self._jobs.get(attempt.job)
            is_replaced = view is not None and view.is_at_work and view.replaces and any(pod.is_deleted for pod in own)
            return is_replaced or any(pod.may_run for pod in self._pods.get(attempt.job, {}).values())

    def _stop_on(self, attempt: Attempt) -> None:
        """Continue to stop an attempt, if a stop was requested."""
        with self._lock:
            stop, now = attempt.stop, time.monotonic()
            if stop is None or stop.is_over or self._is_closed.is_set():
                return
            own, view = self._members(attempt), self._jobs.get(attempt.job)
            names = {pod.name for pod in own}
            pods = [pod for pod in self._pods.get(attempt.job, {}).values() if pod.name not in names]
            more = view is not None and view.replaces and not pods and any(pod.is_deleted for pod in own)
            if attempt.is_cancelled:
                more = more or len(own) < attempt.expected
                pods += own
            more = more and (view is None or view.is_at_work)
            cancel = functools.partial(
                fetching.cancel, self._cluster, python=attempt.pod.interpreter, there=attempt.there
            )
            self._asking.ask(stop, pods, cancel, now)
            has_ended = attempt.is_cancelled and sum(pod.ended is not None for pod in own) >= attempt.expected
            if has_ended or stop.awaits(pods, now, more=more):
                return
            stop.is_over = True
        self._do(self._remove_job, attempt)

    def _remove_job(self, attempt: Attempt) -> None:
        """Remove the Job of an attempt. Running pods report their outcome when they are deleted."""
        self._remove(attempt.job)
        with self._lock:
            attempt.ask_in(_DOUBT_SECONDS)  # the watches may be behind

    def _members(self, attempt: Attempt) -> list[PodView]:
        """Return the pods of an attempt, ordered by index. Replacements of lost pods are left out."""
        pods = self._pods.get(attempt.job, {}).values()
        known = {pod.index: pod for pod in reversed(pods) if pod.index is not None}
        if known:
            return [known[index] for index in sorted(known)]
        return [
            pod if attempt.expected == 1 else dataclasses.replace(pod, index=number) for number, pod in enumerate(pods)
        ][: attempt.expected]

    def _follow_what_lasts(self, now: float) -> None:
        """Start to follow the logs of pods that have run for a while."""
        with self._lock:
            for attempt in () if self._is_closed.is_set() else self._running():
                for pod, copy in attempt.logs.items():
                    if not copy.is_followed and not attempt.outcome and now - copy.since > _SHORT_SECONDS:
                        copy.is_followed = True
                        self._followers.submit(self._follow, attempt, pod)
                        self._followed += 1

    def _follow(self, attempt: Attempt, pod: str) -> None:
        """Follow the log of a pod, or fetch the logs if the pod waits for that."""
        copy = attempt.logs[pod]
        end_of_turn = time.monotonic() + _TURN_SECONDS
        try:
            is_unfinished = copy.follow(lambda: self._followed > _FOLLOWERS and time.monotonic() > end_of_turn)
            if copy.is_held:
                with cancellation.entered(self._scope):
                    self._fetch_logs(attempt, pod)
        except Exception:  # a thread pool would not report it
            log.exception("the log of %s could not be followed", pod)
            is_unfinished = False
        with self._lock:
            if is_unfinished and not self._is_closed.is_set():
                self._followers.submit(self._follow, attempt, pod)
            else:
                self._followed -= 1

    def _fetch_logs(self, attempt: Attempt, pod: str) -> None:
        """Fetch the logs of a pod whose workload has ended, so that the pod ends too."""
        copy = attempt.logs[pod]
        copy.close()
        place = copy.file.parent
        selection = Selection((), STREAMS, filesystem.make_directory(place), container=WORKLOAD)
        try:
            fetching.fetch(self._cluster, pod, attempt.pod.interpreter, attempt.there, selection, attempt.wait)
        except StepError as error:
            log.warning("the logs of %s cannot be fetched: %s", pod, error)

    def _finish(self, attempt: Attempt) -> None:
        """Write the outcome of an attempt, and report it even if writing fails."""
        outcome = attempt.outcome
        assert outcome is not None, "it has ended"
        pods = self.pods_of(attempt)
        status = AttemptStatus(AttemptState.ENDED, outcome)
        try:
            for copy in list(attempt.logs.values()):
                copy.close()
            pod_results.write_logs(attempt, pods)
            outcome = pod_results.settled(self._cluster, attempt, pods, outcome)
            pod_results.keep(attempt, outcome)
            status = AttemptStatus(AttemptState.ENDED, outcome)
            has_more = any(pod.is_deleted or pod.ended is None for pod in pods) or len(pods) < attempt.expected
            if has_more and not any(pod.holds_files for pod in pods) and not self._remove(attempt.job):
                # Remove the Job, because a waiting pod might start, and a deleted pod might be replaced. A Job whose
                # pods hold files is kept: the backend releases it soon.
                text = f"{outcome.message}\nits Job could not be removed, and may still run"
                status = AttemptStatus(AttemptState.UNREACHABLE, message=text)
        finally:
            self._tell(attempt, status)

    def _tell(self, attempt: Attempt, status: AttemptStatus) -> None:
        with self._lock:
            if not attempt.is_running or self._is_closed.is_set():
                return
            attempt.status = status
        self._notify(attempt.name)

    def _mind_the_time(self) -> None:
        """End attempts that have not started in time, and follow logs. Time in a queue does not count."""
        while not self._is_closed.wait(_CLOCK_SECONDS):
            try:
                self._tick(time.monotonic())
            except Exception:  # without the clock, attempts might wait for ever
                log.exception("%s: a check of the time limits failed; the checks continue", self._cluster.label)

    def _tick(self, now: float) -> None:
        self._follow_what_lasts(now)
        with self._lock:
            for attempt in self._running():
                if not attempt.outcome:
                    self._stop_on(attempt)
            waiting = [attempt for attempt in self._running() if not attempt.has_started and not attempt.outcome]
            for attempt in waiting:
                view = self._jobs.get(attempt.job)
                if view is not None and view.is_suspended:
                    attempt.since = now
            late = {attempt.name for attempt in waiting if now - attempt.since > attempt.wait}
            asked = [attempt for attempt in self._running() if attempt.name in late or attempt.has_to_be_asked(now)]
            asked = [attempt for attempt in asked if not (attempt.is_asked or attempt.outcome)]
            for attempt in asked:
                attempt.is_asked = True
            waits_long = [attempt for attempt in waiting if now - attempt.submitted > _WAITING_SECONDS]
        self._say_what_is_awaited(waits_long, now)
        for attempt in asked:
            self._do(self._ask, attempt, attempt.name in late)

    def _say_what_is_awaited(self, attempts: Iterable[Attempt], now: float) -> None:
        """Set the status message of each attempt to the reason why it has not started yet."""
        needs_events = False
        for attempt in attempts:
            with self._lock:
                pods, view = self._members(attempt), self._jobs.get(attempt.job)
                needs_events = needs_events or unready.needs_events(view, pods)
                events = self._newest_events
            self._set_waiting(attempt, unready.reason(view, pods, queue=attempt.pod.queue, events=events))
        if needs_events and now - self._events_at > _EVENTS_SECONDS:
            self._events_at = now
            self._do(self._fetch_events)

    def _fetch_events(self) -> None:
        """Fetch all events of the namespace, in one request for all waiting attempts."""
        try:
            found = list(Objects(self._cluster).listed(Query(EVENT, self._cluster.namespace), timeout=_ASK_SECONDS))
        except StepError as error:
            log.debug("%s: %s", self._cluster.label, error)
            return
        found.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
        newest = {str(event["involvedObject"].get("name")): str(event.get("message", "")) for event in found}
        with self._lock:
            self._newest_events = {name: newest[name] for name in newest if self._is_of_ours(name)}

    def _is_of_ours(self, name: str) -> bool:
        return name in self._by_job or any(name in pods for pods in self._pods.values())

    def _set_waiting(self, attempt: Attempt, reason: str) -> None:
        with self._lock:
            if not attempt.is_running or attempt.outcome is not None or attempt.status.message == reason:
                return
            attempt.status = AttemptStatus(AttemptState.RUNNING, message=reason)
        self._notify(attempt.name)

    def _do(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do work in another thread, unless the tracker is closed."""

        def tried() -> None:
            try:
                with cancellation.entered(CancelScope()):  # finish attempts even if the run is cancelled
                    work(*arguments)
            except Exception:  # a thread pool would not report it
                log.exception("%s has failed", self._cluster.label)

        with self._lock:
            if not self._is_closed.is_set():
                self._finishers.submit(tried)

    def _ask(self, attempt: Attempt, is_late: bool) -> None:
        """Read the pods and the Job of an attempt from the server, and check whether the attempt has ended.

        The clock thread repeats a failed request.

        Args:
            attempt: the attempt.
            is_late: whether to end the attempt if it has not started by now.
        """
        try:
            is_certain = self._refresh(attempt)
            self._look(attempt.job, is_fresh=True, is_certain=is_certain)
            if is_late:
                self._end_late(attempt)
        except StepError as error:
            log.debug("%s: %s", attempt.name, error)
        finally:
            with self._lock:
                attempt.is_asked = False

    def _refresh(self, attempt: Attempt) -> bool:
        """Read the state of an attempt from the server, and return whether no pod of it can still report anything.

        Raises:
            StepError: the server does not answer.
        """
        objects, namespace = Objects(self._cluster), self._cluster.namespace
        query = Query(POD, namespace, f"{views.ATTEMPT_LABEL}={attempt.job}")
        with self._lock:
            past, past_job = dict(self._pods.get(attempt.job, {})), self._jobs.get(attempt.job)
        found = {view.name: view for view in map(views.pod, objects.listed(query, timeout=_ASK_SECONDS))}
        kind = JOB_SET if attempt.pod.slices > 1 else JOB
        job = objects.read(kind, namespace, attempt.job, timeout=_ASK_SECONDS)
        with self._lock:
            if attempt.job not in self._by_job:
                return False  # the attempt is no longer tracked
            known = self._pods.setdefault(attempt.job, {})
            # Keep the changes that the watch has reported meanwhile: they are newer.
            same = {name for name in {**found, **known} if known.get(name) is past.get(name)}
            known.update({name: pod for name, pod in found.items() if name in same})
            if self._jobs.get(attempt.job) is past_job:
                last = past_job or JobView(attempt.job, "")
                self._jobs[attempt.job] = views.job(job) if job else dataclasses.replace(last, is_deleted=True)
            view = self._jobs[attempt.job]
            is_ending = (
                attempt.found or view.is_deleted or view.condition or any(pod.is_deleted for pod in known.values())
            )
            # A deleted pod still reports its outcome, by the watch, unless its node is lost.
            silent = [pod.grace_seconds for pod in known.values() if pod.may_run] if is_ending else []
            now = time.monotonic()
            if silent and attempt.patient_until is None:
                attempt.patient_until = now + max(silent) + _KILL_SECONDS
            is_certain = not silent or now >= (attempt.patient_until or 0)
            attempt.ask_at = None if is_certain else attempt.patient_until
            if is_certain:
                known.update({name: views.gone(known[name]) for name in same - set(found)})
            return is_certain

    def _end_late(self, attempt: Attempt) -> None:
        """End an attempt that has not started and does not wait in a queue."""
        with self._lock:
            pods, view = self._members(attempt), self._jobs.get(attempt.job)
        if attempt.has_started or attempt.outcome or (view is not None and view.is_suspended):
            return
        names = [attempt.job, *[pod.name for pod in pods if not pod.has_started][:1]]
        try:
            events = [event for name in names for event in self._events(name)]
        except StepError as error:
            events = [str(error)]
        if not attempt.has_started:
            self.end(attempt, endings.overdue(pods, attempt.wait, events))


@dataclass(frozen=True, slots=True)
class _EventHandler:
    """Passes the changes of a watch on; see `toolbox.kubernetes.api.watching.EventHandler`.

    Args:
        take: called with each object, and whether it is gone.
        keep: called with the names of all objects that exist.
        unreachable: as in `EventHandler`.
    """

    take: Callable[[Json, bool], None]
    keep: Callable[[set[str]], None]
    unreachable: Callable[[float, str], None]

    def listed(self, objects: Iterable[Json]) -> None:
        """Handle the complete list of objects."""
        names = set()
        for found in objects:
            names.add(str(found["metadata"]["name"]))
            self.take(found, False)
        self.keep(names)

    def changed(self, kind: str, found: Json) -> None:
        """Handle a change of an object."""
        self.take(found, kind == "DELETED")
