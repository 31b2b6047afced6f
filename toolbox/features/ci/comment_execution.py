"""Runs what a comment requests, one run after the other, for `ci run`."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TextIO

from toolbox.features.ci import announcements, refusals
from toolbox.features.ci.comment_runs import CommentRun
from toolbox.features.ci.refusals import Fault
from toolbox.ground.model.errors import ToolboxError, UsageError, describe, exit_code_of
from toolbox.ground.model.verdicts import ExitCode, worst_exit_code
from toolbox.ground.system import redaction, signals
from toolbox.orchestration import project_run
from toolbox.orchestration.request import RunRequest
from toolbox.records.runs import summary
from toolbox.records.runs.recorder import Listener
from toolbox.records.runs.run_state import RunState
from toolbox.reports.terminal import live_view, project_runs

log = logging.getLogger(__name__)

_INTERRUPTED: Final = frozenset({ExitCode.SIGINT, ExitCode.SIGTERM})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the runs of a comment ended.

    Args:
        exit_code: the exit code of the worst run.
        directories: the directories of the runs that were started.
    """

    exit_code: int
    directories: Sequence[Path] = ()


def announce(runs: Sequence[CommentRun], *, as_json: bool) -> None:
    """Show what was understood before anything runs.

    Args:
        as_json: show the text on stderr, because stdout gets JSON.

    Raises:
        UsageError: a configuration is wrong, or a plan exceeds a limit. Nothing was shown.
    """
    lines, faults = [], []
    for run in runs:
        try:
            lines += announcements.understood(run)
        except UsageError as error:
            faults.append(Fault(run.line, str(error)))
    refusals.raise_for(faults)
    with live_view.view(_stream(as_json=as_json)) as view:
        for line in lines:
            view.line(redaction.current()(line))
        view.line("")


def run_all(
    runs: Sequence[CommentRun], *, deadline: float | None, as_json: bool, listeners: Sequence[Listener] = ()
) -> Outcome:
    """Run what a comment requests in order.

    Args:
        deadline: the time limit of all runs together in seconds; None for no limit.
        as_json: print the summary as JSON on stdout, and all other output on stderr. If the comment requests several
            runs, stdout gets a list of summaries.
        listeners: further views of each run.
    """
    stream = _stream(as_json=as_json)
    end = math.inf if deadline is None else time.monotonic() + deadline
    codes: list[int] = []
    states: list[RunState] = []
    for run in runs:
        is_late = time.monotonic() >= end
        if is_late or not _INTERRUPTED.isdisjoint(codes):
            reason = "the deadline has passed" if is_late else "the run before it was interrupted"
            log.error("%s was not started: %s", run.description, reason)
            codes.append(ExitCode.DEADLINE if is_late else ExitCode.NOTHING_RAN)
            continue
        signals.forget_deadline()
        left = None if deadline is None else end - time.monotonic()
        show = partial(project_runs.show, stream=stream, listeners=listeners)
        state, code = _execute(run, replace(run.request, deadline=left), show, is_only=len(runs) == 1)
        codes.append(code)
        states += [] if state is None else [state]
    if as_json:
        summaries = [summary.as_json(state) for state in states]
        project_runs.print_json(summaries[0] if summaries and len(runs) == 1 else summaries)
    return Outcome(worst_exit_code(codes), [state.directory for state in states])


def _stream(*, as_json: bool) -> TextIO:
    return sys.stderr if as_json else sys.stdout


def _execute(
    run: CommentRun, request: RunRequest, show: Callable[..., tuple[RunState, int]], *, is_only: bool
) -> tuple[RunState | None, int]:
    """Execute a run. If the comment requests other runs too, an error is logged, so that they are executed too."""

    def repeat(directory: Path) -> str:
        return f"to repeat this run: {announcements.repeat_command(request, directory)}"

    try:
        return show(partial(project_run.execute, request), announce=repeat)
    except ToolboxError as error:
        if is_only:
            raise
        log.error("%s: %s", run.description, describe(error))  # noqa: TRY400  # an expected error has no traceback
        return None, exit_code_of(error)
