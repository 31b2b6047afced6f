"""The live view shows a run on a terminal or in a file, and disables hostile output."""

import io
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from toolbox.ground.model.events import (
    CheckJudged,
    ConfigurationChanged,
    Event,
    Note,
    RunFinished,
    RunStarted,
    StepFinished,
    StepKind,
    StepStarted,
    TaskFinished,
    TaskStarted,
)
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.runs.run_state import RunState, State
from toolbox.reports.terminal import live_view, run_table
from toolbox.reports.terminal.live_view import View

Show = Callable[..., str]


@pytest.fixture
def show() -> Show:
    """Return a function that shows events on a stream that is not a terminal, and returns the text."""

    def call(*events: Event) -> str:
        stream = io.StringIO()
        with live_view.view(stream) as view:
            for event in events:
                view.show(event)
        return stream.getvalue()

    return call


def began(step: str) -> StepStarted:
    return StepStarted(step, step.rpartition("__")[2], StepKind.GROUP)


def ended(
    step: str, verdict: Verdict = Verdict.PASSED, message: str = "", kind: StepKind = StepKind.GROUP
) -> StepFinished:
    cause = None if verdict.is_pass else Cause.PRODUCT
    return StepFinished(step, step.rpartition("__")[2], kind, verdict, cause, message, 1.25)


def task(status: str = "ok", command: str = "", output: str = "", host: str = "localhost") -> TaskFinished:
    return TaskFinished("000__a/000__b", "Read the state", host, status, command, output, 0.51)


def test_a_run_begins_with_its_name_its_presets_and_its_directory(show: Show) -> None:
    assert show(RunStarted("r-1", "training", "/runs/r-1", ("small", "fast"))) == (
        "run r-1 of training with small, fast\nin /runs/r-1\n"
    )
    assert show(RunStarted("r-1", "training", "/runs/r-1", ())).startswith("run r-1 of training\n")


def test_without_a_terminal_each_event_is_a_plain_line(show: Show) -> None:
    events = [began("000__a"), began("000__a/000__b"), TaskStarted("000__a/000__b", "Read the state"), task()]
    text = show(*events, ended("000__a/000__b"), ended("000__a", Verdict.FAILED))
    assert text.splitlines() == [
        "> a",
        "  > b",
        "    ok      Read the state  0.5 s",
        "  < b passed in 1.2 s",
        "< a failed in 1.2 s",
    ]


def test_a_long_line_is_not_wrapped_without_a_terminal(show: Show) -> None:
    assert show(Note("", "word " * 100)).count("\n") == 1


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (task("changed", "make all"), ["changed Read the state  0.5 s", "$ make all"]),
        (task("ok", "ls", "a\nb"), ["ok      Read the state  0.5 s", "$ ls", "a", "b"]),
        (task("ok", output="all good"), ["ok      Read the state  0.5 s"]),
        (task("failed", output="no such file"), ["failed  Read the state  0.5 s", "no such file"]),
        (task("ignored", "x", "no"), ["ignored Read the state  0.5 s", "$ x", "no"]),
        (task("skipped", "x", "no"), ["skipped Read the state  0.5 s"]),
        (
            task("unreachable", output="no route", host="node-1"),
            ["unreachable Read the state [node-1]  0.5 s", "no route"],
        ),
        (task("ok", "two\n lines"), ["ok      Read the state  0.5 s", "$ two lines"]),
    ],
)
def test_a_task_is_shown_with_its_command_its_output_and_its_time(
    show: Show, event: TaskFinished, lines: list[str]
) -> None:
    text = show(event)
    assert [line.strip() for line in text.splitlines()] == lines
    assert all(line.startswith("    ") for line in text.splitlines())


