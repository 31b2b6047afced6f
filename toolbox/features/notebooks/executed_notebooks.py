"""Finds the executed notebooks of a run, and their results.

A notebook worker writes executed notebooks into `files/` of an attempt, and a target may write anything there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolbox.features.notebooks.worker import notebook_results
from toolbox.features.notebooks.worker.notebook_results import TestOutcome, TestResult
from toolbox.ground.model.cases import CaseOutcome
from toolbox.ground.system import filesystem, redaction
from toolbox.records.runs.layout import AttemptDirectory, attempt_name
from toolbox.records.runs.run_state import StepState
from toolbox.reports import _links
from toolbox.reports._web_page import Mark
from toolbox.reports.page import case_tables

_MAX_NOTEBOOKS: Final = 100  # of a cell
_LARGEST_RESULTS: Final = 32 * 2**20  # bytes; the check `notebooks` also reads larger files
_SUFFIX: Final = ".ipynb"
_UNKNOWN: Final = Mark("lost", "?", "without a result")


@dataclass(frozen=True, slots=True)
class ExecutedNotebook:
    """An executed notebook of the last attempt of a cell.

    Args:
        source: the parts of the path of the notebook in the run directory.
        result: the result of the test; None if the worker has not written one.
    """

    step: StepState
    name: str
    source: tuple[str, ...]
    result: TestResult | None

    @property
    def mark(self) -> Mark:
        """The mark with which pages show the outcome."""
        return mark(self.result)

    @property
    def page(self) -> tuple[str, ...]:
        """The parts of the path of the page of the notebook in the run directory."""
        return self._made(".html")

    @property
    def pdf(self) -> tuple[str, ...]:
        """The parts of the path of the PDF file of the notebook in the run directory."""
        return self._made(".pdf")

    def _made(self, suffix: str) -> tuple[str, ...]:
        file = self.source[-1].removesuffix(_SUFFIX) + suffix
        return (*self.source[:2], AttemptDirectory.notebooks, file)


def mark(result: TestResult | None) -> Mark:
    """Return the mark with which pages show the outcome of a test."""
    return mark_of(result.outcome) if result is not None else _UNKNOWN


def mark_of(outcome: TestOutcome) -> Mark:
    """Return the mark with which pages show an outcome."""
    return case_tables.MARKS[CaseOutcome(outcome.value)]


def of_step(root: Path, step: StepState, withheld: frozenset[str]) -> list[ExecutedNotebook]:
    """Return the executed notebooks of the last attempt of a cell, in the order of their results.

    Args:
        root: the run directory.
        withheld: the files that contain a secret, relative to the root. They are left out.
    """
    if not step.attempts:
        return []
    attempt = (step.step, attempt_name(step.attempts[-1].attempt))
    folder = (*attempt, AttemptDirectory.results, notebook_results.EXECUTED)
    if (directory := _links.inside(root, *folder)) is None or not directory.is_dir():
        return []
    results = {result.notebook.executed: result for result in results_of(root, step, withheld) if result.notebook}
    order = {name: index for index, name in enumerate(results)}
    names = sorted(_names(directory), key=lambda name: (order.get(name, len(order)), name))
    return [
        ExecutedNotebook(step, name.removesuffix(_SUFFIX), (*folder, name), results.get(name))
        for name in names[:_MAX_NOTEBOOKS]
        if "/".join((*folder, name)) not in withheld and redaction.current()(name) == name
    ]


def results_of(root: Path, step: StepState, withheld: frozenset[str]) -> list[TestResult]:
    """Return the results of the tests of the last attempt of a cell, up to the first fault of the file."""
    if not step.attempts:
        return []
    attempt = (step.step, attempt_name(step.attempts[-1].attempt))
    file = (*attempt, AttemptDirectory.results, notebook_results.RESULTS)
    path = _links.inside(root, *file)
    if "/".join(file) in withheld or path is None or filesystem.size(path) > _LARGEST_RESULTS:
        return []
    return list(_results(root.joinpath(*attempt)))


def _results(attempt: Path) -> Iterator[TestResult]:
    from toolbox.features.notebooks import result_records  # slow to import

    with suppress(ValueError):  # the check `notebooks` reports the fault
        yield from (each for each in result_records.read(attempt) if isinstance(each, TestResult))


def _names(directory: Path) -> list[str]:
    with suppress(OSError), os.scandir(directory) as entries:
        return [
            entry.name
            for entry in entries
            if entry.name.endswith(_SUFFIX)
            and not entry.name.startswith(".")
            and entry.name.isprintable()
            and entry.is_file(follow_symlinks=False)
        ]
    return []
