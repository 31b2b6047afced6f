"""Finds the runs that `results import` reads: directories of runs, and exported runs at URLs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from toolbox.model.errors import UsageError

Fetch = Callable[[], Path]


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Create a private directory, and delete it at the end."""
    with tempfile.TemporaryDirectory(prefix="topgallant-import-") as directory:
        yield Path(directory)


def sources(places: Iterable[str], directory: Path) -> Iterator[Fetch]:
    """Yield a function for each run, which returns its directory, or raises `UsageError`.

    Args:
        places: directories of runs, and URLs of exports.
        directory: the directory that gets the files of exported runs.
    """
    for place in places:
        if "://" in place:
            yield from _exported(place, directory)
        else:
            yield partial(Path, place)


def _exported(url: str, directory: Path) -> Iterator[Fetch]:
    from toolbox.exports import exported_runs, run_download, storage  # pydantic is slow to import

    opened = storage.opened(url)
    runs = exported_runs.find_below(opened)
    for fault in runs.faults:
        yield partial(_fail, fault)
    for folder, record in runs.records.items():
        yield partial(run_download.download, opened, folder, record, directory)
    if not runs.faults and not runs.records:
        yield partial(_fail, f"{opened.address} has no exported runs")


def _fail(message: str) -> Path:
    raise UsageError(message)