def test_a_check_a_change_and_a_note_are_a_line_each(show: Show) -> None:
    text = show(
        CheckJudged("000__a", "metric", passed=True, message="1.5 s"),
        CheckJudged("000__a", "files", passed=False, message="none"),
        ConfigurationChanged("a.b", "5", "set_config"),
        Note("000__a/000__b", "$ ls"),
    )
    assert text.splitlines() == [
        "  check pass metric: 1.5 s", "  check FAIL files: none", "configuration: a.b --> 5", "    $ ls",
    ]  # fmt: skip


def test_a_failed_command_ends_with_its_message(show: Show) -> None:
    text = show(ended("000__x", Verdict.ERROR, "task `T` failed\nno device", StepKind.COMMAND))
    assert text == "< x error in 1.2 s\n  task `T` failed\n  no device\n"
    assert show(ended("000__x", Verdict.ERROR, "said by the command", StepKind.PHASE)) == "< x error in 1.2 s\n"


def test_long_output_is_shortened_in_the_middle(show: Show) -> None:
    text = show(task("failed", "x", "\n".join(f"line {number}" for number in range(100))))
    assert [line.strip() for line in text.splitlines()[2:]] == [
        "line 0", "line 1", "line 2", "... 94 lines ...", "line 97", "line 98", "line 99",
    ]  # fmt: skip


def test_short_output_is_shown_completely(show: Show) -> None:
    assert "..." not in show(task("failed", "x", "\n".join("123456")))


def test_a_long_line_of_output_is_truncated(show: Show) -> None:
    longest = max(show(task("failed", "x" * 5000, "y" * 5000)).splitlines(), key=len)
    assert len(longest) < 170
    assert longest.endswith("...")


HOSTILE = "\x1b[2J\x1b]0;title\x07\x1b]8;;http://x\x1b\\a\rb\x9b31mc\x00\x7f\x08\u202e[bold]d[/]\udcff:smile:"


def hostile(text: str) -> list[Event]:
    return [
        StepStarted("000__a", text, StepKind.GROUP),
        TaskStarted("000__a", text),
        TaskFinished("000__a", text, "localhost", "failed", text, text, 1.0),
        Note("000__a", text),
        CheckJudged("000__a", "files", passed=False, message=text),
        ConfigurationChanged("a", text, "me"),
        StepFinished("000__a", text, StepKind.COMMAND, Verdict.FAILED, Cause.PRODUCT, text, 1.0),
    ]


@pytest.mark.parametrize("event", hostile(HOSTILE), ids=lambda event: type(event).__name__)
def test_control_sequences_are_removed_and_markup_is_text(show: Show, event: Event) -> None:
    text = show(event)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", text)
    if not isinstance(event, TaskStarted):
        assert "[bold]d[/]:smile:" in text
        assert "title" not in text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain ☃ é\n\ttabs", "plain ☃ é\n\ttabs"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]0;no end\nnext line stays\x07", "]0;no end\nnext line stays"),
        ("\x1b", ""),
    ],
)
def test_clean_removes_only_control_characters(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def live(screen: io.StringIO) -> Iterator[View]:
    """Yield a view on a terminal, which shows the running steps at the bottom."""
    view = View(Console(file=screen, force_terminal=True, width=100, markup=False, highlight=False, emoji=False))
    with view.live():
        yield view


def bottom(view: View) -> str:
    """Return the text at the bottom of the terminal."""
    with (console := Console(width=100, file=io.StringIO())).capture() as captured:
        console.print(view._bottom())
    return captured.get()


def test_the_bottom_shows_the_innermost_steps_with_their_task_and_time(live: View) -> None:
    for event in (
        began("000__a"),
        began("000__a/000__b"),
        began("000__a/001__c"),
        TaskStarted("000__a/001__c", "Read"),
    ):
        live.show(event)
    shown = bottom(live)
    assert re.search(r"^\S a/b +0\.\d s", shown, re.MULTILINE)
    assert re.search(r"^\S a/c +0\.\d s +Read", shown, re.MULTILINE)
    assert not re.search(r"^\S a ", shown, re.MULTILINE)


def test_an_ended_step_is_replaced_at_the_bottom_by_the_enclosing_step(live: View) -> None:
    for event in (
        began("000__a"),
        began("000__a/000__b"),
        TaskStarted("000__a/000__b", "Read"),
        ended("000__a/000__b"),
    ):
        live.show(event)
    assert re.search(r"^\S a +0\.\d s", bottom(live), re.MULTILINE)
    live.show(ended("000__a"))
    assert bottom(live).strip() == ""


def test_a_hostile_name_is_cleaned_at_the_bottom(live: View) -> None:
    for event in hostile(HOSTILE)[:2]:
        live.show(event)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]", bottom(live))


