"""Merges the runs of shards into one run directory, which has one journal, one plan and one verdict.

The directory is made under another name, and gets its own name when all of its files are there. So a merge that was
killed leaves no directory that looks whole, and the next merge of the same runs makes it again.

Only plain files are copied from the directories of the shards. The ledgers of remote resources are not: a shard owns
its resources.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolbox.ground.kit import safe_files
from toolbox.ground.model.errors import InfrastructureError, UsageError
from toolbox.ground.system import filesystem
from toolbox.records.exports import manifest, run_download
from toolbox.records.exports.manifest import FileList
from toolbox.records.exports.storage import LocalStorage
from toolbox.records.runs import journal, layout, run_reader
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.shards import merged_journal
from toolbox.records.shards.merged_journal import MergedJournal
from toolbox.records.shards.shard_run import ShardRun

_SUFFIX: Final = "-merged"
_UNFINISHED: Final = ".merging"
_MAX_FILES: Final = 500_000
_MAX_BYTES: Final = run_download.MAX_BYTES
_PIECE: Final = 1 << 20
_MAX_RECORD: Final = 64 << 20
_RECORDS: Final = (RunDirectory.configuration, RunDirectory.changes, RunDirectory.overrides)
"""The records of a run that are equal in all shards."""


@dataclass(frozen=True, slots=True)
class MergedRun:
    """A run that was merged from shards, or will be.

    Args:
        directory: the directory of the merged run.
        left_out: how many files of the shards are not plain files with plain names.
    """

    directory: Path
    runs: Sequence[ShardRun]
    journal: MergedJournal
    left_out: int = 0


def prepare(runs: Sequence[ShardRun], artifacts: Path, *, jobs_fault: str = "") -> MergedRun:
    """Return the run that consists of these shards. Nothing is written.

    Args:
        runs: the runs of the shards, at most one per shard, in the order of the shards.
        artifacts: the directory for the directories of runs.
        jobs_fault: what is wrong although the run of each shard may have passed; empty if nothing is.

    Raises:
        UsageError: the directory of the merged run exists, and is that of another run.
    """
    first = min(runs, key=lambda run: run.started)
    directory = (artifacts / first.request.project / f"{first.state.run}{_SUFFIX}").absolute()
    _refuse_foreign(directory)
    folders = {run.request.number: [step.name for step in layout.steps(run.directory)] for run in runs}
    merged = merged_journal.merge(runs, directory.name, str(directory), folders, jobs_fault=jobs_fault)
    return MergedRun(directory, runs, merged)


def write(merged: MergedRun) -> MergedRun:
    """Write the directory of a merged run. An earlier directory of the same name is replaced.

    Raises:
        UsageError: the files of the shards are too many or too large.
        InfrastructureError: a file cannot be read or written.
    """
    try:
        with _unfinished(merged.directory) as directory:
            left_out = _copy_files(merged, directory)
            _write_records(merged, directory)
            journal.write(directory, merged.journal.entries)
            if merged.directory.exists():
                merged.directory.rename(directory.parent / f"{directory.name}.old")
            directory.rename(merged.directory)
            filesystem.sync_directory(merged.directory.parent)
    except OSError as error:
        raise InfrastructureError(f"the shards cannot be merged into {merged.directory}: {error}") from None
    return MergedRun(merged.directory, merged.runs, merged.journal, left_out)


def _refuse_foreign(directory: Path) -> None:
    if directory.is_symlink() or (RunDirectory(directory).journal.exists() and not run_reader.read(directory).shards):
        raise UsageError(f"{directory} exists, and is not a merged run: name another --artifact_dir, or remove it")


@contextmanager
def _unfinished(directory: Path) -> Iterator[Path]:
    """Yield the directory in which a merged run is made. Merges of the same project wait for one another."""
    project = filesystem.make_directory(directory.parent)
    descriptor = os.open(project, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # One folder more than that of a run, so that no command takes the directory for a run.
    folder = project / _UNFINISHED
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        safe_files.remove(str(folder))  # of a merge that was killed
        yield filesystem.make_directory(folder / directory.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _copy_files(merged: MergedRun, directory: Path) -> int:
    """Copy the files of the steps of all shards, and return the number of files that were left out."""
    budget = _Budget()
    for run in merged.runs:
        # A run that comes from an artifact has other names for files whose names an artifact cannot have.
        exported = manifest.read_files(LocalStorage(run.directory), "") or FileList(files={})
        for name, place in merged.journal.places[run.request.number].items():
            # Of a run that was killed, only the records are exported, and not the directories of its steps.
            if (run.directory / name).is_dir() and not (run.directory / name).is_symlink():
                _copy_tree(run.directory, name, directory / place, budget, exported)
    for name in _RECORDS:
        source = merged.runs[0].directory / name
        if safe_files.is_regular(str(source)) and source.lstat().st_size <= _MAX_RECORD:
            _copy(source, directory / name)
    return budget.left_out


@dataclass(slots=True)
class _Budget:
    """What may still be copied. The files of a shard may come from the code under test."""

    files: int = field(default_factory=lambda: _MAX_FILES)
    bytes: int = field(default_factory=lambda: _MAX_BYTES)
    left_out: int = 0

    def spend(self, size: int) -> None:
        self.files -= 1
        self.bytes -= size
        if min(self.files, self.bytes) < 0:
            most = f"{_MAX_FILES} files, or {_MAX_BYTES >> 30} GiB"
            raise UsageError(f"the shards have more than {most}, which is not allowed")


def _copy_tree(root: Path, name: str, target: Path, budget: _Budget, exported: FileList) -> None:
    """Copy a folder of a run, and give the files the names that they had before the run was exported."""
    for folder, folders, files in os.walk(root / name, onerror=_unreadable):
        folders.sort()
        links = [link for link in folders if (Path(folder) / link).is_symlink()]
        for file in (Path(folder) / each for each in sorted([*files, *links])):
            original = exported.original(file.relative_to(root).as_posix())
            status = file.lstat()
            if not stat.S_ISREG(status.st_mode) or manifest.fault_of_name(original):
                budget.left_out += 1
                continue
            budget.spend(status.st_size)
            _copy(file, target.joinpath(*original.split("/")[1:]))


def _unreadable(error: OSError) -> None:
    raise error


def _copy(source: Path, target: Path) -> None:
    with os.fdopen(safe_files.open_regular(str(source)), "rb") as stream:
        filesystem.write_pieces(target, iter(lambda: stream.read(_PIECE), b""))


def _write_records(merged: MergedRun, directory: Path) -> None:
    files = RunDirectory(directory)
    filesystem.write_json(files.plan, _plan(merged.runs))
    filesystem.write_json(files.request, _request(merged))


def _plan(runs: Sequence[ShardRun]) -> dict[str, Any]:
    """Return the plan of the merged run: the cells of all shards that have a run, and the ids of the others, in the
    order of the matrix.
    """
    cells = {str(cell["id"]): cell for run in runs for cell in run.plan.cells}
    first = runs[0].plan
    return {
        "total": first.total,
        "notes": list(dict.fromkeys(note for run in runs for note in run.plan.notes)),
        "targets": _united(run.plan.targets for run in runs),
        "files": _united(run.plan.files for run in runs),
        "cells": [cells[cell.id] for cell in first.shards if cell.id in cells],
        "lost": [cell.id for cell in first.shards if cell.id not in cells],
    }


def _united(mappings: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    united: dict[str, Any] = {}
    for mapping in mappings:
        united |= mapping
    return united


def _request(merged: MergedRun) -> dict[str, Any]:
    """Return the content of `run.json`. The run belongs to the baseline only if each of its shards does."""
    first, *_ = merged.runs
    return {
        **first.record,
        "run": merged.directory.name,
        "shard": None,
        "host": None,
        "argv": None,
        "baseline": all(run.record.get("baseline") is not False for run in merged.runs),
        "shards": [
            {"shard": run.request.number, "run": run.state.run, "host": run.record.get("host")} for run in merged.runs
        ],
    }
