"""The protocols of all extensions: checks, metric sources, backends and reports.

A check, a metric source or the target of a backend is a pydantic model, whose fields are set by the configuration. A
report is a function. `discovery.py` finds the modules, and `loading.py` makes objects from the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel

from toolbox.model.clusters import Access
from toolbox.model.evidence import Evidence, Judgement
from toolbox.model.workloads import AttemptStatus, Handle, TargetContext, Workload
from toolbox.runs.run_state import RunState

Extended_co = TypeVar("Extended_co", covariant=True)


class Check(Protocol):
    """The model `Check` of a module in `checks/`: judges the files and metrics of an attempt.

    A check with a field of one of the next three protocols implements that protocol as well.
    """

    def judge(self, evidence: Evidence) -> Judgement:
        """Return the judgement on an attempt."""


@runtime_checkable
class MetricCheck(Protocol):
    """A check of one metric. A plan is refused if the matrix has no such metric."""

    @property
    def metric(self) -> str:
        """The name of the metric."""


@runtime_checkable
class HistoryCheck(MetricCheck, Protocol):
    """A check of one metric, which may compare the metric with the bounds from earlier runs."""

    @property
    def bounds(self) -> object | None:
        """None if the check does not use the bounds from earlier runs."""


@runtime_checkable
class RelationCheck(Protocol):
    """A check that compares the cell with another cell, `evidence.reference`."""

    @property
    def to(self) -> Mapping[str, Any]:
        """The settings in which the other cell differs from this one."""


class MetricSource(Protocol):
    """The model `Source` of a module in `metrics/`: reads a metric from the files of an attempt."""

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the metric, or each of its samples.

        Raises:
            ValueError: no number can be read; the message names the file and the reason.
        """


class Target(Protocol):
    """The model `Target` of a module in `backends/`: describes one target of this backend.

    A target implements each of the next four protocols only if it applies.

    Args:
        keeps_attempts: whether the files of an attempt stay on the target until the attempt is released.
    """

    keeps_attempts: ClassVar[bool]

    def open(self, context: TargetContext) -> Backend:
        """Return the backend that executes workloads on the target."""


@runtime_checkable
class MachineTarget(Protocol):
    """A target that is one machine, which toolbox commands can inspect and prepare."""

    def address(self, name: str) -> str | None:
        """Return the address of the target for Ansible, as `[USER@]HOST[:PORT]`; None for this machine.

        Raises:
            ValueError: no host is configured, and the name of the target is not a host.
        """


@runtime_checkable
class SelectiveTarget(Protocol):
    """A target that cannot run every workload."""

    def accept(self, workload: Workload) -> None:
        """Check that the target can run a workload.

        Raises:
            ValueError: the target cannot run it, for the reason in the message.
        """


@runtime_checkable
class VerifiableTarget(Protocol):
    """A target that can check before a run begins whether the run will be able to use it."""

    def verify(self, name: str, clusters: Mapping[str, Access | None], workloads: Iterable[Workload]) -> None:
        """Check that the target can run workloads, as far as that is known before the run begins.

        Args:
            name: the name of the target.
            clusters: how to reach each cluster of the run; None for a cluster that is not known yet.
            workloads: the workloads that may run on the target.

        Raises:
            ConfigurationError: the configuration or a permission must be changed first.
            InfrastructureError: the target does not answer.
        """


class ExtendingTarget(Protocol):
    """A target whose backend adds fields to workloads.

    Args:
        workload_fields: the model of these fields. A workload has those that it gives in `Workload.backend_fields`. If
            several backends have a field of the same name, the model of the first of them, by name, validates it.
        guarded_fields: the paths of what a comment may never change in these fields: what decides which program runs,
            or which secrets the program gets. Without this attribute, a comment can change none of the fields.
    """

    workload_fields: ClassVar[type[BaseModel]]
    guarded_fields: ClassVar[Sequence[str]]


class Backend(Protocol):
    """Executes workloads on one target.

    The workload outlives the process that submitted it, enforces its own deadline, and writes its own exit code. The
    methods raise `toolbox.model.errors.StepError` with the cause. They do not judge a workload.
    """

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        """Start a workload, or adopt it if a workload of this name exists already.

        Block until the workload has started, or is in the target's own queue, but at most for `timeouts.wait`.
        Afterwards the backend keeps the logs in the directory up to date, and calls `notify` when the workload ends.

        Raises:
            SubmissionUnknown: the request may have been sent, and it is unknown whether the workload was started. Any
                other `StepError` means that this submission has started nothing: another attempt may follow.
        """

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        """Return the status of attempts, without a request to the target."""

    def collect(self, handle: Handle, workload: Workload) -> None:
        """Fetch the files of an ended attempt into its directory."""

    def cancel(self, handle: Handle) -> None:
        """End a workload with all of its processes. The backend calls `notify` when they have ended."""

    def release(self, handle: Handle) -> None:
        """Remove the remains of an ended attempt from the target."""

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        """Adopt the attempt of this name, as `submit` does; None if the target answers that it has no such attempt.

        Block until the target answers, but at most for `timeouts.wait`.
        """

    def close(self) -> None:
        """Close the connection to the target. The workloads there run on."""


class OwningBackend(Backend, Protocol):
    """A backend that has more on its target than attempts."""

    def teardown_run(self) -> None:
        """Remove what the run has on the target besides attempts, which have all been released."""


def owning(backend: Backend) -> Callable[[], None] | None:
    """Return the method `teardown_run` of an `OwningBackend`; None for another backend.

    A backend that wraps another one may find the method by `__getattr__`, which `isinstance` does not see.
    """
    return getattr(backend, "teardown_run", None)


class Report(Protocol):
    """The function `write` of a module in `reports/`: writes a report into the directory of a run."""

    def __call__(self, summary: RunState, /) -> object:
        """Write the report of an ended run. Return the path of the file; None if no path should be shown."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[Extended_co]):
    """A kind of extensions.

    Args:
        folder: the folder of the modules, in the workspace and in this package.
        attribute: the name in a module that implements the protocol.
        protocol: the protocol.
        key: the key that names an extension of this kind in the configuration; empty if there is none.
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
