"""Where roles, projects and configurations are found.

They stand beside `toolbox/` in a checkout, and in `toolbox/bundled/` where the package was installed. A
working directory that has a `projects/`, `commands/` or `roles/` of its own goes before them, so that a team
keeps its projects in a repository of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS: Final = ("projects", "commands", "roles")
COMMANDS = _PACKAGE / "commands"


def builtin_root() -> Path:
    """Return the directory that holds our own `roles/`, `projects/`, `config/` and `command_args/`."""
    bundled = _PACKAGE / "bundled"
    return bundled if bundled.is_dir() else _PACKAGE.parent


def roots() -> list[Path]:
    """Return the directories to look in, the most specific first."""
    here, ours = Path.cwd(), builtin_root()
    is_a_root = here != ours and any((here / folder).is_dir() for folder in _FOLDERS)
    return [here, ours] if is_a_root else [ours]


def find(*relative: str) -> Path | None:
    """Return the first existing file or directory of this relative path, or None."""
    return next((root.joinpath(*relative) for root in roots() if root.joinpath(*relative).exists()), None)


def entries(folder: str, pattern: str) -> Iterator[Path]:
    """Yield what matches the pattern in this folder of each root, one path a name, sorted by name."""
    found: dict[str, Path] = {}
    for root in reversed(roots()):
        found.update((path.name, path) for path in (root / folder).glob(pattern))
    yield from (found[name] for name in sorted(found))


def projects() -> dict[str, Path]:
    """Return the projects by name: the folders of `projects/` with an `orchestration.py`."""
    return {path.name: path for path in entries("projects", "*") if (path / "orchestration.py").is_file()}
