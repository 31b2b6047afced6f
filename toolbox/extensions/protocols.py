"""The protocols of all extensions: checks, metric sources, backends and reports.

A check, a metric source or the target of a backend is a pydantic model, whose fields the configuration gives; a report
is a function. `discovery.py` finds the modules, and `loading.py` makes objects of what the configuration says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar, runtime_checkable

from toolbox.model.clusters import Access
from toolbox.model.evidence import Evidence, Judgement
from toolbox.model.workloads import AttemptStatus, Handle, TargetContext, Workload
from toolbox.runs.summary import RunSummary

Extended_co = TypeVar("Extended_co", covariant=True)


class Check(Protocol):
    """The model `Check` of a module in `checks/`: judges what an attempt left behind.

    A check with a field of one of the next three protocols implements that protocol too.
    """

    def judge(self, evidence: Evidence) -> Judgement:
        """Return what the check says of an attempt."""


@runtime_checkable
class MetricCheck(Protocol):
    """A check of one metric. A plan is refused where the matrix has no such metric."""

    @property
    def metric(self) -> str:
        """The name of the metric."""


@runtime_checkable
class HistoryCheck(MetricCheck, Protocol):
    """A check of one metric, which may compare it with the bounds that earlier runs give."""

    @property
    def bounds(self) -> object | None:
        """None where the check does not use these bounds."""


@runtime_checkable
class RelationCheck(Protocol):
    """A check that compares the cell with another cell, which is `evidence.reference`."""

    @property
    def to(self) -> Mapping[str, Any]:
        """The settings in which the other cell differs from this one."""


class MetricSource(Protocol):
    """The model `Source` of a module in `metrics/`: reads a metric from what an attempt left behind."""

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the metric, or each of its samples.

        Raises:
            ValueError: no number can be read; the message says from which file, and why.
        """


class Target(Protocol):
    """The model `Target` of a module in `backends/`: describes one target of this backend.

    A target implements the next three protocols only where they apply to it.

    Args:
        keeps_attempts: whether what an attempt leaves stays on the target until it is released.
    """

    keeps_attempts: ClassVar[bool]

    def open(self, context: TargetContext) -> Backend:
        """Return the backend that executes workloads on the target."""


@runtime_checkable
class MachineTarget(Protocol):
    """A target that is one machine, which toolbox commands can look at and prepare."""

    def address(self, name: str) -> str | None:
        """Return the address of the target for Ansible, as `[USER@]HOST[:PORT]`; None for this machine.

        Raises:
            ValueError: the host is named by the name of the target, which is not a host.
        """


@runtime_checkable
class SelectiveTarget(Protocol):
    """A target that cannot run every workload."""

    def accept(self, workload: Workload) -> None:
        """Check that the target can run a workload.

        Raises:
            ValueError: it cannot, and the message says why.
        """


@runtime_checkable
class VerifiableTarget(Protocol):
    """A target that can be asked, before a run begins, whether the run will be able to use it."""

    def verify(self, name: str, clusters: Mapping[str, Access | None], workloads: Iterable[Workload]) -> None:
        """Check that the target can run workloads, as far as that can be known before the run begins.

        Args:
            name: the name of the target.
            clusters: how to reach each cluster of the run; None where that is not known yet.
            workloads: the workloads that may run on the target.

        Raises:
            ConfigurationError: something has to be changed first.
            InfrastructureError: the target does not answer.
        """


class Backend(Protocol):
    """Executes workloads on one target.

    The workload outlives the process that submitted it, carries its own deadline, and writes its own exit code. What a
    method raises is a `toolbox.model.errors.StepError` with the cause; nothing here judges a workload.
    """

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        """Start a workload. The same name twice is one workload: what there is already is adopted.

        Blocks until it has started, or until a target with a queue of its own has taken it, no longer than
        `timeouts.wait`. From then on its logs in the directory are kept up to date, and `notify` is told of its end.

        Raises:
            Undecided: the request may have been sent, and no answer says that the workload was not started. Any other
                `StepError` says that this submission has started nothing: another attempt may follow.
        """

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        """Return how attempts stand, without asking the target."""

    def collect(self, handle: Handle, workload: Workload) -> None:
        """Bring back what an ended attempt left: afterwards all of it is in its directory."""

    def cancel(self, handle: Handle) -> None:
        """Have a workload end, with all that it started. `notify` is told when that has happened."""

    def release(self, handle: Handle) -> None:
        """Remove what an ended attempt left on the target."""

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        """Adopt the attempt of this name, as `submit` does; None where the target answers that it has no such attempt.

        Blocks until the target answers, no longer than `timeouts.wait`.
        """

    def close(self) -> None:
        """Let go of the target. What runs there goes on."""


@runtime_checkable
class OwningBackend(Protocol):
    """A backend that has more on its target than attempts."""

    def leave(self) -> None:
        """Remove what the run has on the target besides attempts, which have all been released."""


class Report(Protocol):
    """The function `write` of a module in `reports/`: writes a report into the directory of a run."""

    def __call__(self, summary: RunSummary, /) -> object:
        """Write the report of a run that has ended; return the path of the file, or None to have no path shown."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[Extended_co]):
    """A kind of extensions.

    Args:
        folder: the folder of the modules, in the workspace and in this package.
        attribute: the name in a module that implements the protocol.
        protocol: the protocol.
        key: what the configuration calls an extension of this kind; empty if the configuration names none.
    """

    folder: str
    attribute: str
    protocol: type
    key: str = ""

    @property
    def members(self) -> list[str]:
        """The attributes and methods that an implementation must have."""
        names = {**self.protocol.__annotations__, **vars(self.protocol)}
        return [name for name in names if not name.startswith("_")]


CHECKS: Final[Kind[Check]] = Kind("checks", "Check", Check, "check")
METRICS: Final[Kind[MetricSource]] = Kind("metrics", "Source", MetricSource, "source")
BACKENDS: Final[Kind[Target]] = Kind("backends", "Target", Target, "backend")
REPORTS: Final[Kind[Report]] = Kind("reports", "write", Report)
