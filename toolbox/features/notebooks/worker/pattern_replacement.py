"""A program that applies regular expressions to texts: a JSON object on stdin, a JSON list of the new texts on stdout.

`varying_texts` starts the program, so that it can kill an expression that never ends.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from typing import Any

MEMORY_BYTES = 2**30


def replaced(request: Any) -> list[str]:
    """Return the texts of a request after all replacements."""
    patterns = [(re.compile(pattern), replacement) for pattern, replacement in request["patterns"]]
    texts = []
    for text in request["texts"]:
        for pattern, replacement in patterns:
            text = pattern.sub(replacement, text)  # noqa: PLW2901 - each pattern changes the text further
        texts.append(text)
    return texts


def main() -> int:
    """Answer the request on stdin. Exit with status 1 if the texts need too much memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        json.dump(replaced(json.load(sys.stdin)), sys.stdout)
    except (MemoryError, OverflowError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
