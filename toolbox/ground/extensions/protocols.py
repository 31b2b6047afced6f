"""The protocols of extensions: checks, comparators, metric sources, backends, remote resources, notifiers, forges.

A check, a metric source, a notifier or the target of a backend is a pydantic model whose fields are set by the
configuration. The fields of a comparator are set by a case file or by the configuration. The fields of a remote
resource are set by the ledger. A forge is a class without fields, which reads the environment variables of its jobs.
`discovery.py` finds the modules, and `loading.py` creates the objects. Reports and sections of the report page have
their protocols in `toolbox.reports`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel

from toolbox.ground.kit.server_answers import Generation
from toolbox.ground.model.cases import CaseReport
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.model_answers import Mismatch
from toolbox.ground.model.prices import Rental
from toolbox.ground.model.resources import OpenResource, Owner
from toolbox.ground.model.workloads import AttemptStatus, Handle, TargetContext, Workload

if TYPE_CHECKING:
    from toolbox.ground.model.forge_data import (
        CiRun,
        Commenters,
        CommentEvent,
        CommitReport,
        CommitStatus,
        PostedComment,
        ResultLabel,
    )
    from toolbox.ground.model.notifications import Notification

Extended_co = TypeVar("Extended_co", covariant=True)


class Check(Protocol):
    """Judges the files and metrics of an attempt: the model `Check` of a module in `checks/`.

    A check that has the attribute of `MetricCheck`, `HistoryCheck`, `RelationCheck` or `CaseCheck` implements this
    protocol as well.
    """

    def judge(self, evidence: Evidence) -> Judgement:
        """Judge the evidence of an attempt."""


@runtime_checkable
class MetricCheck(Protocol):
    """A check of one metric. The configuration is invalid if the matrix does not define the metric."""

    @property
    def metric(self) -> str:
        """The name of the metric."""


@runtime_checkable
class HistoryCheck(MetricCheck, Protocol):
    """A check of one metric that may use the bounds from earlier runs."""

    @property
    def bounds(self) -> object | None:
        """How the check uses the bounds from earlier runs; None if it does not use them."""


@runtime_checkable
class RelationCheck(Protocol):
    """A check that compares the cell with a reference cell (`evidence.reference`)."""

    @property
    def to(self) -> Mapping[str, Any]:
        """The axis values of the reference cell that differ from those of the judged cell."""


@runtime_checkable
class CaseCheck(Protocol):
    """A check that counts test cases, which are rows of the cell even if the workload did not end by itself."""

    def finished(self, evidence: Evidence) -> CaseReport | None:
        """Return the test cases that finished before the workload was ended; None if no test case finished."""


class MetricSource(Protocol):
    """Reads a metric from the files of an attempt: the model `Source` of a module in `metrics/`."""

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the value of the metric, or all samples if the source is configured with `aggregate: each`.

        Raises:
            ValueError: no number can be read. The message names the file and the reason.
        """


class Comparator(Protocol):
    """Compares an answer of a server with the expected answer: the model `Comparator` of a module in `comparators/`."""

    def compare(self, expected: Generation, actual: Generation) -> Mismatch | None:
        """Return why the answer is not as expected; None if it is.

        Both texts may be anything, and have at most a few hundred thousand characters. A comparison must end soon for
        any of them. If an answer lacks what the comparator compares, this is a mismatch too.
        """


class Target(Protocol):
    """Describes one target of a backend: the model `Target` of a module in `backends/`.

    A target may also implement `MachineTarget`, `SelectiveTarget`, `IdentifiableTarget`, `VerifiableTarget`,
    `OwningTarget`, `PricedTarget` and `ExtendingTarget`.

    Args:
        keeps_attempts: whether the files of an attempt stay on the target until the attempt is released.
    """

    keeps_attempts: ClassVar[bool]

    def open(self, context: TargetContext) -> Backend:
        """Return the backend that executes workloads on the target."""


@runtime_checkable
class MachineTarget(Protocol):
    """A target that is one machine, so that toolbox commands can run on it."""

    def address(self, name: str) -> str | None:
        """Return the address of the target for Ansible, as `[USER@]HOST[:PORT]`; None for this machine.

        Raises:
            ValueError: no host is configured, and the name of the target is not a valid host either.
        """


@runtime_checkable
class SelectiveTarget(Protocol):
    """A target that cannot run every workload."""

    def accept(self, workload: Workload) -> None:
        """Check that the target can run a workload.

        Raises:
            ValueError: the target cannot run the workload. The message contains the reason.
        """


@runtime_checkable
class IdentifiableTarget(Protocol):
    """A target that can identify itself, so that a cell may reuse the result of an earlier run on an equal target."""

    def identity(self, name: str, workload: Workload) -> str | None:
        """Return a text that determines the machine or accelerator, and its runtime; None if they are unknown.

        The text is compared with the texts of earlier runs.

        Args:
            name: the name of the target.
        """


