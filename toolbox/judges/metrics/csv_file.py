"""Reads a metric from a column of a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from toolbox.ground.model import aggregates
from toolbox.ground.model.aggregates import Aggregate
from toolbox.records.runs.evidence_files import RelativeFile, readable


class Source(BaseModel):
    """A column of a CSV file, by its name in the first row.

    The first `warmup` rows below the first row are skipped. In all other rows, the column must contain a number.
    """

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile
    column: str = Field(min_length=1)
    aggregate: Aggregate = "median"
    warmup: int = Field(default=0, ge=0)
    delimiter: str = Field(default=",", pattern=r'^[^\r\n"]$')

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the aggregate of the numbers in the column.

        Raises:
            ValueError: the file cannot be read, the column is missing, or a row does not contain a finite number or has
                more columns than the first row.
        """
        source = f"`{self.column}` in {self.file}"
        cells = aggregates.after_warmup(self._cells(directory), self.warmup, source=source)
        numbers = [aggregates.parse_number(cell, source=f"{self.file}:{line}: `{self.column}`") for line, cell in cells]
        return aggregates.aggregate(numbers, self.aggregate, source=source)

    def _cells(self, directory: Path) -> Iterator[tuple[int, str]]:
        """Yield the line number and the text of the column for each row. In short rows, the text is empty."""
        with (
            readable(directory, self.file) as path,
            path.open(encoding="utf-8-sig", errors="replace", newline="") as stream,
        ):
            rows = csv.reader(stream, delimiter=self.delimiter, strict=True)
            try:
                header = [name.strip() for name in next(rows, [])]
                position = self._position(header)
                for row in rows:
                    if any(row[len(header) :]):  # a number with a decimal comma moves all columns to its right
                        hint = ": is a comma a decimal point?" if self.delimiter == "," else ""
                        count = f"{len(row)} columns, but the first row has {len(header)}"
                        raise ValueError(f"{self.file}:{rows.line_num} has {count}{hint}")
                    yield rows.line_num, row[position] if position < len(row) else ""
            except csv.Error as error:
                raise ValueError(f"{self.file}:{rows.line_num} is not CSV: {error}") from None

    def _position(self, header: list[str]) -> int:
        if header.count(self.column) != 1:
            columns = f"the columns are {', '.join(header)}" if header else "the first row is empty"
            count = f"{header.count(self.column)} columns" if self.column in header else "no column"
            raise ValueError(f"{self.file} has {count} `{self.column}`: {columns}")
        return header.index(self.column)
