"""Finds the files of a runtime on this machine: its notebooks, its requirements, and the checks of all runtimes.

If a file is missing, the functions raise a ValueError, to whose message `combinations.py` adds the line of the
configuration.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from toolbox.features.notebooks import notebook_files
from toolbox.features.notebooks.notebook_metrics import MeasuredNotebook
from toolbox.features.notebooks.runtimes import Notebook
from toolbox.features.notebooks.worker import notebook_parameters, notebook_reading
from toolbox.features.notebooks.worker.notebook_parameters import ParameterCell, ParameterFault
from toolbox.ground.model.names import as_name
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.text import abbreviated, truncate
from toolbox.ground.system import places

CHECKS: Final = ("projects", "notebooks", "checks")
"""The folder of the checks, in the workspace and in Topgallant."""
_ENDINGS: Final = (".py", ".sh")
_WILDCARD: Final = re.compile(r"[*?\[]")
_MAX_NOTEBOOKS: Final = 1000  # of one pattern: more notebooks are probably a mistake
_MAX_REQUIREMENTS_BYTES: Final = 1 << 20
_MAX_SENT_FILES: Final = 10_000  # of the directory of a notebook, which the worker copies for each notebook
_MAX_SENT_BYTES: Final = 2 * 10**9
_NOT_SENT: Final = {"__pycache__", ".git"}
# These options refer to files of this machine, which do not exist on the target.
_LOCAL_OPTION: Final = re.compile(
    r"(-r|-c|-e|--requirement|--constraint|--editable)([\s=]|$)|-[rce]\S|(\.{0,2}/|file:)|\S+\s*@\s*file:"
)


@dataclass(frozen=True)
class NotebookFile:
    """A notebook of a runtime.

    Args:
        path: the file on this machine.
        folder: the name of the folder below `src/` on the target to which the directory of the file is sent.
        entry: the settings of the notebook.
    """

    name: str
    path: Path
    folder: str
    entry: Notebook

    @property
    def measured(self) -> MeasuredNotebook:
        """The description of the notebook that `notebook_metrics` uses."""
        return MeasuredNotebook(self.name, self.path if self.entry.cell_metrics else None)

    def settings(self) -> dict[str, Any]:
        """Return the settings of the notebook for the worker."""
        entry = self.entry
        return {
            "name": self.name,
            "file": f"{self.folder}/{self.path.name}",
            "parameters": entry.parameters,
            "cell_timeout": min(entry.cell_timeout, entry.timeout),
            "timeout": entry.timeout,
            "manual": entry.manual,
            "compare_outputs": entry.compare_outputs,
            "ignore": [[each.regex, each.replace] for each in entry.ignore],
        }


def notebooks(root: Path, entry: Notebook) -> list[NotebookFile]:
    """Return the notebooks of an entry, sorted by path.

    Args:
        root: the directory to which the path of the entry is relative.

    Raises:
        ValueError: there is no such notebook, its directory cannot be sent to a target, or a pattern with a `name`
            matches several notebooks.
    """
    files = _files(root, entry.file)
    for file in files:
        if not file.resolve().is_relative_to(file.parent.resolve()):
            raise ValueError(f"{file.name} is a symbolic link to a file that is not sent to targets: copy the file")
    for directory in dict.fromkeys(file.parent for file in files):
        if reason := _unsendable(root, directory):
            names = ", ".join(file.name for file in files if file.parent == directory)
            raise ValueError(
                f"{truncate(names)} is in a directory that {reason}, and the directory of a notebook is sent to "
                "targets: move the notebook into a directory of its own"
            )
    if entry.name is not None and len(files) > 1:
        raise ValueError(f"`{entry.file}` matches {len(files)} notebooks, which cannot all have the name {entry.name}")
    return [
        NotebookFile(
            entry.name or as_name(file.stem) or "notebook", file, f"notebooks/{_folder(root, file.parent)}", entry
        )
        for file in files
    ]


def repeated_name(files: Sequence[NotebookFile]) -> list[NotebookFile]:
    """Return the notebooks that have the same name, for the first such name; empty if all names are distinct."""
    counts = Counter(file.name for file in files)
    repeated = next((name for name, count in counts.items() if count > 1), None)
    return [file for file in files if file.name == repeated]


def parameter_faults(file: NotebookFile) -> list[ParameterFault]:
    """Return the parameters that have no effect on a notebook.

    There are none if the notebook is not executed or cannot be read. The worker reports a notebook that cannot be read.
    """
    if not file.entry.parameters or file.entry.manual is not None:
        return []
    try:
        content = notebook_files.read(file.path)
    except ValueError:
        return []
    cells = [ParameterCell(cell.source if cell.number is not None else None, cell.tags) for cell in content.cells]
    language = notebook_reading.comparable_language(notebook_reading.language(content.metadata))
    return notebook_parameters.faults(file.entry.parameters, cells, language)


def requirements(root: Path, value: Sequence[str] | str) -> list[str]:
    """Return the lines of requirements without comments.

    Args:
        value: the lines, or the path of a requirements file, relative to `root`.

    Raises:
        ValueError: the file cannot be read, or a line refers to a file of this machine.
    """
    lines = _read(_path(root, value), value) if isinstance(value, str) else list(value)
    kept = [line for line in map(_without_comment, lines) if line]
    for line in kept:
        if "\n" in line or "\0" in line:
            raise ValueError(f"{abbreviated(line)} is more than one line: write a list of lines, or the path of a file")
        if _LOCAL_OPTION.match(line):
            raise ValueError(f"{abbreviated(line)} refers to a file, which does not exist on the target")
    return kept


def checks(root: Path, chosen: Sequence[str] | None) -> dict[str, Path]:
    """Return the files of checks by their names, sorted.

    A file in the folder of the workspace wins over a file of Topgallant with the same name.

    Args:
        chosen: the names of files in these folders, or paths relative to `root`; None for all files in the folders.

    Raises:
        ValueError: there is no such check.
    """
    folders = [root.joinpath(*CHECKS), *(folder.joinpath(*CHECKS) for folder in places.roots())]
    shipped = {file.name: file for folder in reversed(folders) for file in _checks_in(folder)}
    if chosen is None:
        return {name: shipped[name] for name in sorted(shipped)}
    found: dict[str, Path] = {}
    for name in chosen:
        file = shipped.get(name) or _path(root, name)
        if not _is_file(file) or file.suffix not in _ENDINGS:
            raise ValueError(f"no check `{name}`: {did_you_mean(name, shipped, label='checks')}")
        if file.name in found:
            raise ValueError(f"two checks have the name {file.name}: {found[file.name]} and {file}")
        found[file.name] = file
    return found


def sent(files: Sequence[NotebookFile], check_files: Mapping[str, Path]) -> dict[str, str]:
    """Return the local files and directories that a combination needs on the target, by their path below `src/`."""
    folders = {file.folder: str(file.path.parent) for file in files}
    return {**folders, **{f"checks/{name}": str(path) for name, path in check_files.items()}}


def _files(root: Path, pattern: str) -> list[Path]:
    path = _path(root, pattern)
    if not _WILDCARD.search(pattern) or _is_file(path):
        if path.suffix != ".ipynb":
            raise ValueError(f"{pattern} is not a notebook: its name does not end in .ipynb")
        if not _is_file(path):
            raise ValueError(f"{truncate(pattern)} does not exist")
        return [path]
    relative = PurePosixPath(pattern)
    if relative.is_absolute() or pattern.startswith("~"):
        raise ValueError(f"{pattern} is a pattern with an absolute path: use a relative path")
    found = sorted(file for file in root.glob(pattern) if file.suffix == ".ipynb" and _is_source(root, file))
    if not found:
        raise ValueError(f"{pattern} matches no notebook")
    if len(found) > _MAX_NOTEBOOKS:
        raise ValueError(f"{pattern} matches {len(found)} notebooks; at most {_MAX_NOTEBOOKS} are allowed")
    return found


def _is_source(root: Path, file: Path) -> bool:
    """Return whether a file is a notebook, and not in a hidden directory such as .ipynb_checkpoints."""
    return file.is_file() and not any(part.startswith(".") for part in file.relative_to(root).parts)


def _path(root: Path, text: str) -> Path:
    try:
        return root / Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"{truncate(text)} is in the home directory of an unknown user") from None


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113  # Path.is_file raises an error for a name that is too long


def _unsendable(root: Path, directory: Path) -> str:
    """Return why a directory cannot be sent to targets; empty if it can."""
    if any(place.resolve().is_relative_to(directory.resolve()) for place in (root, places.artifacts())):
        return "contains the workspace or its runs"  # an attempt would contain a copy of itself
    count = size = 0
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if name not in _NOT_SENT]
        for name in names:
            status = os.lstat(f"{folder}/{name}")
            count, size = count + 1, size + status.st_size
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                return f"contains {abbreviated(name)}, which is not a regular file"
        if count > _MAX_SENT_FILES:
            return f"contains more than {_MAX_SENT_FILES} files"
        if size > _MAX_SENT_BYTES:
            return f"contains more than {_MAX_SENT_BYTES / 1e9:g} GB"
    return ""


def _folder(root: Path, directory: Path) -> str:
    """Return a unique name for a directory of notebooks, in ASCII so that its bytes are few on each target."""
    directory = directory.resolve()
    try:
        text = directory.relative_to(root.resolve()).as_posix()
    except ValueError:
        text = str(directory)
    digest = hashlib.sha256(os.fsencode(text)).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9._=-]+", "-", directory.stem).lstrip("._=-")[:80]
    return f"{name or 'notebook'}-{digest}"


def _checks_in(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        files = (file for file in folder.iterdir() if file.suffix in _ENDINGS and file.is_file())
        yield from (file for file in files if file.name[0] not in "._")


def _read(path: Path, shown: str) -> list[str]:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_REQUIREMENTS_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{shown} cannot be read: {error.strerror}") from None
    if len(content) > _MAX_REQUIREMENTS_BYTES:
        raise ValueError(f"{shown} is larger than {_MAX_REQUIREMENTS_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{shown} is not a text file") from None
    return re.sub(r"\\\r?\n", " ", text).splitlines()


def _without_comment(line: str) -> str:
    return re.sub(r"(^|\s)#.*", "", line).strip()
