"""Receives and extracts the archive of an attempt's files. The workload or its host may have forged any of its bytes.

`tarfile` only decodes the headers. Its extraction filters are not used, because in several releases of Python a chain
of long symbolic links gets past them. This module opens every directory below the attempt's directory without following
links, and creates symbolic links last, so that no file is written through a link.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

from toolbox.ground.kit.attempt_files import EXIT_CODE, OUTCOME, STREAMS, log_name
from toolbox.ground.model.errors import LimitExceeded
from toolbox.ground.model.text import abbreviated
from toolbox.ground.model.workloads import CollectLimits
from toolbox.ground.system import filesystem
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets.agent import attempt_directory

log = logging.getLogger(__name__)

_PIECE_BYTES: Final = 1 << 16
_LONGEST_HEADER: Final = 1 << 20  # bytes; an extended header with one name needs a few KiB
_LONGEST_PATH: Final = 4096  # PATH_MAX of Linux
_DEEPEST: Final = 100  # the largest depth of nested directories; deeper trees could exceed Python's recursion limit
_REFUSED_HEADERS: Final = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_SPARSE)
_MAX_WARNINGS: Final = 10
_COPY_SECONDS: Final = 60.0
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN_FILES: Final = frozenset({*attempt_directory.LISTED, *map(log_name, STREAMS)})
# Errors that concern only one member of an archive: its path clashes with another member, or its name is not allowed.
_MEMBER_ERRORS: Final = frozenset(
    getattr(errno, name)
    for name in ("EEXIST", "EILSEQ", "EINVAL", "EISDIR", "ELOOP", "ENAMETOOLONG", "ENOTDIR", "EPERM")
)


def extract(stream: BinaryIO, directory: Path, limits: CollectLimits) -> None:
    """Extract the files of an attempt from an uncompressed tar archive.

    A member that is not a file of an attempt, or that would be written outside of the directory, is skipped with a
    warning. The extracted files are private to their owner.

    Raises:
        LimitExceeded: the archive exceeds the limits. The members before the first that exceeds a limit are extracted.
        OSError: a file cannot be written.
        tarfile.TarError: the archive is compressed, damaged or incomplete. The members before the fault are extracted.
    """
    extraction = _Extraction(filesystem.make_directory(directory), limits)
    try:
        with tarfile.open(fileobj=_Headers(stream), mode="r:", tarinfo=_Member) as archive:  # type: ignore[call-overload]  # tarfile uses only these methods
            while (member := archive.next()) is not None:
                archive.members = []  # forget the members, which `tarfile` would keep in memory
                extraction.extract(archive, member)
            # `tarfile` mistakes a damaged or missing header for the end of the archive.
            stream.seek(archive.offset)
            if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError("the archive is incomplete: its end is missing")
    except (ValueError, OverflowError, RecursionError) as error:  # tarfile raises them for some forged headers
        raise tarfile.ReadError(f"the archive is damaged: {error}") from error
    finally:
        extraction.finish()


@contextmanager
def pipe_to(target: BinaryIO, most: int) -> Iterator[IO[bytes]]:
    """Yield a pipe for the output of a program, and copy this output to a file.

    Args:
        most: the largest number of bytes to copy. If the program writes more, the pipe is closed.

    Raises:
        LimitExceeded: the program wrote more than `most` bytes.
        OSError: the file cannot be written.
    """
    reader, writer = os.pipe()
    errors: list[Exception] = []

    def copy() -> None:
        try:
            with os.fdopen(reader, "rb", buffering=0) as source:
                while content := source.read(_PIECE_BYTES):
                    write_limited(target, content, most)
        except (OSError, LimitExceeded) as error:
            errors.append(error)

    thread = threading.Thread(target=copy, name="archive", daemon=True)
    thread.start()
    try:
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            yield pipe
    finally:
        thread.join(_COPY_SECONDS)
    if errors:
        raise errors[0]
    if thread.is_alive():
        raise TimeoutError("the program has ended, but another process keeps its output open")


def write_limited(target: BinaryIO, content: bytes, most: int) -> None:
    """Append content to the local copy of an archive.

    Raises:
        LimitExceeded: the copy would have more than `most` bytes.
    """
    if target.tell() + len(content) > most:
        raise LimitExceeded(f"the archive of the attempt has more than {most} bytes: {_REMEDY}")
    target.write(content)


_REMEDY: Final = "let `collect` name fewer files, or raise `collect_bytes` and `collect_files` of the target"


class _Headers:
    """The stream that `tarfile` reads headers from. Limits each read, because a header may announce gigabytes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.tell = stream.tell
        self.seek = stream.seek

    def read(self, count: int) -> bytes:
        if not 0 <= count <= _LONGEST_HEADER:
            raise tarfile.ReadError(f"the archive is damaged: a header has {count} bytes")
        return self._stream.read(count)


class _Member(tarfile.TarInfo):
    """A tar header that refuses extended, global and sparse headers before `tarfile` parses them.

    The agents and pods write none of these. Parsing an extended header of a megabyte takes
    hours (CVE-2024-6232), a global header is parsed again for each member, and the map of a sparse file may fill the
    memory.
    """

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _REFUSED_HEADERS:
            raise tarfile.ReadError(f"the archive is damaged: a header of the type {self.type!r} is not expected")
        return super()._proc_member(archive)  # type: ignore[misc]  # a documented hook of `tarfile`


