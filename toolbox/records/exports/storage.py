"""Reads and writes the files of an export: in a directory of this machine, or at any URL that fsspec can open.

This is the only module that imports fsspec and its drivers. They are imported when a URL needs them; a directory, also
as `file://`, needs none. A file is written completely or not at all: in a directory by a temporary file, which is then
renamed, and on an object store by one upload. No access rule (ACL) is ever set: a new object is as private as the
bucket makes it, and a file in a directory is private to its owner.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from toolbox.ground.kit import safe_files
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError, ToolboxError, UsageError, describe
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.text import truncate
from toolbox.ground.system import extras, filesystem

_PIECE_BYTES: Final = 1 << 20
_PART_BYTES: Final = 50 << 20  # a larger file is uploaded in parts; S3 allows 10,000 of them
_LONGEST_MESSAGE: Final = 300
_SCHEMES_OF_EXTRA: Final = ("s3", "s3a", "gs", "gcs")
_LIKE_A_URL = re.compile(r"[A-Za-z][\w+.-]*:")  # in the first part of a path: a mistyped URL, or a path on another host


class TooLarge(UsageError):
    """A file is larger than it may be."""


class Storage(Protocol):
    """A tree of files. Names are relative, with `/` between their parts.

    Each method raises `InfrastructureError` if the storage does not answer or refuses, and is safe in several threads.
    """

    @property
    def address(self) -> str:
        """The path or URL of the storage."""

    def read(self, name: str, most: int) -> bytes | None:
        """Return the content of a file; None if the file is missing. Raise `TooLarge` above `most` bytes."""

    def pieces(self, name: str, most: int) -> Iterator[bytes]:
        """Yield the content of a file. Raise `TooLarge` above `most` bytes, and `UsageError` if the file is missing."""

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file from pieces. If an error occurs, also while a piece is made, the file does not change."""

    def delete(self, name: str) -> None:
        """Delete a file. A missing file is no error."""

    def folders(self, name: str) -> list[str]:
        """Return the names of the folders in a folder, sorted; empty if the folder is missing."""

    def files(self, name: str) -> dict[str, int]:
        """Return the sizes of all files below a folder, by their names relative to the folder."""

    def delete_empty_folders(self, name: str) -> None:
        """Delete the empty folders below a folder, and the folder itself if nothing is left in it."""

    def below(self, name: str) -> str:
        """Return the address of a file or folder, for messages."""


