"""Reads a metric from a YAML file, by the path of its number."""

from __future__ import annotations

from pathlib import Path

import yaml

from toolbox.metrics import DocumentSource
from toolbox.runs.evidence_files import read_document, readable

# The error for invalid YAML, and those that PyYAML's constructors raise for unexpected values (`!!int ""`).
_FAULTS = (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError)


class Source(DocumentSource):
    """The path of the number in the file. YAML 1.1 is read, where `1e-3` is a text and `1.0e-3` a number."""

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the number.

        Raises:
            ValueError: the file or the path does not exist, or holds no finite number.
        """
        with readable(directory, self.file) as path:
            text = read_document(path, self.file)
        try:  # libyaml is faster, but crashes the process on deeply nested lists
            document = yaml.safe_load(text)
        except _FAULTS as error:
            reason = " ".join(str(error).split())  # PyYAML's messages have several lines
            raise ValueError(f"{self.file} is not YAML: {reason}") from None
        return self.find(document)