class _Extraction:
    """Extracts one archive into a directory."""

    def __init__(self, directory: Path, limits: CollectLimits) -> None:
        self._directory = directory
        self._limits = limits
        self._root = os.open(directory, _DIRECTORY)
        self._links: dict[tuple[str, ...], str] = {}
        self._bytes = self._members = self._skipped = 0

    def extract(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Extract a member of the archive, or log why it is skipped."""
        self._count(member)
        parts = tuple(part for part in member.name.split("/") if part not in {"", "."})
        if not parts and member.isdir():
            return
        if fault := self._fault(member, parts):
            self._skip(member.name, fault)
            return
        self._links.pop(parts, None)
        if member.issym():
            self._links[parts] = member.linkname
        else:
            self._create(parts, lambda: self._write(archive, member, parts))

    def finish(self) -> None:
        """Create the symbolic links."""
        try:
            for parts, target in self._links.items():
                self._create(parts, lambda parts=parts, target=target: self._link(parts, target))  # type: ignore[misc]
        finally:
            os.close(self._root)
        if self._skipped > _MAX_WARNINGS:
            log.warning("%d more files are left out", self._skipped - _MAX_WARNINGS)

    def _count(self, member: tarfile.TarInfo) -> None:
        if member.size < 0:
            raise tarfile.ReadError("the archive is damaged: a file has a negative size")
        self._members += 1
        self._bytes += member.size if member.isreg() else 0
        if self._members > self._limits.files:
            raise LimitExceeded(f"the attempt left more than {self._limits.files} files: {_REMEDY}")
        if self._bytes > self._limits.bytes:
            raise LimitExceeded(f"the attempt left more than {self._limits.bytes} bytes: {_REMEDY}")

    def _fault(self, member: tarfile.TarInfo, parts: tuple[str, ...]) -> str:
        """Return why a member must not be extracted; empty if the member may be extracted."""
        is_own = len(parts) == 1 and parts[0] in _OWN_FILES and member.isreg()
        if member.name.startswith("/") or ".." in parts:
            return "its path leads out of the directory"
        if not is_own and (parts[:1] != (AttemptDirectory.results,) or (len(parts) == 1 and not member.isdir())):
            return "it is not a file of an attempt"
        if not (member.isreg() or member.isdir() or member.issym()):
            return "it is neither a file nor a directory nor a symbolic link"
        if parts[0] in {OUTCOME, EXIT_CODE} and member.size > _LONGEST_HEADER:
            return "it is larger than the files that a supervisor writes"
        if len(parts) > _DEEPEST or len(os.fsencode(self._directory / member.name)) >= _LONGEST_PATH:
            return "its path is too long"
        if member.issym() and not member.linkname:
            return "it is a symbolic link without a target"
        if member.issym() and not _stays_inside(member.linkname, len(parts) - 1):
            return "it is a symbolic link that leads out of the directory"
        return ""

    def _create(self, parts: tuple[str, ...], create: Callable[[], None]) -> None:
        try:
            create()
        except OSError as error:
            if error.errno not in _MEMBER_ERRORS:
                raise
            self._skip("/".join(parts), str(error.strerror))

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parts: tuple[str, ...]) -> None:
        if member.isdir():
            os.close(self._open_directory(parts))
            return
        mode = 0o700 if member.mode & 0o100 else filesystem.PRIVATE_FILE
        with self._folder_for(parts) as folder:
            descriptor = os.open(parts[-1], _NEW_FILE, mode, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as target:
                    _copy(archive, member, target)
            except BaseException:
                os.unlink(parts[-1], dir_fd=folder)  # a partial file would be mistaken for a complete file
                raise

    def _link(self, parts: tuple[str, ...], target: str) -> None:
        with self._folder_for(parts) as folder:
            os.symlink(target, parts[-1], dir_fd=folder)

    @contextmanager
    def _folder_for(self, parts: tuple[str, ...]) -> Iterator[int]:
        """Remove an earlier file with this path, and yield a descriptor of the directory for the new file."""
        folder = self._open_directory(parts[:-1])
        try:
            with suppress(FileNotFoundError):
                os.unlink(parts[-1], dir_fd=folder)
            yield folder
        finally:
            os.close(folder)

    def _open_directory(self, parts: tuple[str, ...]) -> int:
        """Open a directory without following links, and return its descriptor. Create missing directories."""
        folder = os.dup(self._root)
        for part in parts:
            try:
                with suppress(FileExistsError):
                    os.mkdir(part, filesystem.PRIVATE_DIRECTORY, dir_fd=folder)
                inner = os.open(part, _DIRECTORY, dir_fd=folder)
            finally:
                os.close(folder)
            folder = inner
        return folder

    def _skip(self, name: str, reason: str) -> None:
        self._skipped += 1
        if self._skipped <= _MAX_WARNINGS:
            log.warning("%s is left out: %s", abbreviated(name, longest=100), reason)


def _copy(archive: tarfile.TarFile, member: tarfile.TarInfo, target: BinaryIO) -> None:
    source = archive.extractfile(member)
    assert source is not None, "the member is a regular file"
    shutil.copyfileobj(source, target, _PIECE_BYTES)
    target.flush()
    with suppress(ValueError, OverflowError, OSError):  # the time may be forged
        os.utime(target.fileno(), (member.mtime, member.mtime))


def _stays_inside(target: str, depth: int) -> bool:
    """Return whether a symbolic link leads to a path inside the extracted directory.

    The target may contain `..` only at its beginning. After the name of a directory, which may be a symbolic link, `..`
    could lead out of the extracted directory.

    Args:
        depth: the number of directories between the extracted directory and the link.
    """
    steps = [step for step in target.split("/") if step not in {"", "."}]
    levels_up = next((index for index, step in enumerate(steps) if step != ".."), len(steps))
    return not target.startswith("/") and levels_up <= depth and ".." not in steps[levels_up:]
