"""The models of the blocks `matrix` and `targets`. `workload_block.py` has the model of `matrix.workload`.

`contracts/` registers these models with the configuration, which validates the blocks before anything starts. Checks,
metric sources and backends have models of their own; the models here only require the name of each check, source and
backend. A reference such as `@cell.batch` may replace any text or value.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    RootModel,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from toolbox.config import paths
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.quantities import Cost, Seconds
from toolbox.ground.model.text import abbreviated
from toolbox.ground.model.workloads import CollectLimits
from toolbox.matrix.axis_values import canonical, path_of
from toolbox.matrix.workload_block import Text, WorkloadBlock

_TARGET = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_OWNER = 200  # characters


class Block(BaseModel):
    """A block of the configuration that refuses unknown fields. Its fields cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Tries = Annotated[int, Field(ge=0, le=10)]
Resources = dict[str, Annotated[int, Field(ge=0)]]


# The axes, and the fields that name axes


def _axis(values: object) -> list[Any] | dict[str, Any]:
    if not isinstance(values, list | dict):
        raise ValueError("must be a list of values, or a mapping from labels to values")  # noqa: TRY004  # pydantic reports only ValueError
    if not values:
        raise ValueError("the axis has no values: give it at least one, or set the axis to null to remove it")
    if wrong := [label for label in values if isinstance(values, dict) and not isinstance(label, str)]:
        raise ValueError(f'the label {wrong[0]} must be a string: write "{wrong[0]}"')
    for value in values.values() if isinstance(values, dict) else values:
        canonical(value)
    return values


def _without_nulls(axes: object) -> object:
    if axes is None:
        return {}
    return {axis: values for axis, values in axes.items() if values is not None} if isinstance(axes, dict) else axes


def _distinct(axes: dict[str, Any]) -> dict[str, Any]:
    names: dict[paths.Path | str, str] = {}
    for axis in axes:
        if not axis:
            raise ValueError("the name of an axis is empty")
        try:
            path = path_of(axis) or axis
        except paths.PathError as error:
            raise ValueError(f"an axis name with a dot or a bracket must be a path, and {error.detail}") from None
        if path in names:
            raise ValueError(f"the axes `{names[path]}` and `{axis}` are the same path")
        names[path] = axis
    return axes


def _are_axes(names: Iterable[str], info: ValidationInfo) -> None:
    axes = info.data.get("axes")  # missing if the axes are wrong, which pydantic reports too
    for name in names:
        if axes is not None and name not in axes:
            raise ValueError(f"no axis `{name}`: {did_you_mean(name, axes, label='axes')}")


