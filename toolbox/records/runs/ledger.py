"""The ledger of remote resources: an append-only file with one JSON object per line.

A run writes `ledger.jsonl` in its directory. Commands outside a run write the ledger of the user, in the state
directory, which several processes may use at the same time. While a run has open resources, a pointer in the state
directory names the directory of the run, so that `resources list` finds the ledger wherever the run is.

A line that plans a resource carries a seal of this user (`ledger_seal.py`). A resource without a seal is listed, and is
never deleted: its line may come from another user, and its deletion may execute a program.

A line is on the disk before the request that it announces is sent. A crash may leave a torn last line, which readers
ignore and the next writer cuts off. Any other line that cannot be read is damage, and is reported with its number.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from toolbox.ground.kit import safe_files
from toolbox.ground.model.errors import InfrastructureError, ToolboxError, UsageError, describe
from toolbox.ground.model.resources import OpenResource, Owner, Resource
from toolbox.ground.model.text import truncate, without_kind
from toolbox.ground.system import environ, filesystem
from toolbox.records.runs import ledger_seal
from toolbox.records.runs.journal import Damage
from toolbox.records.runs.layout import RunDirectory

log = logging.getLogger(__name__)

_LARGEST_BYTES: Final = 1 << 26  # a larger file is not read into memory
_LONGEST_NAME: Final = 2000
_LONGEST_TEXT: Final = 20_000
_LONGEST_SECONDS: Final = 10 * 365 * 86400.0
_LONGEST_MESSAGE: Final = 2000
_DIRECTORY_NAME: Final = r"^([^/.\x00][^/\x00]*)?$"  # names of runs become parts of paths
_USER_LEDGER: Final = "commands.jsonl"
_FOLDER: Final = "ledgers"
_POINTER: Final = ".run"
_UNSEALED_COMMAND: Final = "(run the command in the ledger only if you trust its author, then remove the line)"


class _Line(BaseModel):
    model_config = ConfigDict(strict=True)

    time: Annotated[AwareDatetime, Field(strict=False)]
    kind: str = Field(min_length=1, max_length=_LONGEST_NAME)
    name: str = Field(min_length=1, max_length=_LONGEST_NAME)


class _Owner(BaseModel):
    model_config = ConfigDict(strict=True)

    run: str = Field(max_length=_LONGEST_NAME, pattern=_DIRECTORY_NAME)
    project: str = Field(max_length=_LONGEST_NAME)
    user: str = Field(max_length=_LONGEST_NAME)
    host: str = Field(max_length=_LONGEST_NAME)


class _Planned(_Line):
    event: Literal["planned"]
    deletion: dict[str, Any]
    ttl: float = Field(ge=0, le=_LONGEST_SECONDS)
    command: str = Field(max_length=_LONGEST_TEXT)
    keep: bool
    owner: _Owner


class _Changed(_Line):
    event: Literal["created", "absent", "deleted"]


class _Failed(_Line):
    event: Literal["failed"]
    message: str = Field(max_length=_LONGEST_TEXT)


_Event = _Planned | _Changed | _Failed
_EVENTS: Final[TypeAdapter[_Event]] = TypeAdapter(Annotated[_Event, Field(discriminator="event")])


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a ledger.

    Args:
        resources: the open resources, oldest first.
        damage: the lines that cannot be read, except a torn last line.
        whole_bytes: the length of the file without its torn tail.
    """

    resources: tuple[OpenResource, ...] = ()
    damage: tuple[Damage, ...] = ()
    whole_bytes: int = 0

    @property
    def has_sealed(self) -> bool:
        """Whether there is an open resource whose entry this user wrote on this machine."""
        return any(entry.is_sealed for entry in self.resources)

    def find(self, resource: Resource) -> OpenResource | None:
        """Return the entry of an open resource; None if the resource is not open."""
        return next((each for each in self.resources if each.resource.key == resource.key), None)

    def after(self, event: _Event, size: int) -> Contents:
        """Return the contents after another event of this process, whose line has `size` bytes."""
        resources = {each.resource.key: each for each in self.resources}
        _apply(event, resources, is_sealed=True)
        return Contents(tuple(resources.values()), self.damage, self.whole_bytes + size)


