"""What a person sees of a run: steps and tasks as they go, and a table at the end.

On a terminal the steps that are going on stand at the bottom, with their time; elsewhere each change is a line.
What programs print is shown as text: no markup, no control characters.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from toolbox.model.events import (
    AttemptWaiting,
    CheckJudged,
    ConfigurationChanged,
    Event,
    Note,
    RunStarted,
    StepFinished,
    StepKind,
    StepStarted,
    TaskFinished,
    TaskStarted,
)
from toolbox.model.foreign_text import clean, printable
from toolbox.model.text import cut
from toolbox.model.verdicts import Verdict
from toolbox.reports.terminal.progress import Progress
from toolbox.runs.evidence_files import last_line
from toolbox.runs.summary import FILE as SUMMARY_FILE
from toolbox.runs.summary import RunSummary, State, StepSummary
from toolbox.system import environ, redaction

STYLES: Final = {
    Verdict.PASSED: "green",
    Verdict.XFAILED: "green",
    Verdict.SKIPPED: "yellow",
    Verdict.XPASSED: "yellow",
    Verdict.CANCELLED: "yellow",
    Verdict.FAILED: "bold red",
    Verdict.ERROR: "bold magenta",
}
_TASK_STYLES: Final = {
    "ok": "green",
    "changed": "green",
    "skipped": "dim",
    "ignored": "yellow",
    "failed": "bold red",
    "unreachable": "bold magenta",
}
_MARKS: Final = {True: ("pass ", "green"), False: ("FAIL ", "bold red"), None: ("---- ", "yellow")}
_REFRESH_SECONDS: Final = 0.125
_UNBROKEN_COLUMNS: Final = 2000
_MOST_LINES: Final = 6
_MOST_ROWS: Final = 12  # of what runs, at the bottom
_MOST_CELLS: Final = 40  # in the table at the end
_MOST_FAILURES: Final = 15
_MOST_OPEN: Final = 5


class View:
    """Shows the events of a run as they come, from any thread."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._lock = threading.RLock()
        self._running: dict[str, tuple[str, float]] = {}
        self._tasks: dict[str, str] = {}
        self._progress = Progress()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the steps that are going on at the bottom of a terminal."""
        if not self.console.is_terminal:
            yield
            return
        over = threading.Event()
        with Live(console=self.console, get_renderable=self._bottom, auto_refresh=False, transient=True) as live:
            refresher = threading.Thread(target=self._refresh, args=(live, over), daemon=True)
            refresher.start()
            try:
                yield
            finally:
                over.set()
                refresher.join()

    def _refresh(self, live: Live, over: threading.Event) -> None:
        """Keep the bottom up to date, never while a line is printed.

        Rich says where to go up to before it prints, and its own refresh would come between: lines would be lost.
        """
        while not over.wait(_REFRESH_SECONDS):
            with self._lock:
                live.refresh()

    def show(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            self._progress.take(event)
            match event:
                case RunStarted():
                    self.line(f"run {event.run} of {event.project}" + _with_presets(event.presets), style="bold")
                    self.line(f"in {event.directory}", style="dim")
                case StepStarted(kind=StepKind.CELL):
                    self._indented(event.step, Text.assemble((f"> {clean(event.name)}", "bold")))
                case StepStarted():
                    self._running[event.step] = (event.name, time.monotonic())
                    self._indented(event.step, Text.assemble((f"> {clean(event.name)}", "bold")))
                case StepFinished():
                    self._running.pop(event.step, None)
                    self._tasks.pop(event.step, None)
                    self._finished(event)
                case TaskStarted():
                    self._tasks[event.step] = event.name
                case TaskFinished():
                    self._task(event)
                case CheckJudged() if not self._progress.is_running(event.step):  # a cell says it at its end
                    mark = _MARKS[event.passed]
                    self._indented(
                        event.step, Text.assemble("  check ", mark, f"{event.check}: {clean(event.message)}")
                    )
                case ConfigurationChanged():
                    self.line(f"configuration: {event.path} --> {clean(event.value)}", style="dim")
                case AttemptWaiting(reason=text) | Note(text=text) if text:
                    self._indented(event.step, Text(f"  {clean(text)}", style="dim"))

    def line(self, text: str, style: str = "") -> None:
        """Show a line."""
        self._print(Text(text, style=style))

    def table(self, summary: RunSummary) -> None:
        """Show how a run ended or stands: its steps, what failed, why, and where to look."""
        self.console.print(_table(summary))
        for step in _going_on(summary):
            line = _masked(last_line(_log_of(step, summary.directory)) or step.attempts[-1].waiting)
            self.line(f"  {step.name}: {line or 'it has printed nothing so far'}", style="dim")
        for failure in summary.failures[:_MOST_FAILURES]:
            self.console.print(_failure(failure, summary.directory), soft_wrap=True)
        if (more := len(summary.failures) - _MOST_FAILURES) > 0:
            self.line(f"\nand {more} more, in {summary.directory / SUMMARY_FILE}", style="bold")
        if summary.cancelled and summary.failures and summary.failures[0].verdict is not Verdict.CANCELLED:
            self.line(f"\n{summary.cancelled} others were cancelled", style=STYLES[Verdict.CANCELLED])
        remarks = [step for step in summary.cells if step.message and step.verdict is Verdict.PASSED]
        for step in remarks[:_MOST_FAILURES]:
            self.line(f"\n{step.name} passed, and:\n  {_block(step.message, '  ')}", style="yellow")
        if (more := len(remarks) - _MOST_FAILURES) > 0:
            self.line(f"\nand {more} more that passed with a remark, in {summary.directory / SUMMARY_FILE}")
        for finding in summary.attribution:
            self.line(f"\nwhat failed has in common: {clean(str(finding))}", style="bold")
        for text in _closing(summary):
            self.console.print(text, soft_wrap=True)

    def _finished(self, event: StepFinished) -> None:
        style = STYLES[event.verdict]
        parts: list[str | tuple[str, str]] = [
            (f"< {clean(event.name)} ", "bold"),
            (str(event.verdict), style),
            (f" in {event.seconds:.1f} s", "dim"),
        ]
        if event.kind in {StepKind.COMMAND, StepKind.CELL} and event.message:
            parts.append(f"\n{_indent(event.step)}  {_block(event.message, _indent(event.step) + '  ')}")
        self._indented(event.step, Text.assemble(*parts))

    def _task(self, event: TaskFinished) -> None:
        host = "" if event.host == "localhost" else f" [{event.host}]"
        text = Text.assemble(
            (f"  {event.status:<7} ", _TASK_STYLES.get(event.status, "")),
            clean(event.name) + host,
            (f"  {event.seconds:.1f} s", "dim"),
        )
        self._indented(event.step, text)
        indent = _indent(event.step) + "    "
        if event.status != "skipped":
            if event.command:
                self._detail(f"{indent}$ {cut(' '.join(clean(event.command).split()))}")
            if event.output and (event.command or event.status not in {"ok", "changed"}):
                self._detail(indent + _block(event.output, indent))

    def _detail(self, text: str) -> None:
        """Show lines of lesser weight; a terminal cuts them at its edge."""
        if self.console.is_terminal:
            self.console.print(Text(text, style="dim"), no_wrap=True, overflow="ellipsis")
        else:
            self._print(Text(text))

    def _indented(self, step: str, text: Text) -> None:
        self._print(Text.assemble(_indent(step), (self._side(step), "cyan"), text))

    def _print(self, text: Text) -> None:
        """Show lines. Where there are no colours, this is all that there is to do: a matrix has many lines."""
        if self.console.is_terminal:
            self.console.print(text, soft_wrap=True)
        elif not self.console.quiet:
            try:
                self.console.file.write(f"{printable(text.plain)}\n")
                self.console.file.flush()
            except BrokenPipeError:
                self.console.on_broken_pipe()

    def _side(self, step: str) -> str:
        """Return which of the steps that go on side by side a line is about; nothing where one goes on alone."""
        parts = step.split("/")
        running = [other.split("/") for other in self._running]
        for depth, part in enumerate(parts):
            beside = {other[depth] for other in running if other[:depth] == parts[:depth] and len(other) > depth}
            if beside - {part}:
                return f"[{clean(_name(part))}] "
        return ""

    def _bottom(self) -> RenderableType:
        running, now = dict(self._running), time.monotonic()
        leaves = [step for step in running if not any(s.startswith(f"{step}/") for s in running)]
        rows = []
        for step in leaves:
            name = "/".join(_name(part) for part in step.split("/")[-2:])
            seconds = f"  {now - running[step][1]:5.1f} s  "
            rows.append(Text.assemble((clean(name), "bold"), seconds, (clean(self._tasks.get(step, "")), "dim")))
        return Group(*(Spinner("dots", row) for row in rows), *self._cells())

    def _cells(self) -> Iterator[RenderableType]:
        if not self._progress.is_shown:
            return
        yield Text(self._progress.headline(), style="bold")
        for name, seconds, line in itertools.islice(self._progress.rows(), _MOST_ROWS):
            row = Text.assemble((f"  {clean(name)}", "bold"), f"  {seconds:5.1f} s  ", (_masked(line), "dim"))
            row.no_wrap, row.overflow = True, "ellipsis"
            yield row


class _Console(Console):
    """A console that others cannot steer, and whose reader may go away (`| head`): what was begun goes on, unseen."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield what is printed. Only Rich itself writes control sequences."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Show nothing from here on. Rich would end the program."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


