"""Finds roles, projects, configurations and extensions: in the workspace, in installed features, then in Topgallant.

The workspace is the directory that `$TOPGALLANT_WORKSPACE` names. If the variable is not set, the workspace is the
working directory or its nearest parent that contains projects, commands or roles. Topgallant's own files are beside
`toolbox/` in a checkout, and in `toolbox/bundled/` in an installed package.

Another package installs a feature as the folder `topgallant_features/NAME/`, which has the shape of a workspace.
`topgallant_features` is a namespace package: packages share it, because no package adds an `__init__.py`
(https://packaging.python.org/en/latest/guides/creating-and-discovering-plugins/#using-namespace-packages). Python finds
it much faster than entry points, for which it would read a file of each installed package.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import toolbox
from toolbox.ground.model.errors import UsageError
from toolbox.ground.system import environ

PACKAGE = Path(toolbox.__file__).resolve().parent
"""The folder of the package `toolbox`."""
_FOLDERS: Final = ("projects", "commands", "roles")
# A parent of the working directory is a workspace only if it has one of these files: many home directories have a
# folder `projects`.
_CONTENTS: Final = ("projects/*/orchestration.py", "commands/*.py", "roles/*/tasks/main.yml")
ARTIFACTS: Final = "artifacts"
_NAMESPACE: Final = "topgallant_features"


class _Process:
    """The workspace of the current command; `is_pinned` tells whether `pinned` has set it."""

    is_pinned = False
    workspace: Path | None = None


def builtin_root() -> Path:
    """Return the directory with Topgallant's own `roles/`, `projects/`, `config/` and `command_args/`."""
    bundled = PACKAGE / "bundled"
    return bundled if bundled.is_dir() else PACKAGE.parent


def homes(kind: str) -> list[Path]:
    """Return the folders named `kind` of Topgallant itself: of its rooms, and of its features."""
    return [PACKAGE / kind, *sorted(PACKAGE.glob(f"*/{kind}")), *sorted(PACKAGE.glob(f"features/*/{kind}"))]


@functools.cache
def installed_features() -> list[Path]:
    """Return the folders of the features that other packages have installed, sorted by the names of the features."""
    spec = find_spec(_NAMESPACE)
    folders = [Path(each) for each in spec.submodule_search_locations or ()] if spec is not None else []
    return sorted((path for folder in folders for path in folder.glob("[!_.]*/")), key=lambda path: path.name)


def module_name(file: Path) -> str | None:
    """Return the name by which Python imports a file of Topgallant or of an installed feature; None for other files.

    The files of projects are not imported by their names, also if they are bundled in the package.
    """
    packages = [(PACKAGE, PACKAGE / "bundled"), *((folder, folder / "projects") for folder in installed_features())]
    for folder, projects in packages:
        if file.is_relative_to(folder) and not file.is_relative_to(projects):
            base = PACKAGE.parent if folder == PACKAGE else folder.parent.parent
            return ".".join(file.relative_to(base).with_suffix("").parts)
    return None


def import_folder() -> Path | None:
    """Return the folder of the package `toolbox` if new Python processes do not search it; None if they do.

    If Topgallant is installed, all processes search the folder, after the standard library. Otherwise `run_toolbox.py`
    has added the checkout to the search path of its own process.
    """
    folder, standard = PACKAGE.parent, str(Path(os.__file__).parent)
    installed = sys.path[sys.path.index(standard) :] if standard in sys.path else sys.path
    searched = [*installed, *(environ.get("PYTHONPATH") or "").split(os.pathsep)]
    return None if folder in (Path(entry).resolve() for entry in searched if entry) else folder


def workspace() -> Path | None:
    """Return the workspace; None if no directory qualifies.

    Raises:
        UsageError: `$TOPGALLANT_WORKSPACE` does not name a directory.
    """
    if _Process.is_pinned:
        return _Process.workspace
    return _named_workspace() or workspace_above(Path.cwd())


def workspace_above(directory: Path) -> Path | None:
    """Return the directory or its nearest parent that is a workspace; None if there is none."""
    own_root = builtin_root()
    for candidate in (directory, *directory.parents):
        if candidate == own_root:
            return None
        if candidate == directory and any((candidate / folder).is_dir() for folder in _FOLDERS):
            return candidate
        if any(_is_trusted(file, directory) for pattern in _CONTENTS for file in candidate.glob(pattern)):
            return candidate
    return None


@contextmanager
def pinned(root: Path | None) -> Iterator[None]:
    """Set the workspace for the body of the `with` statement, even if the body changes the working directory.

    Args:
        root: the workspace; None for no workspace.
    """
    previous = _Process.is_pinned, _Process.workspace
    _Process.is_pinned, _Process.workspace = True, root
    try:
        yield
    finally:
        _Process.is_pinned, _Process.workspace = previous


def roots() -> list[Path]:
    """Return the directories to search: the workspace, installed features, and then Topgallant's own root."""
    root = workspace()
    return [*([] if root is None else [root]), *installed_features(), builtin_root()]


def artifacts() -> Path:
    """Return the default directory for runs: `$ARTIFACT_DIR`, or `artifacts/` in the workspace or working directory."""
    return environ.get_path(environ.ARTIFACT_DIR) or (workspace() or Path.cwd()) / ARTIFACTS


def folders(kind: str) -> list[Path]:
    """Return the folders named `kind` of each root, of its projects, and of Topgallant itself, in search order."""
    candidates = [folder for root in roots() for folder in (root / kind, *sorted(root.glob(f"projects/*/{kind}")))]
    return [folder for folder in (*candidates, *homes(kind)) if folder.is_dir()]


def find(kind: str, *relative: str) -> Path | None:
    """Return the first file or directory with the relative path in `folders(kind)`; None if there is none."""
    candidates = (folder.joinpath(*relative) for folder in folders(kind))
    # A user may give a name that is too long for a file. `Path.exists` raises an error for such a name.
    return next((path for path in candidates if os.path.exists(path)), None)  # noqa: PTH110


def entries(kind: str, pattern: str) -> Iterator[Path]:
    """Yield the paths that match the pattern in `folders(kind)`, sorted by name; of equal names, only the first."""
    paths = {path.name: path for folder in reversed(folders(kind)) for path in folder.glob(pattern)}
    yield from (paths[name] for name in sorted(paths))


def projects() -> dict[str, Path]:
    """Return the folders in `projects/` that have an `orchestration.py`, by the names of the projects."""
    files = [file for root in reversed(roots()) for file in root.glob("projects/*/orchestration.py")]
    found = {file.parent.name: file.parent for file in files if file.is_file()}
    return dict(sorted(found.items()))


def _named_workspace() -> Path | None:
    directory = environ.get_path(environ.WORKSPACE)
    if directory is None:
        return None
    if not directory.is_dir():
        raise UsageError(f"${environ.WORKSPACE} is {directory}, which is not a directory")
    root = directory.absolute()
    return None if root == builtin_root() else root


def _is_trusted(file: Path, directory: Path) -> bool:
    """Return whether root, this user or the owner of `directory` owns the file and its folder.

    Other users can create files in a parent directory such as `/tmp`.
    """
    try:
        owners = {0, os.getuid(), directory.stat().st_uid}
        return file.stat().st_uid in owners and file.parent.stat().st_uid in owners
    except OSError:
        return False
