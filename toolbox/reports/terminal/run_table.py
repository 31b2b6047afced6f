"""Prints the table of a run: the state of each step, what failed, why, and where the files are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.table import Table
from rich.text import Text

from toolbox.ground.model.events import RunFinished, RunPaused, StepKind
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import counted, duration, tally, truncate
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import environ
from toolbox.records.results import run_cost, since_last_run
from toolbox.records.results.since_last_run import NotCompared
from toolbox.records.runs import cell_owners
from toolbox.records.runs.evidence_files import last_line
from toolbox.records.runs.layout import CLEANUP, RunDirectory
from toolbox.records.runs.run_state import RunState, State, StepState
from toolbox.reports.terminal.live_view import MAX_ROWS, STYLES, View, block, masked

_MAX_CELLS: Final = 40  # cells in the table
_MAX_FAILURES: Final = 15
_MAX_OPEN: Final = 5
_LONGEST_LINE: Final = 500


def show(summary: RunState, view: View) -> None:
    """Print the table of a run."""
    view.console.print(_table(summary))
    for step in _going_on(summary):
        line = masked(last_line(_log_of(step, summary.directory)) or step.attempts[-1].waiting)
        view.line(f"  {step.name}: {line or 'no output yet'}", style="dim")
    owners = cell_owners.of_run(summary.directory) if summary.failures else {}
    for failure in summary.failures[:_MAX_FAILURES]:
        owner = owners.get(failure.identity, "") if failure.kind is StepKind.CELL else ""
        view.console.print(_failure(failure, summary.directory, owner), soft_wrap=True)
    if (more := len(summary.failures) - _MAX_FAILURES) > 0:
        view.line(f"\nand {more} more, in {RunDirectory(summary.directory).summary}", style="bold")
    if summary.cancelled and summary.failures and summary.failures[0].verdict is not Verdict.CANCELLED:
        view.line(f"\n{summary.cancelled} other steps were cancelled", style=STYLES[Verdict.CANCELLED])
    remarks = [step for step in summary.cells if step.message and step.verdict is Verdict.PASSED]
    for step in remarks[:_MAX_FAILURES]:
        view.line(f"\n{step.name} passed with a remark:\n  {block(step.message, '  ')}", style="yellow")
    if (more := len(remarks) - _MAX_FAILURES) > 0:
        view.line(f"\nand {more} more cells that passed with a remark, in {RunDirectory(summary.directory).summary}")
    for finding in summary.attribution:
        view.line(f"\nfailed cells have in common: {clean(str(finding))}", style="bold")
    for text in _closing(summary):
        view.console.print(text, soft_wrap=True)


def _table(summary: RunState) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for heading in ("step", "verdict", "cause"):
        table.add_column(heading, overflow="fold")
    table.add_column("checks", justify="right")
    if has_tests := any(step.cases for step in summary.steps.values()):
        table.add_column("tests", justify="right")
    table.add_column("time", justify="right")
    for step in _listed(summary):
        # The directory of a cell does not contain all characters of the name of the cell.
        name = clean(step.name) if step.kind is StepKind.CELL else step.step.rpartition("/")[2]
        style = STYLES[step.verdict] if step.verdict else "cyan"
        verdict = Text(step.verdict or _without_verdict(summary), style=style)
        if not step.counts:
            verdict.append(" (does not count)", style="dim")
        if step.reused_from:
            verdict.append(" (reused)", style="dim")
        judged = [check.passed for check in step.checks if check.passed is not None]
        checks = f"{sum(judged)} of {len(judged)}" if judged else ""
        elapsed = step.seconds if step.verdict is not None else _elapsed(step, summary.state)
        tests = [step.tests] if has_tests else []
        table.add_row(Text("  " * step.depth + name), verdict, step.cause or "", checks, *tests, duration(elapsed))
    return table


def _without_verdict(summary: RunState) -> str:
    return "going on" if summary.state is State.RUNNING else "not ended"


def _elapsed(step: StepState, state: State) -> float | None:
    if step.started is None or state is not State.RUNNING:
        return None
    return (datetime.now(UTC) - step.started).total_seconds()


def _going_on(summary: RunState) -> list[StepState]:
    """Return the running cells that have an attempt."""
    cells = [step for step in summary.cells if step.verdict is None and step.attempts]
    return cells[:MAX_ROWS] if summary.state is State.RUNNING else []


def _log_of(step: StepState, directory: Path) -> Path:
    return RunDirectory(directory).attempt(step.step, step.attempts[-1].attempt).stdout


def _listed(summary: RunState) -> list[StepState]:
    """Return the steps to list. If there are many cells, only the cells that did not pass are listed."""
    if len(summary.cells) <= _MAX_CELLS:
        return list(summary.steps.values())
    not_passed = [step.step for step in summary.cells if step.verdict is None or not step.verdict.is_pass]
    kept = set(not_passed[:_MAX_CELLS])
    return [step for step in summary.steps.values() if step.kind is not StepKind.CELL or step.step in kept]


def _counts(summary: RunState) -> str:
    """Return the counts of the verdicts of the cells."""
    counts = Counter[str](step.verdict or _without_verdict(summary) for step in summary.cells)
    return tally(counts, (summary.planned_cells or 0) - len(summary.cells))


def _failure(step: StepState, directory: Path, owner: str) -> Text:
    verdict = step.verdict or Verdict.ERROR
    return Text.assemble(
        "\n",
        (f"{verdict}: ", STYLES[verdict]),
        (step.step, "bold"),
        f" ({step.cause})\n  {block(step.message, '  ')}\n",
        f"  owner: {truncate(clean(owner))}\n" if owner else "",
        (f"  look at {directory / step.step}", "dim"),
    )


def _closing(summary: RunState) -> Iterator[Text]:
    end = summary.finished
    yield Text("")
    for name, cluster in summary.clusters.items():
        if text := str(cluster):
            yield Text(f"cluster {name}: {clean(text)}")
    yield from _remaining_resources(summary)
    yield from _since_last_run(summary)
    if summary.planned_cells:
        yield Text(f"of {counted(summary.planned_cells, 'cell')}: {_counts(summary)}")
    yield from _cases_with_remarks(summary)
    if (cost := run_cost.of(summary)) is not None:
        yield Text(f"cost: {clean(str(cost))}")
    yield from _without_end(summary)
    if summary.missing_phases:
        yield Text(f"phases that have not run: {', '.join(map(clean, summary.missing_phases))}", style="bold")
    yield from _ending(summary, end)
    yield from _warnings(summary)
    if end is not None and (page := RunDirectory(summary.directory).html).is_file():
        yield Text(f"the report is {page}")
    yield Text(f"the run is in {summary.directory}")


def _cases_with_remarks(summary: RunState) -> Iterator[Text]:
    """Yield a line if test cases passed with a remark, for example because a case compares nothing."""
    cases = [(step.name, report) for step in summary.cells for report in step.cases]
    if remarked := [f"{name}: {report.with_remarks}" for name, report in cases if report.remarks]:
        more = f" (and {len(remarked) - 1} more)" if len(remarked) > 1 else ""
        command = f"`{environ.program()} results show {summary.run} --tests` shows the remarks"
        yield Text(f"{_line(remarked[0])}{more}: {command}", style="yellow")


def _ending(summary: RunState, end: RunFinished | None) -> Iterator[Text]:
    """Yield how the run ended, or why it has not ended."""
    if end is None and summary.paused is not None:
        yield from _paused(summary, summary.paused)
    elif end is None:
        state = "is going on" if summary.state is State.RUNNING else "is dead: its process ended before the run did"
        yield Text(f"the run {summary.run} {state}", style="bold")
        if summary.state is State.DEAD:
            yield _resume_hint(summary)
    else:
        cause = f" ({end.cause})" if end.cause else ""
        yield Text.assemble(
            (f"{end.verdict}{cause}", STYLES[end.verdict]), f"  {summary.project} in {duration(end.seconds)}"
        )
        extra = end.message.splitlines() if not summary.failures or end.verdict is Verdict.CANCELLED else []
        for line in extra:
            yield Text(f"  {clean(line)}")
        if end.verdict is Verdict.CANCELLED and not summary.shards:
            yield _resume_hint(summary)


def _paused(summary: RunState, session: RunPaused) -> Iterator[Text]:
    """Yield the outcome of the latest step of a run that has not ended, and the command for the next one."""
    cause = f" ({session.cause})" if session.cause else ""
    yield Text.assemble(
        (f"{session.verdict}{cause}", STYLES[session.verdict]),
        f"  this step of {summary.project} in {duration(session.seconds)}",
    )
    if not summary.failures:
        yield from (Text(f"  {clean(line)}") for line in session.message.splitlines())
    phase = next(iter(summary.missing_phases), CLEANUP)
    yield Text(f"the run {summary.run} has not ended", style="bold")
    yield Text(f"continue it with `{environ.program()} project resume {summary.directory} --phases={clean(phase)}`")


def _since_last_run(summary: RunState) -> Iterator[Text]:
    """Yield the lines that compare the run with the baseline, or that say why it is not compared."""
    found = since_last_run.find(summary.directory)
    if isinstance(found, NotCompared):
        yield Text(_line(str(found)), style="dim")
    elif found is not None:
        if found.has_changes:
            yield Text(_line(f"since {found.earlier}: {found.tally}"), style="bold")
        if found.remarks:
            yield Text(_line(f"against the baseline: {found.remarks}"))
        for metric in found.lost[:_MAX_FAILURES]:
            yield Text(_line(f"{metric.name}: {metric}"), style="yellow")


def _line(text: str) -> str:
    return truncate(" ".join(clean(text).split()), _LONGEST_LINE)


def _remaining_resources(summary: RunState) -> Iterator[Text]:
    for entry in summary.remaining_resources[:_MAX_OPEN]:
        yield Text(clean(f"remote resource: {entry}"), style="" if entry.is_kept else STYLES[Verdict.ERROR])
    if (more := len(summary.remaining_resources) - _MAX_OPEN) > 0:
        yield Text(f"and {more} more remote resources: `{environ.program()} resources list` shows them")


def _warnings(summary: RunState) -> Iterator[Text]:
    if summary.damage:
        yield Text(clean(summary.damage_warning), style="bold red")
    if summary.secrets_left:
        named = ", ".join(clean(file) for file in sorted(summary.secrets_left)[:_MAX_FAILURES])
        yield Text(f"do not publish these files, which contain a secret: {named}", style="bold red")


def _without_end(summary: RunState) -> Iterator[Text]:
    """Yield a line for each open or abandoned attempt, with the command that adopts it or removes what it left."""
    if summary.shards:  # only the run of the shard can be resumed
        return
    command = f"{environ.program()} project resume {summary.directory}"
    for attempts, state, what_to_do in (
        (summary.open_attempts, "may be running", f"`{command}` adopts the attempt; --abandon gives it up"),
        (summary.abandoned_attempts, "was given up, and may have left files or processes", f"`{command}` removes them"),
    ):
        for step, attempt in attempts[:_MAX_OPEN]:
            where = f"attempt {attempt.attempt} of {step.name} on {attempt.target}"
            yield Text(clean(f"{where} {state}: {what_to_do}"), style=STYLES[Verdict.ERROR])
        if (more := len(attempts) - _MAX_OPEN) > 0:
            yield Text(f"and {more} more, in {RunDirectory(summary.directory).summary}")


def _resume_hint(summary: RunState) -> Text:
    return Text(f"continue the run with `{environ.program()} project resume {summary.directory}`")
