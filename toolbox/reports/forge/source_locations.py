"""Finds the lines of the repository that failures name: in messages, in failed test cases, and at the ends of logs.

The texts come from code under test and may contain anything. A path is used only if the tested revision has a file
with this path, so that no text can name another file. Each line of a file is listed once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.forge_data import NamedLine
from toolbox.ground.model.text import truncate
from toolbox.records.runs import step_cases
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState, StepState
from toolbox.reports import _excerpts, _remarks

MOST: Final = 100  # lines of the repository
_MAX_OF_STEP: Final = 10
_MAX_CASES: Final = 20  # failed test cases of a step
_MAX_READ: Final = 1 << 24  # characters of logs
_LONGEST_LINE: Final = 1000
_LONGEST_TEXT: Final = 300
_LONGEST_PATH: Final = 300
_LARGEST_LINE: Final = 10_000_000
_FEWEST_PARTS: Final = 2  # of a path that is found without its checkout
_LIBRARIES: Final = re.compile(r"(^|/)(site-packages|dist-packages|node_modules|lib/python[\d.]*)/")
_TRACEBACK = re.compile(r'File "(?P<path>[^"\n]{1,300})", line (?P<line>\d{1,8})')
# pytest writes `file.py:12: AssertionError`, and compilers write `file.c:3:5: error: ...`.
_POSITION = re.compile(r"(?<![\w./:\\@+-])(?P<path>[\w./@+-]{1,300}\.\w{1,10}):(?P<line>\d{1,8})(?!\w)")


@dataclass(frozen=True, slots=True)
class RepositoryFiles:
    """The files of the tested revision.

    Args:
        paths: the paths of all files, relative to the repository.
        checkouts: absolute paths of directories in which the repository was checked out.
    """

    paths: Collection[str]
    checkouts: Collection[str] = ()

    def path_of(self, text: str) -> str | None:
        """Return the path of the file that a text names; None if the revision has no such file.

        An absolute path is that of a checkout: its longest end that is a file of the revision is used. Files of
        installed libraries are not files of the repository.
        """
        parts = text.split("/")
        if len(text) > _LONGEST_PATH or clean(text) != text or not text.isprintable() or ".." in parts:
            return None
        if not text.startswith("/"):
            relative = text.removeprefix("./")
            return relative if relative in self.paths else None
        for begin in range(1, len(parts)):
            before, path = "/".join(parts[:begin]), "/".join(parts[begin:])
            is_long = len(parts) - begin >= _FEWEST_PARTS and not _LIBRARIES.search(f"{before}/")
            if path in self.paths and (is_long or before in self.checkouts):
                return path
        return None


@dataclass(slots=True)
class _Search:
    """Collects the lines that steps name.

    Args:
        readable: how many more characters of logs may be read.
    """

    summary: RunState
    files: RepositoryFiles
    readable: int = _MAX_READ
    lines: dict[tuple[str, int], NamedLine] = field(default_factory=dict)

    def add(self, step: StepState, *, is_failure: bool) -> None:
        found: set[tuple[str, int]] = set()
        for text in self._texts(step):
            for place in self._places(text):
                if place not in found and len(found) < _MAX_OF_STEP:
                    found.add(place)
                    self._note(place, text, step.name, is_failure=is_failure)

    def _note(self, place: tuple[str, int], text: str, step: str, *, is_failure: bool) -> None:
        known = self.lines.get(place)
        if known is not None:
            self.lines[place] = replace(known, steps=(*known.steps, step), is_failure=known.is_failure or is_failure)
        elif len(self.lines) < MOST:
            line = truncate(" ".join(clean(text).split()), _LONGEST_TEXT)
            self.lines[place] = NamedLine(*place, line, (step,), is_failure)

    def _places(self, text: str) -> Iterator[tuple[str, int]]:
        for pattern in (_TRACEBACK, _POSITION):
            for match in pattern.finditer(text[:_LONGEST_LINE]):
                line, path = int(match["line"]), self.files.path_of(match["path"])
                if path is not None and 0 < line <= _LARGEST_LINE:
                    yield path, line

    def _texts(self, step: StepState) -> Iterator[str]:
        """Yield the lines of a step, the most telling first."""
        yield from step.message.splitlines()
        cases = step_cases.read(self.summary.directory, step, self.summary.secrets_left)
        for case in islice(cases.failures if cases is not None else (), _MAX_CASES):
            yield from case.message.splitlines()
            yield from reversed(case.text.splitlines())
        for lines in _excerpts.ends_of(self.summary, step) if self.readable > 0 else ():
            self.readable -= sum(map(len, lines))
            yield from reversed(lines)  # the error is the last line of a traceback


def find(summary: RunState, files: RepositoryFiles) -> list[NamedLine]:
    """Return the lines of the repository that the failures and remarks of a run name, failures first."""
    if not files.paths:
        return []
    directory = RunDirectory(summary.directory).read_request().get("directory")
    if isinstance(directory, str):
        files = replace(files, checkouts=(*files.checkouts, directory))
    search = _Search(summary, files)
    for step in summary.failures:
        search.add(step, is_failure=True)
    for step in _remarks.of(summary):
        search.add(step, is_failure=False)
    return list(search.lines.values())


def merged(runs: Iterable[list[NamedLine]]) -> list[NamedLine]:
    """Return the lines that several runs name, each line once."""
    lines: dict[tuple[str, int], NamedLine] = {}
    for found in (line for run in runs for line in run):
        known = lines.get(key := (found.path, found.line))
        steps = found.steps if known is None else (*known.steps, *found.steps)
        is_failure = found.is_failure or (known is not None and known.is_failure)
        lines[key] = replace(known or found, steps=steps, is_failure=is_failure)
    return list(lines.values())[:MOST]


def of_step(lines: Iterable[NamedLine]) -> Mapping[str, NamedLine]:
    """Return the first line that each step names, by the name of the step."""
    first: dict[str, NamedLine] = {}
    for line in lines:
        for step in line.steps:
            first.setdefault(step, line)
    return first
