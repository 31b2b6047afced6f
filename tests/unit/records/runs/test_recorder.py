"""A recorder sends events to the journal and to the views, without secrets."""

import dataclasses
from pathlib import Path

import pytest

from toolbox.ground.model.cases import CaseOutcome
from toolbox.ground.model.events import (
    CaseFailed,
    Event,
    JournalEvent,
    Note,
    SecretLeft,
    StepFinished,
    StepKind,
    TaskStarted,
)
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system.redaction import Redactor
from toolbox.records.runs import journal
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Step

FINISHED = StepFinished("s", "n", StepKind.GROUP, Verdict.ERROR, Cause.INTERNAL, "why", 1.0)


def test_the_journal_gets_its_events_and_listeners_get_all_events(
    top: Step, tmp_path: Path, events: list[Event]
) -> None:
    shown: list[Event] = [TaskStarted("s", "t"), Note("s", "line"), FINISHED]
    for event in shown:
        top.recorder.record(event)
    assert events == shown
    assert kept(tmp_path) == [FINISHED]


def kept(directory: Path) -> list[JournalEvent]:
    return [entry.event for entry in journal.read(directory)]


def test_every_listener_gets_events_in_order(tmp_path: Path) -> None:
    notified: list[str] = []
    recorder = Recorder(tmp_path, Redactor(), [lambda _: notified.append("first"), lambda _: notified.append("second")])
    recorder.record(Note("", "x"))
    assert notified == ["first", "second"]


def test_a_recorder_without_a_journal_keeps_nothing(tmp_path: Path) -> None:
    Recorder(tmp_path, Redactor()).record(FINISHED)
    assert list(tmp_path.iterdir()) == []


def test_secrets_are_masked_for_journal_and_listeners(top: Step, events: list[Event], tmp_path: Path) -> None:
    top.recorder.redactor.add(["hunter2", "error", "group"])
    top.recorder.record(StepFinished("s", "n", StepKind.GROUP, Verdict.ERROR, None, "with hunter2", 1.0))
    wanted = StepFinished("s", "n", StepKind.GROUP, Verdict.ERROR, None, "with ***", 1.0)
    assert events == kept(tmp_path) == [wanted]


def test_a_secret_in_the_name_of_a_test_case_is_masked(top: Step, events: list[Event], tmp_path: Path) -> None:
    top.recorder.redactor.add(["hunter2"])
    top.recorder.record(CaseFailed("s", "*.xml", "m", "test[hunter2]", CaseOutcome.FAILED, None, "not hunter2"))
    wanted = CaseFailed("s", "*.xml", "m", "test[***]", CaseOutcome.FAILED, None, "not ***")
    assert events == kept(tmp_path) == [wanted]


def test_a_step_is_named_from_the_run_directory(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, Redactor())
    assert recorder.identity(tmp_path / "000__a" / "001__b") == "000__a/001__b"
    assert recorder.identity(Path("/elsewhere")) == "/elsewhere"


@pytest.mark.parametrize("error", [OSError("the terminal is gone"), ValueError("a bug"), SystemExit(1)])
def test_a_listener_that_raises_is_removed(
    top: Step, tmp_path: Path, events: list[Event], error: BaseException
) -> None:
    calls: list[Event] = []

    def broken(event: Event) -> None:
        calls.append(event)
        raise error

    top.recorder.listeners = [broken, *top.recorder.listeners]
    later = dataclasses.replace(FINISHED, message="later")
    for event in (FINISHED, Note("s", "line"), later):
        top.recorder.record(event)
    assert calls == [FINISHED]
    assert events == [FINISHED, Note("s", "line"), later]
    assert kept(tmp_path) == [FINISHED, later]


def test_a_removed_listener_is_logged_with_the_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Event) -> None:
        raise OSError("the terminal is closed")

    Recorder(tmp_path, Redactor(), [broken]).record(FINISHED)
    assert "OSError: the terminal is closed" in caplog.text


def test_a_file_that_keeps_its_secret_is_recorded_once(top: Step, tmp_path: Path, events: list[Event]) -> None:
    top.recorder.redactor.add(["hunter2"])
    (tmp_path / "000__a").mkdir()
    (tmp_path / "000__a/model.bin").write_bytes(b"\0hunter2")
    (tmp_path / "000__a/step.json").write_text('{"name": "hunter2"}')
    for _ in range(2):
        top.recorder.sweep("000__a", tmp_path / "000__a")
    assert kept(tmp_path) == [SecretLeft("000__a", "000__a/model.bin")]
    assert [type(event) for event in events] == [SecretLeft, Note]
    assert (tmp_path / "000__a/step.json").read_text() == '{"name": "hunter2"}'