def opened(address: str) -> Storage:
    """Return the storage at a path or URL.

    Raises:
        UsageError: the URL is wrong, or its driver is not installed.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        raise UsageError(f"{_shown(address)} is not a URL. Examples: s3://BUCKET/FOLDER, gs://...") from None
    if "://" not in address:
        if match := _LIKE_A_URL.match(address):
            name = f"{match[0]}..."  # without the rest, which may contain a password
            raise UsageError(
                f"{name} is neither a URL nor a path: write a URL as s3://BUCKET/FOLDER, and the path as ./{name}"
            )
        return LocalStorage(Path(address))
    if parts.scheme in {"file", "local"}:
        if parts.netloc not in {"", "localhost"}:
            raise UsageError(f"{parts.scheme}://...: a file URL has three slashes, as in file:///var/exports")
        return LocalStorage(Path(unquote(parts.path)))
    return _remote(address)


def _remote(address: str) -> Storage:
    shown = _shown(address)
    scheme = shown.partition("://")[0]
    if "::" in address or "@" in address:  # messages show the address
        raise UsageError(f"{scheme}://...: give one URL without `::` and `@`, and so without a user and a password")
    if scheme == "memory":
        raise UsageError(f"{shown}: files in memory are lost when the command ends")
    if scheme in _SCHEMES_OF_EXTRA:
        extras.require(extras.STORAGE, f"the URL {shown}")
    try:
        import fsspec
    except ImportError:
        hint = did_you_mean(scheme, _SCHEMES_OF_EXTRA, label="schemes")
        raise UsageError(
            f"{shown}: unknown scheme `{scheme}`: {hint}\n  another scheme needs the library fsspec and its driver"
        ) from None

    try:
        driver, root = fsspec.core.url_to_fs(address, use_listings_cache=False, skip_instance_cache=True)
    except ImportError as error:
        raise ConfigurationError(f"{shown} needs a driver that is not installed: {_reason(error)}") from None
    except ValueError as error:
        raise UsageError(f"{shown} is not a URL for exports: {error}. Examples: s3://BUCKET/FOLDER, gs://...") from None
    except Exception as error:  # noqa: BLE001  # drivers have error types of their own
        raise InfrastructureError(f"{shown} cannot be opened: {_reason(error)}") from None
    if not root.strip("/"):
        raise UsageError(f"{shown} names no bucket, as in s3://BUCKET/FOLDER")
    return FsspecStorage(address.rstrip("/"), driver, root.rstrip("/"))


def _shown(address: str) -> str:
    return truncate(clean(address), 100)


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A directory of this machine. Symbolic links in the directory are neither followed nor listed as folders."""

    root: Path

    @property
    def address(self) -> str:
        """The path of the directory."""
        return str(self.root)

    def below(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.root / name)

    def read(self, name: str, most: int) -> bytes | None:
        """Return the content of a file; None if the file is missing."""
        if not os.path.lexists(self.root / name):
            return None
        return b"".join(self.pieces(name, most))

    def pieces(self, name: str, most: int) -> Iterator[bytes]:
        """Yield the content of a file."""
        if not safe_files.is_regular(self.below(name)):
            raise UsageError(f"{truncate(clean(self.below(name)), 200)} is missing, or is not a regular file")
        with self._described(name, "read"), os.fdopen(safe_files.open_regular(self.below(name)), "rb") as stream:
            yield from _limited(stream.read, most, self.below(name))

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a private file by a temporary file, which is then renamed."""
        with self._described(name, "written"):
            self._refuse_links(name)
            filesystem.write_pieces(self.root / name, pieces)

    def delete(self, name: str) -> None:
        """Delete a file or link."""
        with self._described(name, "deleted"):
            self._refuse_links(name)
            (self.root / name).unlink(missing_ok=True)

    def folders(self, name: str) -> list[str]:
        """Return the names of the folders in a folder."""
        with self._described(name, "listed"):
            return sorted(path.name for path in _entries(self.root / name) if path.is_dir() and not path.is_symlink())

    def files(self, name: str) -> dict[str, int]:
        """Return the sizes of all files and links below a folder. The size of a link is -1."""
        root = self.root / name
        with self._described(name, "listed"):
            return {
                path.relative_to(root).as_posix(): path.lstat().st_size if safe_files.is_regular(str(path)) else -1
                for folder, folders, files in os.walk(root)
                for path in map(Path(folder).joinpath, [*files, *folders])
                if path.is_symlink() or not path.is_dir()
            }

    def delete_empty_folders(self, name: str) -> None:
        """Delete the empty folders below a folder, and the folder itself if nothing is left in it."""
        with self._described(name, "deleted"):
            for folder, _, _ in os.walk(self.root / name, topdown=False):
                if not any(Path(folder).iterdir()):
                    Path(folder).rmdir()

    def _refuse_links(self, name: str) -> None:
        """Raise if a folder of the path is a symbolic link: a workload on this machine may have created the link."""
        for folder in [self.root, *(self.root / parent for parent in PurePosixPath(name).parents)]:
            if folder.is_symlink():
                raise UsageError(f"{folder} is a symbolic link: name another directory, or remove the link")

    @contextmanager
    def _described(self, name: str, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise InfrastructureError(f"{self.below(name)} cannot be {action}: {reason}") from None


class FsspecStorage:
    """A storage that a driver of fsspec opens.

    Args:
        address: the URL, without a slash at its end.
        driver: the `AbstractFileSystem` of fsspec.
        root: the path of the URL, as the driver writes paths.
    """

    def __init__(self, address: str, driver: Any, root: str) -> None:
        self.address = address
        self._driver = driver
        self._root = root

    def below(self, name: str) -> str:
        """Return the URL of a file."""
        return f"{self.address}/{name}" if name else self.address

    def read(self, name: str, most: int) -> bytes | None:
        """Return the content of a file; None if the file is missing."""
        content: bytes | None = self._called(
            "read", name, lambda path: b"".join(self._pieces(path, most, self.below(name))), missing=None
        )
        return content

    def pieces(self, name: str, most: int) -> Iterator[bytes]:
        """Yield the content of a file."""
        try:
            with self._described(name, "read"):
                yield from self._pieces(self._path(name), most, self.below(name))
        except FileNotFoundError:
            raise UsageError(f"{truncate(clean(self.below(name)), 200)} is missing") from None

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Upload a file. The driver makes the file visible when its stream is closed."""
        with self._described(name, "written"):
            stream = self._driver.open(self._path(name), "wb", block_size=_PART_BYTES)
            try:
                for piece in pieces:
                    stream.write(piece)
            except BaseException:
                stream.closed = True  # the garbage collector would close the stream, and so publish a part of the file
                stream.discard()
                raise
            stream.close()

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._called("deleted", name, self._driver.rm_file, missing=None)

    def folders(self, name: str) -> list[str]:
        """Return the names of the folders in a folder."""
        entries = self._called("listed", name, lambda path: self._driver.ls(path, detail=True), missing=[])
        return sorted(
            PurePosixPath(entry["name"].rstrip("/")).name for entry in entries if entry["type"] == "directory"
        )

    def files(self, name: str) -> dict[str, int]:
        """Return the sizes of all files below a folder."""
        found = self._called("listed", name, lambda path: self._driver.find(path, detail=True), missing={})
        prefix = f"{self._path(name)}/"
        return {
            path.removeprefix(prefix): int(entry["size"] or 0)
            for path, entry in found.items()
            if path.startswith(prefix) and entry["type"] == "file"
        }

    def delete_empty_folders(self, name: str) -> None:
        """Do nothing: an object store has no folders."""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _pieces(self, path: str, most: int, shown: str) -> Iterator[bytes]:
        with self._driver.open(path, "rb", cache_type="readahead", block_size=_PIECE_BYTES) as stream:
            yield from _limited(stream.read, most, shown)

    def _called(self, action: str, name: str, function: Callable[[str], Any], *, missing: Any) -> Any:
        """Call a function with the path of a name, and return its result; `missing` if there is no such file."""
        try:
            with self._described(name, action):
                return function(self._path(name))
        except FileNotFoundError:
            return missing

    @contextmanager
    def _described(self, name: str, action: str) -> Iterator[None]:
        """Convert the errors of drivers. A missing bucket is an error when a file is written."""
        try:
            yield
        except FileNotFoundError as error:
            if action != "written":
                raise
            raise InfrastructureError(f"{self.below(name)} cannot be written: {_reason(error)}") from None
        except (ToolboxError, GeneratorExit):
            raise
        except Exception as error:  # noqa: BLE001  # drivers have error types of their own
            raise InfrastructureError(f"{self.below(name)} cannot be {action}: {_reason(error)}") from None


def _entries(folder: Path) -> Iterator[Path]:
    return folder.iterdir() if folder.is_dir() and not folder.is_symlink() else iter(())


def _limited(read: Callable[[int], bytes], most: int, shown: str) -> Iterator[bytes]:
    """Yield what a stream contains. Raise `TooLarge` above `most` bytes."""
    total = 0
    for piece in itertools.takewhile(bool, map(read, itertools.repeat(_PIECE_BYTES))):
        total += len(piece)
        if total > most:
            raise TooLarge(f"{truncate(clean(shown), 200)} has more than {most} bytes, which is not allowed")
        yield piece


def _reason(error: BaseException) -> str:
    """Return the text of an error of a driver: one line of limited length."""
    lines = clean(describe(error)).split()
    return truncate(" ".join(lines), _LONGEST_MESSAGE)
