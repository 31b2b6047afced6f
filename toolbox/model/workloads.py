"""What a cell executes and how that ended, as frozen data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from toolbox.model.clusters import Access
from toolbox.model.secrets import Secret

LOG_BYTES: Final = 1 << 26  # of each log, where nothing else is configured
_HEADER_BYTES: Final = 1 << 12
_LONGEST_TEXT: Final = 2000
_LARGEST: Final = 1 << 62
_ARCHIVE_END_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long things may take, in seconds.

    Args:
        wait: for a machine: to reach it, and to get a place on it.
        run: for the workload, from its start on.
        silence: for the workload to print nothing, which is what a hang looks like; None for any time.
        grace: between SIGTERM and SIGKILL.
    """

    wait: float = 600
    run: float | None = 3600
    silence: float | None = None
    grace: float = 10


@dataclass(frozen=True, slots=True)
class Workload:
    """What to execute on a target.

    Args:
        command: the program and its arguments.
        env: environment variables besides those of the target.
        cwd: the working directory on the target; a new directory of the attempt when left out.
        files: what to send, by the name that it gets below `src/`.
        written: texts to send, likewise.
        collect: patterns of the files to bring back.
        pod: what it asks of the pods that run it, over what its target says; nothing to a target that runs none.
        log_bytes: how much of a log is kept from its start on.
        sample_seconds: between two samples of what it uses; None for none.
    """

    command: tuple[str, ...]
    env: Mapping[str, str | Secret] = field(default_factory=dict)
    cwd: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    collect: tuple[str, ...] = ("**",)
    pod: Mapping[str, Any] = field(default_factory=dict)
    timeouts: Timeouts = Timeouts()
    log_bytes: int = LOG_BYTES
    sample_seconds: float | None = None


class EndedBy(StrEnum):
    """What ended a workload.

    Of those that only some backends know: a place for it was not found in time (`no_capacity`), its image did not come
    (`image`), its machine was taken from it (`evicted`), it was killed for the memory that it used (`out_of_memory`).
    """

    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    SILENCE = "silence"
    CANCELLED = "cancelled"
    NOT_STARTED = "not_started"
    LOST = "lost"
    NO_CAPACITY = "no_capacity"
    IMAGE = "image"
    EVICTED = "evicted"
    OUT_OF_MEMORY = "out_of_memory"


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """How a workload ended, as its supervisor wrote it down.

    Args:
        exit_code: its exit status; 128 and the number of a signal that ended it.
        message: what else there is to say.
        seconds: wall time.
        leftovers: how many processes it left running, which were ended.
        log_dropped: bytes that its logs had no room for.
        log_fault: why its logs are incomplete, where they are not.
        host: the machine that it ran on, as that calls itself, and the `accelerators` that could be seen there.
        may_remain: whether processes of it may run on, since its supervisor was killed.
        image: the container image that it ran in, as `NAME@sha256:...`; empty where that is not known.
    """

    ended_by: EndedBy
    exit_code: int | None = None
    message: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    leftovers: int = 0
    log_dropped: int = 0
    log_fault: str = ""
    host: str = ""
    accelerators: str = ""
    may_remain: bool = False
    image: str = ""

    @classmethod
    def parse(cls, record: Mapping[str, Any] | None) -> Self:
        """Read what the supervisor wrote; nothing, where it was killed before it could."""
        if record is None:
            return cls(EndedBy.LOST, message="its supervisor was killed, or the machine was restarted")
        try:
            code = record["exit_code"]
            return cls(
                EndedBy(record["ended_by"]),
                None if code is None else _integer(code),
                _text(record["message"]),
                _number(record["seconds"]),
                _number(record["cpu_seconds"]),
                _integer(record["leftovers"]),
                sum(map(_integer, record["log_dropped"].values())),
                _text(record["log_fault"]),
                _text(record["host"]),
                _text(record["accelerators"]),
                image=_text(record.get("image", "")),
            )
        except (KeyError, TypeError, ValueError, AttributeError):  # the workload can write there too
            return cls(EndedBy.LOST, message="its outcome.json is not what a supervisor writes")

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as a supervisor writes it, and `parse` reads it."""
        return {**asdict(self), "log_dropped": {"stdout": self.log_dropped} if self.log_dropped else {}}


def _text(value: object) -> str:
    """Return a text of a record, as much of it as a supervisor writes."""
    if not isinstance(value, str):
        raise TypeError("text was expected")
    return value[:_LONGEST_TEXT]


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST:
        raise ValueError("an integer was expected")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise ValueError("a number of seconds was expected")
    return value


@dataclass(frozen=True, slots=True)
class Handle:
    """An attempt that was submitted.

    Args:
        name: derived from run, cell and attempt: it is the same after a restart.
        directory: of the attempt, in the run directory.
    """

    name: str
    directory: Path


class AttemptState(StrEnum):
    """How an attempt stands."""

    RUNNING = "running"
    ENDED = "ended"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """How an attempt stands, as far as is known.

    Args:
        outcome: where it has ended.
        message: why the target cannot be reached, or why an attempt has not started yet; otherwise empty.
    """

    state: AttemptState
    outcome: WorkloadOutcome | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class CollectLimits:
    """How much one attempt may leave to be brought back from its target: bytes, and files with their directories."""

    bytes: int = 1 << 36
    files: int = 200_000

    @property
    def archive_bytes(self) -> int:
        """How long an archive of that may be, with a header and a long name for each file."""
        return self.bytes + self.files * _HEADER_BYTES + _ARCHIVE_END_BYTES


@dataclass(frozen=True, slots=True)
class TargetContext:
    """What a backend is told besides the description of its target.

    Args:
        name: of the target.
        run: the name of the run.
        mark: by which the processes that the backend itself starts here are found; see `toolbox.system.processes`.
        variables: environment variables of workloads that run on this machine.
        secrets: returns the secret values of the run. An agent is told only those that its workload is given.
        notify: to be told the name of an attempt whose status has changed, from any thread.
        clusters: how to reach the clusters that the run has, by the names of its configuration.
        limits: of what one attempt may leave there.
    """

    name: str
    run: str
    mark: Path
    variables: Mapping[str, str]
    secrets: Callable[[], Sequence[str]]
    notify: Callable[[str], None]
    clusters: Mapping[str, Access] = field(default_factory=dict)
    limits: CollectLimits = field(default_factory=CollectLimits)
