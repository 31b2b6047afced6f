"""Where the suite of the backends executes: for each backend a target that is real, and on this machine.

The tests look directly at what is on a target: at its files, and at its processes.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Protocol

import psutil

from toolbox.extensions.protocols import Backend
from toolbox.model.workloads import (
    AttemptStatus,
    Handle,
    TargetContext,
    Timeouts,
    Workload,
    WorkloadOutcome,
)
from toolbox.system import processes

RUN: Final = "conformance"
TIMEOUT: Final = 120.0  # seconds, for what takes none of that on a machine that is not busy
_LOOK_SECONDS: Final = 0.02
_LIMITS: Final = {"wait": TIMEOUT, "run": TIMEOUT, "silence": None, "grace": 5.0}


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, f"{what} was expected within {TIMEOUT:g} s"
        time.sleep(_LOOK_SECONDS)


def workload(*command: str, **fields: Any) -> Workload:
    """Return a workload. Its limits of time are given by their names, as its other fields are."""
    limits = {name: fields.pop(name, usual) for name, usual in _LIMITS.items()}
    return Workload(command, timeouts=Timeouts(**limits), **fields)


class Server(Protocol):
    """What a target is reached by."""

    def stop(self) -> None:
        """Have it break what it serves, and serve nobody."""

    def start(self) -> None:
        """Have it serve again, at the same address."""


class Connection(Protocol):
    """What reaches a target: a process here."""

    def kill(self) -> None:
        """Break it."""


@dataclass(frozen=True, slots=True)
class Site:
    """A target of one backend, on this machine.

    Args:
        description: the target, as the configuration describes one.
        attempts: where attempts are on the target; None where that is in the run directory.
        server: what it is reached by, if it is one.
        refusal: what is said of it where the server is stopped.
        quick: a time, in seconds, that is short for the target, and in which a workload gets its place there.
    """

    name: str
    description: Any
    attempts: Path | None = None
    server: Server | None = None
    refusal: str = ""
    quick: float = 1.0

    @property
    def is_apart(self) -> bool:
        """Whether what an attempt leaves stays on the target until it is released."""
        return bool(self.description.keeps_attempts)

    def directory(self, handle: Handle) -> Path:
        """Return the directory of an attempt on the target."""
        return handle.directory if self.attempts is None else self.attempts / handle.name

    def seen(self, handle: Handle) -> Path:
        """Return that directory as the workload sees it, by which its processes are marked too."""
        return self.directory(handle)

    def has_ended(self, handle: Handle) -> bool:
        """Tell whether an attempt has ended, whatever the orchestrator knows."""
        return (self.directory(handle) / "exit_code").exists()

    def is_submitted(self, handle: Handle) -> bool:
        """Tell whether the target has an attempt, whatever the orchestrator knows."""
        return (self.directory(handle) / "started").exists()

    def supervisor(self, handle: Handle) -> psutil.Process:
        """Return what runs an attempt."""
        return psutil.Process(json.loads((self.directory(handle) / "started").read_text())["pid"])

    def remains(self, handle: Handle) -> list[str]:
        """Return what there is of an attempt on the target that was released."""
        directory = self.directory(handle)
        return [str(directory)] if self.is_apart and directory.exists() else []

    def remains_of(self, run: str) -> list[str]:  # noqa: ARG002  # there is nothing but attempts
        """Return what there is of a run on the target that it has left."""
        return []

    def remove(self, handle: Handle) -> None:
        """Remove from the target what there is of an attempt."""
        if self.is_apart:
            shutil.rmtree(self.directory(handle), ignore_errors=True)

    def connections(self, mark: Path) -> Sequence[Connection]:
        """Return what reaches the target from an orchestrator: the agent on this machine, or ssh.

        Args:
            mark: of the orchestrator.
        """
        return _children(mark)

    def drop(self, mark: Path) -> None:
        """Break the connections of an orchestrator, also those that are stalled."""
        for process in _children(mark):
            process.kill()

    def stall(self, mark: Path) -> None:
        """Have nothing get through the connections of an orchestrator, and break none."""
        for process in _children(mark):
            process.send_signal(signal.SIGSTOP)

    def crowded(self, disk: Path) -> Site:
        """Return the same site with the attempts on a disk of the target, where they are not in the run directory."""
        if self.attempts is None:
            return self
        description = self.description.model_copy(update={"directory": str(disk)})
        return dataclasses.replace(self, description=description, attempts=disk)


def _children(mark: Path) -> list[psutil.Process]:
    marked = processes.marked(mark)
    return [process for process in psutil.Process().children() if process.pid in marked]


class Orchestrator:
    """Who has workloads executed at a site, and is told of their ends.

    Args:
        mark: by which the processes are found that reach the target; see `toolbox.system.processes`.
        run: the name of the run; others of the same name find what one has had started.
    """

    def __init__(self, site: Site, mark: Path, run: str = RUN) -> None:
        self.site = site
        self.mark = mark
        self.secrets: Sequence[str] = ()
        self.notified: list[str] = []
        self._news = threading.Condition()
        context = TargetContext("there", run, mark, {}, lambda: self.secrets, self._take)
        self.backend: Backend = site.description.open(context)

    def status(self, handle: Handle) -> AttemptStatus:
        """Return how an attempt stands, as far as this one knows."""
        return self.backend.poll([handle])[handle]

    def end_of(self, handle: Handle) -> AttemptStatus:
        """Wait until this one is told that an attempt runs no longer."""
        with self._news:
            ended = self._news.wait_for(lambda: self.status(handle).state.is_over, TIMEOUT)
        assert ended, f"the end of {handle.name} was expected"
        return self.status(handle)

    def connections(self) -> Sequence[Connection]:
        """Return what reaches the target."""
        return self.site.connections(self.mark)

    def drop_connections(self) -> None:
        """Break what reaches the target, also where it is stalled; another way to it is open."""
        self.site.drop(self.mark)

    def stall_connections(self) -> None:
        """Have nothing get through to the target, and break nothing."""
        self.site.stall(self.mark)

    def wait_for_another(self, before: Sequence[Connection]) -> None:
        """Wait until the target is reached by another connection than those before."""
        wait_for(lambda: set(self.connections()) - set(before), "another connection")

    def _take(self, name: str) -> None:
        with self._news:
            self.notified.append(name)
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
    def seen(self) -> Path:
        """Its directory as the workload sees it."""
        return self.by.site.seen(self.handle)

    @property
    def supervisor(self) -> psutil.Process:
        """What runs it on the target."""
        return self.by.site.supervisor(self.handle)

    def end_there(self) -> None:
        """Wait until it has ended on the target, whatever the orchestrator knows."""
        wait_for(lambda: self.by.site.has_ended(self.handle), f"the end of {self.handle.name}")

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
        return processes.marked(self.seen)


class Bench:
    """What a test has executed at a site.

    Args:
        shared: who orchestrates, unless the test has others do it.
        directory: of the test.
    """

    def __init__(self, shared: Orchestrator, directory: Path) -> None:
        self._prefix = f"{directory.name}-{token_hex(3)}"  # on a target that others test at too
        self.site = shared.site
        self.shared = shared
        self.directory = directory
        self._others: list[Orchestrator] = []
        self._attempts: list[Attempt] = []

    def orchestrator(self, run: str = RUN) -> Orchestrator:
        """Return another one, as after a restart, or one of another run."""
        other = Orchestrator(self.site, self.directory / f"orchestrator-{len(self._others)}", run)
        self._others.append(other)
        return other

    def handle(self, name: str = "cell") -> Handle:
        """Return the handle that a workload of this name has once it was submitted."""
        return Handle(f"{self._prefix}.{name}", self.directory / name)

    def start(self, *command: str, name: str = "cell", by: Orchestrator | None = None, **fields: Any) -> Attempt:
        """Submit a workload; see `workload`."""
        by = by or self.shared
        work = workload(*command, **fields)
        directory = self.directory / name
        directory.mkdir(exist_ok=True)  # the run has made it
        handle = by.backend.submit(work, self.handle(name).name, directory)
        attempt = Attempt(by, work, handle)
        self._attempts.append(attempt)
        return attempt

    def start_all(self, commands: Iterable[Sequence[str]], by: Orchestrator | None = None) -> list[Attempt]:
        """Submit workloads at once, as the threads of a run do."""
        with ThreadPoolExecutor() as threads:
            started = [
                threads.submit(self.start, *command, name=f"cell-{number}", by=by)
                for number, command in enumerate(commands)
            ]
            return [attempt.result() for attempt in started]

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
            processes.end_marked(attempt.seen, grace=0.1)
        for other in self._others:
            other.backend.close()
        for attempt in self._attempts:
            self.site.remove(attempt.handle)
