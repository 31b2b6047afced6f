"""Reads the lines of logs that show why a step passed or failed.

A log may be of any size, so the amount of text that is read, and the excerpts of a page, are limited.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Final

from toolbox.ground.model.events import CheckJudged
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate
from toolbox.ground.system import redaction
from toolbox.records.runs.evidence_files import PIECE
from toolbox.records.runs.layout import AttemptDirectory, StepDirectory, attempt_name
from toolbox.records.runs.run_state import RunState, StepState
from toolbox.reports import _links

_AROUND: Final = 6  # lines before and after a line of evidence
_AROUND_PASSED: Final = 1
_LAST: Final = 15  # lines at the end of a log without evidence
_LONGEST: Final = 300  # characters of a line
_MAX_EVIDENCE: Final = 5
_TAIL_BYTES: Final = 1 << 16
_LOGS: Final = (
    *(AttemptDirectory.stdout, AttemptDirectory.stderr),
    *(StepDirectory.program_log, StepDirectory.role_log),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log.

    Args:
        number: the number of the line, from 1; None if unknown.
        is_evidence: whether a check names this line.
    """

    number: int | None
    text: str
    is_evidence: bool = False

    def __str__(self) -> str:
        """Return the line with its number, and with `>` if it is evidence."""
        return f"{self.number or '':>6}{'>' if self.is_evidence else ' '} {self.text}"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Consecutive lines of a file."""

    title: str
    href: str
    lines: tuple[Line, ...]


@dataclass(slots=True)
class Excerpts:
    """Reads the excerpts of one page.

    Args:
        root: the run directory.
        characters: how many more characters the excerpts of the page may have.
        readable: how many more characters of logs may be read.
        withheld: files with a secret, relative to the root. They have no excerpts.
        is_cut: whether excerpts were omitted because `characters` were used up.
    """

    root: Path
    characters: int = 400_000
    readable: int = 1 << 26
    withheld: Collection[str] = ()
    is_cut: bool = field(default=False, init=False)

    def of(self, step: StepState, *, is_bad: bool) -> list[Excerpt]:
        """Return the excerpts of a step: the lines around the evidence of its checks, and the ends of other logs.

        Args:
            is_bad: whether the step failed. The excerpts of a step that passed are shorter and have no ends of logs.
        """
        if self.characters <= 0:
            self.is_cut = self.is_cut or is_bad
            return []
        parts = _parts(step)
        judged = [check for check in step.checks if check.passed is False] if is_bad else step.checks
        evidence = [check for check in judged if check.file and check.line]
        excerpts = list(self._evidence(parts, evidence, _AROUND if is_bad else _AROUND_PASSED))
        if is_bad and (not excerpts or len(evidence) < len(judged)):
            excerpts += self._ends(parts, {excerpt.href for excerpt in excerpts})
        self.characters -= sum(len(line.text) + 40 for excerpt in excerpts for line in excerpt.lines)
        return excerpts

    def _evidence(self, parts: tuple[str, ...], checks: list[CheckJudged], around: int) -> Iterator[Excerpt]:
        lines: dict[str, set[int]] = {}
        for check in checks[:_MAX_EVIDENCE]:
            lines.setdefault(check.file, set()).add(check.line or 0)
        for file, evidence in lines.items():
            path = self.file(*parts, file)
            if path is None:
                continue
            for window in _windows(self._read(path, evidence, around)):
                yield Excerpt(file, _links.href(self.root, path), tuple(window))

    def _read(self, path: Path, evidence: Collection[int], around: int) -> list[Line]:
        """Return the lines of evidence and the lines around them, with the line numbers that checks use."""
        selected = {line for number in evidence for line in range(number - around, number + around + 1)}
        last, number, lines = max(selected), 1, []
        begins = True
        try:
            with path.open(encoding="utf-8", errors="replace") as log:
                while number <= last and self.readable > 0 and (piece := log.readline(PIECE)):
                    self.readable -= len(piece)
                    if begins and number in selected:
                        lines.append(Line(number, _masked(piece), number in evidence))
                    begins = piece.endswith("\n")
                    number += begins
        except OSError:
            return []
        return lines if any(line.is_evidence for line in lines) else []

    def file(self, *parts: str) -> Path | None:
        """Return the path of a file of the run; None if it may not be shown."""
        path = _links.inside(self.root, *parts)
        is_readable = path is not None and path.is_file() and str(PurePosixPath(*parts)) not in self.withheld
        return path if is_readable else None

    def _ends(self, parts: tuple[str, ...], with_evidence: Collection[str]) -> Iterator[Excerpt]:
        """Yield the ends of the logs that contain no evidence.

        Args:
            with_evidence: the addresses of the logs that contain evidence.
        """
        for name in _LOGS:
            path = self.file(*parts, name)
            if path is not None and (address := _links.href(self.root, path)) not in with_evidence:
                lines = _end(path)
                if lines:
                    yield Excerpt(f"the end of {name}", address, tuple(lines))


def ends_of(summary: RunState, step: StepState) -> Iterator[list[str]]:
    """Yield the lines at the ends of the logs of a step, without secrets. Logs with a secret are left out."""
    excerpts = Excerpts(summary.directory, withheld=summary.secrets_left)
    parts = _parts(step)
    for name in _LOGS:
        if (path := excerpts.file(*parts, name)) is not None:
            yield [redaction.current()(line) for line in _tail(path)[0]]


def _parts(step: StepState) -> tuple[str, ...]:
    """Return the directory of the logs of a step."""
    return (step.step, attempt_name(step.attempts[-1].attempt)) if step.attempts else (step.step,)


def _windows(lines: list[Line]) -> Iterator[list[Line]]:
    """Yield the groups of consecutive lines."""
    for _, group in groupby(enumerate(lines), key=lambda pair: (pair[1].number or 0) - pair[0]):
        yield [line for _, line in group]


def _end(path: Path) -> list[Line]:
    """Return the last lines of a log, with their numbers if the log is short."""
    lines, is_whole = _tail(path)
    first = max(0, len(lines) - _LAST)
    end = [Line(first + index + 1 if is_whole else None, _masked(line)) for index, line in enumerate(lines[first:])]
    return end if any(line.text.strip() for line in end) else []


def _tail(path: Path) -> tuple[list[str], bool]:
    """Return the lines in the last bytes of a log, and whether they are the whole log; no lines if it is unreadable."""
    try:
        with path.open("rb") as log:
            begin = max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES)
            log.seek(begin)
            text = log.read(_TAIL_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return [], True
    lines = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    return lines, not begin


def _masked(line: str) -> str:
    """Return a line without secrets and control characters, truncated if it is long."""
    return truncate(redaction.current()(clean(line.rstrip("\n"))), _LONGEST)
