"""Exports a run: searches the run for secrets, uploads it, deletes expired runs, and updates the index page.

Nothing is written if a secret is found. Some files are left out: those with a secret that the run itself could not
mask, which its journal names, and symbolic links, which may point to files outside of the run. If the run did not end
in an orderly way, secrets in the files of its steps may not be masked yet, so only the records of the run are exported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from toolbox.config.contracts.ci import AllowedFiles
from toolbox.ground.kit import safe_files
from toolbox.ground.model.errors import CheckFailed, InfrastructureError, UsageError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.patterns import covers
from toolbox.ground.model.text import counted, truncate
from toolbox.ground.system import redaction
from toolbox.records.exports import exported_runs, manifest, run_upload
from toolbox.records.exports.manifest import AllowedFile, ExportedFile, FileList, Record, RenamedFile
from toolbox.records.exports.run_upload import Uploaded
from toolbox.records.exports.secret_scan import IN_USE, Finding, Scanner, SearchedFile
from toolbox.records.exports.storage import Storage
from toolbox.records.runs import run_reader
from toolbox.records.runs.run_state import RunState, State
from toolbox.reports.exports import export_index

_MAX_FINDINGS: Final = 3  # so that the message has at most five lines
_INDEX: Final = "index.html"
_MAX_INDEX: Final = 64 << 20
_MAX_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported run.

    Args:
        address: the path or URL of the exported run.
        withheld: the files that were left out, relative to the run directory.
        is_complete: whether the files of the steps were exported.
        expired: the folders of the runs that were deleted, because they were too old.
        faults: one message for each run of the output whose record is damaged.
        renamed: the path in the run of each file that has another path in the export.
    """

    address: str
    uploaded: Uploaded
    withheld: Sequence[str]
    is_complete: bool
    expired: Sequence[str]
    faults: Sequence[str]
    renamed: Mapping[str, str]


def export(
    run_directory: Path,
    storage: Storage,
    *,
    secrets: Sequence[str] = (),
    allow: Sequence[AllowedFiles] = (),
    keep: float | None = None,
) -> Exported:
    """Write a run into `PROJECT/RUN` of a storage.

    Args:
        secrets: the secret values in use.
        allow: the files that may look as if they had a secret.
        keep: delete the runs that were exported earlier than this number of seconds before now.

    Raises:
        CheckFailed: a file has a secret. Nothing was written.
        UsageError: the run cannot be read, or the output has files that Topgallant did not write.
        InfrastructureError: a file cannot be read or written. The next export continues.
    """
    run = run_reader.read(run_directory)
    source = run_directory.absolute()
    _refuse_foreign_index(storage)
    is_complete = run.state is State.FINISHED
    searched, withheld = _search(source, run, Scanner(secrets), is_complete=is_complete)
    allowed = _judge([finding for file in searched for finding in file.findings], allow, source)
    files = _listed(searched)
    record = _record(run, source, files, withheld, allowed)
    uploaded = run_upload.upload(storage, source, record, files)
    folder = f"{record.project}/{record.run}"
    expired = _delete_expired(storage, keep, besides=folder)
    faults = _update_index(storage)
    address = storage.below(folder)
    return Exported(address, uploaded, withheld, is_complete, expired, faults, files.renamed)


def _search(
    source: Path, run: RunState, scanner: Scanner, *, is_complete: bool
) -> tuple[list[SearchedFile], list[str]]:
    """Search the files of a run. Return the files, and the names of those that must not be exported."""
    searched, withheld = [], []
    for file in _files(source, deep=is_complete):
        name = file.relative_to(source).as_posix()
        is_fit = not manifest.fault_of_name(name) and not manifest.fault_of_name(manifest.portable(name))
        if not safe_files.is_regular(str(file)) or name in run.secrets_left or not is_fit:
            withheld.append(name)
            continue
        try:
            searched.append(scanner.search(source, name))
        except OSError as error:
            raise InfrastructureError(f"{file} cannot be read, and was not exported: {error.strerror}") from None
    return searched, [name for name in withheld if name not in {manifest.RECORD, manifest.FILES}]


def _listed(searched: Sequence[SearchedFile]) -> FileList:
    """Return the list of the files of an export, with the paths that each storage and artifact accepts."""
    names = {manifest.portable(file.name): file for file in searched}
    return FileList(
        files={name: ExportedFile(size=file.size, sha256=file.sha256) for name, file in names.items()},
        renamed={name: file.name for name, file in names.items() if name != file.name},
    )


