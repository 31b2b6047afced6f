"""Finds roles, projects, configurations and extensions: first in the workspace, then in Topgallant itself.

The workspace is the repository of a team: the directory that `$TOPGALLANT_WORKSPACE` names, or the nearest one from
the working directory upwards that has projects, commands or roles. Topgallant's own files are beside `toolbox/` in a
checkout, and in `toolbox/bundled/` in an installed package.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from toolbox.model.errors import UsageError
from toolbox.system import environ

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS: Final = ("projects", "commands", "roles")
# Many directories have a folder `projects`: above the working directory, a workspace must have one of these files.
_CONTENTS: Final = ("projects/*/orchestration.py", "commands/*.py", "roles/*/tasks/main.yml")
ARTIFACTS: Final = "artifacts"
COMMANDS = _PACKAGE / "commands"


class _Process:
    """The workspace of the run that this process executes. `is_pinned` is False if there is no such run."""

    is_pinned = False
    workspace: Path | None = None


def builtin_root() -> Path:
    """Return the directory with Topgallant's own `roles/`, `projects/`, `config/` and `command_args/`."""
    bundled = _PACKAGE / "bundled"
    return bundled if bundled.is_dir() else _PACKAGE.parent


def workspace() -> Path | None:
    """Return the workspace; None if there is none.

    Raises:
        UsageError: `$TOPGALLANT_WORKSPACE` does not name a directory.
    """
    if _Process.is_pinned:
        return _Process.workspace
    return _named_workspace() or workspace_above(Path.cwd())


def workspace_above(directory: Path) -> Path | None:
    """Return the nearest workspace from a directory upwards; None if there is none."""
    ours = builtin_root()
    for candidate in (directory, *directory.parents):
        if candidate == ours:
            return None
        if candidate == directory and any((candidate / folder).is_dir() for folder in _FOLDERS):
            return candidate
        if any(_is_trusted(file, directory) for pattern in _CONTENTS for file in candidate.glob(pattern)):
            return candidate
    return None


@contextmanager
def pinned(root: Path | None) -> Iterator[None]:
    """Keep one workspace, or none, for the body, even if the body changes the working directory."""
    before = _Process.is_pinned, _Process.workspace
    _Process.is_pinned, _Process.workspace = True, root
    try:
        yield
    finally:
        _Process.is_pinned, _Process.workspace = before


def roots() -> list[Path]:
    """Return the directories to search, the most specific first."""
    found = workspace()
    return [builtin_root()] if found is None else [found, builtin_root()]


def artifacts() -> Path:
    """Return the directory for runs by default: `$ARTIFACT_DIR`, or `artifacts/` in the workspace or $PWD."""
    return environ.get_path(environ.ARTIFACT_DIR) or (workspace() or Path.cwd()) / ARTIFACTS


def folders(kind: str) -> list[Path]:
    """Return the folders `commands` or `roles` of each root and of its projects, in search order."""
    found = [folder for root in roots() for folder in (root / kind, *sorted(root.glob(f"projects/*/{kind}")))]
    return [folder for folder in found if folder.is_dir()]


def find(kind: str, *relative: str) -> Path | None:
    """Return the first file or directory with this path in the folders of a kind; None if there is none."""
    candidates = (folder.joinpath(*relative) for folder in folders(kind))
    # A name from outside may be too long for a file: `Path.exists` would raise.
    return next((path for path in candidates if os.path.exists(path)), None)  # noqa: PTH110


def entries(kind: str, pattern: str) -> Iterator[Path]:
    """Yield the paths that match the pattern in the folders of a kind: one path per name, sorted by name."""
    found = {path.name: path for folder in reversed(folders(kind)) for path in folder.glob(pattern)}
    yield from (found[name] for name in sorted(found))


def projects() -> dict[str, Path]:
    """Return the folders in `projects/` that have an `orchestration.py`, by the names of the projects."""
    files = [file for root in reversed(roots()) for file in root.glob("projects/*/orchestration.py")]
    return dict(sorted((file.parent.name, file.parent) for file in files if file.is_file()))


def _named_workspace() -> Path | None:
    named = environ.get_path(environ.WORKSPACE)
    if named is None:
        return None
    if not named.is_dir():
        raise UsageError(f"${environ.WORKSPACE} is {named}, which is not a directory")
    root = named.absolute()
    return None if root == builtin_root() else root


def _is_trusted(file: Path, directory: Path) -> bool:
    """Return whether a file above a directory may be executed: in a parent such as `/tmp`, other users can write."""
    try:
        owners = {0, os.getuid(), directory.stat().st_uid}
        return file.stat().st_uid in owners and file.parent.stat().st_uid in owners
    except OSError:
        return False
