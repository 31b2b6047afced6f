"""Where the suite of the backends executes: for each backend a target that is real, and on this machine.

The tests look directly at what is on a target: at its files, and at its processes.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from tests.servers import openssh
from toolbox.matrix.targets import Description
from toolbox.model.workloads import (
    AttemptState,
    AttemptStatus,
    Handle,
    TargetContext,
    Timeouts,
    Workload,
    WorkloadOutcome,
)
from toolbox.system import processes

PATIENCE: Final = 60.0  # seconds, for what takes none of that on a machine that is not busy
_LOOK_SECONDS: Final = 0.02
_LIMITS: Final = {"wait": PATIENCE, "run": PATIENCE, "silence": None, "grace": 5.0}


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} was expected within {PATIENCE:g} s"
        time.sleep(_LOOK_SECONDS)


def workload(*command: str, **fields: Any) -> Workload:
    """Return a workload. Its limits of time are given by their names, as its other fields are."""
    limits = {name: fields.pop(name, usual) for name, usual in _LIMITS.items()}
    return Workload(command, timeouts=Timeouts(**limits), **fields)


@dataclass(frozen=True, slots=True)
class Site:
    """A target of one backend.

    Args:
        description: the target, as the configuration describes one.
        attempts: where attempts are on the target; None where that is in the run directory.
        server: what it is reached by, if it is one.
    """

    name: str
    description: Description
    attempts: Path | None = None
    server: openssh.Server | None = None

    def directory(self, handle: Handle) -> Path:
        """Return the directory of an attempt on the target."""
        return handle.directory if self.attempts is None else self.attempts / handle.name


class Orchestrator:
    """Who has workloads executed at a site, and is told of their ends.

    Args:
        mark: by which the processes are found that reach the target; see `toolbox.system.processes`.
    """

    def __init__(self, site: Site, mark: Path) -> None:
        self.site = site
        self.mark = mark
        self.secrets: Sequence[str] = ()
        self.told: list[str] = []
        self._news = threading.Condition()
        self.backend = site.description.open(TargetContext("there", mark, {}, lambda: self.secrets, self._take))

    def status(self, handle: Handle) -> AttemptStatus:
        """Return how an attempt stands, as far as this one knows."""
        return self.backend.poll([handle])[handle]

    def end_of(self, handle: Handle) -> AttemptStatus:
        """Wait until this one is told that an attempt runs no longer."""
        with self._news:
            ended = self._news.wait_for(lambda: self.status(handle).state is not AttemptState.RUNNING, PATIENCE)
        assert ended, f"the end of {handle.name} was expected"
        return self.status(handle)

    def connections(self) -> list[psutil.Process]:
        """Return what reaches the target: the agent on this machine, or ssh."""
        ours = psutil.Process().children()
        return [process for process in ours if process.pid in processes.marked(self.mark)]

    def _take(self, name: str) -> None:
        with self._news:
            self.told.append(name)
            self._news.notify_all()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A workload that was submitted."""

    by: Orchestrator
    workload: Workload
    handle: Handle

    @property
    def directory(self) -> Path:
        """Where its evidence goes."""
        return self.handle.directory

    @property
    def there(self) -> Path:
        """Its directory on the target."""
        return self.by.site.directory(self.handle)

    @property
    def supervisor(self) -> psutil.Process:
        """What runs it on the target."""
        return psutil.Process(json.loads((self.there / "started").read_text())["pid"])

    def wait(self) -> WorkloadOutcome:
        """Wait until it has ended, and return how."""
        status = self.by.end_of(self.handle)
        assert status.outcome is not None, status
        return status.outcome

    def cancel(self) -> WorkloadOutcome:
        """Have it end, and return how it did."""
        self.by.backend.cancel(self.handle)
        return self.wait()

    def collect(self) -> None:
        """Bring back what it left."""
        self.by.backend.collect(self.handle, self.workload)

    def text(self, name: str = "stdout.log") -> str:
        """Return the text of a file of its evidence; nothing where there is no such file."""
        file = self.directory / name
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def printed(self, text: str) -> None:
        """Wait until the evidence has something that it prints."""
        wait_for(lambda: text in self.text(), f"{text!r} from {self.handle.name}")

    def left(self) -> list[int]:
        """Return its processes that live on."""
        return processes.marked(self.there)


class Bench:
    """What a test has executed at a site.

    Args:
        shared: who orchestrates, unless the test has others do it.
        directory: of the test.
    """

    def __init__(self, shared: Orchestrator, directory: Path) -> None:
        self.site = shared.site
        self.shared = shared
        self.directory = directory
        self._others: list[Orchestrator] = []
        self._attempts: list[Attempt] = []

    def orchestrator(self) -> Orchestrator:
        """Return another one, as after a restart."""
        other = Orchestrator(self.site, self.directory / f"orchestrator-{len(self._others)}")
        self._others.append(other)
        return other

    def start(self, *command: str, name: str = "cell", by: Orchestrator | None = None, **fields: Any) -> Attempt:
        """Submit a workload; see `workload`."""
        by = by or self.shared
        work = workload(*command, **fields)
        directory = self.directory / name
        directory.mkdir(exist_ok=True)  # the run has made it
        handle = by.backend.submit(work, f"{self.directory.name}.{name}", directory)
        attempt = Attempt(by, work, handle)
        self._attempts.append(attempt)
        return attempt

    def run(self, *command: str, **options: Any) -> tuple[Attempt, WorkloadOutcome]:
        """Submit a workload, wait for its end, and bring back what it left: that is no process, ever."""
        attempt = self.start(*command, **options)
        outcome = attempt.wait()
        assert not attempt.left()
        attempt.collect()
        return attempt, outcome

    def close(self) -> None:
        """End what the test has left."""
        for attempt in self._attempts:
            processes.end_marked(attempt.there, grace=0.1)
        for other in self._others:
            other.backend.close()
        for attempt in self._attempts:
            if attempt.there != attempt.directory:
                shutil.rmtree(attempt.there, ignore_errors=True)
