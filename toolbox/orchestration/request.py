"""What is asked of a run: by a person, and, when it is resumed, by its `run.json`."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import yaml

from toolbox.config.configuration import Configuration, Request
from toolbox.matrix import plan, targets
from toolbox.matrix.plan import Plan, Selection
from toolbox.matrix.scheduler import Options
from toolbox.model.errors import ConfigurationError, DamagedFile, UsageError, describe
from toolbox.model.text import abbreviated
from toolbox.orchestration import projects
from toolbox.orchestration.projects import ProjectFiles
from toolbox.results import bounds_file
from toolbox.runs.layout import RunDirectory
from toolbox.system import environ, filesystem, places

_MOST_DIFFERENCES: Final = 5


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is asked of a run.

    Args:
        is_from_outside: whether a comment gave the overrides; see `toolbox.config.outside`.
        phases: the phases to run; all that the project has when left out.
        artifact_dir: where runs go; `$ARTIFACT_DIR` or `artifacts` when left out.
        note: files to keep in the run directory, by name: a text, or a value to write as YAML.
        selection: which cells of the matrix to run.
        options: how to run them.
        deadline: seconds for the whole run; as the matrix says when left out.
    """

    project: str
    presets: Sequence[str] = ()
    override_files: Sequence[Path] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    overrides_source: str = "--overrides"
    is_from_outside: bool = False
    phases: Sequence[str] | None = None
    artifact_dir: Path | None = None
    note: Mapping[str, object] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)
    options: Options = field(default_factory=Options)
    deadline: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what `run.json` keeps of it, so that the run can be resumed."""
        return {
            "project": self.project,
            "presets": list(self.presets),
            "override_files": [str(file.absolute()) for file in self.override_files],
            "overrides": dict(self.overrides),
            "phases": list(self.phases) if self.phases is not None else None,
            "cells": self.selection.cells,
            "shard": list(self.selection.shard) if self.selection.shard else None,
            "jobs": self.options.jobs,
            "fail_fast": self.options.fail_fast,
            "max_failures": self.options.max_failures,
            "deadline": self.deadline,
        }

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Return what was asked of a run.

        Raises:
            UsageError: the directory is not that of a run.
        """
        try:
            kept = filesystem.read_json(RunDirectory(directory).request)
            return cls(
                kept["project"],
                kept["presets"],
                [Path(file) for file in kept["override_files"]],
                yaml.safe_load(kept["overrides_text"]),
                phases=kept["phases"],
                selection=Selection(kept["cells"], tuple(kept["shard"]) if kept["shard"] else None),
                options=Options(kept["jobs"], kept["fail_fast"], kept["max_failures"]),
                deadline=kept["deadline"],
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
            raise DamagedFile(RunDirectory(directory).request, describe(error)) from None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A request whose project was found, and whose configuration holds.

    Args:
        plan: the cells of the matrix; None where there is none.
    """

    request: RunRequest
    files: ProjectFiles
    configuration: Configuration
    plan: Plan | None


def load(request: RunRequest, *, today: dt.date | None = None, resumed: Path | None = None) -> Loaded:
    """Find a project, put its configuration together, and make the plan of its matrix.

    Args:
        today: which expectations of failure hold; those of today when left out.
        resumed: the directory of the run that goes on: it keeps the bounds with which it began.

    Raises:
        UsageError: the project, a preset, an override, a field or the selection of cells is wrong.
    """
    found, configuration = configure(request)
    configuration.check()
    configuration.check_secrets()
    cells = None
    if plan.has_matrix(configuration):
        cells = plan.make(
            configuration,
            targets.read(configuration),
            request.selection,
            root=configuration.root,
            today=today or dt.datetime.now(tz=dt.UTC).date(),
            bounds=plan.frozen_bounds(resumed) if resumed is not None else bounds_file.read(found.bounds),
        )
    elif request.selection != Selection():
        raise UsageError(f"--cells, --shard: {configuration.source} has no matrix to take cells from")
    return Loaded(request, found, configuration, cells)


@contextmanager
def where_it_began(directory: Path) -> Iterator[None]:
    """Give the body the workspace and the working directory that a run began with.

    The workspace that the run names may have been moved since: then the one around the directory of the run holds.
    """
    try:
        kept = filesystem.read_json(RunDirectory(directory).request)
        began, named = Path(kept["directory"]), Path(kept["workspace"] or places.builtin_root())
    except (OSError, ValueError, KeyError, TypeError):  # `RunRequest.read` reports what is wrong
        began = named = directory / "unknown"
    if environ.get(environ.WORKSPACE) is not None:
        workspace = places.workspace()
    else:
        workspace = places.workspace_above(named if named.is_dir() else directory)
    with places.pinned(workspace), chdir(began if began.is_dir() else Path.cwd()):
        yield


def configure(request: RunRequest) -> tuple[ProjectFiles, Configuration]:
    """Find a project and put its configuration together.

    Raises:
        UsageError: the project, a preset or an override is wrong.
    """
    found = projects.find(request.project)
    wanted = Request(
        found.config,
        tuple(request.presets),
        tuple(request.override_files),
        request.overrides,
        found.contracts,
        request.overrides_source,
        request.is_from_outside,
    )
    return found, Configuration.load(wanted)


def refuse_changes(directory: Path, was: Mapping[str, Any], now: Mapping[str, Any], cells: Plan | None) -> None:
    """Refuse to resume a run whose configuration or plan has changed since.

    Raises:
        ConfigurationError: it names what has changed.
    """
    changes = list(_differences(was, now, "$"))
    if cells is not None and not changes:
        if not (file := RunDirectory(directory).plan).exists():
            raise UsageError(f"{file} is missing, and the run cannot be resumed without it")
        # Earlier versions wrote no digests of files into the plan.
        frozen, made = {"files": {}, **filesystem.read_json(file)}, json.loads(json.dumps(cells.as_json(), default=str))
        _refuse_changed_files(directory, frozen["files"], made["files"])
        changes = list(_differences(frozen, made, RunDirectory.plan))
    if changes:
        raise _changed("the configuration has changed", directory, changes)


def _refuse_changed_files(directory: Path, was: Mapping[str, str], now: Mapping[str, str]) -> None:
    changes = [f"{file} is {'new' if file in now else 'gone'}" for file in sorted(was.keys() ^ now.keys())]
    changes += [f"{file} has changed" for file in sorted(was.keys() & now.keys()) if was[file] != now[file]]
    if changes:
        raise _changed("the files of `matrix.workload.files` have changed", directory, changes)


def _changed(what: str, directory: Path, changes: Sequence[str]) -> ConfigurationError:
    more = [f"and {len(changes) - _MOST_DIFFERENCES} more"] if len(changes) > _MOST_DIFFERENCES else []
    head = f"{what} since the run {directory.name} began. Undo the changes, or start a new run:"
    return ConfigurationError("\n  ".join([head, *changes[:_MOST_DIFFERENCES], *more]))


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
