"""Projects: where their files are, and their phases.

A project is `projects/NAME/orchestration.py`, with a function for each phase that it has; `config/NAME.yaml`; and
`command_args/NAME.yaml.j2`. It is found by its place.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolbox.matrix import plan
from toolbox.model.errors import ConfigurationError, UsageError
from toolbox.model.nearest import did_you_mean
from toolbox.runs.run_state import CLEANUP
from toolbox.system import environ, places

PHASES: Final = ("pre_cleanup", "prepare", "test", CLEANUP)


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """The files of a project.

    Args:
        root: the workspace, or Topgallant's own root, that holds the project.
    """

    name: str
    root: Path

    @property
    def folder(self) -> Path:
        """The folder of its orchestration."""
        return self.root / "projects" / self.name

    @property
    def config(self) -> Path:
        """The file of its configuration."""
        return self.root / "config" / f"{self.name}.yaml"

    @property
    def command_args(self) -> Path:
        """The template of its command arguments."""
        return self.root / "command_args" / f"{self.name}.yaml.j2"

    @property
    def contracts(self) -> tuple[Path, ...]:
        """The folders of contracts that hold for it besides those of every configuration: the matrix', and its own."""
        return plan.CONTRACTS, self.folder / "contracts"

    @property
    def bounds(self) -> Path:
        """The file of the generated bounds of its metrics; `bounds_file` finds the manual bounds beside it."""
        return self.root / "config" / "bounds" / f"{self.name}.yaml"

    @property
    def summary(self) -> str:
        """What the project is for: the first line of its orchestration."""
        first = (self.folder / "orchestration.py").read_text(encoding="utf-8").lstrip().partition("\n")[0]
        return first.strip().strip('"')


def find(name: str) -> ProjectFiles:
    """Return the files of a project.

    Raises:
        UsageError: there is no such project.
    """
    known = places.projects()
    if name not in known:
        others = [folder for root in places.roots() for folder in root.glob("projects/*/") if folder.name == name]
        if others:
            raise UsageError(f"{others[0]} is not a project: it has no orchestration.py")
        hint = did_you_mean(name, known, label="known projects")
        raise UsageError(f"unknown project `{name}`: {hint}\n  looked in {_searched()}")
    return ProjectFiles(name, known[name].parent.parent)


def _searched() -> str:
    folders = " and ".join(str(root / "projects") for root in places.roots())
    if places.workspace() is None:
        return f"{folders}; a workspace of yours is found from its directory, or by ${environ.WORKSPACE}"
    return folders


def phases(files: ProjectFiles) -> dict[str, Callable[[], object]]:
    """Import a project's orchestration, and return the functions of its phases, in their order.

    Raises:
        ConfigurationError: it cannot be imported.
    """
    root = str(files.root)
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        module = importlib.import_module(f"projects.{files.name}.orchestration")
    except (Exception, SystemExit) as error:
        # Whatever the project's code raises, the project is what is broken.
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(root)]
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else f"{files.folder}/orchestration.py"
        raise ConfigurationError(f"{where}: {type(error).__name__}: {error}") from error
    found = {phase: getattr(module, phase) for phase in PHASES if callable(getattr(module, phase, None))}
    if waiting := [phase for phase, function in found.items() if inspect.iscoroutinefunction(function)]:
        raise ConfigurationError(
            f"{files.folder}/orchestration.py: {waiting[0]} is `async`: write it as a plain function"
        )
    return found


def select(available: dict[str, Callable[[], object]], wanted: list[str] | None) -> dict[str, Callable[[], object]]:
    """Return the phases to run, in their order.

    Raises:
        UsageError: a phase is unknown, or the project does not have it.
    """
    for name in wanted or ():
        if name not in available:
            raise UsageError(
                f"unknown phase `{name}`: {did_you_mean(name, available, label='the phases of the project')}"
            )
    return {name: function for name, function in available.items() if wanted is None or name in wanted}
