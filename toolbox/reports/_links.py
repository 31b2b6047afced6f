"""Links from a page to the files of a run: relative, and to nothing but what really lies in its directory."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote

from toolbox.runs.layout import AttemptDirectory, StepDirectory
from toolbox.system import redaction

_MOST_FILES: Final = 12  # of a directory
_MOST_SEEN: Final = 1000  # of them, to choose from
_DEEPEST: Final = 6
_INNER: Final = (AttemptDirectory.results, StepDirectory.state)  # folders whose files are named one by one
WHOLE: Final = "the whole directory"
_OURS: Final = (AttemptDirectory.lock, AttemptDirectory.started, AttemptDirectory.exit_code)  # outcome.json says more
# These come first.
_LOGS: Final = (
    *(StepDirectory.failure, AttemptDirectory.stdout, AttemptDirectory.stderr),
    *(StepDirectory.program_log, StepDirectory.role_log, StepDirectory.command),
)


@dataclass(frozen=True, slots=True)
class Link:
    """A file or a folder.

    Args:
        bytes: its size; None of a folder.
        is_withheld: whether it or its name holds a secret, so that the page names the file without a link.
    """

    name: str
    href: str
    bytes: int | None = None
    is_withheld: bool = False


def inside(root: Path, *parts: str) -> Path | None:
    """Return a path in a directory; None where it is not there, leads out of it, or goes through a symbolic link."""
    relative = PurePosixPath(*parts)
    if relative.is_absolute() or ".." in relative.parts or "\0" in str(relative):
        return None
    with suppress(OSError):
        path = _resolved(root) / relative
        return path if path.resolve(strict=True) == path else None
    return None


def href(root: Path, path: Path) -> str:
    """Return the address of a path that `inside` gave, from the page on. No name can be taken for a scheme."""
    return "./" + quote(os.fsencode(path.relative_to(_resolved(root))))


@functools.lru_cache(maxsize=16)
def _resolved(root: Path) -> Path:
    """Return where a directory really is. A page asks for that thousands of times."""
    return root.resolve()


def withhold(links: Iterable[Link], files: Collection[str]) -> list[Link]:
    """Mark the links to files, named from the page on, that hold a secret."""
    addresses = {"./" + quote(os.fsencode(file)) for file in files}
    return [replace(link, is_withheld=link.is_withheld or link.href in addresses) for link in links]


def link(root: Path, *parts: str, name: str) -> Link | None:
    """Return the link to one file or folder, under a name; None as `inside` has it."""
    path = inside(root, *parts)
    return _link(root, path, name) if path is not None else None


def of_directory(root: Path, *parts: str) -> list[Link]:
    """Return the links to a folder and to what lies in it: logs first, hidden files never, and not too many."""
    folder = inside(root, *parts)
    if folder is None or not folder.is_dir():
        return []
    seen = itertools.islice(_entries(folder, 0), _MOST_SEEN)
    found = sorted(seen, key=lambda path: (_rank(path.name), str(path)))
    links = [_link(root, path, str(path.relative_to(folder))) for path in found[:_MOST_FILES]]
    return [*links, _link(root, folder, WHOLE)]


def _rank(name: str) -> int:
    return _LOGS.index(name) if name in _LOGS else len(_LOGS)


def _entries(folder: Path, depth: int) -> Iterator[Path]:
    """Yield files, those of some folders one by one, and other folders as they are."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _OURS or entry.is_symlink():
                continue
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False) and (depth or entry.name in _INNER) and depth < _DEEPEST:
                yield from _entries(path, depth + 1)
            elif entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
                yield path


def _link(root: Path, path: Path, name: str) -> Link:
    shown = redaction.current()(name)
    if shown != name:  # a workload has put a secret into the name of a file
        return Link(shown, "", is_withheld=True)
    if path.is_dir():
        return Link(name if name == WHOLE else f"{name}/", href(root, path) + "/")
    with suppress(OSError):
        return Link(name, href(root, path), path.stat().st_size)
    return Link(name, href(root, path))
