"""Compares the recorded end of a run with its steps, and makes the run an error if it cannot have passed.

A line of the journal may be lost or in the wrong place, also without a line that cannot be read: a file was copied
incompletely, merged by hand, or written by code under test. `run_reader` calls `derived_end` for each run that it
reads, so that no reader takes the recorded verdict as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from toolbox.model.events import RunFinished, StepKind
from toolbox.model.text import counted, first_of, truncate
from toolbox.model.verdicts import Cause, Verdict, exit_code
from toolbox.runs.run_state import StepState, cell_id

_MOST_NAMES: Final = 5
_LONGEST_NAME: Final = 100
_ADVICE: Final = "lines of its journal are lost or in the wrong place; `project resume` repeats steps without an end"


def derived_end(
    recorded: RunFinished,
    steps: Mapping[str, StepState],
    *,
    planned: int,
    unbegun: Mapping[str, str],
    session: Collection[str],
) -> RunFinished:
    """Return the recorded end of a run, or an error if the recorded end is a pass that the steps contradict.

    Args:
        steps: the steps by directory.
        planned: the number of cells of all matrices that have begun.
        unbegun: the names of the cells of the plan that have no step, by id.
        session: the directories of the steps that began in the latest session, all of which must have ended.
    """
    if not recorded.verdict.is_pass:
        return recorded
    faults = [text for text in (_without_end(steps, planned, unbegun, session), _failed(steps, session)) if text]
    if not faults:
        return recorded
    message = f"the journal says that the run is `{recorded.verdict}`, but {' and '.join(faults)}\n{_ADVICE}"
    return replace(
        recorded,
        verdict=Verdict.ERROR,
        cause=Cause.INFRASTRUCTURE,
        exit_code=exit_code(Verdict.ERROR),
        message=message,
    )


def _without_end(
    steps: Mapping[str, StepState], planned: int, unbegun: Mapping[str, str], session: Collection[str]
) -> str:
    """Return which steps have no verdict; empty if each step has one."""
    cells = [step for step in steps.values() if step.kind is StepKind.CELL]
    names = [step.name for step in cells if _is_without_end(step)] + list(unbegun.values())
    count = max(len(names), planned - len(cells) + len(names) - len(unbegun))
    if count:
        return f"does not contain the end of {counted(count, 'cell')}{_named(names)}"
    others = [step.step for step in steps.values() if step.verdict is None and _decides(step, session)]
    return f"does not contain the end of {counted(len(others), 'step')}{_named(others)}" if others else ""


def _is_without_end(cell: StepState) -> bool:
    """Return whether the end of a cell is not recorded, or that of the attempt by which the cell passed."""
    return cell.verdict is None or (cell.verdict.is_pass and bool(cell.attempts) and cell.attempts[-1].is_open)


def _failed(steps: Mapping[str, StepState], session: Collection[str]) -> str:
    """Return which steps have a verdict that a run that passed cannot contain; empty if there is none."""
    names = [
        step.name
        for step in steps.values()
        if step.has_failed and _decides(step, session) and _counts(step.step, steps)
    ]
    return f"{counted(len(names), 'step')} did not pass{_named(names)}" if names else ""


def _decides(step: StepState, session: Collection[str]) -> bool:
    """Return whether the latest session has executed a step, or has taken its result from an earlier session."""
    return step.kind in {StepKind.CELL, StepKind.PHASE} or step.step in session


def _counts(step: str, steps: Mapping[str, StepState]) -> bool:
    enclosing = itertools.accumulate(step.split("/"), "{}/{}".format)
    return all(steps[name].counts for name in enclosing if name in steps)


def _named(names: Sequence[str]) -> str:
    shown = first_of([truncate(" ".join(name.split()), _LONGEST_NAME) for name in names], _MOST_NAMES)
    return f": {', '.join(shown)}" if shown else ""


def unbegun_cells(steps: Collection[StepState], labels: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the names of the planned cells that have no step, by id.

    Args:
        labels: the text for each setting of each planned cell, by id.
    """
    begun = {cell_id(step.key) for step in steps if step.kind is StepKind.CELL}
    return {
        id_: ",".join(f"{axis}={label}" for axis, label in each.items()) or id_
        for id_, each in labels.items()
        if id_ not in begun
    }
