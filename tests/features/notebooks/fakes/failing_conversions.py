"""The converter of notebooks, as a program in which the conversion of a notebook without cells fails in one way.

python -m tests.features.notebooks.fakes.failing_conversions CONVERSION < JOBS
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Any

from toolbox.features.notebooks import html_converter


def hang() -> str:
    while True:
        pass


def exhaust() -> str:
    return "x" * 2**40


def crash() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def recur() -> str:
    return recur()


def grow() -> str:
    return "x" * (html_converter.LARGEST_PAGE + 1)


CONVERSIONS = {each.__name__: each for each in (hang, exhaust, crash, recur, grow)}


def _convert(document: dict[str, Any]) -> str:
    return "fine" if document["cells"] else CONVERSIONS[sys.argv[1]]()


if __name__ == "__main__":
    html_converter._converter = lambda: _convert
    if sys.argv[1] == "hang":
        html_converter.MAX_SECONDS = 1  # type: ignore[misc]  # a test must not wait for 30 s
    html_converter.main()
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY  # only the child processes have limits
