"""Reads a metric from a YAML file."""

from __future__ import annotations

from pathlib import Path

import yaml

from toolbox.metrics import DocumentSource
from toolbox.runs.evidence_files import read_document, readable

# PyYAML raises YAMLError for invalid YAML, and the other errors for invalid values such as `!!int ""`.
_FAULTS = (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError)


class Source(DocumentSource):
    """The YAML file, and the path of the number in it. In YAML 1.1, `1e-3` is a string, and `1.0e-3` is a number."""

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the number, or the aggregate of a list of numbers.

        Raises:
            ValueError: the file cannot be read, or the path does not exist or does not contain finite numbers.
        """
        with readable(directory, self.file) as path:
            text = read_document(path, self.file)
        try:  # libyaml is faster, but crashes the process on deeply nested lists
            document = yaml.safe_load(text)
        except _FAULTS as error:
            reason = " ".join(str(error).split())  # the message of PyYAML has several lines
            raise ValueError(f"{self.file} is not YAML: {reason}") from None
        return self.find(document)
