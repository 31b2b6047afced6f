"""The site of the backend `kubernetes`: a namespace of a real cluster, behind a proxy that can break connections.

This machine is a node of the cluster, so that the tests see the files and processes of pods, as for other backends.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from tests.conformance.sites import TIMEOUT, Connection, Site, wait_for
from tests.features.kubernetes.servers.api_proxy import Proxy
from tests.features.kubernetes.servers.kubernetes import Cluster
from toolbox.ground.model.workloads import Handle

ROOT: Final = Path("/topgallant")
_NOWHERE: Final = Path("/nonexistent")


@dataclass(frozen=True, slots=True)
class Pods(Site):
    """A namespace of a cluster.

    Args:
        proxy: proxy between the orchestrators and the cluster. It is also `server`.
        cluster: direct access to the cluster, which the tests use to inspect it.
        namespace: namespace of the pods.
    """

    proxy: Proxy = field(kw_only=True)
    cluster: Cluster = field(kw_only=True)
    namespace: str = field(kw_only=True)

    def seen(self, handle: Handle) -> Path:
        """See `Site`."""
        return ROOT / handle.name

    def directory(self, handle: Handle) -> Path:
        """See `Site`. The directory exists only while the pod exists."""
        if self.attempts is not None:
            return self.attempts
        pod = next(iter(self._pods(handle)), None)
        if pod is None:
            return _NOWHERE / handle.name
        return self.cluster.kubelet / "pods" / str(pod.metadata.uid) / "volumes/kubernetes.io~empty-dir/attempt"

    def has_ended(self, handle: Handle) -> bool:
        """See `Site`."""
        found = (status for pod in self._pods(handle) for status in pod.status.container_statuses or ())
        return any(status.name == "workload" and status.state.terminated for status in found)

    def is_submitted(self, handle: Handle) -> bool:
        """See `Site`."""
        return bool(self._jobs(handle))

    def supervisor(self, handle: Handle) -> psutil.Process:
        """See `Site`. The supervisor has recorded its process id in the namespace of its container."""
        wait_for((self.directory(handle) / "started").exists, "the start of the supervisor")
        number = json.loads((self.directory(handle) / "started").read_text())["pid"]
        words = {
            "supervise",
            str(self.seen(handle)),
        }  # the workload has these words too, before it executes its program
        found = (process for process in psutil.process_iter(["cmdline"]) if words <= {*(process.info["cmdline"] or ())})
        return next(process for process in found if _number_inside(process) == number)

    def remains(self, handle: Handle) -> list[str]:
        """See `Site`."""
        return _after_a_while(lambda: [item.metadata.name for item in (*self._jobs(handle), *self._pods(handle))])

    def remains_of(self, run: str) -> list[str]:
        """See `Site`."""
        return _after_a_while(lambda: self.cluster.things(self.namespace, f"topgallant.dev/run={run}"))

    def remove(self, handle: Handle) -> None:
        """See `Site`."""
        from kubernetes.client import ApiException

        for job in self._jobs(handle):
            with suppress(ApiException):  # the Job has already been deleted
                self.cluster.batch.delete_namespaced_job(
                    job.metadata.name, self.namespace, propagation_policy="Background"
                )

    def connections(self, mark: Path) -> Sequence[Connection]:  # noqa: ARG002  # all orchestrators have the same proxy
        """See `Site`."""
        return self.proxy.connections()

    def drop(self, mark: Path) -> None:  # noqa: ARG002
        """See `Site`."""
        self.proxy.drop()
        self.proxy.resume()

    def stall(self, mark: Path) -> None:  # noqa: ARG002
        """See `Site`."""
        self.proxy.stall()

    def crowded(self, disk: Path) -> Pods:
        """See `Site`."""
        volume: Any = {"name": "attempt", "emptyDir": None, "hostPath": {"path": str(disk)}}
        target: Any = self.description
        pod = {**target.pod, "patch": {"spec": {"template": {"spec": {"volumes": [volume]}}}}}
        return dataclasses.replace(self, description=target.model_copy(update={"pod": pod}), attempts=disk)

    def _jobs(self, handle: Handle) -> list[Any]:
        jobs = self.cluster.batch.list_namespaced_job(self.namespace).items
        return [job for job in jobs if _mounts(job.spec.template.spec.containers, self.seen(handle))]

    def _pods(self, handle: Handle) -> list[Any]:
        pods = self.cluster.core.list_namespaced_pod(self.namespace).items
        return [pod for pod in pods if _mounts(pod.spec.containers, self.seen(handle))]


def _after_a_while(find: Callable[[], list[str]]) -> list[str]:
    """Return the objects that `find` still finds after Kubernetes had time to delete them."""
    deadline = time.monotonic() + TIMEOUT
    while (found := find()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _mounts(containers: Iterable[Any], path: Path) -> bool:
    """Return whether containers mount the directory of an attempt, which identifies the pod of the attempt."""
    return any(mount.mount_path == str(path) for found in containers for mount in found.volume_mounts or ())


def _number_inside(process: psutil.Process) -> int:
    """Return the process id of a process in its innermost process namespace."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])
