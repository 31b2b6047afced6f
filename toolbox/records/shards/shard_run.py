"""Reads the run of a shard, and refuses runs that do not belong together.

The run of a shard is data from outside: the code under test may have written its files on another machine. So its
records are limited in size and validated, its steps must have plain paths, and its cells must be those of its plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from toolbox.config.contracts.ci import MAX_SHARDS
from toolbox.ground.kit import safe_files
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.events import JournalEvent, SecretLeft
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate, without_kind
from toolbox.records.exports import manifest
from toolbox.records.runs import journal, layout, run_reader
from toolbox.records.runs.journal import Entry
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState

_MAX_RECORD: Final = 64 << 20  # bytes of `run.json` or `plan.json`
_MAX_JOURNAL: Final = 1 << 30
_MAX_CELLS: Final = 1_000_000
_LONGEST: Final = 100_000  # characters of a value

M = TypeVar("M", bound=BaseModel)
Text = Annotated[str, StringConstraints(max_length=_LONGEST)]
ShardNumber = Annotated[int, Field(ge=1, le=MAX_SHARDS)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Change(_Model):
    """A change that a preset or an override made to the configuration."""

    path: Text
    value: Text


class Request(_Model):
    """What a shard was asked to do. All shards of a run have the same fields, except for the number of the shard."""

    project: manifest.Name
    presets: list[Text]
    phases: list[Text] | None
    cells: Text | None
    shard: tuple[ShardNumber, ShardNumber]
    position: int
    revision: Text | None
    configuration_revision: Text | None
    changes: list[Change]
    resolved: dict[str, Any]

    @model_validator(mode="after")
    def _has_shard(self) -> Request:
        if self.number > self.shards:
            raise ValueError("the shard has a larger number than there are shards")
        return self

    @property
    def has_tests(self) -> bool:
        """Whether the shard was asked to run its cells."""
        return self.phases is None or "test" in self.phases

    @property
    def number(self) -> int:
        """The number of the shard, from 1."""
        return self.shard[0]

    @property
    def shards(self) -> int:
        """The number of all shards."""
        return self.shard[1]


class PlannedCell(_Model):
    """A cell of any shard."""

    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{6,64}$")]
    name: Text
    shard: ShardNumber


class Plan(_Model):
    """The plan of a shard: its own cells, and the names of the cells of all shards."""

    total: int = Field(ge=0)
    notes: list[Text]
    targets: dict[str, dict[str, Any]]
    files: dict[str, Text]
    shards: Annotated[list[PlannedCell], Field(max_length=_MAX_CELLS)] = []
    cells: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ShardRun:
    """The run of a shard.

    Args:
        record: the whole content of `run.json`.
        started: when the run began.
        entries: the journal.
        state: the state of the run by its journal.
        damage: the damaged lines of the journal; empty if the journal is whole.
    """

    directory: Path
    request: Request
    record: dict[str, Any]
    plan: Plan
    started: datetime
    entries: Sequence[Entry]
    state: RunState
    damage: str

    def __str__(self) -> str:
        """Return the name of the shard and of its run."""
        return f"shard {self.request.number}/{self.request.shards}, run {self.state.run}"

    @property
    def ended(self) -> datetime:
        """When the journal was last written."""
        return self.entries[-1].time

    @property
    def cells(self) -> list[PlannedCell]:
        """The planned cells of the shard."""
        return [cell for cell in self.plan.shards if cell.shard == self.request.number]


def read(directory: Path) -> ShardRun:
    """Read the run of a shard.

    Raises:
        UsageError: the directory is not the directory of a run of a shard, a record is damaged, or the run is going on.
    """
    files = RunDirectory(directory)
    if journal.is_locked(directory):
        raise UsageError(f"{_shown(directory)} is still being executed: merge the shards after its end")
    _require_regular(files.journal, _MAX_JOURNAL)
    contents = journal.load(directory)
    state = run_reader.read(directory)
    if state.shards:
        raise UsageError(f"{_shown(directory)} is a merged run: give the runs of the shards")
    record = _object(files.request)
    if record.get("shard") is None:
        raise UsageError(f"{_shown(directory)} is not the run of a shard: `project run --shard=1/3` runs a shard")
    run = ShardRun(
        directory.absolute(),
        _parsed(Request, record, files.request),
        record,
        _parsed(Plan, _object(files.plan), files.plan),
        contents.entries[0].time,
        contents.entries,
        state,
        "; ".join(map(str, contents.damage[:2])),
    )
    if not re.fullmatch(manifest.NAME, state.run) or state.project != run.request.project:
        raise UsageError(f"{_shown(directory)}: the journal and {RunDirectory.request} do not name the same run")
    _require_own_cells(run)
    for entry in run.entries:
        _require_plain_paths(entry.event, directory)
    return run


def current(runs: Iterable[ShardRun]) -> list[ShardRun]:
    """Return the latest run of each shard, in the order of the shards.

    Raises:
        UsageError: the runs do not belong to the same project, request, revision and plan, or a run is given twice.
    """
    by_start = sorted(runs, key=lambda each: each.started)
    by_number: dict[int, ShardRun] = {}
    for run in by_start:
        earlier = by_number.get(run.request.number)
        if earlier is not None and earlier.started == run.started:
            raise UsageError(f"{earlier} is given twice: give each run once")
        by_number[run.request.number] = run
        if difference := _difference(by_start[0], run):
            raise UsageError(
                f"these runs are not shards of the same run, because they differ in {difference}:\n"
                f"  {_shown(by_start[0].directory)}\n  {_shown(run.directory)}\n"
                "  give only runs with the same project, flags, configuration and revision"
            )
    return [run for _, run in sorted(by_number.items())]


def _difference(one: ShardRun, other: ShardRun) -> str:
    """Return what two runs must have in common and have not; empty if they belong together."""
    if one.request.shards != other.request.shards:
        return f"the number of shards: {one.request.shards} and {other.request.shards}"
    for name in Request.model_fields:
        if name != "shard" and getattr(one.request, name) != getattr(other.request, name):
            return f"`{name}`"
    if (one.plan.total, one.plan.shards) != (other.plan.total, other.plan.shards):
        return "their plans"
    common = one.plan.files.keys() & other.plan.files.keys()
    if any(one.plan.files[name] != other.plan.files[name] for name in common):
        return "the files of `matrix.workload.files`"
    return ""


def _require_own_cells(run: ShardRun) -> None:
    """Raise if a run has other cells than its plan, or a cell twice: then a cell could count twice."""
    planned = {cell.id for cell in run.cells}
    in_plan = [cell.get("id") for cell in run.plan.cells]
    begun = [step.identity for step in run.state.cells]
    if len({cell.id for cell in run.plan.shards}) != len(run.plan.shards) or sorted(map(str, in_plan)) != sorted(
        planned
    ):
        raise UsageError(f"{_shown(run.directory)}: {RunDirectory.plan} is damaged: its lists of cells do not agree")
    if len(set(begun)) != len(begun) or not planned.issuperset(begun):
        raise UsageError(
            f"{_shown(run.directory)}: the journal has cells that are not in {RunDirectory.plan}, or twice"
        )


def _require_plain_paths(event: JournalEvent, directory: Path) -> None:
    step = getattr(event, "step", None)
    if step is not None and (not layout.is_step(step) or manifest.fault_of_name(step)):
        raise UsageError(f"{_shown(directory)}: the journal names a step that has no plain path: {_quoted(step)}")
    if isinstance(event, SecretLeft) and manifest.fault_of_name(event.file):
        raise UsageError(f"{_shown(directory)}: the journal names a file that has no plain path: {_quoted(event.file)}")


def _object(file: Path) -> dict[str, Any]:
    _require_regular(file, _MAX_RECORD)
    directory = RunDirectory(file.parent)
    return directory.read_request() if file == directory.request else directory.read_plan()


def _require_regular(file: Path, most: int) -> None:
    if not safe_files.is_regular(str(file)):
        raise UsageError(f"{_shown(file.parent)} is not the directory of a run of a shard: it has no {file.name}")
    if (size := file.lstat().st_size) > most:
        raise UsageError(f"{_shown(file)} has {size} bytes, but at most {most} are allowed")


def _parsed(model: type[M], content: dict[str, Any], file: Path) -> M:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = truncate(clean(".".join(map(str, first["loc"]))), 100)
        raise UsageError(
            f"{_shown(file)} is damaged: {where}: {truncate(without_kind(clean(first['msg'])), 200)}"
        ) from None


def _shown(path: Path) -> str:
    return truncate(clean(str(path)), 200)


def _quoted(text: str) -> str:
    return ascii(truncate(text, 100))
