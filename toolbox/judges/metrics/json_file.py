"""Reads a metric from a JSON file."""

from __future__ import annotations

import json
from typing import Any

from toolbox.judges.metrics import DocumentSource


class Source(DocumentSource):
    """The JSON file, and the path of the number in it."""

    def parse(self, content: bytes) -> Any:
        """Return the document; raise ValueError if it is not JSON."""
        try:
            return json.loads(content.decode(), parse_int=float)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.file} is not JSON: {error}") from None
