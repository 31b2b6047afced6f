"""Finds the runs that `results import` reads: directories of runs, and exported runs at URLs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from toolbox.ground.model.errors import UsageError
from toolbox.records.runs import run_reader
from toolbox.records.runs.layout import RunDirectory

if TYPE_CHECKING:
    from toolbox.records.exports.manifest import Record
    from toolbox.records.exports.storage import Storage

_OF_EXPORTS: Final = ("export.json", "export_files.json")  # `RECORD` and `FILES` of `manifest`, slow to import
Source = Callable[[], AbstractContextManager[Path]]


def sources(places: Iterable[str], directory: Path | None) -> Iterator[Source]:
    """Yield a function for each run, whose context is the directory of the run, or raises `UsageError`.

    Args:
        places: directories of runs, and directories and URLs of exports.
        directory: the directory that keeps the files of exported runs; None to delete them at the end of the context.
    """
    for place in places:
        if "://" in place or _is_export(Path(place)):
            yield from _exported(place, directory)
        else:
            yield partial(_directory, Path(place))


def _is_export(directory: Path) -> bool:
    """Return whether a directory contains exported runs, or is one, also if an export of it was killed."""
    if any((directory / name).exists() for name in _OF_EXPORTS):
        return True
    if RunDirectory(directory).journal.exists():
        return False
    return any(next(directory.glob(f"{folders}/{name}"), None) for folders in ("*", "*/*") for name in _OF_EXPORTS)


def _exported(url: str, directory: Path | None) -> Iterator[Source]:
    from toolbox.records.exports import exported_runs, storage  # pydantic is slow to import

    try:
        opened = storage.opened(url)
    except UsageError as error:
        yield partial(_fault, str(error))
        return
    runs = exported_runs.find_below(opened)
    for fault in runs.faults:
        yield partial(_fault, fault)
    for folder, record in runs.records.items():
        yield partial(_downloaded, opened, folder, record, directory)
    if not runs.faults and not runs.records:
        yield partial(_fault, f"{opened.address} has no exported runs")


@contextmanager
def _downloaded(storage: Storage, folder: str, record: Record, directory: Path | None) -> Iterator[Path]:
    from toolbox.records.exports import run_download

    with ExitStack() as stack:
        output = directory or Path(stack.enter_context(TemporaryDirectory(prefix="topgallant-import-")))
        run_directory = run_download.download(storage, folder, record, output)
        run = run_reader.read(run_directory)
        if (run.project, run.run) != (record.project, record.run):
            described = f"{record.project}/{record.run}"
            raise UsageError(f"{storage.below(folder)}: the journal is not that of the run {described}")
        yield run_directory


def _directory(path: Path) -> AbstractContextManager[Path]:
    return nullcontext(path)


def _fault(message: str) -> AbstractContextManager[Path]:
    raise UsageError(message)
