"""Finds what is not clean in a notebook file: outputs, execution counts, secrets, and an old or invalid format.

A diff of a clean notebook shows only the changes of its author, and the notebook contains no secrets. The check
`clean_notebook` judges the notebooks of an attempt, and the command `notebooks check_clean` the files of a commit. Only
the check knows whether a notebook executes from top to bottom. If outputs are kept, the execution counts show whether
the outputs come from such an execution.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.features.notebooks import notebook_files
from toolbox.features.notebooks.extra import EXTRA
from toolbox.features.notebooks.notebook_files import FORMAT, NotebookCell, NotebookContent
from toolbox.features.notebooks.worker import nbformat_import
from toolbox.features.notebooks.worker.notebook_reading import SKIP_TAGS
from toolbox.features.notebooks.worker.output_comparison import CHECK_TAG
from toolbox.ground.model import secret_formats
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate
from toolbox.ground.system import extras

_EXECUTION: Final = ("papermill", "widgets")  # metadata that an execution adds to a notebook
_CELL_EXECUTION: Final = ("execution", "ExecuteTime", "papermill")
_MAX_SEARCHED: Final = 1 << 24  # characters of the outputs of a cell
_MAX_SCHEMA_FAULTS: Final = 3
# nbconvert does not change the minor version.
_CONVERSION: Final = (
    "convert it with `python3 -c 'import nbformat as n, sys; f = sys.argv[1]; "
    "n.write(n.v4.upgrade(n.read(f, 4)), f)' FILE`"
)
_BINARY: Final = ("image/png", "image/jpeg", "image/gif", "application/pdf", "video/", "audio/")  # base64


@dataclass(frozen=True, slots=True)
class CleanFault:
    """A fault of a notebook that is not clean.

    Args:
        message: the fault in one line, which never contains a secret.
        cell: the name of the cell, such as `code cell 3`; empty if the fault is not in a cell.
    """

    message: str
    cell: str = ""

    def __str__(self) -> str:
        return f"{self.cell}: {self.message}" if self.cell else self.message


def faults(path: Path, *, keeps_outputs: bool = False) -> list[CleanFault]:
    """Return the faults of a notebook file; empty if the file is clean.

    Args:
        keeps_outputs: whether all cells keep their outputs, because a run compares them with new outputs. If not, only
            cells with the tag `nbval-check-output` keep their outputs.

    Raises:
        ConfigurationError: nbformat is not installed.
    """
    extras.require(EXTRA, "the check of clean notebooks")
    try:
        notebook = notebook_files.read(path)
    except ValueError as error:
        return [CleanFault(str(error))]
    return [
        *_format_faults(notebook),
        *_metadata_faults(notebook),
        *(fault for cell in notebook.cells for fault in _secret_faults(cell)),
        *_output_faults(notebook, keeps_outputs=keeps_outputs),
    ]


def _format_faults(notebook: NotebookContent) -> Iterator[CleanFault]:
    major, minor = FORMAT
    if notebook.minor != minor:
        text = f"has the format {major}.{abs(notebook.minor) % 1000}, not {major}.{minor}"
        has_ids = any(cell.id for cell in notebook.cells)
        yield CleanFault(f"{text}: {f'set `nbformat_minor` to {minor}' if has_ids else _CONVERSION}")
        return
    nbformat_import.load()
    from nbformat import validator

    errors = validator.iter_validate(notebook.content, None, major, minor)
    for error in itertools.islice(errors, _MAX_SCHEMA_FAULTS):
        at = truncate(clean(".".join(map(str, error.absolute_path)))) or "the notebook"
        yield CleanFault(f"{' '.join(at.split())} is not valid in the format {major}.{minor}")
    seen: set[str] = set()
    for cell in notebook.cells:
        if cell.id in seen:
            yield CleanFault("has the id of an earlier cell", str(cell))
            break
        seen.add(cell.id)


def _metadata_faults(notebook: NotebookContent) -> Iterator[CleanFault]:
    for name in _EXECUTION:
        if name in notebook.metadata:
            yield CleanFault(f"the metadata contains `{name}`, which an execution has added")
    for _, kind in secret_formats.find(_as_text(notebook.metadata)):
        yield CleanFault(f"the metadata contains {kind}")


def _secret_faults(cell: NotebookCell) -> Iterator[CleanFault]:
    for line, kind in secret_formats.find(cell.source):
        yield CleanFault(f"line {line} contains {kind}", str(cell))
    outputs = cell.content.get("outputs")
    for number, output in enumerate(outputs if isinstance(outputs, list) else (), start=1):
        text = _as_text(_without_binary(output))
        if len(text) > _MAX_SEARCHED:
            yield CleanFault(f"output {number} is too long to be searched for secrets", str(cell))
        kinds = dict.fromkeys(kind for _, kind in secret_formats.find(text[:_MAX_SEARCHED]))
        yield from (CleanFault(f"output {number} contains {kind}", str(cell)) for kind in kinds)
    metadata = cell.content.get("metadata")
    for kind in dict.fromkeys(kind for _, kind in secret_formats.find(_as_text(metadata))):
        yield CleanFault(f"the metadata contains {kind}", str(cell))
    for name in _CELL_EXECUTION:
        if isinstance(metadata, Mapping) and name in metadata:
            yield CleanFault(f"the metadata contains `{name}`, which an execution has added", str(cell))


def _output_faults(notebook: NotebookContent, *, keeps_outputs: bool) -> Iterator[CleanFault]:
    executed = 0
    for cell in notebook.code_cells:
        executed += bool(cell.source.strip()) and not SKIP_TAGS & cell.tags
        count = cell.content.get("execution_count")
        if keeps_outputs or CHECK_TAG in cell.tags:
            yield from _count_faults(cell, count, executed, is_required=keeps_outputs)
        else:
            if cell.content.get("outputs"):
                yield CleanFault("has outputs: clear them before you commit", str(cell))
            if count is not None:
                yield CleanFault("has an execution count: clear it before you commit", str(cell))


def _count_faults(cell: NotebookCell, count: object, expected: int, *, is_required: bool) -> Iterator[CleanFault]:
    """Yield a fault if the outputs of a cell do not come from an execution from top to bottom."""
    is_executed = bool(cell.source.strip()) and not SKIP_TAGS & cell.tags
    if not is_executed:
        if cell.content.get("outputs"):
            yield CleanFault("has outputs, although the cell is empty or a tag skips it", str(cell))
        return
    if count == expected or (count is None and not is_required):
        return
    given = f"the execution count {count}" if isinstance(count, int) and abs(count) < 10**9 else "no execution count"
    text = f"has {given}, not {expected}: execute the notebook from top to bottom in a new kernel"
    yield CleanFault(text, str(cell))


def _without_binary(output: object) -> object:
    """Return an output without its images, because base64 can look like a secret."""
    if not isinstance(output, Mapping) or not isinstance(data := output.get("data"), Mapping):
        return output
    return {**output, "data": {kind: value for kind, value in data.items() if not kind.startswith(_BINARY)}}


def _as_text(value: Any) -> str:
    """Return all text of a JSON value, with the names of its fields. The value may be nested deeply."""
    texts, remaining = [], [value]
    while remaining:
        item = remaining.pop()
        if isinstance(item, Mapping):
            for name, inner in item.items():
                is_short = isinstance(inner, str) and "\n" not in inner
                remaining.append(f'{name}="{inner}"' if is_short else inner)
        elif isinstance(item, list):
            remaining += reversed(item)
        elif isinstance(item, str):
            texts.append(item)
    return "\n".join(texts)
