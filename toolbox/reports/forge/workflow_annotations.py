"""Renders a run as annotations: the errors and warnings that GitHub shows on the page of a run of a workflow."""

from __future__ import annotations

from typing import Final

from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.forge_data import NamedLine
from toolbox.ground.model.text import truncate, without_middle
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.runs.run_state import RunState, StepState
from toolbox.reports import _remarks
from toolbox.reports.forge import source_locations
from toolbox.reports.forge.source_locations import RepositoryFiles

_MOST: Final = 10  # GitHub shows ten errors and ten warnings of a step
_MAX_LINES: Final = 8
_LONGEST_LINE: Final = 300
_LONGEST_TITLE: Final = 120
_NO_FILES: Final = RepositoryFiles(())


def lines(summary: RunState, files: RepositoryFiles = _NO_FILES) -> list[str]:
    """Return the annotations of a run, as commands that a runner of GitHub executes when a step prints them.

    Args:
        files: the files of the tested revision. A failure that names a line of such a file is shown at this line.
    """
    places = source_locations.of_step(source_locations.find(summary, files))
    failures = [_annotation("error", _title(step), step.message, places.get(step.name)) for step in summary.failures]
    end = summary.finished
    if not failures and end is not None and not Verdict(end.verdict).is_pass:
        failures = [_annotation("error", f"{summary.project} {end.verdict}", end.message)]
    if end is None:
        failures.append(
            _annotation("error", f"{summary.project} did not end", "the run was killed, or is still running")
        )
    warnings = [
        _annotation("warning", _title(step), _remarks.text(step), places.get(step.name))
        for step in _remarks.of(summary)
    ]
    return [*_limited(failures, "error", "failures"), *_limited(warnings, "warning", "remarks")]


def _limited(annotations: list[str], level: str, what: str) -> list[str]:
    if len(annotations) <= _MOST:
        return annotations
    more = len(annotations) - _MOST + 1
    return [*annotations[: _MOST - 1], _annotation(level, f"and {more} more {what}", "see the summary of the step")]


def _title(step: StepState) -> str:
    cause = f" ({step.cause})" if step.cause else ""
    return f"{step.verdict}{cause}: {step.name}"


def _annotation(level: str, title: str, message: str, place: NamedLine | None = None) -> str:
    kept = without_middle([truncate(line, _LONGEST_LINE) for line in clean(message).splitlines()], _MAX_LINES)
    text = _escaped("\n".join(kept)) or _escaped(title)
    where = f"file={_escaped_property(place.path)},line={place.line}," if place is not None else ""
    return f"::{level} {where}title={_escaped_property(truncate(clean(title), _LONGEST_TITLE))}::{text}"


def _escaped(text: str) -> str:
    """Return a text with the escapes that GitHub decodes, so that it stays inside its command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
