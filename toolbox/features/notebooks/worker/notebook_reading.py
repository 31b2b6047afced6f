"""Reads the file of a notebook, and checks its size, format and structure before anything is executed."""

from __future__ import annotations

import json
import os
import re
import stat
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolbox.features.notebooks.worker.failure_texts import one_line
from toolbox.features.notebooks.worker.notebook_results import Fault

if TYPE_CHECKING:
    from nbformat import NotebookNode

MAX_BYTES: Final = 64 * 2**20
MAX_DEPTH: Final = 100  # levels of nested JSON values
FORMAT: Final = 4
_FIRST_MINOR_WITH_IDS: Final = 5

SKIP_TAGS: Final = frozenset({"skip", "skip-execution", "nbval-skip"})


class NotebookFileError(Exception):
    """The file cannot be executed.

    Args:
        fault: INVALID_NOTEBOOK or OLD_FORMAT.
    """

    def __init__(self, message: str, fault: Fault = Fault.INVALID_NOTEBOOK) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True)
class NotebookFile:
    """A notebook that was read.

    Args:
        notebook: the notebook in the newest format of version 4; each cell has an id.
        language: the language in the metadata of the notebook, in lower case; empty if it is missing.
        manual: what a person must do first; None if the metadata of the notebook has no such field.
        has_ids: whether the file contains ids of cells.
        code_cells: the code cells in their order, without the cell that papermill injects later.
        expected: the outputs of each code cell in the file, before the execution replaces them.
    """

    notebook: NotebookNode
    language: str
    manual: str | None
    has_ids: bool
    code_cells: tuple[NotebookNode, ...]
    expected: tuple[Sequence[Any], ...]


def read(path: Path, within: Path) -> NotebookFile:
    """Read a notebook.

    Args:
        within: the directory that must contain the file.

    Raises:
        NotebookFileError: the file is missing, or is not a notebook that can be executed.
    """
    document = _document(_content(path, within))
    _check_format(document)
    _check_cells(document)
    has_ids = _repair_ids(document)
    notebook = _validated(document)
    cells = tuple(cell for cell in notebook.cells if cell.cell_type == "code")
    return NotebookFile(
        notebook,
        language(notebook.metadata),
        _manual(notebook.metadata),
        has_ids=has_ids,
        code_cells=cells,
        expected=tuple(cell.outputs for cell in cells),
    )


def tags(cell: Any) -> frozenset[str]:
    """Return the tags of a cell."""
    names = cell.metadata.get("tags", ())
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def comparable_language(name: str) -> str:
    """Return a name of a language without its version: `ipython3` and `Python` are `python`."""
    plain = re.sub(r"[-\s.\d]+\Z", "", name.strip().lower())
    return {"ipython": "python"}.get(plain, plain)


def _content(path: Path, within: Path) -> str:
    try:
        if not path.resolve().is_relative_to(within.resolve()):
            raise NotebookFileError("the path of the notebook leads out of the sources of the run")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe must not block
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotebookFileError("the notebook is not a regular file")
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotebookFileError("the file does not exist") from None
    except (OSError, RuntimeError, ValueError) as error:  # Python before 3.13 raises RuntimeError for a loop of links
        raise NotebookFileError(f"the file cannot be read: {one_line(str(error))}") from None
    if len(content) > MAX_BYTES:
        raise NotebookFileError(f"the file is larger than {MAX_BYTES // 2**20} MiB: strip the outputs")
    if not content.strip():
        raise NotebookFileError("the file is empty")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotebookFileError(f"the file is not UTF-8: {error.reason} at byte {error.start}") from None


def _document(content: str) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except RecursionError:
        raise NotebookFileError(f"the JSON is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise NotebookFileError(f"the file is not JSON: {one_line(str(error))}") from None
    if not isinstance(document, dict):
        raise NotebookFileError("the file is not a notebook: it must contain a JSON object")
    if is_nested_deeply(document):
        raise NotebookFileError(f"the JSON is nested deeper than {MAX_DEPTH} levels")
    return document


def is_nested_deeply(value: Any) -> bool:
    """Return whether a JSON value has more than MAX_DEPTH levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


def _check_format(document: dict[str, Any]) -> None:
    major: Any = document.get("nbformat")
    minor: Any = document.get("nbformat_minor", 0)
    if not _is_number(major) and "worksheets" not in document:
        raise NotebookFileError("the file is not a notebook: `nbformat` must be a number")
    if not _is_number(major) or major < FORMAT:
        raise NotebookFileError(
            f"the notebook has the old format {major if _is_number(major) else 'version 1 or 2'}: "
            "convert it with `jupyter nbconvert --to notebook --nbformat 4`",
            Fault.OLD_FORMAT,
        )
    if major > FORMAT:
        raise NotebookFileError(f"the notebook has format {one_line(str(major), 20)}, but only format 4 is supported")
    if not _is_number(minor) or minor > 1000:  # noqa: PLR2004
        raise NotebookFileError("the notebook has no valid `nbformat_minor`")
    document["nbformat_minor"] = minor


def _repair_ids(document: dict[str, Any]) -> bool:
    """Return whether the cells have ids. Some tools write ids into notebooks of a format that does not allow them."""
    if any("id" in cell for cell in document["cells"]):
        document["nbformat_minor"] = max(document["nbformat_minor"], _FIRST_MINOR_WITH_IDS)
    return bool(document["nbformat_minor"] >= _FIRST_MINOR_WITH_IDS)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _validated(document: dict[str, Any]) -> NotebookNode:
    """Return the notebook in the newest format 4. Cells without a unique id get a new id, as in Jupyter."""
    import nbformat

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nbformat warns about the ids that it replaces
            _, document = nbformat.validator.normalize(document)
            nbformat.validate(document)
            notebook: NotebookNode = nbformat.v4.upgrade(nbformat.v4.to_notebook(document))
            nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        raise NotebookFileError(f"the notebook is invalid: {_validation_message(error)}") from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise NotebookFileError(f"the notebook is invalid: {one_line(repr(error))}") from None
    return notebook


def _check_cells(document: dict[str, Any]) -> None:
    cells = document.get("cells")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise NotebookFileError("the notebook is invalid: `cells` is not a list of cells")
    if not isinstance(document.get("metadata"), dict):
        raise NotebookFileError("the notebook is invalid: `metadata` is not an object")


def _validation_message(error: Any) -> str:
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in getattr(error, "absolute_path", ())
    )
    message = str(getattr(error, "message", error))
    return one_line(f"{place.lstrip('.')}: {message}" if place else message, 300)


def language(metadata: Any) -> str:
    """Return the language in the metadata of a notebook, in lower case; empty if it is missing."""
    for key, field in (("language_info", "name"), ("kernelspec", "language")):
        block = metadata.get(key)
        name = block.get(field) if isinstance(block, dict) else None
        if isinstance(name, str) and name.strip():
            return one_line(name.lower(), 50)
    return ""


def _manual(metadata: Any) -> str | None:
    block = metadata.get("topgallant")
    reason = block.get("manual") if isinstance(block, dict) else None
    if isinstance(reason, str) and reason.strip():
        return one_line(reason)
    return "the notebook is marked as manual" if reason is True else None
