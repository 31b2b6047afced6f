"""Reads from `src/settings.json` of an attempt which tests the worker was to execute."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from toolbox.features.notebooks.worker.notebook_results import TestKind
from toolbox.features.notebooks.worker.notebook_settings import Settings
from toolbox.ground.model.evidence import Evidence
from toolbox.records.runs.evidence_files import read_document, readable

SETTINGS_FILE: Final = "src/settings.json"
_KINDS: Final = {".sh": TestKind.SHELL, ".py": TestKind.PYTHON}


@dataclass(frozen=True, slots=True)
class RequestedTest:
    """A test that the worker was to execute.

    Args:
        manual: what a person must do first. The worker must skip such a test. None if it must execute the test.
        file: the path of the notebook in the directory of the attempt; empty for a check.
    """

    kind: TestKind
    name: str
    manual: str | None = None
    file: str = ""


def read(evidence: Evidence, file: str = SETTINGS_FILE) -> list[RequestedTest]:
    """Return the tests that the settings of the worker name, in their order: checks, then notebooks.

    Raises:
        ValueError: the settings cannot be read, or the workload has changed them.
    """
    if str(PurePath(file)) in evidence.changed:
        raise ValueError(f"{file} is not as it was sent: the workload has changed it")
    with readable(evidence.directory, file) as path:
        content = read_document(path, file)
    sources = PurePath(file).parent
    try:
        return list(_tests(Settings.from_json(json.loads(content)), sources))
    except (ValueError, RecursionError):
        raise ValueError(f"{file} does not contain settings of the notebook worker") from None


def _tests(settings: Settings, sources: PurePath) -> Iterator[RequestedTest]:
    for check in settings.checks:
        kind = _KINDS.get(PurePath(str(check.file)).suffix)
        if kind is None:
            raise ValueError("a check is a file that ends with .sh or .py")
        yield RequestedTest(kind, str(check.name))
    for notebook in settings.notebooks:
        path = str(sources / str(notebook.file))
        yield RequestedTest(TestKind.NOTEBOOK, str(notebook.name), notebook.manual, path)
