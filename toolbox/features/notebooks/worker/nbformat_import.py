"""Imports nbformat without a parser that notebooks do not need.

nbformat imports jsonschema, which imports `rfc3987_syntax` where that is installed, for example with jupyter_server.
The import of this parser takes more than a second. Only the check of IRIs uses the parser, and notebooks have no IRIs.
"""

from __future__ import annotations

import sys
from typing import Final

_PARSER: Final = "rfc3987_syntax"


def load() -> None:
    """Import nbformat. Other code can import the parser afterwards."""
    if _PARSER in sys.modules:
        return
    sys.modules[_PARSER] = None  # type: ignore[assignment]  # an import of the parser raises ImportError
    try:
        import nbformat  # noqa: F401
    finally:
        del sys.modules[_PARSER]
