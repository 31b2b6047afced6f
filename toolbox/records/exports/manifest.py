"""The two files that describe an exported run, beside the files of the run in `OUTPUT/PROJECT/RUN/`.

`export_files.json` lists the files with their sizes and digests. It is written before the files, and every file that
is present has the digest that the list names. `export.json` is written last: a run without it is not complete.

Both are data from outside when they are read back: limited in size, and without paths that lead elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate, without_kind
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.exports.storage import Storage
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import State

RECORD: Final = "export.json"
FILES: Final = "export_files.json"
REPORTS: Final = (RunDirectory.html, RunDirectory.junit, RunDirectory.summary)
"""The files to which the index links."""
MAX_LISTED: Final = 100  # withheld or allowed files in a record
_MAX_RECORD: Final = 256 << 10  # bytes
_MAX_LIST: Final = 128 << 20
_MAX_FILES: Final = 500_000
_LONGEST_PATH: Final = 900  # bytes; an object store allows 1,024 for the whole key
_LONGEST_PART: Final = 255  # bytes, as file systems allow
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")

# Artifacts of GitHub, and file systems of Windows, refuse these characters and ends. Where a name has an escape, `%` is
# escaped too, so that each name has another portable name.
_UNPORTABLE: Final = re.compile(r'[":<>|*?]|%(?=[0-9A-Fa-f]{2})|[. ]\Z')

M = TypeVar("M", bound=BaseModel)


def portable(name: str) -> str:
    """Return the name under which a file of a run is exported: `trace 12%3A30.json` for `trace 12:30.json`."""
    return "/".join(_UNPORTABLE.sub(lambda found: f"%{ord(found[0]):02X}", part) for part in name.split("/"))


def fault_of_name(name: str) -> str:
    """Return why a file of a run cannot be exported under its name; empty if it can."""
    if _CONTROL.search(name):
        return "its name has control characters, or is not UTF-8"
    if len(name.encode()) > _LONGEST_PATH:
        return f"its path has more than {_LONGEST_PATH} bytes"
    parts = PurePosixPath(name).parts
    if any(len(part.encode()) > _LONGEST_PART for part in parts):
        return f"a part of its path has more than {_LONGEST_PART} bytes"
    if "/".join(parts) != name or ".." in parts or not parts or parts[0] == "/" or "\\" in name:
        return "its path leads elsewhere, or is not in its simplest form"
    return f"Topgallant writes {name} itself" if name in {RECORD, FILES} else ""


def _is_safe(name: str) -> str:
    if fault := fault_of_name(name):
        raise ValueError(fault)
    return name


def _is_report(name: str) -> str:
    if name not in REPORTS:
        raise ValueError("is not a report")
    return name


NAME: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,119}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
Path = Annotated[str, StringConstraints(max_length=_LONGEST_PATH), AfterValidator(_is_safe)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Bytes = Annotated[int, Field(ge=0, le=1 << 50)]
Line = Annotated[str, StringConstraints(max_length=500)]
Report = Annotated[str, AfterValidator(_is_report)]
# Without the first and the last year, so that the time exists in each time zone.
Time = Annotated[AwareDatetime, Field(gt=datetime(1970, 1, 1, tzinfo=UTC), lt=datetime(9999, 1, 1, tzinfo=UTC))]


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class ExportedFile(_Model):
    """The size and the SHA-256 of a file."""

    size: Bytes
    sha256: Digest


class FileList(_Model):
    """The content of `export_files.json`.

    Args:
        files: the exported files, by path.
        renamed: the path in the run of each file that is exported under another path.
    """

    files: Annotated[dict[Path, ExportedFile], Field(max_length=_MAX_FILES)]
    renamed: dict[Path, Path] = {}

    @field_validator("files")
    @classmethod
    def _has_no_file_in_a_file(cls, files: dict[str, ExportedFile]) -> dict[str, ExportedFile]:
        _require_no_file_in_a_file(files)
        return files

    @field_validator("renamed")
    @classmethod
    def _is_portable(cls, renamed: dict[str, str]) -> dict[str, str]:
        if any(portable(original) != name or original == name for name, original in renamed.items()):
            raise ValueError("has a file whose exported path does not belong to its path in the run")
        return renamed

    @model_validator(mode="after")
    def _has_each_path_once(self) -> FileList:
        if not self.renamed.keys() <= self.files.keys() or not self.files.keys().isdisjoint(self.renamed.values()):
            raise ValueError("has two files with the same path in the run, or a path of no file")
        _require_no_file_in_a_file({self.original(name) for name in self.files})
        return self

    def original(self, name: str) -> str:
        """Return the path in the run of an exported file."""
        return self.renamed.get(name, name)


def _require_no_file_in_a_file(names: Collection[str]) -> None:
    if any(str(folder) in names for name in names for folder in PurePosixPath(name).parents):
        raise ValueError("has a file and a folder of the same name")


class AllowedFile(_Model):
    """A file that looks as if it had a secret, and that the configuration allows."""

    file: Line
    reason: Line


class RenamedFile(_Model):
    """A file that is exported under another path than that in the run."""

    file: Line
    original: Line


class Record(_Model):
    """The content of `export.json`.

    Args:
        is_complete: whether the files of the steps were exported, and not only the records of the run.
        withheld: the files that were left out.
        renamed: the files with another path.
        count: the number of exported files.
        list_sha256: the digest of `export_files.json`.
        exported: the time of the export.
    """

    format: Literal[1] = 1
    project: Name
    run: Name
    state: State
    verdict: Verdict | None
    presets: Annotated[list[Line], Field(max_length=100)]
    revision: Line
    started: Time | None
    seconds: Annotated[float, Field(ge=0)] | None
    is_complete: bool
    withheld: Annotated[list[Line], Field(max_length=MAX_LISTED)]
    withheld_count: Bytes
    allowed: Annotated[list[AllowedFile], Field(max_length=MAX_LISTED)]
    allowed_count: Bytes
    renamed: Annotated[list[RenamedFile], Field(max_length=MAX_LISTED)]
    renamed_count: Bytes
    reports: Annotated[list[Report], Field(max_length=len(REPORTS))]
    count: Bytes
    bytes: Bytes
    list_sha256: Digest
    exported: Time

    def has_same_content(self, other: Record) -> bool:
        """Return whether another record differs at most in the time of the export."""
        return self.model_copy(update={"exported": other.exported}) == other


def now() -> datetime:
    """Return the current time, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def content_of(model: BaseModel) -> bytes:
    """Return the content of a file with this model. Equal models have equal contents."""
    return model.model_dump_json(indent=1).encode()


