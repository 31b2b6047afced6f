"""The site of the backend `tpu_vm`: a TPU of the test server, whose worker is an SSH server in separate namespaces.

The tests see the files and processes of the worker from outside its namespaces.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.conformance.sites import Orchestrator, Site, wait_for, workload
from tests.features.tpu.servers import tpu
from tests.servers.tcp_proxy import Proxy
from toolbox.ground.model.workloads import Handle

_ATTEMPTS: Final = ".cache/topgallant/attempts"
_NOWHERE: Final = Path("/nonexistent")


class Outage:
    """The proxies of the API and of SSH, which break and return together."""

    def __init__(self, server: tpu.Server) -> None:
        self.api = Proxy(lambda _: ("127.0.0.1", server.port))
        self.ssh = Proxy(lambda address: (address[0], server.ssh_port))  # each worker has its own address

    def stop(self) -> None:
        """Break all connections, and refuse new ones."""
        self.api.stop()
        self.ssh.stop()

    def start(self) -> None:
        """Serve again."""
        self.api.start()
        self.ssh.start()


@dataclass(frozen=True, slots=True)
class Tpus(Site):
    """A project with one TPU for all attempts of a run.

    Args:
        cloud: the test server.
    """

    cloud: tpu.Server = field(kw_only=True)

    def create(self, directory: Path) -> None:
        """Create the TPU of the run by a first attempt. Later attempts start at once, as on other targets."""
        orchestrator = Orchestrator(self, directory)
        (directory / "attempt").mkdir(parents=True)
        handle = orchestrator.backend.submit(workload("true"), "first", directory / "attempt")
        orchestrator.end_of(handle)
        orchestrator.backend.close()

    def seen(self, handle: Handle) -> Path:
        """See `Site`."""
        return Path("/root") / _ATTEMPTS / handle.name

    def directory(self, handle: Handle) -> Path:
        """See `Site`."""
        found = (worker.directory / "disk/root" / _ATTEMPTS / handle.name for worker in self._workers())
        return next((directory for directory in found if directory.exists()), _NOWHERE / handle.name)

    def supervisor(self, handle: Handle) -> psutil.Process:
        """See `Site`. The supervisor has recorded its process id in the namespace of the worker."""
        wait_for((self.directory(handle) / "started").exists, "the start of the supervisor")
        number = json.loads((self.directory(handle) / "started").read_text())["pid"]
        spaces = {_space(process) for worker in self._workers() for process in _first_processes(worker)}
        candidates = (process for process in psutil.process_iter() if _space(process) in spaces)
        return next(process for process in candidates if _number_inside(process) == number)

    def remains_of(self, run: str) -> list[str]:
        """See `Site`."""
        return [str(node["name"]) for node in self.cloud.nodes() if node["labels"]["topgallant-run"] == run]

    def crowded(self, disk: Path) -> Site:  # noqa: ARG002  # other sites use it
        """See `Site`."""
        pytest.skip("a worker has namespaces of its own, where a disk cannot be mounted later; it has the agent of ssh")

    def _workers(self) -> list[tpu.Worker]:
        return [worker for node in self.cloud.nodes() for worker in self.cloud.workers(str(node["name"]))]


def _first_processes(worker: tpu.Worker) -> list[psutil.Process]:
    """Return process 1 of a worker."""
    outside = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(worker.directory) in (process.info["cmdline"] or []) and "unshare" in (process.info["cmdline"] or [])
    ]
    return [child for process in outside for child in process.children()]


def _space(process: psutil.Process) -> str:
    """Return the PID namespace of a process; empty if the process has ended."""
    try:
        return str(Path(f"/proc/{process.pid}/ns/pid").readlink())
    except OSError:
        return ""


def _number_inside(process: psutil.Process) -> int:
    """Return the id of a process in its PID namespace."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])
