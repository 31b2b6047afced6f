"""Copies a run directory into a folder that may be published, for example as an artifact of GitHub Actions.

Two kinds of files are left out. A file that contains a secret which could not be masked must not be published. A
symbolic link may point to a file outside the run, such as a file with credentials, and a tool that uploads the folder
would follow the link. If the run did not end in an orderly way, secrets in the files of its steps may not be masked
yet, so only the records of the run itself are copied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toolbox.agent import safe_files
from toolbox.model.errors import InfrastructureError, UsageError, describe
from toolbox.runs import run_reader
from toolbox.runs.run_state import RunState, State
from toolbox.system import filesystem


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported run.

    Args:
        directory: the copy of the run directory.
        withheld: the files that were left out, relative to the run directory.
        is_complete: whether the files of the steps were copied.
    """

    directory: Path
    withheld: tuple[str, ...]
    is_complete: bool


def export(run_directory: Path, output: Path) -> Exported:
    """Copy a run into `output/PROJECT/RUN`.

    Raises:
        UsageError: the copy exists already, or the run cannot be read.
        InfrastructureError: a file cannot be copied.
    """
    run = run_reader.read(run_directory)
    source = run_directory.absolute()
    directory = output / source.parent.name / source.name
    if output.is_symlink():  # a workload on this machine may have created the link
        raise UsageError(f"{output} is a symbolic link: name another directory, or remove it")
    if directory.exists():
        raise UsageError(f"{directory} exists already: name another directory, or remove it")
    is_complete = run.state is State.FINISHED
    withheld = []
    try:
        filesystem.make_directory(directory)
        for file in _files(source, deep=is_complete):
            relative = file.relative_to(source)
            if _may_publish(file, str(relative), run):
                _copy(file, directory / relative)
            else:
                withheld.append(str(relative))
    except OSError as error:
        raise InfrastructureError(f"the run cannot be exported to {directory}: {describe(error)}") from None
    return Exported(directory, tuple(withheld), is_complete)


def _files(root: Path, *, deep: bool) -> Iterator[Path]:
    """Yield all files and links below a directory. Links to directories are yielded, and not followed."""
    for folder, folders, files in os.walk(root):
        folders.sort()
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from (Path(folder) / name for name in sorted([*files, *links]))
        if not deep:
            return


def _may_publish(file: Path, relative: str, run: RunState) -> bool:
    return safe_files.is_regular(str(file)) and relative not in run.secrets_left


def _copy(file: Path, to: Path) -> None:
    filesystem.make_directory(to.parent)
    with os.fdopen(safe_files.open_regular(str(file)), "rb") as source, to.open("xb") as copy:
        shutil.copyfileobj(source, copy)
