"""Prepares the files and the order that a host needs to execute a workload, and filters the files of an attempt."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any, Final

from toolbox.ground.model.errors import StepError
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import TargetContext, Workload
from toolbox.ground.system import filesystem, redaction
from toolbox.records.runs.layout import AttemptDirectory

log = logging.getLogger(__name__)

EVERYTHING: Final = ("**",)
_DIGITS: Final = 16
_KINDS: Final = ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".git")


def order(
    workload: Workload, context: TargetContext, variables: Mapping[str, str], inherited: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the order for the agent's supervisor. The order contains secrets: don't write it to a file.

    The list of secrets to mask contains only the secrets that are in the environment of the workload.

    Args:
        variables: environment variables of the target.
        inherited: the values of the environment variables that the workload inherits from the agent.
    """
    revealed = {name: _revealed(value) for name, value in workload.env.items()}
    values = [*revealed.values(), *inherited]
    secrets = {revealed[name] for name, value in workload.env.items() if isinstance(value, Secret)}
    secrets |= {secret for secret in context.secrets() if any(secret in value for value in values)}
    return {
        "command": list(workload.command),
        "env": {**variables, **revealed},
        "secrets": sorted(secrets),
        **limits(workload),
    }


def limits(workload: Workload) -> dict[str, Any]:
    """Return the part of an order that is the same on all targets: the working directory and the limits."""
    return {
        "cwd": workload.cwd,
        "run_seconds": workload.timeouts.run,
        "silence_seconds": workload.timeouts.silence,
        "grace_seconds": workload.timeouts.grace,
        "log_bytes": workload.log_bytes,
        "sample_seconds": workload.sample_seconds,
    }


class SpecialFile(ValueError):
    """A file to send is neither a regular file nor a folder."""


@contextmanager
def staged(workload: Workload, directory: Path) -> Iterator[Path | None]:
    """Copy the files of a workload into a new folder in the attempt's directory, and yield the folder.

    Yield None if the workload has no files.

    Each submission has its own folder, because two processes may submit the same attempt at the same time. The
    submission that starts the workload moves its folder to `src/`. The folder of any other submission is removed.

    Raises:
        StepError: a file is missing, or cannot be copied.
    """
    if not workload.files and not workload.text_files:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix=f".{AttemptDirectory.sources}.", dir=filesystem.make_directory(directory)))
    try:
        _fill(folder, workload)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path, workload: Workload) -> None:
    try:
        for name, source in workload.files.items():
            _copy(source, folder / name)
        for name, text in workload.text_files.items():
            filesystem.write_text(folder / name, text)
    except shutil.Error as error:  # its argument lists the files of a folder that cannot be copied
        reason = next((str(each[-1]) for each in error.args[0] if isinstance(each, tuple)), str(error))
        raise StepError(f"the files of the workload cannot be sent: {reason}") from error
    except (OSError, SpecialFile) as error:
        is_wrong = isinstance(error, FileNotFoundError | SpecialFile)
        cause = Cause.CONFIGURATION if is_wrong else Cause.INFRASTRUCTURE
        raise StepError(f"the files of the workload cannot be sent: {error}", cause=cause) from error


def changed_files(workload: Workload, directory: Path) -> frozenset[str]:
    """Return the generated files of a workload that are not as they were sent, relative to the attempt's directory.

    A file in which `Recorder.sweep` has masked a secret is as it was sent.
    """
    mask = redaction.current()
    return frozenset(
        str(PurePath(AttemptDirectory.sources, name))
        for name, text in workload.text_files.items()
        if not _contains(AttemptDirectory(directory).sources / name, {text, mask(text)})
    )


def _contains(file: Path, texts: Collection[str]) -> bool:
    contents = set(map(filesystem.encode, texts))
    try:
        return file.is_file() and file.stat().st_size <= max(map(len, contents)) and file.read_bytes() in contents
    except OSError:
        return False


def remove_unmatched(directory: Path, patterns: Sequence[str]) -> None:
    """Remove the files below a directory that don't match any of the patterns."""
    if tuple(patterns) == EVERYTHING or not directory.is_dir():
        return
    matches = {path for pattern in patterns for path in directory.glob(pattern)}
    for path in sorted(directory.rglob("*"), reverse=True):
        with suppress(OSError):  # the folder is not empty, or the workload has made it read-only
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            elif path not in matches and not any(parent in matches for parent in path.parents):
                path.unlink()


def discard_special_files(directory: Path) -> None:
    """Remove pipes, devices and sockets below an attempt's directory, and symbolic links directly in the directory.

    A special file may block a reader, and the workload may have replaced a file of the supervisor by a link. Call this
    for attempts on this machine: `archives.extract` skips such files of attempts on other machines.
    """
    folders = [os.fspath(directory)]
    for index, folder in enumerate(folders):
        with suppress(OSError), os.scandir(folder) as entries:  # the workload may have made the folder unreadable
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and not (entry.is_symlink() and index):
                    log.warning("%s is removed: it is a symbolic link or a special file", entry.path)
                    with suppress(OSError):
                        Path(entry.path).unlink()


def digests(source: Path) -> dict[str, str]:
    """Return the digests of the files in a folder, by their relative paths. For a single file, the key is empty.

    The digest of a symbolic link in the folder is `-> TARGET`.

    Raises:
        OSError: a file cannot be read.
        SpecialFile: a file is a pipe, a socket or a device.
    """
    if not source.is_dir():
        return {"": _digest(source)}
    result = {}
    for folder, folders, names in os.walk(source, onerror=_raise):
        ignored = _IGNORED(folder, [*folders, *names])
        links = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = sorted({*folders} - {*ignored})
        for name in sorted({*names, *links} - {*ignored}):
            file = Path(folder, name)
            digest = f"-> {file.readlink()}" if file.is_symlink() else _digest(file)
            result[str(file.relative_to(source))] = digest
    return result


def _digest(file: Path) -> str:
    mode = _require_regular(file)
    with file.open("rb") as stream:
        content = hashlib.file_digest(stream, "sha256").hexdigest()
    return f"{content[:_DIGITS]}{'+x' if mode & stat.S_IXUSR else ''}"


def _raise(error: OSError) -> None:
    raise error


def _copy(source: Path, target: Path) -> None:
    filesystem.make_directory(target.parent)
    if source.is_dir():
        copy = _copy_regular
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=_IGNORED, copy_function=copy)
    else:
        _copy_regular(source, target)


def _copy_regular(source: str | Path, target: str | Path) -> None:
    _require_regular(Path(source))
    shutil.copy(source, target)


def _require_regular(file: Path) -> int:
    """Return the mode of a regular file. Reading a pipe, a socket or a device may never end.

    Raises:
        SpecialFile: the file is not a regular file.
    """
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "a device")
        advice = "remove it, or name the files one by one"
        raise SpecialFile(f"{file} cannot be sent: it is {kind}, and not a file or a folder; {advice}")
    return mode


def _revealed(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value
