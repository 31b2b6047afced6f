"""Stops attempts: asks their agents, and lets the Job be removed when no agent is left that could answer.

A node may still start the container of a deleted pod, whose end is then never reported (seen with Kubernetes 1.20).
Every end is reported while the Job exists. So a pod that may still start is waited for, and its agent is asked once it
runs. The tracker decides when to check the pods, and which outcome the attempt has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from toolbox.features.kubernetes.pods import outcome_rules
from toolbox.features.kubernetes.pods.pod_state import PodView
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.workloads import WorkloadOutcome
from toolbox.ground.system import cancellation
from toolbox.ground.system.cancellation import CancelScope

log = logging.getLogger(__name__)

_REQUESTERS: Final = 32  # number of threads: a node that does not answer blocks one for a minute
_AGAIN_SECONDS: Final = 3.0  # interval of requests to a pod
_RUN_SECONDS: Final = 30.0  # time for a running pod to answer, and for a stopped pod to report its end
_START_SECONDS: Final = 15.0  # time for a node to start a pod
_PLACE_SECONDS: Final = 2.0  # time for a new pod to be created, and to be scheduled if a node has room


@dataclass(slots=True)
class Stop:
    """The progress of stopping an attempt. All times are monotonic.

    Args:
        since: when the stop was requested.
        is_cancellation: whether the run cancelled the attempt.
        is_discard: whether the run removes the Job so that a lost pod is not replaced.
        has_started: whether all pods of the attempt have started.
        outcome: how the attempt ended, while some of its pods may still run.
        requested: for the name of each pod, when the pod was last asked to stop.
        confirmed: the names of the pods whose agents have confirmed the request.
        is_over: whether waiting has ended: the Job is removed, or about to be.
    """

    since: float
    is_cancellation: bool = False
    is_discard: bool = False
    has_started: bool = False
    outcome: WorkloadOutcome | None = None
    requested: dict[str, float] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    is_over: bool = False

    def awaits(self, pods: Iterable[PodView], now: float, *, more: bool) -> bool:
        """Return whether to wait for pods: until they report their end, or until the time limit of each.

        Args:
            more: whether further pods may be created.
        """
        waited = now - self.since
        alive = [pod for pod in pods if pod.ended is None and not (pod.is_over or outcome_rules.is_stuck(pod))]
        return (more and waited < _PLACE_SECONDS) or any(waited < self._timeout(pod) for pod in alive)

    def _timeout(self, pod: PodView) -> float:
        if pod.name in self.confirmed:
            return pod.grace_seconds + _START_SECONDS + _RUN_SECONDS
        if pod.is_running:
            return _RUN_SECONDS
        return _START_SECONDS if pod.node else _PLACE_SECONDS


class AgentCanceller:
    """Asks the agents of pods to end their workloads, in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_REQUESTERS, thread_name_prefix="stop")
        self._lock = threading.Lock()
        self._pending: set[str] = set()

    def request(self, stop: Stop, pods: Iterable[PodView], cancel: Callable[[str], None], now: float) -> None:
        """Ask the running pods that have not confirmed the request, but no pod twice within a few seconds.

        Args:
            cancel: asks the agent of a pod to end its workload, and raises StepError if its agent cannot be reached.
        """
        with self._lock:
            for pod in pods:
                name, last = pod.name, stop.requested.get(pod.name)
                is_due = last is None or now - last > _AGAIN_SECONDS
                if pod.is_running and is_due and name not in stop.confirmed and name not in self._pending:
                    stop.requested[name] = now
                    self._pending.add(name)
                    self._threads.submit(self._request, stop, name, cancel)

    def close(self) -> None:
        """Send no further requests."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _request(self, stop: Stop, pod: str, cancel: Callable[[str], None]) -> None:
        try:
            with cancellation.entered(CancelScope()):  # go on even if the run is cancelled
                cancel(pod)
            stop.confirmed.add(pod)
        except StepError as error:
            log.debug("%s: %s", pod, error)  # the container may have ended without a report from its node yet
        except Exception:  # a thread pool would not report it
            log.exception("%s could not be asked to end", pod)
        finally:
            with self._lock:
                self._pending.discard(pod)