@runtime_checkable
class VerifiableTarget(Protocol):
    """A target that can check, before a run begins, whether its workloads can run."""

    def verify(self, name: str, clusters: Mapping[str, Access | None], workloads: Iterable[Workload]) -> None:
        """Check that the target can run the workloads, as far as this can be checked before the run begins.

        Args:
            clusters: how to reach each cluster of the run, by name; None for a cluster that is not known before the
                run: it is from a pool, or the run creates it.

        Raises:
            ConfigurationError: the configuration or a permission must be changed before the workloads can run.
            InfrastructureError: the target does not answer.
        """


@runtime_checkable
class OwningTarget(Protocol):
    """A target whose backend creates remote resources, which can be found by their labels."""

    def resources(self, name: str, clusters: Mapping[str, Access | None]) -> Iterable[OpenResource]:
        """Return the resources with labels of Topgallant on the remote side, of any owner.

        Args:
            clusters: how to reach each cluster of the configuration, by name; None for a cluster that is from a pool or
                is created by a run.

        Raises:
            ToolboxError: the remote side does not answer, or refuses the request.
        """


@runtime_checkable
class PricedTarget(Protocol):
    """A target that rents accelerators, whose prices are in `config/prices.yaml`.

    The `cost_per_hour` in the configuration of a target wins over these prices.
    """

    @property
    def rents_per_attempt(self) -> bool:
        """Whether each attempt has accelerators of its own. Otherwise attempts at the same time share the price."""

    def rentals(self) -> Sequence[Rental]:
        """Return what the target rents: one item for each region in which the accelerators may be."""


class ExtendingTarget(Protocol):
    """A target whose backend adds fields to workloads.

    Args:
        workload_fields: the pydantic model of these fields, which `Workload.backend_fields` contains. Each field has a
            default, because it is missing in workloads of other backends. If several backends define a field with the
            same name, the model of the first backend, by name, validates it.
        guarded_fields: the paths below these fields that a comment must not change, because they determine which
            program runs or which secrets it gets. Without this attribute, a comment cannot change any of the fields.
    """

    workload_fields: ClassVar[type[BaseModel]]
    guarded_fields: ClassVar[Sequence[str]]


class Backend(Protocol):
    """Executes workloads on one target.

    The workload must outlive the process that submitted it. Its time limits and the record of its exit code must not
    depend on this process. The methods raise `toolbox.ground.model.errors.StepError` if the target fails, but not if a
    workload fails.
    """

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        """Start a workload. If a workload with this name already exists, adopt that workload.

        Return when the workload has started or is in the queue of the target, after `timeouts.wait` at most. From then
        on, the backend keeps the logs in the directory up to date, and calls `notify` when the workload has ended.

        Args:
            directory: the directory of the attempt in the run directory.

        Raises:
            SubmissionUnknown: it is unknown whether the workload was started.
            StepError: the workload was not started, so the cell may be tried again.
        """

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        """Return the last known status of each attempt. Don't send a request to the target."""

    def collect(self, handle: Handle, workload: Workload) -> None:
        """Fetch the files of an ended attempt into its directory."""

    def cancel(self, handle: Handle) -> None:
        """Request the end of a workload with all of its processes. The backend calls `notify` after their end."""

    def release(self, handle: Handle) -> None:
        """Remove the files and other objects of an ended attempt from the target."""

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        """Adopt the attempt with this name, as `submit` does. Return None if there is no such attempt on the target.

        Return when the target has answered, after `timeouts.wait` at most.
        """

    def close(self) -> None:
        """Close the connection to the target. The workloads on the target continue to run."""


def teardown_of(backend: Backend) -> Callable[[], None] | None:
    """Return the method `teardown_run` of a backend; None if the backend does not have this method.

    The method removes the objects that all attempts of a run share. All attempts have been released before the call.
    `isinstance` would not work for a backend that wraps another backend and finds its methods by `__getattr__`.
    """
    return getattr(backend, "teardown_run", None)


class RemoteResource(Protocol):
    """Deletes one remote resource: the model `Resource` of a module in `resources/`.

    The fields of the model are those of `toolbox.ground.model.resources.Resource.deletion`. They come from a file, so
    the model validates them strictly.

    A kind with the class variable `waits_for_attempts = True` is not deleted at the end of a run whose attempts are
    open, because a resumed run collects their results. A resource that costs money must not wait.

    A kind with the static method `tidy(ledger)` also keeps something on this machine for its resources, such as a key.
    The method is called after deletions, also failed ones, and removes what no open resource of the ledger needs.
    """

    def delete(self, owner: Owner) -> bool | None:
        """Delete the resource, and return when it no longer exists. A resource that does not exist is not an error.

        Args:
            owner: the owner of the resource. A resource whose labels are not `owner.labels()` is not deleted.

        Returns:
            False if the resource did not exist. If the outcome of its request is unknown, the resource remains on the
            ledger for an hour, because the request may still be carried out.

        Raises:
            ToolboxError: the resource may still exist, or belongs to another owner.
        """


