"""The request for a run: from the command line, or from `run.json` when the run is resumed."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from toolbox.config.configuration import Configuration, Request
from toolbox.config.document import ONCE
from toolbox.ground.model.errors import ConfigurationError, DamagedFile, UsageError, describe
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import abbreviated, first_of, truncate, without_kind
from toolbox.ground.system import environ, filesystem, places
from toolbox.matrix import plan, planner, reuse, targets
from toolbox.matrix.plan import Plan, Selection
from toolbox.matrix.reuse import Reuse
from toolbox.matrix.scheduler import Options
from toolbox.orchestration import projects, receivers, reused_results
from toolbox.orchestration.projects import ProjectFiles
from toolbox.records.results import bounds_file
from toolbox.records.runs.layout import RunDirectory

log = logging.getLogger(__name__)

_MAX_SHOWN_CHANGES: Final = 5
_MAX_SHOWN_SCALARS: Final = 5
_REUSE: Final = f"{plan.BLOCK}.reuse_results"
_LONGEST_PLACE: Final = 100  # characters
_LONGEST_DEADLINE: Final = 1e9  # seconds
_RESOLVED: Final = "the start of the run"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The request to run a project.

    Args:
        is_from_outside: whether the overrides come from a comment, which may override only some fields.
        trusted_overrides: overrides of a comment's job, from `ci.jobs` of the configuration. They are applied before
            `overrides`, and may change any field.
        phases: the names of the phases to run; by default, all phases of the project.
        first_phases: the phases of the first session, if later sessions execute the other ones (`run_steps.py`); None
            if one session executes the whole run.
        in_steps: whether several sessions execute the phases of the run.
        artifact_dir: the directory that contains all runs; by default `$ARTIFACT_DIR` or `artifacts`.
        note: additional files for the run directory: the content by file name. Content that is not text becomes YAML.
        selection: which cells of the matrix to run.
        options: how the scheduler runs the cells.
        deadline: the time limit for the whole run in seconds; by default, the value of `matrix.deadline`.
        position: the position of the run among the runs that a comment requests, from 1.
        preset_reasons: why presets were selected that no person named, by preset.
        resolved: the values that the function `resolve` of the project determined when the run began, by path.
    """

    project: str
    presets: Sequence[str] = ()
    override_files: Sequence[Path] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    is_from_outside: bool = False
    phases: Sequence[str] | None = None
    artifact_dir: Path | None = None
    note: Mapping[str, object] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)
    options: Options = field(default_factory=Options)
    deadline: float | None = None
    resolved: Mapping[str, Any] = field(default_factory=dict)
    trusted_overrides: Mapping[str, Any] = field(default_factory=dict)
    position: int = 1
    preset_reasons: Mapping[str, str] = field(default_factory=dict)
    first_phases: Sequence[str] | None = None
    in_steps: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the run tests all cells."""
        has_tests = self.phases is None or projects.TESTS in self.phases
        return has_tests and self.selection.cells is None and self.selection.shard is None

    @property
    def all_overrides(self) -> dict[str, Any]:
        """The trusted overrides and the overrides, in the order in which they are applied."""
        trusted = {path: value for path, value in self.trusted_overrides.items() if path not in self.overrides}
        return {**trusted, **self.overrides}

    def as_json(self) -> dict[str, Any]:
        """Return the part of the request that `run.json` contains, so that the run can be resumed."""
        return {
            "project": self.project,
            "presets": list(self.presets),
            "override_files": [str(file.absolute()) for file in self.override_files],
            "overrides": self.all_overrides,
            "phases": list(self.phases) if self.phases is not None else None,
            "in_steps": self.in_steps,
            "cells": self.selection.cells,
            "shard": list(self.selection.shard) if self.selection.shard else None,
            "jobs": self.options.jobs,
            "fail_fast": self.options.fail_fast,
            "max_failures": self.options.max_failures,
            "max_cost": self.options.max_cost,
            "deadline": self.deadline,
            "resolved": dict(self.resolved),
            "position": self.position,
        }

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the request of an earlier run from `run.json`.

        Raises:
            DamagedFile: the file is missing or damaged.
        """
        try:
            content = _Recorded.model_validate(filesystem.read_json(RunDirectory(directory).request))
            overrides = _overrides(content.overrides_text)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            where = truncate(clean(".".join(map(str, fault["loc"]))), _LONGEST_PLACE)
            reason = f"{where}: {without_kind(clean(fault['msg']))}"
            raise DamagedFile(RunDirectory(directory).request, reason.removeprefix(": ")) from None
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            raise DamagedFile(RunDirectory(directory).request, describe(error)) from None
        return cls(
            content.project,
            content.presets,
            [Path(file) for file in content.override_files],
            overrides,
            phases=content.phases,
            selection=Selection(content.cells, content.shard),
            options=Options(content.jobs, content.fail_fast, content.max_failures, content.max_cost),
            deadline=content.deadline,
            resolved=content.resolved,
            position=content.position,
            in_steps=content.in_steps,
        )


