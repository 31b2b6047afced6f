"""Reads a metric from a JSON file, by the path of its number."""

from __future__ import annotations

import json
from pathlib import Path

from toolbox.metrics import DocumentSource
from toolbox.runs.evidence_files import read_document, readable


class Source(DocumentSource):
    """The path of the number in the file."""

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the number.

        Raises:
            ValueError: the file or the path does not exist, or holds no finite number.
        """
        with readable(directory, self.file) as path:
            text = read_document(path, self.file)
        try:
            document = json.loads(text.decode(), parse_int=float)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.file} is not JSON: {error}") from None
        return self.find(document)
