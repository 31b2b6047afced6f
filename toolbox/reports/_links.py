"""Makes relative links from a page to the files of a run. No link leads out of the run directory."""

from __future__ import annotations

import functools
import itertools
import os
import posixpath
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from toolbox.ground.system import redaction
from toolbox.records.runs.layout import AttemptDirectory, StepDirectory

_PLAIN_ID: Final = re.compile(r"[0-9a-f]{6,40}")
_MAX_FILES: Final = 12  # links to files of one directory
_MAX_SEEN: Final = 1000  # files of a directory that are read and sorted
_DEEPEST: Final = 6  # folders
_INNER: Final = (AttemptDirectory.results, StepDirectory.state)  # folders whose files have links of their own
WHOLE: Final = "the whole directory"
_OMITTED: Final = (AttemptDirectory.lock, AttemptDirectory.started, AttemptDirectory.exit_code)
_FIRST: Final = (
    *(StepDirectory.failure, AttemptDirectory.stdout, AttemptDirectory.stderr),
    *(StepDirectory.program_log, StepDirectory.role_log, StepDirectory.command),
)


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a file or a folder.

    Args:
        bytes: the size of the file; None for a folder.
        is_withheld: whether the file or its name contains a secret. The page names such a file without a link.
    """

    name: str
    href: str
    bytes: int | None = None
    is_withheld: bool = False


def cell_anchor(cell: str) -> str:
    """Return the id of a cell in a report; empty if the id has unexpected characters."""
    return f"c-{cell}" if _PLAIN_ID.fullmatch(cell) else ""


def inside(root: Path, *parts: str) -> Path | None:
    """Return a path in `root`; None if the path does not exist, leads out of `root`, or has a symbolic link in it."""
    relative = posixpath.join("", *parts)
    names = [name for name in relative.split("/") if name not in ("", ".")]
    if relative.startswith("/") or ".." in names or "\0" in relative:
        return None
    path = str(_resolved(root))
    for name in names:
        path = f"{path}/{name}"
        try:
            if stat.S_ISLNK(os.lstat(path).st_mode):
                return None
        except OSError:
            return None
    return Path(path)


def href(root: Path, path: Path) -> str:
    """Return the address of a path that `inside` returned, relative to the page.

    The address begins with `./`, so that a colon in a name is not mistaken for the end of a URL scheme.
    """
    return "./" + quote(os.fsencode(_below(_resolved(root), path)))


def _below(folder: Path, path: Path) -> str:
    """Return the path of a file relative to a folder that contains it. `Path.relative_to` is ten times as slow."""
    return str(path)[len(str(folder)) + 1 :] or "."


@functools.lru_cache(maxsize=16)
def _resolved(root: Path) -> Path:
    """Return the resolved path of a directory. Cached, because a page needs it thousands of times."""
    return root.resolve()


def withhold(links: Iterable[Link], files: Collection[str]) -> list[Link]:
    """Return the links, with the links to some files marked as withheld.

    Args:
        files: the files with a secret, relative to the page.
    """
    addresses = {"./" + quote(os.fsencode(file)) for file in files}
    return [replace(link, is_withheld=link.is_withheld or link.href in addresses) for link in links]


def link(root: Path, *parts: str, name: str) -> Link | None:
    """Return the link to one file or folder; None if `inside` returns None.

    Args:
        name: the text of the link.
    """
    path = inside(root, *parts)
    return _link(root, path, name) if path is not None else None


def of_directory(root: Path, *parts: str) -> list[Link]:
    """Return the links to files of a folder, logs first and without hidden files, and to the folder itself."""
    folder = inside(root, *parts)
    if folder is None or not folder.is_dir():
        return []
    seen = itertools.islice(_entries(folder, 0), _MAX_SEEN)
    files = sorted(seen, key=lambda path: (_rank(path.name), str(path)))
    links = [_link(root, path, _below(folder, path)) for path in files[:_MAX_FILES]]
    return [*links, _link(root, folder, WHOLE)]


def _rank(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _entries(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files and folders of a folder. A folder of `_INNER` is replaced by its files."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _OMITTED or entry.is_symlink():
                continue
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False) and (depth or entry.name in _INNER) and depth < _DEEPEST:
                yield from _entries(path, depth + 1)
            elif entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
                yield path


def _link(root: Path, path: Path, name: str) -> Link:
    masked = redaction.current()(name)
    if masked != name:  # a workload has put a secret into the name of a file
        return Link(masked, "", is_withheld=True)
    try:
        found = path.stat()
    except OSError:
        return Link(name, href(root, path))
    if stat.S_ISDIR(found.st_mode):
        return Link(name if name == WHOLE else f"{name}/", href(root, path) + "/")
    return Link(name, href(root, path), found.st_size)