def _overrides(text: str) -> dict[str, Any]:
    overrides = yaml.safe_load(text) or {}
    if not isinstance(overrides, dict) or not all(isinstance(path, str) for path in overrides):
        raise ValueError("overrides_text: must be a mapping of paths")
    return overrides


_Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
_Positive = Annotated[int, Field(gt=0, le=2**53)]


class _Recorded(BaseModel):
    """The part of `run.json` from which a run is resumed. The code under test may have written the file."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    project: _Text
    presets: list[str]
    override_files: list[_Text]
    overrides_text: str
    phases: list[str] | None
    cells: str | None
    shard: Annotated[tuple[_Positive, _Positive], Field(strict=False)] | None
    jobs: _Positive | None
    fail_fast: bool
    max_failures: _Positive | None
    max_cost: Annotated[float, Field(ge=0)] | None
    deadline: Annotated[float, Field(gt=0, le=_LONGEST_DEADLINE)] | None
    resolved: dict[str, Any]
    position: _Positive
    in_steps: bool


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A request with its project, its valid configuration and its plan, which is None without a matrix."""

    request: RunRequest
    files: ProjectFiles
    configuration: Configuration
    plan: Plan | None


def load(
    request: RunRequest, *, today: dt.date | None = None, resumed: Path | None = None, needs_secrets: bool = True
) -> PreparedRun:
    """Find the project, load its configuration, and make the plan of its matrix.

    Args:
        today: the date that decides which entries of `xfail` and `quarantine` have expired; by default, today.
        resumed: the directory of the run to resume, whose original bounds and prices are used again; None for a new
            run.
        needs_secrets: whether it is a fault that a secret cannot be read.

    Raises:
        UsageError: the project, a preset, an override, a field or the selection of cells is wrong.
    """
    files, configuration = configure(request)
    if resumed is None:
        _warn_of_ambiguous_scalars(configuration, request.project)
    configuration.check()
    if needs_secrets:
        _check_secrets(request, configuration)
    matrix_plan = None
    if configuration.get(plan.BLOCK, default=None) is not None:
        matrix_plan = planner.make(
            configuration,
            targets.read(configuration, plan.frozen_prices(resumed) if resumed is not None else None),
            request.selection,
            root=configuration.root,
            today=today or dt.datetime.now(tz=dt.UTC).date(),
            bounds=plan.frozen_bounds(resumed) if resumed is not None else bounds_file.read(files.bounds),
        )
        if resumed is not None:
            frozen = reuse.frozen(resumed)
            cells = tuple(replace(cell, reuse=frozen.get(cell.id, Reuse())) for cell in matrix_plan.cells)
            matrix_plan = replace(matrix_plan, cells=cells)
        elif (days := configuration.get(_REUSE, default=None)) is not None:
            matrix_plan = reused_results.find(matrix_plan, configuration, request.project, float(days))
    elif request.selection != Selection():
        raise UsageError(f"--cells, --shard: {configuration.source} has no matrix to take cells from")
    return PreparedRun(request, files, configuration, matrix_plan)


@contextmanager
def original_location(directory: Path) -> Iterator[None]:
    """Use the original workspace and working directory of a run in the body.

    If the original workspace does not exist on this machine, the workspace that contains the directory of the run is
    used, or else the workspace of this process.
    """
    try:
        content = RunDirectory(directory).read_request()
        working_directory, root = Path(content["directory"]), Path(content["workspace"] or places.builtin_root())
    except (KeyError, TypeError):  # `RunRequest.read` will report that the file is damaged
        working_directory = root = directory / "unknown"
    if environ.get(environ.WORKSPACE) is not None:
        workspace = places.workspace()
    else:
        workspace = places.workspace_above(root if _is_directory(root) else directory)
        if workspace is None and not _is_directory(root):
            workspace = places.workspace()
    with places.pinned(workspace), chdir(working_directory if _is_directory(working_directory) else Path.cwd()):
        yield


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # no directory can have this name
        return False


