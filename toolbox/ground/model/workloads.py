"""The workload of a cell and its outcome, as frozen data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from toolbox.ground.model.clusters import Access
from toolbox.ground.model.resources import ResourceLedger
from toolbox.ground.model.secrets import Secret

LOG_BYTES: Final = 1 << 26  # the default limit for the size of each log
_HEADER_BYTES: Final = 1 << 12
_LONGEST_TEXT: Final = 2000
_LARGEST: Final = 1 << 62
_ARCHIVE_END_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits, in seconds.

    Args:
        wait: the limit for reaching the target, and for the time until the workload starts.
        run: the limit from the start of the workload to its end; None for no limit.
        silence: the limit for the time without output, after which a workload probably hangs; None for no limit.
        grace: the time between SIGTERM and SIGKILL.
    """

    wait: float = 600
    run: float | None = 3600
    silence: float | None = None
    grace: float = 10


@dataclass(frozen=True, slots=True)
class Workload:
    """A program to execute on a target, with its files, limits and environment.

    Args:
        env: environment variables in addition to the variables of the target.
        cwd: the working directory on the target; None for a new directory of the attempt.
        files: the files to send, by their paths below `src/` on the target.
        text_files: the contents of text files to create, by their paths below `src/` on the target.
        collect: the patterns of the files to fetch.
        log_bytes: the number of bytes to keep from the start of each log. Of later output, only the end is kept.
        sample_seconds: the interval between two samples of resource use; None for no sampling.
        backend_fields: the values of the fields that backends add (`ExtendingTarget`), by name. Each backend reads only
            its own fields.
    """

    command: tuple[str, ...]
    env: Mapping[str, str | Secret] = field(default_factory=dict)
    cwd: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    text_files: Mapping[str, str] = field(default_factory=dict)
    collect: tuple[str, ...] = ("**",)
    timeouts: Timeouts = Timeouts()
    log_bytes: int = LOG_BYTES
    sample_seconds: float | None = None
    backend_fields: Mapping[str, Any] = field(default_factory=dict)


