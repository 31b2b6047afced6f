"""The sites of the backend tests: for each backend, a real target on this machine.

The tests inspect the files and the processes of a target directly.
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
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Protocol

import psutil

from tests.fakes.ledger import OWNER, MemoryLedger
from toolbox.ground.extensions.protocols import Backend
from toolbox.ground.model.workloads import AttemptStatus, Handle, TargetContext, Timeouts, Workload, WorkloadOutcome
from toolbox.ground.system import processes

RUN: Final = "conformance"
TIMEOUT: Final = 120.0  # seconds; most waits are far shorter, unless the machine is busy
_LOOK_SECONDS: Final = 0.02
_LIMITS: Final = {"wait": TIMEOUT, "run": TIMEOUT, "silence": None, "grace": 5.0}


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds, and fail the test after `TIMEOUT`."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, f"{what} was expected within {TIMEOUT:g} s"
        time.sleep(_LOOK_SECONDS)


def workload(*command: str, **fields: Any) -> Workload:
    """Return a workload. `fields` may contain the names of timeouts and of other fields."""
    limits = {name: fields.pop(name, usual) for name, usual in _LIMITS.items()}
    return Workload(command, timeouts=Timeouts(**limits), **fields)


class Server(Protocol):
    """A server through which a target is reached."""

    def stop(self) -> None:
        """Break all connections, and refuse new ones."""

    def start(self) -> None:
        """Serve again, at the same address."""


class Connection(Protocol):
    """A connection to a target, or the local process that holds the connection."""

    def kill(self) -> None:
        """Break the connection."""


@dataclass(frozen=True, slots=True)
class Site:
    """A target of one backend, on this machine.

    Args:
        description: description of the target, as in a configuration.
        attempts: directory of the attempts on the target; None if attempts stay in the run directory.
        server: server through which the target is reached, or None.
        refusal: part of the error message when the server is stopped.
        quick: short timeout in seconds, within which a workload still starts on the target.
        takes_only_utf8: whether the target refuses arguments with other bytes.
        forwards_whole_lines: whether an incomplete line of a log arrives only with the collected log.
        starts_later: whether the workload starts later than its submission ends.
        ledgers: the ledger of each run, by the name of the run.
    """

    name: str
    description: Any
    attempts: Path | None = None
    server: Server | None = None
    refusal: str = ""
    quick: float = 1.0
    takes_only_utf8: bool = False
    forwards_whole_lines: bool = False
    starts_later: bool = False
    ledgers: dict[str, MemoryLedger] = field(default_factory=dict, repr=False)

    def ledger(self, run: str) -> MemoryLedger:
        """Return the ledger that all orchestrators of a run share."""
        return self.ledgers.setdefault(run, MemoryLedger(dataclasses.replace(OWNER, run=run)))

    @property
    def is_apart(self) -> bool:
        """Whether the files of an attempt stay on the target until the attempt is released."""
        return bool(self.description.keeps_attempts)

    def directory(self, handle: Handle) -> Path:
        """Return the directory of an attempt on the target."""
        return handle.directory if self.attempts is None else self.attempts / handle.name

    def seen(self, handle: Handle) -> Path:
        """Return the directory of an attempt as its workload sees it. Its processes are marked with this path."""
        return self.directory(handle)

    def has_ended(self, handle: Handle) -> bool:
        """Return whether an attempt has ended on the target, even if the orchestrator does not know."""
        return (self.directory(handle) / "exit_code").exists()

    def is_submitted(self, handle: Handle) -> bool:
        """Return whether an attempt has started on the target, even if the orchestrator does not know."""
        return (self.directory(handle) / "started").exists()

    def supervisor(self, handle: Handle) -> psutil.Process:
        """Return the process of an attempt's supervisor."""
        return psutil.Process(json.loads((self.directory(handle) / "started").read_text())["pid"])

    def remains(self, handle: Handle) -> list[str]:
        """Return the files or objects of a released attempt that are still on the target."""
        directory = self.directory(handle)
        return [str(directory)] if self.is_apart and directory.exists() else []

    def remains_of(self, run: str) -> list[str]:  # noqa: ARG002  # such targets have only attempts
        """Return the objects of a finished run that are still on the target."""
        return []

    def remove(self, handle: Handle) -> None:
        """Remove an attempt from the target."""
        if self.is_apart:
            shutil.rmtree(self.directory(handle), ignore_errors=True)

    def connections(self, mark: Path) -> Sequence[Connection]:
        """Return the connections of an orchestrator to the target: processes of the agent or of `ssh`.

        Args:
            mark: mark of the orchestrator's processes.
        """
        return _children(mark)

    def drop(self, mark: Path) -> None:
        """Break the connections of an orchestrator, also stalled ones."""
        for process in _children(mark):
            process.kill()

    def stall(self, mark: Path) -> None:
        """Stall the connections of an orchestrator without breaking them."""
        for process in _children(mark):
            process.send_signal(signal.SIGSTOP)

    def crowded(self, disk: Path) -> Site:
        """Return this site with its attempts on another disk, unless attempts stay in the run directory."""
        if self.attempts is None:
            return self
        description = self.description.model_copy(update={"directory": str(disk)})
        return dataclasses.replace(self, description=description, attempts=disk)