def _pattern(pattern: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    _are_axes(pattern, info)
    canonical(pattern)
    return pattern


def _group(group: list[str], info: ValidationInfo) -> list[str]:
    _are_axes(group, info)
    lengths = {axis: len(info.data["axes"][axis]) for axis in group if "axes" in info.data}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{axis} has {length}" for axis, length in lengths.items())
        raise ValueError(f"axes that advance together must have the same number of values: {counts}")
    return group


def _named(spec: dict[str, Any], field: str) -> dict[str, Any]:
    if not isinstance(spec.get(field), str) or not spec[field]:
        raise ValueError(f"the field `{field}` is missing, or not a name")
    return spec


def _metric(spec: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    _when_of(spec, info)
    return _named(spec, "source")


def _check(spec: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    _when_of(spec, info)
    return _named(spec, "check")


def _when_of(spec: dict[str, Any], info: ValidationInfo) -> None:
    when = {} if spec.get("when") is None else spec["when"]
    if not isinstance(when, dict):
        raise ValueError("`when` must be a mapping from axes to values")  # noqa: TRY004
    _pattern(when, info)


Axis = Annotated[list[Any] | dict[str, Any], PlainValidator(_axis)]
Axes = Annotated[dict[str, Axis], BeforeValidator(_without_nulls), AfterValidator(_distinct)]
Group = Annotated[list[str], Field(min_length=2), AfterValidator(_group)]
Entry = Annotated[dict[str, Any], Field(min_length=1), AfterValidator(_pattern)]
Metric = Annotated[dict[str, Any], AfterValidator(_metric)]
Check = Annotated[dict[str, Any], AfterValidator(_check)]


# Settings for some combinations


class Timeouts(Block):
    """The time limits of an attempt, in seconds.

    Args:
        wait: the longest time from the submission to the start of the workload.
        run: the longest time that the workload may run.
        silence: the longest time without a new line of output; None for no limit.
        grace: the time between SIGTERM and SIGKILL.
    """

    wait: Seconds = 600
    run: Seconds = 3600
    silence: Seconds | None = None
    grace: Seconds = 10


class PartialTimeouts(Block):
    """The timeouts of some combinations. A missing timeout keeps the value that the matrix gives to all cells."""

    wait: Seconds | None = None
    run: Seconds | None = None
    silence: Seconds | None = None
    grace: Seconds | None = None

    def over(self, timeouts: Timeouts) -> Timeouts:
        """Return `timeouts` with these values replaced. Null removes the limit `silence`; other nulls are ignored."""
        fields = self.model_dump(exclude_unset=True)
        update = {name: seconds for name, seconds in fields.items() if seconds is not None or name == "silence"}
        return timeouts.model_copy(update=update)


class Backoff(Block):
    """The pause before another attempt, in seconds: `first`, multiplied by `factor` each time, at most `most`."""

    first: Seconds = 5
    factor: float = Field(default=2, ge=1)
    most: Seconds = 300


class Retries(Block):
    """How often a failed cell is attempted again, by the cause of the failure."""

    infrastructure: Tries = 2
    capacity: Tries = 2
    timeout: Tries = 0
    product: Tries = 0
    check: Tries = 0
    backoff: Backoff = Backoff()


class PartialRetries(Block):
    """The retries of some combinations. A missing number keeps the value that the matrix gives to all cells."""

    infrastructure: Tries | None = None
    capacity: Tries | None = None
    timeout: Tries | None = None
    product: Tries | None = None
    check: Tries | None = None

    def over(self, retries: Retries) -> Retries:
        """Return `retries` with these values replaced."""
        return retries.model_copy(update=self.model_dump(exclude_none=True))


class Conditional(Block):
    """An entry that applies to some combinations.

    Args:
        when: for each axis a value, a label, or a list of values and labels. An empty mapping matches all combinations.
    """

    when: dict[str, Any]


class Skip(Conditional):
    """Combinations that do not run."""

    reason: Text


class Excuse(Conditional):
    """The reason why some combinations need not pass.

    Args:
        owner: the person or team that is responsible for this entry.
        expires: the last day on which the entry applies.
    """

    word: ClassVar[str]
    reason: Text
    owner: Text
    expires: dt.date


class Xfail(Excuse):
    """Combinations that are known to fail.

    Args:
        tests: patterns for the names of the test cases that may fail. Then another failure is not expected. None for
            any failure.
    """

    word = "expected to fail"
    tests: Annotated[list[Text], Field(min_length=1)] | None = None


class Quarantine(Excuse):
    """Flaky combinations: they run, but their verdicts do not count."""

    word = "in quarantine"


def _owner_name(name: str) -> str:
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_OWNER:
        raise ValueError(f"must be a name on one line, of at most {_LONGEST_OWNER} printable characters")
    return name


class Owner(Conditional):
    """The person or team that looks after some combinations. Later entries win."""

    owner: Annotated[Text, AfterValidator(_owner_name)]


class Settings(Conditional):
    """Settings of some combinations, which replace the settings of the matrix. Later entries win, field by field."""

    target: Text | Annotated[list[Text], Field(min_length=1)] | None = None
    resources: Resources | None = None
    timeouts: PartialTimeouts | None = None
    retries: PartialRetries | None = None


_Conditional = TypeVar("_Conditional", bound=Conditional)


def _when(entry: _Conditional, info: ValidationInfo) -> _Conditional:
    _pattern(entry.when, info)
    return entry


# The blocks


class MatrixBlock(Block):
    """The combinations to run, the workload, and how each cell is judged.

    Args:
        axes: for each axis a list of values, or a mapping from labels to values; the names of cells contain the labels.
            An axis whose name has a dot or a bracket is a path in the configuration. Without axes there is one cell.
        zip: groups of axes that advance together.
        include: combinations to add, by the values of some axes.
        exclude: combinations to remove.
        target: the names or labels of targets on which cells may run.
        jobs: how many cells run at once; None for one cell per target.
        pools: the amount of each resource that all cells on all targets may take together.
        resources: the amount of each resource that a cell takes, by the label of the resource.
        deadline: the time limit of the whole run, in seconds.
        max_cost: the highest cost of the whole run, in the currency of `results.currency`.
        max_cells: the largest number of cells that a run may execute; None for no limit. A larger plan is refused.
        reuse_results: for how many days the result of a passed cell may be reused for equal cells of other runs; None
            to execute all cells.
        metrics: the sources of metrics, by the name of the metric. A metric with `when` belongs only to some cells.
        checks: the checks of each cell. A check with `when` applies only to some cells.
    """

    axes: Axes = {}
    zip: list[Group] = []
    include: list[Entry] = []
    exclude: list[Entry] = []
    skip: list[Annotated[Skip, AfterValidator(_when)]] = []
    xfail: list[Annotated[Xfail, AfterValidator(_when)]] = []
    quarantine: list[Annotated[Quarantine, AfterValidator(_when)]] = []
    settings: list[Annotated[Settings, AfterValidator(_when)]] = []
    owners: list[Annotated[Owner, AfterValidator(_when)]] = []
    target: Text | Annotated[list[Text], Field(min_length=1)] = "local"
    jobs: int | None = Field(default=None, ge=1)
    pools: dict[str, Annotated[int, Field(ge=1)]] = {}  # with a limit of 0, no cell could ever run
    resources: Resources = {}
    timeouts: Timeouts = Timeouts()
    deadline: Seconds | None = None
    max_cost: Cost | None = None
    max_cells: int | None = Field(default=None, ge=1)
    retries: Retries = Retries()
    reuse_results: float | None = Field(default=None, gt=0, le=366)
    workload: WorkloadBlock
    metrics: dict[str, Metric] = {}
    checks: list[Check] = []

    @model_validator(mode="after")
    def _values_are_distinct(self) -> Self:
        """Check that no axis repeats a value. In a `zip` group repeats are allowed: other axes of the group differ."""
        grouped = {axis for group in self.zip for axis in group}
        for axis, values in self.axes.items():
            if axis in grouped:
                continue
            seen = set()
            for key, value in values.items() if isinstance(values, dict) else enumerate(values):
                if (text := canonical(value)) in seen:
                    fault = PydanticCustomError("repeated", "this value is on the axis `{axis}` twice", {"axis": axis})
                    details = InitErrorDetails(type=fault, loc=("axes", axis, key), input=value)
                    raise ValidationError.from_exception_data("axes", [details])
                seen.add(text)
        return self

    @field_validator("zip")
    @classmethod
    def _groups_are_disjoint(cls, groups: list[list[str]]) -> list[list[str]]:
        counts = Counter(axis for group in groups for axis in group)
        if repeated := [axis for axis, count in counts.items() if count > 1]:
            raise ValueError(f"axes occur more than once in `zip`: {', '.join(repeated)}")
        return groups


class TargetBlock(BaseModel):
    """A place where cells run. A backend may define further fields.

    Args:
        labels: further names, which several targets may share.
        capacity: the amount of each resource that the target has, by the label of the resource. The resource `jobs` is
            the number of cells that run at once.
        accelerator: the kind of accelerator that the records of the run name, for example `H200`.
        cost_per_hour: the price of an hour, in the currency of `results.currency`. It wins over `config/prices.yaml`.
        collect_bytes: how many bytes may be fetched from one attempt.
        collect_files: how many files may be fetched from one attempt.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    backend: Text = "local"
    labels: list[Text] = []
    capacity: Resources = {}
    accelerator: Text | None = None
    cost_per_hour: Cost | None = None
    collect_bytes: int = Field(default=CollectLimits().bytes, ge=1)
    collect_files: int = Field(default=CollectLimits().files, ge=1)

    @field_validator("capacity")
    @classmethod
    def _can_run_a_job(cls, capacity: dict[str, int]) -> dict[str, int]:
        if capacity.get("jobs") == 0:
            raise ValueError("`jobs` must be at least 1")
        return capacity


class TargetsBlock(RootModel[dict[str, TargetBlock]]):
    """The targets, by name."""

    is_open: ClassVar[bool] = True
    model_config = ConfigDict(frozen=True)

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        for name, target in self.root.items():
            if not _TARGET.fullmatch(name):
                raise ValueError(
                    f"the name of the target {abbreviated(name)} may contain only letters, digits, `.`, `_`, `-`"
                )
            if clash := [label for label in target.labels if label in self.root]:
                raise ValueError(f"the label {clash[0]} of the target {name} is the name of a target")
        return self
