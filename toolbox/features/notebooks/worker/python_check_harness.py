"""Executes the function `check` of a Python check, and prints each result as a line with a marker.

The worker sends the source of this file, followed by a call of `main`, to the Python of the runtime: version 3.8 or
later, possibly on another machine, without the other files of the worker. So the file imports only the standard
library. The marker is a new random text for each execution, so a check can print anything without being mistaken for a
result.
"""

from __future__ import annotations

import json
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

_FIELDS = ("name", "outcome", "checked", "expected", "found", "message")


def main(source: str, file: str, promises: str, marker: str) -> None:
    """Execute a check and print its results.

    Args:
        source: the text of the check.
        file: the name of the check, for tracebacks.
        promises: a JSON object.
        marker: begins each printed line.
    """
    output, sys.stdout = sys.stdout, sys.stderr
    try:

        def write(record: dict[str, Any]) -> None:
            output.write(f"\n{marker}{json.dumps(record)}\n")
            output.flush()

        write({"end": _execute(source, file, json.loads(promises), write)})
    finally:
        sys.stdout = output


def _execute(source: str, file: str, promises: Any, write: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Write the results of a check, and return how it ended."""
    linecache.cache[file] = (
        len(source),
        None,
        source.splitlines(keepends=True),
        file,
    )  # for tracebacks
    namespace: dict[str, Any] = {"__name__": "check", "__file__": file}
    try:
        exec(compile(source, file, "exec"), namespace)  # noqa: S102 - the harness exists for this call
        write({"checked": (namespace.get("__doc__") or "").strip().split("\n\n")[0]})
        for record in _records(namespace["check"](promises)):
            write({"result": {name: str(record[name]) for name in _FIELDS if record.get(name) is not None}})
    except AssertionError as error:
        return {"failed": str(error) or _line(error)}
    except BaseException as error:  # noqa: BLE001 - a check that calls sys.exit must not end a kernel
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def _records(returned: Any) -> Iterable[dict[str, Any]]:
    """Return the results that a check returned or yields."""
    if returned is None:
        return []
    return [returned] if isinstance(returned, dict) else returned


def _line(error: BaseException) -> str:
    """Return the line of the check that raised an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].line or "" if frames else ""