@contextmanager
def view(stream: IO[str] | None = None) -> Iterator[View]:
    """Yield a view on a stream, standard output when it is left out."""
    target = stream or sys.stdout
    # Where nobody looks at columns, nothing is broken to fit them: a program reads ids and paths.
    width = None if target.isatty() else _UNBROKEN_COLUMNS
    shown = View(_Console(file=target, width=width, highlight=False, markup=False, emoji=False))
    with shown.shown():
        yield shown


def _table(summary: RunSummary) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for heading in ("step", "verdict", "cause"):
        table.add_column(heading, overflow="fold")
    table.add_column("checks", justify="right")
    table.add_column("time", justify="right")
    for step in _shown(summary):
        # A directory has a number before its name, and not every character of the name of a cell.
        own = clean(step.name) if step.kind is StepKind.CELL else step.step.rpartition("/")[2]
        name = Text("  " * step.depth + own)
        shown = Text(step.verdict or _without_verdict(summary), style=STYLES[step.verdict] if step.verdict else "cyan")
        if not step.counts:
            shown.append(" (does not count)", style="dim")
        judged = [check.passed for check in step.checks if check.passed is not None]
        checks = f"{sum(judged)} of {len(judged)}" if judged else ""
        elapsed = step.seconds if step.verdict is not None else _elapsed(step, summary.state)
        seconds = f"{elapsed:.1f} s" if elapsed is not None else ""
        table.add_row(name, shown, step.cause or "", checks, seconds)
    return table