def digest_of(files: FileList) -> str:
    """Return the digest of `export_files.json`."""
    return hashlib.sha256(content_of(files)).hexdigest()


def read_record(storage: Storage, folder: str) -> Record | None:
    """Return the record of an exported run; None if the folder has none.

    Raises:
        UsageError: the record is damaged, or describes another run than its folder.
    """
    name = f"{folder}/{RECORD}".lstrip("/")
    content = storage.read(name, _MAX_RECORD)
    if content is None:
        return None
    record = _parsed(Record, content, storage.below(name))
    parts = [part for part in folder.split("/") if part]
    if parts != [record.project, record.run][2 - len(parts) :]:
        raise UsageError(f"{_shown(storage.below(name))} describes the run {record.project}/{record.run}")
    return record


def read_files(storage: Storage, folder: str) -> FileList | None:
    """Return the list of files of a run whose export has begun; None if there is none.

    Raises:
        UsageError: the list is damaged.
    """
    name = f"{folder}/{FILES}".lstrip("/")
    content = storage.read(name, _MAX_LIST)
    return None if content is None else _parsed(FileList, content, storage.below(name))


def _parsed(model: type[M], content: bytes, name: str) -> M:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        if first["loc"] == ("format",):
            raise UsageError(f"{_shown(name)} has a format that only a later version of Topgallant reads") from None
        where = truncate(clean(".".join(map(str, first["loc"]))), 100)
        reason = f"{where}: {without_kind(clean(first['msg']))}"
        raise UsageError(f"{_shown(name)} is damaged: {truncate(reason, 300)}") from None


def _shown(name: str) -> str:
    return truncate(clean(name), 200)
