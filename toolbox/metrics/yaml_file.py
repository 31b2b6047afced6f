"""Reads a metric from a YAML file."""

from __future__ import annotations

from typing import Any

import yaml

from toolbox.metrics import DocumentSource

# PyYAML raises YAMLError for invalid YAML, and the other errors for invalid values such as `!!int ""`.
_FAULTS = (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError)


class Source(DocumentSource):
    """The YAML file, and the path of the number in it. In YAML 1.1, `1e-3` is a string, and `1.0e-3` is a number."""

    def parse(self, content: bytes) -> Any:
        """Return the document; raise ValueError if it is not YAML."""
        try:  # libyaml is faster, but crashes the process on deeply nested lists
            return yaml.safe_load(content)
        except _FAULTS as error:
            reason = " ".join(str(error).split())  # the message of PyYAML has several lines
            raise ValueError(f"{self.file} is not YAML: {reason}") from None
