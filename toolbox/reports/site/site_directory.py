"""Names the files of a site, links to the reports of runs, and replaces an older site."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from toolbox.ground.model.errors import InfrastructureError, UsageError
from toolbox.ground.system import environ, filesystem
from toolbox.records.runs.layout import RunDirectory

MARKER: Final = "topgallant-site.txt"
_MARK: Final = "A site that Topgallant wrote, and writes anew: what is put here by hand is lost.\n"
_PLAIN: Final = re.compile("[a-z0-9][a-z0-9_-]{0,59}")
_READABLE: Final = re.compile("[^a-z0-9_-]+")
_DIRECTORY_MODE: Final = 0o777  # minus the umask


def file_name(*names: str) -> str:
    """Return the file name of a page. It is valid on any system, and different for different names."""
    return "~".join(_safe(name) for name in names) + ".html"


def _safe(name: str) -> str:
    """Return a plain name unchanged. Any other name gets a dot and a digest; no plain name contains a dot."""
    if _PLAIN.fullmatch(name):
        return name
    readable = _READABLE.sub("-", name.lower()).strip("-_")[:40]
    return f"{readable or 'x'}.{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"


class Reports:
    """Finds the reports of runs, and remembers the result for each directory."""

    def __init__(self) -> None:
        self._paths: dict[str, Path | None] = {}

    def address(self, directory: str, page: Path) -> str | None:
        """Return the address of the report of a run, relative to a page; None if there is no report.

        Args:
            page: the path of the page in the finished site.
        """
        if directory not in self._paths:
            self._paths[directory] = _report(directory)
        path = self._paths[directory]
        if path is None:
            return None
        relative = os.path.relpath(path, page.parent)
        return quote(os.fsencode(relative if relative.startswith("..") else f"./{relative}"))


def _report(directory: str) -> Path | None:
    with suppress(OSError, ValueError):
        path = RunDirectory(Path(directory)).html
        return path if path.is_absolute() and path.is_file() else None
    return None


def write(path: Path, text: str) -> None:
    """Write a file with the permissions of the umask."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(filesystem.encode(text))


def resolved(output: Path) -> Path:
    """Return the absolute path of a site.

    Raises:
        UsageError: the path exists, and is not a site of Topgallant.
    """
    target = environ.expanded(output).resolve()
    if not target.exists() or (target.is_dir() and (_is_site(target) or not any(target.iterdir()))):
        return target
    raise UsageError(
        f"{output} exists and is not a dashboard of Topgallant: choose a directory that is empty or does not exist"
    )


def _is_site(directory: Path) -> bool:
    try:
        return (directory / MARKER).read_text(encoding="utf-8") == _MARK
    except (OSError, ValueError):
        return False


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield an empty directory, which replaces the target at the end of the block unless an error is raised.

    Raises:
        InfrastructureError: the site cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name[:40]}.", dir=target.parent) as beside:
            new, old = Path(beside) / "new", Path(beside) / "old"
            new.mkdir(_DIRECTORY_MODE)
            yield new
            write(new / MARKER, _MARK)
            _swap(new, target, old)
    except OSError as error:
        raise InfrastructureError(f"the site {target} cannot be written: {error}") from error


def _swap(new: Path, target: Path, old: Path) -> None:
    """Replace a directory by a new one, and then remove the old directory."""
    if not target.exists():
        new.rename(target)
        return
    target.rename(old)
    try:
        new.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
