"""Reads a metric from a JSON file."""

from __future__ import annotations

import json
from pathlib import Path

from toolbox.metrics import DocumentSource
from toolbox.runs.evidence_files import read_document, readable


class Source(DocumentSource):
    """The JSON file, and the path of the number in it."""

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the number, or the aggregate of a list of numbers.

        Raises:
            ValueError: the file cannot be read, or the path does not exist or does not contain finite numbers.
        """
        with readable(directory, self.file) as path:
            text = read_document(path, self.file)
        try:
            document = json.loads(text.decode(), parse_int=float)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.file} is not JSON: {error}") from None
        return self.find(document)
