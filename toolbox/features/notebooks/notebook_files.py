"""Reads a notebook file as JSON, without the libraries of Jupyter. The file may contain anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

LARGEST_NOTEBOOK: Final = 1 << 26  # bytes
FORMAT: Final = (4, 5)
"""The current version of the format, since 2021. Since this version, each cell has an id."""


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """A cell of a notebook.

    Args:
        number: the position among the code cells, counted from 1, as in the results of the worker; None for cells
            without code.
        position: the position among all cells, counted from 1.
        content: the JSON object of the cell.
    """

    number: int | None
    position: int
    content: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The id of the cell; empty if it has none."""
        value = self.content.get("id")
        return value if isinstance(value, str) else ""

    @property
    def source(self) -> str:
        """The source of the cell."""
        return joined(self.content.get("source"))

    @property
    def tags(self) -> frozenset[str]:
        """The tags of the cell."""
        metadata = self.content.get("metadata")
        tags = metadata.get("tags") if isinstance(metadata, Mapping) else None
        return frozenset(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else frozenset()

    def __str__(self) -> str:
        """Return the name of the cell in messages: the number of a code cell, or the position of another cell."""
        if self.number is not None:
            return f"code cell {self.number}"
        kind = self.content.get("cell_type")
        return (
            f"{kind} cell at position {self.position}" if kind in {"markdown", "raw"} else f"position {self.position}"
        )


@dataclass(frozen=True, slots=True)
class NotebookContent:
    """A notebook of format 4.

    Args:
        content: the JSON object.
        minor: the minor version of the format.
    """

    content: Mapping[str, Any]
    minor: int
    cells: tuple[NotebookCell, ...]

    @property
    def code_cells(self) -> list[NotebookCell]:
        """The cells with code."""
        return [cell for cell in self.cells if cell.number is not None]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the notebook."""
        value = self.content.get("metadata")
        return value if isinstance(value, Mapping) else {}


def read(path: Path) -> NotebookContent:
    """Return the content of a notebook file.

    Raises:
        ValueError: the file cannot be read, or is not a notebook of format 4. The message is the reason, without the
            path.
    """
    try:
        if not path.is_file():  # also refuse a named pipe: opening one may block forever
            raise ValueError("is not a regular file" if path.exists() else "does not exist")
        with path.open("rb") as stream:
            content = stream.read(LARGEST_NOTEBOOK + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if len(content) > LARGEST_NOTEBOOK:
        raise ValueError(f"has more than {LARGEST_NOTEBOOK} bytes")
    try:
        document = json.loads(content, parse_int=_number)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON, so it is not a notebook") from None
    return _parsed(document)


def joined(text: object) -> str:
    """Return a text of a notebook, which may be a list of lines."""
    if isinstance(text, list):
        return "".join(line for line in text if isinstance(line, str))
    return text if isinstance(text, str) else ""


def _number(digits: str) -> int | float:
    """Return a number. A long one becomes a float, because Python refuses to convert thousands of digits to an int."""
    return int(digits) if len(digits) < 300 else float(digits)  # noqa: PLR2004


def _parsed(document: object) -> NotebookContent:
    major = document.get("nbformat") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(major, int):
        raise ValueError("is not a notebook: it has no `nbformat`")  # noqa: TRY004  # the file is wrong
    minor = document.get("nbformat_minor")
    if major != FORMAT[0] or not isinstance(minor, int):
        hint = "convert it with `jupyter nbconvert --to notebook --inplace`" if major < FORMAT[0] else "not known"
        raise ValueError(f"has the format {abs(major) % 1000}, not {FORMAT[0]}: {hint}")
    cells = document.get("cells")
    if not isinstance(cells, list) or not all(isinstance(cell, Mapping) for cell in cells):
        raise ValueError("is not a notebook: it has no list of cells")
    return NotebookContent(document, minor, tuple(_numbered(cells)))


def _numbered(cells: list[Mapping[str, Any]]) -> list[NotebookCell]:
    numbered, count = [], 0
    for position, cell in enumerate(cells, start=1):
        is_code = cell.get("cell_type") == "code"
        count += is_code
        numbered.append(NotebookCell(count if is_code else None, position, cell))
    return numbered
