"""Helpers for the tests of the tracker: a tracker on a fake API server, and the objects that the server sends."""

from __future__ import annotations

import base64
import io
import tarfile
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Queue
from typing import Any

from tests.features.kubernetes.fakes.api_server import Request
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.pods.attempt_clock import Clock
from toolbox.features.kubernetes.pods.description import Pod
from toolbox.features.kubernetes.pods.pod_attempts import PodAttempt
from toolbox.features.kubernetes.pods.pod_state import ATTEMPT_LABEL, Ended, JobView, PodView
from toolbox.features.kubernetes.pods.tracker import Tracker
from toolbox.ground.model.workloads import EndedBy, Handle, WorkloadOutcome

JOBS, PODS = "/apis/batch/v1/namespaces/tests/jobs", "/api/v1/namespaces/tests/pods"
EVENTS = "/api/v1/namespaces/tests/events"
COMPLETE = JobView("j", "u", condition="Complete", reason="Completed")
RUNNING = PodView("p", "u", "j", node="n", is_running=True)


def report(code: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a report in the format of the agent's termination message."""
    known = WorkloadOutcome(EndedBy.EXIT, code).as_json()
    return {**known, "logs": {"stdout": [0, 0], "stderr": [0, 0]}, "left": 0, **fields}


def ended(name: str = "p", job: str = "j", code: int = 0, **fields: Any) -> PodView:
    message = report(code, **fields.pop("report", {}))
    return PodView(name, f"uid-{name}", job, node="n", ended=Ended(code, "Completed", "", message), **fields)


def logs(**contents: bytes) -> dict[str, Any]:
    """Return the record of logs in the format of the agent, with the contents of the logs."""
    whole = {"stdout": b"", "stderr": b"", **contents}
    packed = base64.b64encode(zlib.compress(b"".join(whole.values()))).decode()
    return {**{stream: [len(text), zlib.crc32(text)] for stream, text in whole.items()}, "content": packed}


def stamped(*lines: str, first: int = 0) -> bytes:
    """Return log lines with the timestamps that a node adds."""
    times = (f"2026-01-02T03:04:{number:02}.000000000Z" for number in range(first, 60))
    return "".join(f"{moment} {line}\n" for moment, line in zip(times, lines, strict=False)).encode()


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return files as a tar archive, the format in which an agent sends them."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as whole:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            whole.addfile(member, io.BytesIO(text))
    return content.getvalue()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Followed:
    """A tracker, with queues of the attempts that it reports and of the Jobs that it removes."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.directory = directory
        self.notified: Queue[str] = Queue()
        self.removed: Queue[str] = Queue()
        self.can_remove = True
        self.tracker = Tracker(cluster, "run=r", self.notified.put, self._remove)
        self.clock = Clock(cluster, self.tracker, lambda job: [f"an event of {job}"])

    def start(self) -> None:
        """Start the watches and the clock."""
        self.tracker.start(5)
        self.clock.start()

    def close(self) -> None:
        """Stop the clock and the tracker."""
        self.clock.close()
        self.tracker.close()

    def add(self, name: str = "a", job: str = "j", wait: float = 60, **pod: Any) -> PodAttempt:
        handle = Handle(name, self.directory / name)
        attempt = PodAttempt(handle, job, f"/topgallant/{name}", wait, Pod(image="i", **pod))
        attempt.directory.mkdir()
        self.tracker.add(attempt)
        return attempt

    def _remove(self, job: str) -> bool:
        self.removed.put(job)
        return self.can_remove

    def outcome(self, attempt: PodAttempt) -> WorkloadOutcome:
        """Wait until the tracker reports an attempt, and return its outcome."""
        assert self.notified.get(timeout=20) == attempt.name
        assert attempt.status.outcome is not None
        return attempt.status.outcome


def pod_json(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return a pod in the format of the API server."""
    return {
        "metadata": {"name": name, "uid": "u", "labels": {ATTEMPT_LABEL: "j"}, "resourceVersion": "5"},
        "spec": {"nodeName": "n", "containers": [{"name": "workload"}]},
        "status": {"containerStatuses": [{"name": "workload", "state": state}]},
    }


def listed_for(pods: list[dict[str, Any]]) -> Callable[[Request], dict[str, Any]]:
    """Return an answer that lists these pods if the request selects the attempt, and otherwise no pods."""

    def answer(request: Request) -> dict[str, Any]:
        items = pods if request.get("labelSelector") == f"{ATTEMPT_LABEL}=j" else []
        return {"metadata": {"resourceVersion": "1"}, "items": items}

    return answer
