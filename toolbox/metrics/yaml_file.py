"""A metric from a YAML file, by its path in it."""

from __future__ import annotations

from pathlib import Path

import yaml

from toolbox.metrics import DocumentSource
from toolbox.runs.evidence_files import read_document, readable

# A text that is no YAML, and what PyYAML makes of values that its constructors did not foresee (`!!int ""`).
_FAULTS = (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError)


class Source(DocumentSource):
    """Where the number is. YAML 1.1 is read: `1e-3` is a text there, `1.0e-3` a number."""

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the number.

        Raises:
            ValueError: the file or the path is not there, or holds no finite number.
        """
        with readable(directory, self.file) as path:
            text = read_document(path, self.file)
        try:  # libyaml is faster, and ends the process where lists are nested deep enough
            document = yaml.safe_load(text)
        except _FAULTS as error:
            reason = " ".join(str(error).split())  # PyYAML's messages go over lines
            raise ValueError(f"{self.file} is not YAML: {reason}") from None
        return self.find(document)
