"""Decides the verdict, the cause and the exit code of a run.

`project_run` calls `of_session` at the end of each session, and `of_phases` at the end of a run that several sessions
executed. `results merge` calls `of_shards`. `run_reader` calls `derived_end` for each run that it reads, because a line
of the journal may be lost or in the wrong place, also without a line that cannot be read: a file was copied
incompletely, merged by hand, or written by code under test. No reader takes the recorded verdict as it is.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from toolbox.ground.model.errors import Cancelled, Interrupted, describe, exit_code_of, outcome_of
from toolbox.ground.model.events import RunFinished, StepKind
from toolbox.ground.model.text import counted, first_of, truncate
from toolbox.ground.model.verdicts import Cause, ExitCode, Verdict, exit_code, worst, worst_exit_code
from toolbox.records.runs.run_state import StepState, cell_id
from toolbox.records.runs.steps import Outcome, Step

_MAX_NAMES: Final = 5
_LONGEST_NAME: Final = 100
_LONGEST_MESSAGE: Final = 2000
_INTERRUPTED: Final = frozenset({ExitCode.DEADLINE, ExitCode.SIGINT, ExitCode.SIGTERM})
_ADVICE: Final = "lines of its journal are lost or in the wrong place; `project resume` repeats steps without an end"


def finished(outcome: Outcome, seconds: float) -> RunFinished:
    """Return the end of a run with this outcome, which no signal and no deadline ended."""
    return RunFinished(outcome.verdict, outcome.cause, exit_code(outcome.verdict), outcome.message, seconds)


def of_session(
    top: Step, errors: Sequence[BaseException], *, tested: Outcome | None = None, is_shard: bool = False
) -> RunFinished:
    """Return the end of a session: the outcome of the first phase that did not pass, with the messages of later errors.

    Args:
        top: the step that encloses all phases, with at least one outcome if there are no errors.
        errors: what the phases, the cleanup and signals raised, in order.
        tested: the outcome of the phase `test`; None if the phase has no outcome.
        is_shard: whether the run is one of several shards.
    """
    seconds = round(time.monotonic() - top.started, 3)
    if errors:
        return _of_errors(top, errors, seconds)
    outcome = top.outcome() or Outcome(Verdict.SKIPPED)
    if outcome.verdict is Verdict.PASSED and tested is not None and tested.verdict is Verdict.SKIPPED:
        outcome = tested  # a run that only prepared and cleaned up has not passed
    if outcome.verdict is Verdict.PASSED:
        outcome = replace(outcome, message="")  # the message of a step that passed says nothing about the run
    end = finished(outcome, seconds)
    if is_shard and outcome.verdict is Verdict.SKIPPED:
        return replace(end, exit_code=ExitCode.PASSED)  # only `results merge` knows all shards
    return end


def _of_errors(top: Step, errors: Sequence[BaseException], seconds: float) -> RunFinished:
    first, *later_errors = sorted(errors, key=lambda error: not isinstance(error, Interrupted))
    texts = [describe(first), *(f"and then: {describe(error)}" for error in later_errors)]
    if isinstance(first, Cancelled):
        message = top.recorder.redactor("\n".join(texts))
        return RunFinished(Verdict.CANCELLED, first.cause, exit_code_of(first), message, seconds)
    outcome = top.first_failure() or Outcome(*outcome_of(first))
    if (outcome.verdict, outcome.cause) != outcome_of(first):
        texts.insert(0, outcome.message)  # the run takes its verdict and cause from this outcome
    return finished(replace(outcome, message=top.recorder.redactor("\n".join(filter(None, texts)))), seconds)


def of_phases(session: RunFinished, earlier: Sequence[Outcome]) -> RunFinished:
    """Return the end of a run: the outcome of its first phase that did not pass, with the messages of later ones.

    Args:
        session: the end of the last session.
        earlier: the outcomes of the phases that earlier sessions executed, in their order.
    """
    failed = next((outcome for outcome in earlier if not outcome.verdict.is_pass), None)
    if failed is not None:
        texts = [failed.message, *([f"and then: {session.message}"] if session.message else [])]
        end = finished(replace(failed, message="\n".join(texts)), session.seconds)
        is_late = failed.verdict is Verdict.CANCELLED and failed.cause is Cause.TIMEOUT
        return replace(end, exit_code=ExitCode.DEADLINE) if is_late else end
    skipped = next((outcome for outcome in earlier if outcome.verdict is Verdict.SKIPPED), None)
    if skipped is not None and session.verdict is Verdict.PASSED:
        return finished(replace(skipped, cause=None), session.seconds)
    return session


def of_shards(shards: Mapping[str, RunFinished], seconds: float) -> RunFinished:
    """Return the end of a merged run: that of the worst shard, with the messages of all shards that did not pass.

    Args:
        shards: the ends of the shards by their names, in the order of the shards.
    """
    codes = {name: _code_of_shard(end) for name, end in shards.items()}
    code = worst_exit_code(codes.values())
    if code is ExitCode.NOTHING_RAN:
        return finished(Outcome(Verdict.SKIPPED, None, "nothing ran in any shard"), seconds)
    decisive = worst((name for name in shards if codes[name] is code), lambda name: shards[name].verdict)
    assert decisive is not None
    end = shards[decisive]
    names = [decisive, *(name for name in shards if name != decisive and not shards[name].verdict.is_pass)]
    texts = [f"{name}: {truncate(shards[name].message, _LONGEST_MESSAGE)}" for name in names]
    message = "" if end.verdict is Verdict.PASSED else "\n".join(texts)
    return RunFinished(end.verdict, end.cause, code, message, seconds)


def _code_of_shard(end: RunFinished) -> ExitCode:
    """Return the exit code of a run that consists of this shard."""
    if end.verdict is Verdict.CANCELLED and end.exit_code in _INTERRUPTED:
        return ExitCode(end.exit_code)
    return exit_code(end.verdict)


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
    return finished(Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, message), recorded.seconds)


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
    shown = first_of([truncate(" ".join(name.split()), _LONGEST_NAME) for name in names], _MAX_NAMES)
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
