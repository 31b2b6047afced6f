"""Reads series from CSV files, to find changes in numbers that do not come from Topgallant's runs."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.nearest import did_you_mean


def read(path: Path, column: str) -> dict[str, NDArray[np.float64]]:
    """Return the values of a column in a file, or in each `*.csv` of a directory, by the name of the file.

    A row without a value is a gap: its value is NaN.

    Raises:
        UsageError: the file or column does not exist, all rows are gaps, or a value is infinite or not a number.
    """
    if path.is_dir():
        files = sorted(path.glob("*.csv"))
        if not files:
            raise UsageError(f"--csv={path}: the directory contains no *.csv files")
        return {file.stem: _column(file, column) for file in files}
    return {path.stem: _column(path, column)}


def _column(file: Path, column: str) -> NDArray[np.float64]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.DictReader(stream)
            if column not in (rows.fieldnames or ()):
                hint = did_you_mean(column, rows.fieldnames or (), label="columns")
                raise UsageError(f"--column={column}: {file} has no such column: {hint}")
            values = [_number(row[column], f"{file}:{rows.line_num}") for row in _rows(rows, file)]
    except OSError as error:
        raise UsageError(f"--csv={file}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--csv={file}: {error}") from None
    if values and all(map(math.isnan, values)):
        raise UsageError(f"--column={column}: {file} has no number in this column: name another column")
    return np.array(values, dtype=np.float64)


def _rows(rows: csv.DictReader[str], file: Path) -> Iterator[dict[str | Any, str | Any]]:
    """Yield rows without surplus columns: a number with a decimal comma moves all columns to its right."""
    for row in rows:
        if any(row.get(None) or ()):
            raise UsageError(f"{file}:{rows.line_num} has more columns than the first row: is a comma a decimal point?")
        yield row


def _number(text: str | None, where: str) -> float:
    """Return a number; NaN if the text is empty or `nan`."""
    if text is None or not text.strip():
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise UsageError(f"{where}: {text!r} is not a finite number, and not empty or `nan` for a gap")
    return value