def _without_verdict(summary: RunSummary) -> str:
    return "going on" if summary.state is State.RUNNING else "not ended"


def _elapsed(step: StepSummary, state: State) -> float | None:
    if step.started is None or state is not State.RUNNING:
        return None
    return (datetime.now(UTC) - step.started).total_seconds()


def _going_on(summary: RunSummary) -> list[StepSummary]:
    """Return the cells that run, with something to be read from."""
    cells = [step for step in summary.cells if step.verdict is None and step.attempts]
    return cells[:_MOST_ROWS] if summary.state is State.RUNNING else []


def _log_of(step: StepSummary, directory: Path) -> Path:
    return directory / step.step / f"attempt-{step.attempts[-1].attempt}" / "stdout.log"


def _shown(summary: RunSummary) -> list[StepSummary]:
    """Return the steps to show: of many cells, those that did not pass."""
    if len(summary.cells) <= _MOST_CELLS:
        return list(summary.steps.values())
    bad = [step.step for step in summary.cells if step.verdict is None or not step.verdict.is_pass]
    kept = set(bad[:_MOST_CELLS])
    return [step for step in summary.steps.values() if step.kind is not StepKind.CELL or step.step in kept]


def _counted(summary: RunSummary) -> str:
    """Return how the cells ended, or stand."""
    counts = Counter(step.verdict or _without_verdict(summary) for step in summary.cells)
    missing = (summary.planned_cells or 0) - len(summary.cells)
    counted = [f"{count} {verdict}" for verdict, count in counts.items()]
    return ", ".join([*counted, *([f"{missing} not started"] if missing > 0 else [])])