def test_a_terminal_has_colour_and_its_cursor_back_at_the_end(screen: io.StringIO) -> None:
    view = View(Console(file=screen, force_terminal=True, color_system="standard"))
    with view.live():
        view.show(ended("000__a", Verdict.FAILED))
    text = screen.getvalue()
    assert re.search(r"\x1b\[[0-9;]*31m", text)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_the_refresh_of_the_bottom_never_waits_for_a_line_that_is_being_printed(screen: io.StringIO) -> None:
    """The refresh holds a lock that printing needs: if the refresh also took the view's lock, both would deadlock."""
    printing, go_on = threading.Event(), threading.Event()

    class Slow(Console):
        def print(self, *args: Any, **options: Any) -> None:
            printing.set()
            assert go_on.wait(30)
            super().print(*args, **options)

    view = View(Slow(file=screen, force_terminal=True))
    with ThreadPoolExecutor(2) as threads:
        line = threads.submit(view.show, Note("", "x"))
        assert printing.wait(30)
        refreshed = threads.submit(view._bottom)
        try:
            refreshed.result(timeout=30)
        finally:
            go_on.set()
        line.result(timeout=30)


def test_lines_of_several_threads_are_whole(live: View, screen: io.StringIO) -> None:
    def work(name: str) -> None:
        for number in range(20):
            live.show(began(f"{number:03d}__{name}"))
            live.show(Note("", f"<{name * 30}>"))
            live.show(ended(f"{number:03d}__{name}"))

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work, name) for name in "abcd"]:
            done.result(timeout=60)
    lines = clean(screen.getvalue()).splitlines()
    assert [sum(f"<{name * 30}>" in line for line in lines) for name in "abcd"] == [20] * 4


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


HOSTILE = "\x1b]0;title\x07\u202e::stop-commands::x\n  ::add-mask::a ##[error]b\x9b31m"


@pytest.mark.parametrize("stream", [io.StringIO, _Terminal])
def test_no_foreign_text_controls_a_terminal_or_a_ci_system(
    stream: type[io.StringIO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    target = stream()
    with live_view.view(target) as view:
        for event in (
            RunStarted(HOSTILE, HOSTILE, HOSTILE, (HOSTILE,)),
            StepStarted("000__a", HOSTILE, StepKind.CELL),
            Note("000__a", HOSTILE),
            TaskFinished("000__a", HOSTILE, HOSTILE, "failed", HOSTILE, HOSTILE, 1.0),
            CheckJudged("000__a", HOSTILE, passed=False, message=HOSTILE),
            ConfigurationChanged(HOSTILE, HOSTILE, HOSTILE),
            StepFinished("000__a", HOSTILE, StepKind.COMMAND, Verdict.FAILED, Cause.PRODUCT, HOSTILE, 1.0),
        ):
            view.show(event)
        view.line(HOSTILE)
        end = RunFinished(Verdict.FAILED, Cause.PRODUCT, 1, HOSTILE, 1.0)
        run_table.show(RunState("r", HOSTILE, tmp_path / "\x1b]0;x\x07::x", State.FINISHED, finished=end), view)
    text = target.getvalue()
    assert "\x1b]" not in text
    assert not set("\x07\x9b\u202e") & set(text)
    assert "##[" not in text
    assert not [
        line for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).splitlines() if line.strip().startswith("::")
    ]
