"""Finds the files of a project, and imports the functions of its phases.

A project consists of `projects/NAME/orchestration.py`, which defines a function for each of its phases,
`config/NAME.yaml` and `command_args/NAME.yaml.j2`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolbox.ground.model.errors import ConfigurationError, ConfigurationFaults, UsageError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.system import environ, places
from toolbox.records.runs.layout import CLEANUP

if TYPE_CHECKING:
    from toolbox.config.configuration import Configuration

_DERIVED: Final = "orchestration.py"
_AXES: Final = "matrix.axes"
PRE_CLEANUP: Final = "pre_cleanup"
TESTS: Final = "test"
PHASES: Final = (PRE_CLEANUP, "prepare", TESTS, CLEANUP)


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """The files of a project.

    Args:
        root: the directory that contains `projects/`: the workspace, or Topgallant's own root.
    """

    name: str
    root: Path

    @property
    def folder(self) -> Path:
        """The folder that contains `orchestration.py`."""
        return self.root / "projects" / self.name

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "config" / f"{self.name}.yaml"

    @property
    def command_args(self) -> Path:
        """The command_args template."""
        return self.root / "command_args" / f"{self.name}.yaml.j2"

    @property
    def contracts(self) -> tuple[Path, ...]:
        """The folders with contracts for the blocks of the matrix and of the project."""
        from toolbox.matrix import plan

        return plan.CONTRACTS, self.folder / "contracts"

    @property
    def bounds(self) -> Path:
        """The file of the generated bounds. The file of the manual bounds is in the same folder."""
        return self.root / "config" / "bounds" / f"{self.name}.yaml"

    @property
    def summary(self) -> str:
        """The purpose of the project: the first line of `orchestration.py`, without quotation marks."""
        first = (self.folder / "orchestration.py").read_text(encoding="utf-8").lstrip().partition("\n")[0]
        return first.strip().strip('"')


def find(name: str) -> ProjectFiles:
    """Return the files of the project of this name, or raise a `UsageError` that suggests a similar name."""
    projects = places.projects()
    if name not in projects:
        folders = [folder for root in places.roots() for folder in root.glob("projects/*/") if folder.name == name]
        if folders:
            raise UsageError(f"{folders[0]} is not a project: it has no orchestration.py")
        hint = did_you_mean(name, projects, label="projects")
        raise UsageError(f"unknown project `{name}`: {hint}\n  searched {_searched_folders()}")
    return ProjectFiles(name, projects[name].parent.parent)


def _searched_folders() -> str:
    folders = " and ".join(str(root / "projects") for root in places.roots())
    if places.workspace() is None:
        return f"{folders}; to use your own workspace, change into its directory or set ${environ.WORKSPACE}"
    return folders


def phases(files: ProjectFiles) -> dict[str, Callable[[], object]]:
    """Import `orchestration.py` of a project, and return the functions of its phases in the order of `PHASES`.

    Raises:
        ConfigurationError: the file cannot be imported, or the function of a phase is `async`.
    """
    root = str(files.root)
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        module = importlib.import_module(f"projects.{files.name}.orchestration")
    except (Exception, SystemExit) as error:
        # Every error at import, of whatever type, is a fault of the project.
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(root)]
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else f"{files.folder}/orchestration.py"
        raise ConfigurationError(f"{where}: {type(error).__name__}: {error}") from error
    functions = {phase: getattr(module, phase) for phase in PHASES if callable(getattr(module, phase, None))}
    if coroutines := [phase for phase, function in functions.items() if inspect.iscoroutinefunction(function)]:
        raise ConfigurationError(
            f"{files.folder}/orchestration.py: {coroutines[0]} is `async`: write it as a plain function"
        )
    return functions


def resolver(files: ProjectFiles) -> Callable[[Configuration], Mapping[str, object]] | None:
    """Return the function `resolve` of a project; None if the project does not define this function."""
    return _hook(files, "resolve")


def derived(files: ProjectFiles, configuration: Configuration) -> Configuration:
    """Return the configuration with the values that the function `derive` of a project computes from it, if any.

    Other than `resolve`, this function asks no other system, and is called whenever a configuration is loaded for a
    plan, a run or a resumed run.

    Raises:
        ConfigurationError: the configuration is wrong. The message names all faults of its contracts and of `derive`.
    """
    if _hook(files, "derive") is None:
        return configuration
    faults: list[str] = []
    try:
        for path, value in derived_values(files, configuration).items():
            configuration = configuration.replaced(path, value, layer=_DERIVED)
    except ConfigurationError as error:
        faults = list(error.faults)
        configuration = _with_unknown_axes(configuration)
    try:
        configuration.check_contracts()  # with the derived values, because other values may name them: `when` an axis
    except ConfigurationError as error:
        faults = [*error.faults, *faults]
    if faults:
        raise ConfigurationFaults(faults)
    return configuration


def derived_values(files: ProjectFiles, configuration: Configuration) -> Mapping[str, object]:
    """Return the values that the function `derive` of a project computes from a configuration, by path.

    Raises:
        ConfigurationError: the configuration is wrong.
    """
    derive = _hook(files, "derive")
    return {} if derive is None else derive(configuration)


def _with_unknown_axes(configuration: Configuration) -> Configuration:
    """Return the configuration with a value on each axis that is null, because `derive` did not compute its values."""
    try:
        axes = configuration.written(_AXES)
    except ConfigurationError:  # the project has no matrix
        return configuration
    if not isinstance(axes, Mapping) or None not in axes.values():
        return configuration
    known = {name: ["unknown"] if values is None else values for name, values in axes.items()}
    return configuration.replaced(_AXES, known, layer=_DERIVED)


def _hook(files: ProjectFiles, name: str) -> Callable[[Configuration], Mapping[str, object]] | None:
    """Return a function of `orchestration.py` that is not a phase; None if the project does not define the function."""
    phases(files)
    function = getattr(sys.modules[f"projects.{files.name}.orchestration"], name, None)
    return function if callable(function) else None


def select(
    available: Mapping[str, Callable[[], object]], names: Sequence[str] | None
) -> dict[str, Callable[[], object]]:
    """Return the phases of these names, in the order of `available`. None selects all phases.

    Raises:
        UsageError: one of the names is not a phase of the project.
    """
    for name in names or ():
        if name not in available:
            raise UsageError(f"unknown phase `{name}`: {did_you_mean(name, available, label='phases of the project')}")
    return {name: function for name, function in available.items() if names is None or name in names}