def _failure(step: StepSummary, directory: Path) -> Text:
    verdict = step.verdict or Verdict.ERROR
    return Text.assemble(
        "\n",
        (f"{verdict}: ", STYLES[verdict]),
        (step.step, "bold"),
        f" ({step.cause})\n  {_block(step.message, '  ')}\n",
        (f"  look at {directory / step.step}", "dim"),
    )


def _closing(summary: RunSummary) -> Iterator[Text]:
    from toolbox.reports import run_page  # a toolbox command by itself has no report

    end = summary.finished
    yield Text("")
    for name, cluster in summary.clusters.items():
        if text := str(cluster):
            yield Text(f"cluster {name}: {clean(text)}")
    if summary.planned_cells:
        noun = "cell" if summary.planned_cells == 1 else "cells"
        yield Text(f"of {summary.planned_cells} {noun}: {_counted(summary)}")
    yield from _without_end(summary)
    if end is None:
        state = "is going on" if summary.state is State.RUNNING else "is dead: its process has gone without ending it"
        yield Text(f"the run {summary.run} {state}", style="bold")
        if summary.state is State.DEAD:
            yield _going_on_hint(summary)
    else:
        cause = f" ({end.cause})" if end.cause else ""
        yield Text.assemble(
            (f"{end.verdict}{cause}", STYLES[end.verdict]), f"  {summary.project} in {end.seconds:.1f} s"
        )
        extra = end.message.splitlines() if not summary.failures or end.verdict is Verdict.CANCELLED else []
        for line in extra:
            yield Text(f"  {clean(line)}")
        if end.verdict is Verdict.CANCELLED:
            yield _going_on_hint(summary)
    yield from _warnings(summary)
    if end is not None and (page := summary.directory / run_page.FILE).is_file():
        yield Text(f"the report is {page}")
    yield Text(f"the run is in {summary.directory}")


def _warnings(summary: RunSummary) -> Iterator[Text]:
    if summary.damage:
        yield Text(clean(summary.damage_warning), style="bold red")
    if summary.secrets_left:
        named = ", ".join(clean(file) for file in sorted(summary.secrets_left)[:_MOST_FAILURES])
        yield Text(f"files that hold a secret, do not pass them on: {named}", style="bold red")


def _without_end(summary: RunSummary) -> Iterator[Text]:
    """Yield which attempts may be running, or may have left something, and what to do about them."""
    command = f"{environ.program()} project resume {summary.directory}"
    for attempts, said, what_to_do in (
        (summary.open_attempts, "may be running", f"`{command}` adopts it; with --abandon it is given up"),
        (summary.abandoned_attempts, "was given up, and may have left something", f"`{command}` removes that"),
    ):
        for step, attempt in attempts[:_MOST_OPEN]:
            where = f"attempt {attempt.attempt} of {step.name} on {attempt.target}"
            yield Text(clean(f"{where} {said}: {what_to_do}"), style=STYLES[Verdict.ERROR])
        if (more := len(attempts) - _MOST_OPEN) > 0:
            yield Text(f"and {more} more, in {summary.directory / SUMMARY_FILE}")


def _going_on_hint(summary: RunSummary) -> Text:
    return Text(f"continue it with `{environ.program()} project resume {summary.directory}`")


def _masked(line: str) -> str:
    """Return a line of a log that is swept only when its attempt has ended."""
    return redaction.current()(clean(line))


def _name(part: str) -> str:
    return part.partition("__")[2]


def _with_presets(presets: tuple[str, ...]) -> str:
    return f" with {', '.join(presets)}" if presets else ""


def _indent(step: str) -> str:
    return "  " * (step.count("/") if step else 0)


def _block(text: str, indent: str) -> str:
    lines = [cut(line) for line in clean(text).splitlines() if line.strip()]
    if len(lines) > _MOST_LINES:
        head = _MOST_LINES // 2
        lines = [*lines[:head], f"... {len(lines) - 2 * head} lines ...", *lines[-head:]]
    return f"\n{indent}".join(lines)