def _unreadable(error: OSError) -> None:
    raise InfrastructureError(f"{error.filename} cannot be read, and was not exported: {error.strerror}")


def _files(root: Path, *, deep: bool) -> Iterator[Path]:
    """Yield all files and links below a directory, sorted. Links to directories are yielded, and not followed."""
    for folder, folders, files in os.walk(root, onerror=_unreadable):
        folders.sort()
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from (Path(folder) / name for name in sorted([*files, *links]))
        if not deep:
            return


def _judge(findings: Sequence[Finding], allow: Sequence[AllowedFiles], source: Path) -> list[AllowedFile]:
    """Return the allowed files with findings. Raise if a finding is not allowed; a secret in use never is."""
    allowed: dict[str, str] = {}
    refused = []
    for finding in findings:
        reason = next((rule.reason for rule in allow if covers(rule.files, finding.file)), None)
        if reason is None or finding.kind.startswith(IN_USE):
            refused.append(finding)
        else:
            allowed[finding.file] = reason
    if refused:
        raise CheckFailed(_refusal(refused, source))
    return [AllowedFile(file=_line(file), reason=_line(reason)) for file, reason in allowed.items()]


def _refusal(findings: Sequence[Finding], source: Path) -> str:
    more = len(findings) - _MAX_FINDINGS
    rest = f", and {counted(more, 'further line')}" if more > 0 else ""
    return "\n  ".join(
        [
            f"nothing was exported: {source} has secrets in {counted(len(findings), 'line')}",
            *(_line(str(finding)) for finding in findings[:_MAX_FINDINGS]),
            f"remove them{rest}; list files with harmless texts of such a form in `ci.export.allow`",
        ]
    )


def _record(
    run: RunState, source: Path, files: FileList, withheld: Sequence[str], allowed: Sequence[AllowedFile]
) -> Record:
    project, name = source.parent.name, source.name
    for part in (project, name):
        if not re.fullmatch(manifest.NAME, part):
            raise UsageError(f"{source}: {truncate(clean(part), 100)} is not a name of a project or run for an export")
    end = run.finished
    return Record(
        project=project,
        run=name,
        state=run.state,
        verdict=end.verdict if end else None,
        presets=[_line(preset) for preset in run.presets[: manifest.MAX_LISTED]],
        revision=_line(run.revision),
        started=run.started,
        seconds=max(0.0, run.seconds),
        is_complete=run.state is State.FINISHED,
        withheld=[_line(file) for file in withheld[: manifest.MAX_LISTED]],
        withheld_count=len(withheld),
        allowed=list(allowed[: manifest.MAX_LISTED]),
        allowed_count=len(allowed),
        renamed=[
            RenamedFile(file=_line(file), original=_line(original))
            for file, original in list(files.renamed.items())[: manifest.MAX_LISTED]
        ],
        renamed_count=len(files.renamed),
        reports=[report for report in manifest.REPORTS if report in files.files],
        count=len(files.files),
        bytes=sum(file.size for file in files.files.values()),
        list_sha256=manifest.digest_of(files),
        exported=manifest.now(),
    )


def _line(text: str) -> str:
    """Return a text of one line with at most 500 characters, without control characters and secrets in use."""
    masked = redaction.current()(text)
    return truncate(" ".join(clean(masked).encode(errors="replace").decode().split("\n")), 500)


def _delete_expired(storage: Storage, keep: float | None, *, besides: str) -> Sequence[str]:
    """Delete expired runs, but not the run that was exported now, whose files may be unchanged since long ago."""
    if keep is None:
        return ()
    runs = exported_runs.find(storage)
    others = {folder: record for folder, record in runs.records.items() if folder != besides}
    return exported_runs.delete_older(storage, replace(runs, records=others), manifest.now() - timedelta(seconds=keep))


def _refuse_foreign_index(storage: Storage) -> None:
    page = storage.read(_INDEX, _MAX_INDEX)
    if page is not None and export_index.MARKER.encode() not in page:
        raise UsageError(f"{storage.below(_INDEX)} is not a page of Topgallant: name another place for exports")


def _update_index(storage: Storage) -> Sequence[str]:
    """Write the index page from the records of all runs, and return the messages about damaged records.

    Two exports may write the page at the same time. Each lists the runs again after it wrote the page, so the last one
    that writes has seen the records of both.
    """
    runs = exported_runs.find(storage)
    for _ in range(_MAX_ROUNDS):
        storage.write(_INDEX, [export_index.render(list(runs.records.values())).encode()])
        later = exported_runs.find(storage)
        if later == runs:
            break
        runs = later
    return runs.faults