def configure(request: RunRequest) -> tuple[ProjectFiles, Configuration]:
    """Find the project, and load its configuration with the presets, the overrides and the derived values.

    The errors are those of `load`.
    """
    files = projects.find(request.project)
    configuration_request = Request(
        files.config,
        tuple(request.presets),
        tuple(request.override_files),
        request.overrides,
        files.contracts,
        request.is_from_outside,
        request.trusted_overrides,
        request.preset_reasons,
    )
    configuration = Configuration.load(configuration_request)
    for path, value in request.resolved.items():
        configuration = configuration.replaced(path, value, layer=_RESOLVED)
    return files, projects.derived(files, configuration)


def resolve(request: RunRequest) -> RunRequest:
    """Return the request with the values that the project determines once, when a run begins.

    A resumed run uses the recorded values, so that all cells of a run have the same values.

    Raises:
        ConfigurationError: the configuration is wrong, or names something that does not exist.
        InfrastructureError: another system does not answer.
    """
    files, configuration = configure(request)
    function = projects.resolver(files)
    if function is None:
        return request
    configuration.check()
    _check_secrets(request, configuration)
    return replace(request, resolved=dict(function(configuration)))


def _warn_of_ambiguous_scalars(configuration: Configuration, project: str) -> None:
    """Log the first unquoted scalars that may be meant as text. `config validate` lists all of them."""
    lines = configuration.ambiguous_scalars()
    for line in lines[:_MAX_SHOWN_SCALARS]:
        log.warning("%s", line, extra=ONCE)
    if (more := len(lines) - _MAX_SHOWN_SCALARS) > 0:
        command = f"{environ.program()} config validate {project}"
        log.warning("%d more scalars without quotes may be meant as text: `%s` lists them", more, command, extra=ONCE)


def _check_secrets(request: RunRequest, configuration: Configuration) -> None:
    """Check that the secrets of a run can be read. A run without receivers of messages needs none of their secrets."""
    configuration.check_secrets(except_in=() if receivers.of(configuration, request) else [receivers.BLOCK])


def refuse_changes(directory: Path, was: Mapping[str, Any], now: Mapping[str, Any], new_plan: Plan | None) -> None:
    """Raise if the configuration or the plan of a run has changed since the run began.

    Args:
        was: the resolved configuration that the run began with.
        now: the resolved configuration that the files give now.
        new_plan: the plan that the files give now; None if the project has no matrix.

    Raises:
        ConfigurationError: the message lists the changes.
    """
    changes = list(_differences(was, now, "$"))
    if new_plan is not None and not changes:
        if not (file := RunDirectory(directory).plan).exists():
            raise UsageError(f"{file} is missing, and the run cannot be resumed without it")
        # The notes are for people, and another version may use other words.
        current = {**json.loads(json.dumps(new_plan.as_json(), default=str)), "notes": []}
        original = _written_plan(file)
        _refuse_changed_files(directory, original["files"], current["files"])
        changes = list(_differences(original, current, RunDirectory.plan))
    if changes:
        raise _changes_error("the configuration has changed", directory, changes)


def _written_plan(file: Path) -> dict[str, Any]:
    """Return the content of `plan.json`, whose files are a mapping."""
    try:
        content = {**filesystem.read_json(file), "notes": []}
    except (OSError, ValueError, TypeError) as error:
        raise DamagedFile(file, describe(error)) from None
    if not isinstance(content.get("files"), dict):
        raise DamagedFile(file, "`files` must be a mapping")
    return content


def _refuse_changed_files(directory: Path, was: Mapping[str, str], now: Mapping[str, str]) -> None:
    changes = [f"{file} is {'new' if file in now else 'gone'}" for file in sorted(was.keys() ^ now.keys())]
    changes += [f"{file} has changed" for file in sorted(was.keys() & now.keys()) if was[file] != now[file]]
    if changes:
        raise _changes_error("the files of `matrix.workload.files` have changed", directory, changes)


def _changes_error(what: str, directory: Path, changes: Sequence[str]) -> ConfigurationError:
    head = f"{what} since the run {directory.name} began. Undo the changes, or start a new run:"
    return ConfigurationError("\n  ".join([head, *first_of(changes, _MAX_SHOWN_CHANGES)]))


def _differences(was: Any, now: Any, path: str) -> Iterator[str]:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in [*was, *(key for key in now if key not in was)]:
            if key not in was or key not in now:
                yield f"{path}.{key} is {'gone' if key in was else 'new'}"
            else:
                yield from _differences(was[key], now[key], f"{path}.{key}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (before, after) in enumerate(zip(was, now, strict=True)):
            yield from _differences(before, after, f"{path}[{index}]")
    elif was != now or type(was) is not type(now):
        yield f"{path.removeprefix('$.')} was {abbreviated(was)}, is {abbreviated(now)}"
