"""How attempts are stopped: their agents are asked, and a Job is removed only when nobody is left who may hear it.

A node may go on starting the container of a pod that is deleted, and then nobody hears how that ended (seen with
Kubernetes 1.20). While its Job is there, each end is heard. So a pod that may start is waited for, and asked when it
runs: what its agent says is true. When to look is the tracker's affair, and so is what the end comes to.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from toolbox.kubernetes.pods import endings
from toolbox.kubernetes.pods.views import PodView
from toolbox.model.errors import StepError
from toolbox.system import cancellation
from toolbox.system.cancellation import CancelScope

log = logging.getLogger(__name__)

_ASKERS: Final = 32  # a node that does not answer holds one of them for a minute
_AGAIN_SECONDS: Final = 3.0  # between two tries to ask a pod
_RUN_SECONDS: Final = 30.0  # that a pod which runs may take to hear it, and beyond its start and grace to tell its end
_START_SECONDS: Final = 15.0  # that a node may take to start a pod
_PLACE_SECONDS: Final = 2.0  # that a new pod may take to come, and to get a node where there is one for it


@dataclass(slots=True)
class Stop:
    """The way of an attempt to its end.

    Args:
        since: when that was asked for, by the monotonic clock.
        asked: when its pods were asked last, by their names; and who of them has `heard` it.
        is_over: whether nobody is waited for any more: the Job is removed, or about to be.
    """

    since: float
    asked: dict[str, float] = field(default_factory=dict)
    heard: set[str] = field(default_factory=set)
    is_over: bool = False

    def awaits(self, pods: Iterable[PodView], now: float, *, more: bool) -> bool:
        """Tell whether pods are waited for: until they tell their end, or for as long as each may take.

        Args:
            more: whether others are still to come.
        """
        waited = now - self.since
        alive = [pod for pod in pods if pod.ended is None and not (pod.is_over or endings.is_stuck(pod))]
        return (more and waited < _PLACE_SECONDS) or any(waited < self._patience(pod) for pod in alive)

    def _patience(self, pod: PodView) -> float:
        if pod.name in self.heard:
            return pod.grace_seconds + _START_SECONDS + _RUN_SECONDS
        if pod.is_running:
            return _RUN_SECONDS
        return _START_SECONDS if pod.node else _PLACE_SECONDS


class Asking:
    """Asks the agents of pods to end what they run, in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_ASKERS, thread_name_prefix="stop")
        self._lock = threading.Lock()
        self._asking: set[str] = set()

    def ask(self, stop: Stop, pods: Iterable[PodView], ask: Callable[[str], None], now: float) -> None:
        """Ask those of some pods that run and have not heard it; not again so soon.

        Args:
            ask: asks a pod by its name, and raises StepError where it cannot hear.
        """
        with self._lock:
            for pod in pods:
                name, last = pod.name, stop.asked.get(pod.name)
                is_due = last is None or now - last > _AGAIN_SECONDS
                if pod.is_running and is_due and name not in stop.heard and name not in self._asking:
                    stop.asked[name] = now
                    self._asking.add(name)
                    self._threads.submit(self._ask, stop, name, ask)

    def close(self) -> None:
        """Ask nobody any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, stop: Stop, pod: str, ask: Callable[[str], None]) -> None:
        try:
            with cancellation.entered(CancelScope()):  # whoever has cancelled the run
                ask(pod)
            stop.heard.add(pod)
        except StepError as error:
            log.debug("%s: %s", pod, error)  # its container has ended, perhaps, and its node has not told
        except Exception:  # a thread of a pool would keep it to itself
            log.exception("%s could not be asked to end", pod)
        finally:
            with self._lock:
                self._asking.discard(pod)