class Ledger:
    """The ledger of a run or of a user. It implements `ResourceLedger`.

    The file is opened only for each operation, so a ledger need not be closed.

    Args:
        owner: the owner of new resources.
        run: the directory of the run; None for the ledger of the user.
        mask: masks secrets in the texts for people. All other fields are needed for the deletion.
    """

    def __init__(self, owner: Owner, run: Path | None, mask: Callable[[str], str]) -> None:
        self._owner = owner
        self._run = run
        self._mask = mask
        self._lock = threading.Lock()
        self._contents: Contents | None = None

    @property
    def owner(self) -> Owner:
        """See `ResourceLedger`."""
        return self._owner

    @property
    def file(self) -> Path:
        """The file of the ledger.

        Raises:
            UsageError: the ledger belongs to the user, and the user has no home directory.
        """
        return _folder() / _USER_LEDGER if self._run is None else RunDirectory(self._run).ledger

    def plan(self, resource: Resource) -> None:
        """See `ResourceLedger`."""
        try:
            with self._opened() as (descriptor, contents):
                if self._run is not None and not contents.has_sealed:
                    _write_pointer(self._run)
                fields = dataclasses.asdict(resource) | {"command": self._mask(resource.command)}
                self._append(descriptor, contents, "planned", **fields, owner=dataclasses.asdict(self._owner))
        except (OSError, ValueError, ToolboxError) as error:
            raise InfrastructureError(
                f"the ledger of remote resources cannot be written: {describe(error)}\n"
                f"{resource.name} was not created, because its deletion could not be ensured"
            ) from error

    def mark_created(self, resource: Resource) -> None:
        """See `ResourceLedger`."""
        self._mark_as("created", resource)

    def mark_deleted(self, resource: Resource) -> None:
        """See `ResourceLedger`."""
        self._mark_as("deleted", resource)

    def mark_absent(self, resource: Resource) -> None:
        """See `ResourceLedger`."""
        self._mark_as("absent", resource)

    def mark_failed(self, resource: Resource, message: str) -> None:
        """See `ResourceLedger`."""
        self._mark_as("failed", resource, message=truncate(self._mask(message), _LONGEST_MESSAGE))

    def open_resources(self) -> Sequence[OpenResource]:
        """See `ResourceLedger`.

        Raises:
            InfrastructureError: the file cannot be read.
        """
        return load(self.file).resources

    def _mark_as(self, event: str, resource: Resource, **fields: str) -> None:
        try:
            with self._opened() as (descriptor, contents):
                if contents.find(resource) is None:
                    return
                fields |= {"kind": resource.kind, "name": resource.name}
                after = self._append(descriptor, contents, event, **fields)
                if not after.has_sealed:
                    self._forget(descriptor, after)
        except (OSError, ToolboxError) as error:
            log.warning("the ledger does not show that %s is %s: %s", resource.name, event, describe(error))

    def _forget(self, descriptor: int, contents: Contents) -> None:
        """Remove the pointer to the run, or empty the ledger of the user, because no resource is open."""
        if contents.damage:  # a damaged line may be that of an open resource
            return
        if self._run is not None:
            remove_pointer(self._run)
        elif not contents.resources:
            os.ftruncate(descriptor, 0)
            os.fsync(descriptor)

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, Contents]]:
        """Open and lock the file, and yield its descriptor and its contents."""
        with self._lock:
            file = self.file
            filesystem.make_durable_directory(file.parent)
            descriptor = safe_files.open_regular(str(file), os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if self._contents is None or self._run is None or _size(descriptor) != self._contents.whole_bytes:
                    filesystem.sync_directory(file.parent)
                    self._contents = load(file)
                yield descriptor, self._contents
            finally:
                os.close(descriptor)

    def _append(self, descriptor: int, contents: Contents, event: str, **fields: object) -> Contents:
        """Write a line after the last whole line, and return the new contents when the line is on the disk."""
        record = {"time": datetime.now(UTC).isoformat(timespec="microseconds"), "event": event, **fields}
        line = filesystem.encode(json.dumps(record, ensure_ascii=False))
        parsed = _EVENTS.validate_json(line)
        line = (ledger_seal.sealed(line) if isinstance(parsed, _Planned) else line) + b"\n"
        os.ftruncate(descriptor, contents.whole_bytes)
        if os.write(descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # a partial write means that the disk is full
        os.fsync(descriptor)
        self._contents = contents.after(parsed, len(line))
        return self._contents


def of_run(directory: Path, project: str, mask: Callable[[str], str] = str) -> Ledger:
    """Return the ledger of a run.

    The owner is the owner of the resources that are open already, because a run may be resumed on another machine.

    Raises:
        InfrastructureError: the file of the ledger cannot be read.
    """
    directory = directory.absolute()
    resources = load(RunDirectory(directory).ledger).resources
    if any(entry.is_sealed for entry in resources):
        _write_pointer(directory)  # the directory may have been moved
    # Paths are derived from the run of the owner, so an owner whose run is not the name of this directory is ignored.
    owners = [entry.owner for entry in resources if entry.is_sealed or entry.owner.run == directory.name]
    owner = owners[0] if owners else current_owner(directory.name, project)
    return Ledger(owner, directory, mask)


def of_user(mask: Callable[[str], str] = str) -> Ledger:
    """Return the ledger of this user, for commands outside a run."""
    return Ledger(current_owner(), None, mask)


def current_owner(run: str = "", project: str = "") -> Owner:
    """Return this user on this machine as the owner of resources."""
    return Owner(run, project, environ.user(), socket.gethostname())


def runs() -> list[Path]:
    """Return the directories of the runs of this user with open resources. A directory may no longer exist."""
    directories = []
    for file in sorted(_folder().glob(f"*{_POINTER}")):
        with contextlib.suppress(FileNotFoundError):  # a run may just have removed its pointer
            if is_private(file):
                directories.append(Path(os.fsdecode(file.read_bytes().removesuffix(b"\n"))))
    return [directory for directory in directories if directory.is_absolute()]


def is_private(file: Path) -> bool:
    """Return whether a file belongs to this user, and no other user can write it."""
    try:
        status = file.lstat()
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & others


def remove_pointer(run: Path) -> None:
    """Remove the pointer to a run, because the run has no open resources any more."""
    with contextlib.suppress(FileNotFoundError):
        pointer(run).unlink()


def load(file: Path) -> Contents:
    """Return the contents of a ledger; nothing if the file does not exist.

    Raises:
        InfrastructureError: the file cannot be read.
    """
    try:
        content = safe_files.read(str(file), _LARGEST_BYTES + 1)
    except FileNotFoundError:
        return Contents()
    except OSError as error:
        raise InfrastructureError(f"the ledger {file} cannot be read: {error}") from error
    if len(content) > _LARGEST_BYTES:
        raise InfrastructureError(f"the ledger {file} cannot be read: it is longer than {_LARGEST_BYTES} bytes")
    return _fold(content, file.name)


def _fold(content: bytes, name: str) -> Contents:
    resources: dict[tuple[str, str], OpenResource] = {}
    damage: list[Damage] = []
    lines = content.split(b"\n")[:-1]
    whole_bytes = len(content) - len(content.rpartition(b"\n")[2])
    for number, line in enumerate(lines, start=1):
        try:
            event = _EVENTS.validate_json(line)
        except ValidationError as error:
            if number == len(lines) and b"\0" in line:  # blocks of the last line were not written
                whole_bytes -= len(line) + 1
            else:
                damage.append(Damage(number, _reason(error), name))
        else:
            _apply(event, resources, is_sealed=isinstance(event, _Planned) and ledger_seal.is_sealed(line))
    return Contents(tuple(resources.values()), tuple(damage), whole_bytes)


def _apply(event: _Event, resources: dict[tuple[str, str], OpenResource], *, is_sealed: bool) -> None:
    key = (event.kind, event.name)
    match event:
        case _Planned() if key in resources and resources[key].is_sealed:
            if is_sealed:  # the resource is requested again
                entry, expires = resources[key], _later(event.time, event.ttl)
                resources[key] = OpenResource(entry.resource, entry.owner, event.time, expires)
        case _Planned() if key not in resources or is_sealed:
            command = event.command if is_sealed else _UNSEALED_COMMAND
            resource = Resource(event.kind, event.name, event.deletion, event.ttl, command, event.keep)
            owner, expires = Owner(**event.owner.model_dump()), _later(event.time, event.ttl)
            resources[key] = OpenResource(resource, owner, event.time, expires, is_sealed=is_sealed)
        case _Changed(event="deleted"):
            resources.pop(key, None)
        case _Changed(event="absent") if key in resources:
            entry = resources[key]
            if entry.is_created or event.time >= entry.awaited_until:
                del resources[key]
            else:
                resources[key] = replace(entry, failure="", is_absent=True)
        case _Changed() if key in resources:
            resources[key] = replace(resources[key], is_created=True, is_absent=False)
        case _Failed() if key in resources:
            resources[key] = replace(resources[key], failure=event.message, is_absent=False)


def _later(time: datetime, seconds: float) -> datetime:
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:  # a damaged line may contain the year 9999
        return time


def _size(descriptor: int) -> int:
    return os.fstat(descriptor).st_size


def _reason(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in fault["loc"][1:])
    return f"{where}: {without_kind(fault['msg'])}".removeprefix(": ")


def _folder() -> Path:
    return environ.state_directory() / _FOLDER


def pointer(run: Path) -> Path:
    """Return the file in the state directory that names the directory of a run with open resources."""
    digest = hashlib.sha256(os.fsencode(run)).hexdigest()[:12]
    return _folder() / f"{run.name}-{digest}{_POINTER}"


def _write_pointer(run: Path) -> None:
    """Write the pointer to a run. Without the pointer, the run can still delete its resources."""
    try:
        filesystem.write_bytes(pointer(run), os.fsencode(run) + b"\n", durable=True)
    except (OSError, UsageError) as error:
        log.warning("`resources list` will not find the ledger of %s: %s", run, describe(error))
