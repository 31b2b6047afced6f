"""Follows the logs of running pods in a bounded number of threads, and fetches the logs of pods that wait for that."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.pods import fetching
from toolbox.features.kubernetes.pods.fetching import Selection, WorkloadRuns
from toolbox.features.kubernetes.pods.pod_attempts import PodAttempt
from toolbox.features.kubernetes.pods.pod_logs import LiveCopy
from toolbox.features.kubernetes.pods.pod_state import WORKLOAD, PodView
from toolbox.ground.kit.attempt_files import STREAMS
from toolbox.ground.model import backoff
from toolbox.ground.model.errors import StepError
from toolbox.ground.system import cancellation, filesystem
from toolbox.ground.system.cancellation import CancelScope

log = logging.getLogger(__name__)

_FOLLOWERS: Final = 64  # number of logs to follow at once; more logs take turns
_TURN_SECONDS: Final = 20.0
_OTHERS_EVERY: Final = 4  # this share of the turns goes to pods that cannot hold their logs
# While logs take turns, a follower waits this long for new output before it checks whether its turn is over.
_SHORTEST_TIMEOUT: Final = 0.5
_LONGEST_TIMEOUT: Final = 5.0
_SHORT_SECONDS: Final = 1.0  # a workload that ends within this time needs no request for its log
_FIRST_PAUSE: Final = 1.0  # in seconds, after logs could not be fetched
_LONGEST_PAUSE: Final = 60.0


class LogFollowers:
    """The threads that follow the logs of the pods of one run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._scope = CancelScope()
        self._threads = ThreadPoolExecutor(_FOLLOWERS, thread_name_prefix="logs")
        self._followed = 0  # number of logs that are followed, or wait for their turn
        # The logs that wait for a thread. Most turns go to pods that may hold their logs: they occupy their nodes.
        self._first: deque[tuple[PodAttempt, str]] = deque()
        self._others: deque[tuple[PodAttempt, str]] = deque()
        self._turns = 0

    def note(self, attempt: PodAttempt, pods: Iterable[PodView]) -> None:
        """Note which pods of an attempt run. The logs of pods that run for a while are followed."""
        for pod in pods:
            if pod.name in attempt.logs:
                attempt.logs[pod.name].is_over = not pod.is_running
            elif pod.is_running:
                file = attempt.place(pod.index).stdout
                attempt.logs[pod.name] = LiveCopy(
                    self._cluster, pod.name, file, log_bytes=attempt.log_bytes, may_hold=not pod.has_files
                )

    def start_due(self, attempt: PodAttempt, now: float) -> None:
        """Start to follow the logs of those pods of an attempt that have run for a while."""
        for pod, copy in attempt.logs.items():
            if not (copy.is_followed or copy.is_over) and now - copy.since > _SHORT_SECONDS and now >= copy.due:
                copy.is_followed = True
                with self._lock:
                    self._followed += 1
                self._enqueue(attempt, pod)

    def close(self) -> None:
        """Stop all threads."""
        self._scope.cancel("the connection to the cluster is closed")
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _enqueue(self, attempt: PodAttempt, pod: str) -> None:
        (self._first if attempt.logs[pod].may_hold else self._others).append((attempt, pod))
        self._threads.submit(self._follow_next)

    def _follow_next(self) -> None:
        with self._lock:
            self._turns += 1
            is_turn_of_others = self._others and self._turns % _OTHERS_EVERY == 0
            attempt, pod = (self._others if is_turn_of_others else self._first or self._others).popleft()
        self._follow(attempt, pod)

    def _follow(self, attempt: PodAttempt, pod: str) -> None:
        """Follow the log of a pod for a turn, or fetch the logs if the pod waits for that."""
        copy = attempt.logs[pod]
        end_of_turn = time.monotonic() + _TURN_SECONDS
        is_unfinished = is_requested = is_fetched = False
        try:
            is_unfinished = copy.follow(
                lambda: self._followed > _FOLLOWERS and time.monotonic() > end_of_turn,
                lambda: self._timeout(end_of_turn),
            )
            is_requested = copy.is_held
            if is_requested:
                with copy.fetching, cancellation.entered(self._scope):
                    is_fetched = self._fetch(attempt, pod)
        except Exception:  # a thread pool would not report it
            log.exception("the log of %s could not be followed", pod)
        if is_unfinished and self._scope.reason is None:
            self._enqueue(attempt, pod)
            return
        with self._lock:
            self._followed -= 1
        if is_requested and not is_fetched:
            copy.due = time.monotonic() + backoff.pause(copy.tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)
            copy.tries += 1
            copy.is_followed = False  # `start_due` starts to follow the log again

    def _timeout(self, end_of_turn: float) -> float:
        """Return for how long a log may be silent before its follower checks whether its turn is over."""
        if self._followed <= _FOLLOWERS:
            return math.inf
        return min(max(end_of_turn - time.monotonic(), _SHORTEST_TIMEOUT), _LONGEST_TIMEOUT)

    def _fetch(self, attempt: PodAttempt, pod: str) -> bool:
        """Fetch the logs of a pod whose workload has ended, so that the pod ends too. Return whether it will end."""
        copy = attempt.logs[pod]
        selection = Selection((), STREAMS, filesystem.make_directory(copy.file.parent), container=WORKLOAD)
        try:
            return fetching.fetch(self._cluster, pod, attempt.pod.interpreter, attempt.there, selection, attempt.wait)
        except WorkloadRuns:
            copy.go_on()  # the workload itself has printed the line
        except StepError as error:
            log.warning("the logs of %s cannot be fetched: %s", pod, error)
        return False