class EndedBy(StrEnum):
    """How a workload ended.

    Only some backends report the last four values: the target had no free machine in time (`no_capacity`), the image
    could not be pulled (`image`), the machine was taken away (`evicted`), the workload exceeded its memory limit
    (`out_of_memory`).
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
    """How a workload ended, as recorded by its supervisor.

    Args:
        exit_code: the exit status; 128 plus the number of the signal if a signal ended the workload.
        seconds: the wall time of the workload.
        leftovers: the number of processes that the workload left running, and that the supervisor killed.
        log_dropped: the number of bytes of output that were dropped because the logs were full.
        log_fault: why the logs are incomplete; empty if the logs are complete.
        accelerators: the accelerators of the machine that the workload could use.
        may_remain: whether processes of the workload may still run, because the supervisor was killed.
        changed_startup_files: the files of the user's shell or of SSH that changed while the workload ran, such as
            `~/.bashrc`, separated by commas; empty if none did.
        image: the container image of the workload, as `NAME@sha256:...`; empty if unknown.
        paid_seconds: the time for which the target cost money because of the workload, if it differs from `seconds`: a
            machine that is rented for the workload also costs money while it is prepared. Only backends set this field.
        oom_kills: the number of processes that the kernel killed for want of memory; other processes may be included.
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
    changed_startup_files: str = ""
    paid_seconds: float | None = None
    oom_kills: int = 0

    @classmethod
    def parse(cls, record: Mapping[str, Any] | None) -> Self:
        """Parse the record of a supervisor; None means that the supervisor was killed before it wrote a record."""
        if record is None:
            return cls(EndedBy.LOST, message="the supervisor of the workload was killed, or the machine was restarted")
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
                changed_startup_files=_text(record.get("changed_startup_files", "")),
                oom_kills=_integer(record.get("oom_kills", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):  # the workload can overwrite the record
            return cls(EndedBy.LOST, message="the file outcome.json of the workload was not written by its supervisor")

    def as_json(self) -> dict[str, Any]:
        """Return the outcome in the format that supervisors write and `parse` reads."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {**fields, "log_dropped": {"stdout": self.log_dropped} if self.log_dropped else {}}


def _text(value: object) -> str:
    """Check that a value of a record is a string, and truncate it to the maximum length of such strings."""
    if not isinstance(value, str):
        raise TypeError("must be a string")
    return value[:_LONGEST_TEXT]


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST:
        raise ValueError("must be an integer")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise ValueError("must be a number of seconds")
    return value


@dataclass(frozen=True, slots=True)
class Handle:
    """A submitted attempt.

    Args:
        name: a name derived from the run, the cell and the attempt, so that a resumed run computes the same name.
        directory: the directory of the attempt in the run directory.
    """

    name: str
    directory: Path


class AttemptState(StrEnum):
    """The state of an attempt.

    SUBMITTED: the attempt was submitted, and its workload has not been seen running.
    RUNNING: the workload runs.
    STOPPING: the run ends the workload.
    ENDING: the outcome is known, and the logs are being written.
    ENDED: the outcome is reported.
    UNREACHABLE: the target does not answer, and the workload may still run.
    """

    SUBMITTED = "submitted"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDING = "ending"
    ENDED = "ended"
    UNREACHABLE = "unreachable"

    @property
    def is_over(self) -> bool:
        """Whether the state is final."""
        return not _NEXT_STATES[self]

    def may_become(self, state: AttemptState) -> bool:
        """Return whether an attempt in this state can enter `state`. A waiting attempt may get another message."""
        return state in _NEXT_STATES[self]


_FINAL: Final = frozenset({AttemptState.ENDED, AttemptState.UNREACHABLE})
_NEXT_STATES: Final[Mapping[AttemptState, frozenset[AttemptState]]] = {
    AttemptState.SUBMITTED: frozenset(AttemptState),
    AttemptState.RUNNING: frozenset({AttemptState.STOPPING, AttemptState.ENDING, *_FINAL}),
    AttemptState.STOPPING: frozenset({AttemptState.ENDING, *_FINAL}),
    AttemptState.ENDING: _FINAL,
    AttemptState.ENDED: frozenset(),
    AttemptState.UNREACHABLE: frozenset(),
}


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """The last known status of an attempt.

    Args:
        outcome: the outcome; None if it is not known yet.
        message: why the target cannot be reached, or why the attempt has not started yet; empty if neither is the case.
    """

    state: AttemptState
    outcome: WorkloadOutcome | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class CollectLimits:
    """The limits for fetching the files of one attempt: the total bytes, and the number of files and directories."""

    bytes: int = 1 << 36
    files: int = 200_000

    @property
    def archive_bytes(self) -> int:
        """The largest possible size of an archive within these limits, headers and long file names included."""
        return self.bytes + self.files * _HEADER_BYTES + _ARCHIVE_END_BYTES


@dataclass(frozen=True, slots=True)
class TargetContext:
    """What a backend needs to know besides the configuration of its target.

    Args:
        mark: the value of `TOPGALLANT_STEP` for the processes that the backend starts on this machine. The processes
            are found by this variable.
        variables: environment variables for workloads that run on this machine.
        secrets: returns the secret values of the run.
        notify: a function that the backend calls with the name of an attempt whose status has changed. The function may
            be called from any thread.
        ledger: records each remote resource that the backend creates, before the request is sent.
        clusters: how to reach the clusters of the run, by their names in the configuration.
    """

    name: str
    run: str
    mark: Path
    variables: Mapping[str, str]
    secrets: Callable[[], Sequence[str]]
    notify: Callable[[str], None]
    ledger: ResourceLedger
    clusters: Mapping[str, Access] = field(default_factory=dict)
    limits: CollectLimits = field(default_factory=CollectLimits)
