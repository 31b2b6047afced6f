"""The live view of a run, which shows steps and tasks when they begin and end.

A terminal also shows the running steps and their times at the bottom. The output of programs is shown as text, without
markup and control characters.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from toolbox.ground.model.events import (
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
from toolbox.ground.model.foreign_text import clean, printable
from toolbox.ground.model.text import duration, truncate, without_middle
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import redaction
from toolbox.reports.terminal.progress import Progress

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
_MAX_LINES: Final = 6
MAX_ROWS: Final = 12  # running cells at the bottom


_Part = str | tuple[str, str]
"""A piece of a line: a text, or a text and its style."""


class View:
    """Shows the events of a run. Any thread may call it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._lock = threading.RLock()
        self._running: dict[str, tuple[str, float]] = {}
        self._tasks: dict[str, str] = {}
        self._progress = Progress()

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the running steps at the bottom of a terminal until the end of the block."""
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
        """Refresh the running steps, but never while a line is printed.

        Rich moves the cursor up before it prints. If the refresh thread of Rich ran meanwhile, lines would be lost.
        """
        while not over.wait(_REFRESH_SECONDS):
            with self._lock:
                live.refresh()

    def show(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            self._progress.add(event)
            match event:
                case RunStarted():
                    self.line(f"run {event.run} of {event.project}" + _with_presets(event.presets), style="bold")
                    self.line(f"in {event.directory}", style="dim")
                case StepStarted():
                    if event.kind is not StepKind.CELL:
                        self._running[event.step] = (event.name, time.monotonic())
                    self._indented(event.step, (f"> {clean(event.name)}", "bold"))
                case StepFinished():
                    self._running.pop(event.step, None)
                    self._tasks.pop(event.step, None)
                    self._finished(event)
                case TaskStarted():
                    self._tasks[event.step] = event.name
                case TaskFinished():
                    self._task(event)
                case CheckJudged() if not self._progress.is_running(event.step):  # a cell shows its checks at its end
                    mark = _MARKS[event.passed]
                    self._indented(event.step, "  check ", mark, f"{event.check}: {clean(event.message)}")
                case ConfigurationChanged():
                    self.line(f"configuration: {event.path} --> {clean(event.value)}", style="dim")
                case AttemptWaiting(reason=text) | Note(text=text) if text:
                    self._indented(event.step, (f"  {clean(text)}", "dim"))

    def line(self, text: str, style: str = "") -> None:
        """Show a line."""
        self._print((text, style))

    def _finished(self, event: StepFinished) -> None:
        style = STYLES[event.verdict]
        parts: list[_Part] = [
            (f"< {clean(event.name)} ", "bold"),
            (str(event.verdict), style),
            (f" in {duration(event.seconds)}", "dim"),
        ]
        if event.kind in {StepKind.COMMAND, StepKind.CELL} and event.message:
            parts.append(f"\n{_indent(event.step)}  {block(event.message, _indent(event.step) + '  ')}")
        self._indented(event.step, *parts)

    def _task(self, event: TaskFinished) -> None:
        host = "" if event.host == "localhost" else f" [{event.host}]"
        self._indented(
            event.step,
            (f"  {event.status:<7} ", _TASK_STYLES.get(event.status, "")),
            clean(event.name) + host,
            (f"  {duration(event.seconds)}", "dim"),
        )
        indent = _indent(event.step) + "    "
        if event.status != "skipped":
            if event.command:
                self._detail(f"{indent}$ {truncate(' '.join(clean(event.command).split()))}")
            if event.output and (event.command or event.status not in {"ok", "changed"}):
                self._detail(indent + block(event.output, indent))

    def _detail(self, text: str) -> None:
        """Show lines of minor importance. A terminal dims them, and truncates them at its edge."""
        if self.console.is_terminal:
            self.console.print(Text(text, style="dim"), no_wrap=True, overflow="ellipsis")
        else:
            self._print(text)

    def _indented(self, step: str, *parts: _Part) -> None:
        self._print(_indent(step), (self._side(step), "cyan"), *parts)

    def _print(self, *parts: _Part) -> None:
        """Show lines. Without a terminal, write them directly: Rich is slow for the many lines of a matrix."""
        if self.console.is_terminal:
            self.console.print(Text.assemble(*parts), soft_wrap=True)
        elif not self.console.quiet:
            plain = "".join(part if isinstance(part, str) else part[0] for part in parts)
            try:
                self.console.file.write(f"{printable(plain)}\n")
                self.console.file.flush()
            except BrokenPipeError:
                self.console.on_broken_pipe()

    def _side(self, step: str) -> str:
        """Return the name of the parallel branch that a line belongs to; empty if no other branch is running."""
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
            seconds = f"  {duration(now - running[step][1])}  "
            rows.append(Text.assemble((clean(name), "bold"), seconds, (clean(self._tasks.get(step, "")), "dim")))
        return Group(*(Spinner("dots", row) for row in rows), *self._cells())

    def _cells(self) -> Iterator[RenderableType]:
        if not self._progress.is_shown:
            return
        yield Text(self._progress.headline(), style="bold")
        for name, seconds, line in itertools.islice(self._progress.rows(), MAX_ROWS):
            row = Text.assemble((f"  {clean(name)}", "bold"), f"  {duration(seconds)}  ", (masked(line), "dim"))
            row.no_wrap, row.overflow = True, "ellipsis"
            yield row


class _Console(Console):
    """A console that prints no foreign control sequences, and lets the run continue when its reader ends (`| head`)."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments to print. Only segments of Rich itself may contain control sequences."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Print nothing more. The default of Rich ends the program."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


@contextmanager
def view(stream: IO[str] | None = None) -> Iterator[View]:
    """Yield a view that prints to a stream; None for standard output."""
    target = stream or sys.stdout
    # Programs may read ids and paths from the output. So lines are broken only on a terminal.
    width = None if target.isatty() else _UNBROKEN_COLUMNS
    live_view = View(_Console(file=target, width=width, highlight=False, markup=False, emoji=False))
    with live_view.live():
        yield live_view


def masked(line: str) -> str:
    """Return a line of a log without secrets: the log itself is masked only after the end of the attempt."""
    return redaction.current()(clean(line))


def _name(part: str) -> str:
    return part.partition("__")[2]


def _with_presets(presets: tuple[str, ...]) -> str:
    return f" with {', '.join(presets)}" if presets else ""


def _indent(step: str) -> str:
    return "  " * (step.count("/") if step else 0)


def block(text: str, indent: str) -> str:
    """Return text with indented lines. If there are many lines, the lines in the middle are omitted."""
    lines = [truncate(line) for line in clean(text).splitlines() if line.strip()]
    return f"\n{indent}".join(without_middle(lines, _MAX_LINES))
