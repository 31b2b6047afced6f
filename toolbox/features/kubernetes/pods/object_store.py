"""The Jobs and pods of a run, as its watches and further requests to the server have reported them.

The tracker reads the store after each change. The store makes no decisions.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from toolbox.features.kubernetes.api.connection import Cluster, Json
from toolbox.features.kubernetes.api.objects import JOB_SET, POD, Kind, Objects, Query
from toolbox.features.kubernetes.api.watching import Watch
from toolbox.features.kubernetes.pods import pod_state
from toolbox.features.kubernetes.pods.pod_state import JobView, PodView

_REQUEST_SECONDS: Final = 10.0


class Store:
    """The Jobs and pods of one run in one namespace.

    Args:
        selector: the label selector for the objects of the run.
        changed: called with the name of a Job after a change of the Job or of its pods.
        lock: held during each change. A caller may hold it to read several objects at the same time.
    """

    def __init__(self, cluster: Cluster, selector: str, changed: Callable[[str], None], lock: threading.RLock) -> None:
        self._cluster = cluster
        self._selector = selector
        self._changed = changed
        self.lock = lock
        self._tracked: set[str] = set()  # the Jobs whose objects are kept after they are gone
        self._jobs: dict[str, JobView] = {}
        self._pods: dict[str, dict[str, PodView]] = {}

    def watch(self, kind: Kind, unreachable: Callable[[float, str], None]) -> Watch:
        """Return a new watch that updates the store.

        Args:
            unreachable: see `toolbox.features.kubernetes.api.watching.EventHandler`.
        """
        keep_jobs = functools.partial(self.keep_jobs, are_sets=kind == JOB_SET)
        take, keep = (self._take_pod, self.keep_pods) if kind == POD else (self._take_job, keep_jobs)
        query = Query(kind, self._cluster.namespace, self._selector)
        return Watch(self._cluster, query, _EventHandler(take, keep, unreachable))

    def track(self, job: str) -> None:
        """Keep the objects of a Job after they are gone."""
        with self.lock:
            self._tracked.add(job)

    def forget(self, job: str) -> None:
        """Forget a Job and its pods."""
        with self.lock:
            self._tracked.discard(job)
            self._jobs.pop(job, None)
            self._pods.pop(job, None)

    def job(self, name: str) -> JobView | None:
        """Return a Job; None if it has not been seen yet."""
        with self.lock:
            return self._jobs.get(name)

    def pods(self, job: str) -> list[PodView]:
        """Return all pods of a Job, including replacements of lost pods."""
        with self.lock:
            return list(self._pods.get(job, {}).values())

    def members(self, job: str, expected: int) -> list[PodView]:
        """Return the `expected` pods of a Job, ordered by index. Replacements of lost pods are left out."""
        pods = self.pods(job)
        known = {pod.index: pod for pod in reversed(pods) if pod.index is not None}
        if known:
            return [known[index] for index in sorted(known)]
        if expected > 1:
            pods = [dataclasses.replace(pod, index=number) for number, pod in enumerate(pods)]
        return pods[:expected]

    def has_object(self, name: str) -> bool:
        """Return whether a tracked Job, or a pod, has this name."""
        with self.lock:
            return name in self._tracked or any(name in pods for pods in self._pods.values())

    def see_job(self, view: JobView, *, is_gone: bool = False) -> None:
        """Record the state of a Job."""
        with self.lock:
            if is_gone and self._drop(view.name):
                return
            if self._jobs.get(view.name) == view:
                return  # the change is in a field that the view leaves out
            self._jobs[view.name] = view
        self._changed(view.name)

    def see_pod(self, view: PodView, *, is_gone: bool = False) -> None:
        """Record the state of a pod."""
        with self.lock:
            if is_gone and self._drop(view.job, view.name):
                return
            of_job = self._pods.setdefault(view.job, {})
            if of_job.get(view.name) == view:
                return  # the change is in a field that the view leaves out
            of_job[view.name] = view
        self._changed(view.job)

    def keep_jobs(self, names: set[str], *, are_sets: bool = False) -> None:
        """Mark all Jobs, or all JobSets, as gone whose names are not in `names`."""
        with self.lock:
            gone = [view for name, view in self._jobs.items() if name not in names and view.is_set == are_sets]
        for view in gone:
            self.see_job(dataclasses.replace(view, is_deleted=True), is_gone=True)

    def keep_pods(self, names: set[str]) -> None:
        """Mark as gone all pods whose names are not in `names`."""
        with self.lock:
            gone = [view for pods in self._pods.values() for name, view in pods.items() if name not in names]
        for view in gone:
            self.see_pod(pod_state.gone(view), is_gone=True)

    def refresh(self, job: str, kind: Kind, is_certain: Callable[[JobView, list[PodView]], bool]) -> bool:
        """Read a Job and its pods from the server.

        Args:
            is_certain: returns whether no pod of the Job can still report anything; called with the new state. Pods
                that the server no longer has are then marked as gone.

        Returns:
            the result of `is_certain`; False if the Job is no longer tracked.

        Raises:
            StepError: the server does not answer.
        """
        objects, namespace = Objects(self._cluster), self._cluster.namespace
        query = Query(POD, namespace, f"{pod_state.ATTEMPT_LABEL}={job}")
        with self.lock:
            past, past_job = dict(self._pods.get(job, {})), self._jobs.get(job)
        present = {view.name: view for view in map(pod_state.pod, objects.listed(query, timeout=_REQUEST_SECONDS))}
        answer = objects.read(kind, namespace, job, timeout=_REQUEST_SECONDS)
        with self.lock:
            if job not in self._tracked:
                return False
            known = self._pods.setdefault(job, {})
            # Keep the changes that the watch has reported meanwhile: they are newer.
            same = {name for name in {**present, **known} if known.get(name) is past.get(name)}
            known.update({name: pod for name, pod in present.items() if name in same})
            if self._jobs.get(job) is past_job:
                last = past_job or JobView(job, "")
                self._jobs[job] = pod_state.job(answer) if answer else dataclasses.replace(last, is_deleted=True)
            if not is_certain(self._jobs[job], list(known.values())):
                return False
            known.update({name: pod_state.gone(known[name]) for name in same - set(present)})
            return True

    # The handlers of events, see `_EventHandler`. The view of an object that is dropped at once is not built.

    def _take_job(self, found: Json, is_gone: bool) -> None:
        name, job = _names(found)
        # Ignore the Jobs of a JobSet: the JobSet itself is tracked.
        if job == name and not (is_gone and self._drop(job)):
            self.see_job(pod_state.job(found, is_gone=is_gone), is_gone=is_gone)

    def _take_pod(self, found: Json, is_gone: bool) -> None:
        name, job = _names(found)
        if job and not (is_gone and self._drop(job, name)):
            self.see_pod(pod_state.pod(found, is_gone=is_gone), is_gone=is_gone)

    def _drop(self, job: str, pod: str | None = None) -> bool:
        """Forget a Job or a pod that is gone, unless the Job is tracked. Return whether it is forgotten."""
        with self.lock:
            if job in self._tracked:
                return False
            if pod is None:
                self._jobs.pop(job, None)
            elif (of_job := self._pods.get(job)) is not None:
                of_job.pop(pod, None)
                if not of_job:
                    del self._pods[job]
            return True


def _names(found: Json) -> tuple[str, str]:
    """Return the name of an object and the name of its Job or JobSet, which is empty if it has none."""
    meta = found["metadata"]
    return meta["name"], meta.get("labels", {}).get(pod_state.ATTEMPT_LABEL, "")


@dataclass(frozen=True, slots=True)
class _EventHandler:
    """Passes the changes of a watch on; see `toolbox.features.kubernetes.api.watching.EventHandler`.

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