def _children(mark: Path) -> list[psutil.Process]:
    marked = processes.marked(mark)
    return [process for process in psutil.Process().children() if process.pid in marked]


class Orchestrator:
    """An orchestrator that runs workloads at a site and receives notifications of their ends.

    Args:
        mark: mark of the processes that connect to the target; see `toolbox.ground.system.processes`.
        run: name of the run. Orchestrators with the same run find each other's attempts.
    """

    def __init__(self, site: Site, mark: Path, run: str = RUN) -> None:
        self.site = site
        self.mark = mark
        self.secrets: Sequence[str] = ()
        self.notified: list[str] = []
        self._news = threading.Condition()
        context = TargetContext("there", run, mark, {}, lambda: self.secrets, self._take, site.ledger(run))
        self.backend: Backend = site.description.open(context)

    def status(self, handle: Handle) -> AttemptStatus:
        """Return the status of an attempt, as far as this orchestrator knows.

        The outcome has no paid time, because an orchestrator that adopts an attempt knows only a part of this time.
        """
        status = self.backend.poll([handle])[handle]
        if status.outcome is None:
            return status
        return dataclasses.replace(status, outcome=dataclasses.replace(status.outcome, paid_seconds=None))

    def end_of(self, handle: Handle) -> AttemptStatus:
        """Wait until this orchestrator knows that an attempt is over, and return the status of the attempt."""
        with self._news:
            ended = self._news.wait_for(lambda: self.status(handle).state.is_over, TIMEOUT)
        assert ended, f"the end of {handle.name} was expected"
        return self.status(handle)

    def connections(self) -> Sequence[Connection]:
        """Return the connections to the target."""
        return self.site.connections(self.mark)

    def drop_connections(self) -> None:
        """Break the connections to the target, also stalled ones. New connections are possible."""
        self.site.drop(self.mark)

    def stall_connections(self) -> None:
        """Stall the connections to the target without breaking them."""
        self.site.stall(self.mark)

    def wait_for_another(self, before: Sequence[Connection]) -> None:
        """Wait until there is a connection that is not among those before."""
        wait_for(lambda: set(self.connections()) - set(before), "another connection")

    def _take(self, name: str) -> None:
        with self._news:
            self.notified.append(name)
            self._news.notify_all()


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt whose workload was submitted."""

    by: Orchestrator
    workload: Workload
    handle: Handle

    @property
    def directory(self) -> Path:
        """Directory of the attempt in the run directory."""
        return self.handle.directory

    @property
    def there(self) -> Path:
        """Directory of the attempt on the target."""
        return self.by.site.directory(self.handle)

    @property
    def seen(self) -> Path:
        """Directory of the attempt, by the path that its workload sees."""
        return self.by.site.seen(self.handle)

    @property
    def supervisor(self) -> psutil.Process:
        """Process of the supervisor on the target."""
        return self.by.site.supervisor(self.handle)

    def end_there(self) -> None:
        """Wait until the attempt has ended on the target, even if the orchestrator does not know."""
        wait_for(lambda: self.by.site.has_ended(self.handle), f"the end of {self.handle.name}")

    def wait(self) -> WorkloadOutcome:
        """Wait until the orchestrator knows the end of the attempt, and return the outcome."""
        status = self.by.end_of(self.handle)
        assert status.outcome is not None, status
        return status.outcome

    def cancel(self) -> WorkloadOutcome:
        """Cancel the attempt, wait for its end, and return the outcome."""
        self.by.backend.cancel(self.handle)
        return self.wait()

    def collect(self) -> None:
        """Collect the files of the attempt."""
        self.by.backend.collect(self.handle, self.workload)

    def text(self, name: str = "stdout.log") -> str:
        """Return the text of a file of the attempt, or an empty text if the file does not exist."""
        file = self.directory / name
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def printed(self, text: str) -> None:
        """Wait until the log of the attempt contains a text."""
        wait_for(lambda: text in self.text(), f"{text!r} from {self.handle.name}")

    def left(self) -> list[int]:
        """Return the ids of the living processes of the workload."""
        return processes.marked(self.seen)


class Bench:
    """Runs workloads of a test at a site, and cleans up after them.

    Args:
        shared: orchestrator that is used by default.
        directory: directory of the test.
    """

    def __init__(self, shared: Orchestrator, directory: Path) -> None:
        self._prefix = f"{directory.name}-{token_hex(3)}"  # other tests use the same target
        self.site = shared.site
        self.shared = shared
        self.directory = directory
        self._others: list[Orchestrator] = []
        self._attempts: list[Attempt] = []

    def orchestrator(self, run: str = RUN) -> Orchestrator:
        """Return a new orchestrator, as after a restart, or an orchestrator of another run."""
        other = Orchestrator(self.site, self.directory / f"orchestrator-{len(self._others)}", run)
        self._others.append(other)
        return other

    def handle(self, name: str = "cell") -> Handle:
        """Return the handle of a submitted workload with this name."""
        return Handle(f"{self._prefix}.{name}", self.directory / name)

    def start(self, *command: str, name: str = "cell", by: Orchestrator | None = None, **fields: Any) -> Attempt:
        """Submit a workload with these fields; see `workload`."""
        by = by or self.shared
        work = workload(*command, **fields)
        directory = self.directory / name
        directory.mkdir(exist_ok=True)  # a run creates this directory
        handle = by.backend.submit(work, self.handle(name).name, directory)
        attempt = Attempt(by, work, handle)
        self._attempts.append(attempt)
        return attempt

    def start_all(self, commands: Iterable[Sequence[str]], by: Orchestrator | None = None) -> list[Attempt]:
        """Submit workloads in parallel, as the threads of a run do."""
        with ThreadPoolExecutor() as threads:
            started = [
                threads.submit(self.start, *command, name=f"cell-{number}", by=by)
                for number, command in enumerate(commands)
            ]
            return [attempt.result() for attempt in started]

    def run(self, *command: str, **options: Any) -> tuple[Attempt, WorkloadOutcome]:
        """Submit a workload, wait for its end, check that no process of it is alive, and collect its files."""
        attempt = self.start(*command, **options)
        outcome = attempt.wait()
        assert not attempt.left()
        attempt.collect()
        return attempt, outcome

    def close(self) -> None:
        """End the processes of the test, and remove its attempts from the target."""
        for attempt in self._attempts:
            processes.end_marked(attempt.seen, grace=0.1)
        for other in self._others:
            other.backend.close()
        for attempt in self._attempts:
            self.site.remove(attempt.handle)
