"""Relative links from a page to the files of a run. No link leads out of the directory of the run."""

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
_MOST_SEEN: Final = 1000  # files of a directory that are compared
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
        bytes: the size of the file; None for a folder.
        is_withheld: whether the file or its name holds a secret, so that the page names the file without a link.
    """

    name: str
    href: str
    bytes: int | None = None
    is_withheld: bool = False


def inside(root: Path, *parts: str) -> Path | None:
    """Return a path in a directory; None if it does not exist, leads out of it, or goes through a symbolic link."""
    relative = PurePosixPath(*parts)
    if relative.is_absolute() or ".." in relative.parts or "\0" in str(relative):
        return None
    with suppress(OSError):
        path = _resolved(root) / relative
        return path if path.resolve(strict=True) == path else None
    return None


def href(root: Path, path: Path) -> str:
    """Return the address of a path that `inside` returned, relative to the page. No name is mistaken for a scheme."""
    return "./" + quote(os.fsencode(path.relative_to(_resolved(root))))


@functools.lru_cache(maxsize=16)
def _resolved(root: Path) -> Path:
    """Return the resolved path of a directory. A page needs it thousands of times."""
    return root.resolve()


def withhold(links: Iterable[Link], files: Collection[str]) -> list[Link]:
    """Mark the links to files that hold a secret. `files` are relative to the page."""
    addresses = {"./" + quote(os.fsencode(file)) for file in files}
    return [replace(link, is_withheld=link.is_withheld or link.href in addresses) for link in links]


def link(root: Path, *parts: str, name: str) -> Link | None:
    """Return the link to one file or folder, under a name; None where `inside` returns None."""
    path = inside(root, *parts)
    return _link(root, path, name) if path is not None else None


def of_directory(root: Path, *parts: str) -> list[Link]:
    """Return the links to some files of a folder, logs first and no hidden files, and to the folder itself."""
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
    """Yield the files and folders of a folder; in place of a folder of `_INNER`, its files."""
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