class PullRequests(Protocol):
    """The pull requests of one repository. The methods raise `UsageError` for a refusal, which people can read.

    All methods raise `InfrastructureError` if the forge refuses a request, or does not answer.
    """

    def may_start(self, event: CommentEvent, allowed: Commenters) -> bool:
        """Return whether the author of a comment may start runs. The forge is asked, because an event can be forged."""

    def verify(self, event: CommentEvent) -> None:
        """Raise `UsageError` if the forge no longer has the comment with the text, author and time of the event."""

    def revision(self, event: CommentEvent) -> str:
        """Return the commit that the pull request had when the comment was written.

        Raises:
            UsageError: the pull request is closed, comes from a fork (where forks are not allowed), or has changed
                since the comment.
        """

    def account(self) -> str:
        """Return the login of the account that writes comments."""

    def comments(self, number: int) -> Iterable[PostedComment]:
        """Return the comments of a pull request, the oldest first."""

    def create_comment(self, number: int, text: str) -> str:
        """Write a comment, and return its address. The request is not repeated if it may have had an effect."""

    def replace_comment(self, number: int, comment: PostedComment, text: str) -> str:
        """Replace the text of a comment, and return its address."""

    def delete_comment(self, number: int, comment: PostedComment) -> None:
        """Delete a comment."""

    def set_status(self, revision: str, status: CommitStatus) -> None:
        """Show a status on a commit."""


@runtime_checkable
class ReportingPullRequests(PullRequests, Protocol):
    """The pull requests of a forge that also shows reports with annotated lines, and labels."""

    def files(self, revision: str) -> Collection[str]:
        """Return the paths of all files of a revision."""

    def show_report(self, report: CommitReport) -> None:
        """Show a report on a commit."""

    def set_label(self, number: int, label: ResultLabel) -> None:
        """Label a pull request with a result, and remove the label for the other result."""


class Forge(Protocol):
    """Tells what started a job of a CI system: the class `Forge` of a module in `forges/`, which is called without
    arguments.

    Environment variables and files of the job are read when a method needs them. The methods raise `UsageError` if
    they are missing or wrong.
    """

    @staticmethod
    def is_current() -> bool:
        """Return whether this process runs in a job of the CI system."""

    def events(self) -> Sequence[CommentEvent]:
        """Return the comment that started the job; nothing if no comment did.

        If the CI system does not tell which comment it was, return all that it may have been, the newest first. The
        newest comment whose author may start runs counts.
        """

    def run(self) -> CiRun:
        """Return the run to which the job belongs. All of its jobs have the same run."""

    def pull_requests(self) -> PullRequests:
        """Return the pull requests of the repository of the event. Only called if the event has a pull request.

        The repository and the address of the forge come from the environment of the job, never from an event, which can
        be forged.
        """

    def cancel(self, run: str) -> bool:
        """Cancel another run, and return whether it was running.

        Args:
            run: the id of the run.

        Raises:
            UsageError: runs of this CI system cannot be cancelled from a job.
        """


class Notifier(Protocol):
    """Tells people about a run: the model `Notifier` of a module in `notifiers/`.

    Fields that contain secrets have the type `toolbox.ground.model.secret_fields.SecretField`.
    """

    def notify(self, notification: Notification) -> None:
        """Send a message, within half a minute. The method is called in a thread of its own.

        Raises:
            Exception: the message was not sent. The text of the error becomes a warning, so it contains no secret. The
                end of the next run tries again.
        """


@runtime_checkable
class VerifiableNotifier(Notifier, Protocol):
    """A notifier that can check its settings before a run begins."""

    def verify(self) -> None:
        """Check the settings, without sending anything.

        Raises:
            ConfigurationError: a library is missing, or a secret cannot be used.
        """


@dataclass(frozen=True, slots=True)
class Kind(Generic[Extended_co]):
    """A kind of extensions.

    Args:
        folder: the name of the folder of the modules, in the workspace and in `toolbox/`.
        attribute: the name of the class or function that each module must define.
        protocol: the protocol that the class or function must implement.
        key: the key of the configuration whose value names an extension; empty if the configuration does
            not name extensions of this kind.
    """

    folder: str
    attribute: str
    protocol: type
    key: str = ""

    @property
    def members(self) -> list[str]:
        """The names of the attributes and methods that an implementation must have."""
        names = {**self.protocol.__annotations__, **vars(self.protocol)}
        return [name for name in names if not name.startswith("_")]


CHECKS: Final[Kind[Check]] = Kind("checks", "Check", Check, "check")
COMPARATORS: Final[Kind[Comparator]] = Kind("comparators", "Comparator", Comparator, "comparator")
METRICS: Final[Kind[MetricSource]] = Kind("metrics", "Source", MetricSource, "source")
BACKENDS: Final[Kind[Target]] = Kind("backends", "Target", Target, "backend")
RESOURCES: Final[Kind[RemoteResource]] = Kind("resources", "Resource", RemoteResource, "kind")
NOTIFIERS: Final[Kind[Notifier]] = Kind("notifiers", "Notifier", Notifier, "notifier")
FORGES: Final[Kind[Forge]] = Kind("forges", "Forge", Forge)
