"""Each step has a directory, a verdict and a cause; its verdict is the worst verdict inside the step."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fakes.history import folded
from toolbox.ground.model.errors import (
    Cancelled,
    CheckFailed,
    ConfigurationError,
    InfrastructureError,
    Interrupted,
    StepError,
    ToolboxError,
)
from toolbox.ground.model.events import Event, JournalEvent, Note, StepFinished, StepKind, StepStarted
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import filesystem
from toolbox.records.runs import steps
from toolbox.records.runs.steps import Outcome, Step

PRODUCT = (Verdict.FAILED, Cause.PRODUCT)


def test_a_step_that_ends_has_passed(top: Step, tmp_path: Path) -> None:
    with steps.opened("deploy", kind=StepKind.GROUP, detail="./run_toolbox.py a b") as step:
        assert step.directory == tmp_path / "000__deploy"
        assert filesystem.read_json(step.directory / "step.json").keys() == {
            "step",
            "name",
            "kind",
            "detail",
            "started",
        }
    found = filesystem.read_json(tmp_path / "000__deploy/step.json")
    assert found.pop("seconds") >= 0
    assert "T" in found.pop("started")
    assert found == {
        "step": "000__deploy", "name": "deploy", "kind": "group", "detail": "./run_toolbox.py a b",
        "verdict": "passed", "cause": None, "message": "",
    }  # fmt: skip
    assert not (tmp_path / "000__deploy/FAILURE").exists()
    assert top.outcome() == Outcome(Verdict.PASSED)


@pytest.mark.parametrize(
    ("error", "verdict", "cause"),
    [
        (CheckFailed("too slow"), Verdict.FAILED, Cause.CHECK),
        (StepError("crashed", verdict=Verdict.FAILED, cause=Cause.PRODUCT), Verdict.FAILED, Cause.PRODUCT),
        (InfrastructureError("no route"), Verdict.ERROR, Cause.INFRASTRUCTURE),
        (ConfigurationError("no such field"), Verdict.ERROR, Cause.CONFIGURATION),
        (ToolboxError("something"), Verdict.ERROR, Cause.INFRASTRUCTURE),
        (Cancelled("another failed"), Verdict.CANCELLED, Cause.INTERRUPTED),
        (Interrupted(15), Verdict.CANCELLED, Cause.INTERRUPTED),
        (ZeroDivisionError("by zero"), Verdict.ERROR, Cause.INTERNAL),
        (KeyboardInterrupt(), Verdict.ERROR, Cause.INTERNAL),
    ],
)
def test_an_error_sets_the_verdict_writes_failure_and_is_raised(
    top: Step, tmp_path: Path, error: BaseException, verdict: Verdict, cause: Cause
) -> None:
    with pytest.raises(type(error)), steps.opened("test", kind=StepKind.PHASE):
        raise error
    outcome = top.outcome()
    assert outcome is not None
    assert (outcome.verdict, outcome.cause) == (verdict, cause)
    assert str(error) in outcome.message
    failure = (tmp_path / "000__test/FAILURE").read_text()
    assert failure == f"000__test: {verdict} ({cause})\n{outcome.message}\n"


def test_an_unexpected_error_is_shown_with_type_and_location(top: Step, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), steps.opened("test", kind=StepKind.PHASE):
        _ = 1 / 0
    failure = (tmp_path / "000__test/FAILURE").read_text()
    assert "ZeroDivisionError: division by zero" in failure
    assert f"{Path(__file__).name}:" in failure
    assert top.outcome() is not None


@pytest.mark.parametrize(
    ("outcomes", "worst"),
    [
        ([Verdict.PASSED, Verdict.SKIPPED], Verdict.PASSED),
        ([Verdict.PASSED, Verdict.XFAILED], Verdict.XFAILED),
        ([Verdict.CANCELLED, Verdict.FAILED], Verdict.FAILED),
        ([Verdict.ERROR, Verdict.FAILED, Verdict.PASSED], Verdict.ERROR),
        ([Verdict.SKIPPED], Verdict.SKIPPED),
    ],
)
def test_the_verdict_is_the_worst_of_the_children_whether_or_not_an_error_arrived(
    top: Step, outcomes: list[Verdict], worst: Verdict
) -> None:
    with steps.opened("test", kind=StepKind.PHASE) as step:
        for verdict in outcomes:
            step.add(Outcome(verdict))
    assert top.outcome() == Outcome(worst)


def test_an_error_that_was_caught_still_counts(top: Step) -> None:
    phase, inner = steps.opened("test", kind=StepKind.PHASE), steps.opened("inner", kind=StepKind.GROUP)
    with phase, pytest.raises(CheckFailed), inner:
        raise CheckFailed("too slow")
    assert top.outcome() == Outcome(Verdict.FAILED, Cause.CHECK, "too slow")


def test_the_first_of_equally_bad_outcomes_is_reported(top: Step) -> None:
    top.add(Outcome(Verdict.FAILED, Cause.PRODUCT, "first"))
    top.add(Outcome(Verdict.FAILED, Cause.CHECK, "second"))
    assert top.outcome() == Outcome(Verdict.FAILED, Cause.PRODUCT, "first")


def test_a_step_that_does_not_count_keeps_its_own_verdict(top: Step, tmp_path: Path, events: list[Event]) -> None:
    phase = steps.opened("test", kind=StepKind.PHASE)
    with phase, pytest.raises(CheckFailed), steps.opened("probe", kind=StepKind.COMMAND, counts=False):
        raise CheckFailed("as expected")
    assert top.outcome() == Outcome(Verdict.PASSED)
    assert (tmp_path / "000__test/000__probe/FAILURE").exists()
    assert not (tmp_path / "000__test/FAILURE").exists()
    ends = [(event.name, event.verdict, event.counts) for event in events if isinstance(event, StepFinished)]
    assert ends == [("probe", Verdict.FAILED, False), ("test", Verdict.PASSED, True)]


def test_inner_steps_inherit_the_meaning_of_a_failure(top: Step) -> None:
    assert top.failure == (Verdict.ERROR, Cause.INFRASTRUCTURE)
    with steps.opened("test", kind=StepKind.PHASE, failure=PRODUCT), steps.opened("x", kind=StepKind.GROUP) as inner:
        assert inner.failure == PRODUCT


def test_steps_are_nested_in_directories_and_in_events(top: Step, tmp_path: Path, events: list[Event]) -> None:
    with steps.opened("a", kind=StepKind.PHASE), steps.opened("b", kind=StepKind.GROUP) as inner:
        assert inner.directory == tmp_path / "000__a/000__b"
        assert steps.current() is inner
    assert steps.current() is top
    order = [(type(event), event.step) for event in events if isinstance(event, StepStarted | StepFinished)]
    assert order == [
        (StepStarted, "000__a"), (StepStarted, "000__a/000__b"),
        (StepFinished, "000__a/000__b"), (StepFinished, "000__a"),
    ]  # fmt: skip


def test_a_located_step_uses_its_location(top: Step) -> None:
    first, second = (top.locate("mine", StepKind.GROUP) for _ in range(2))
    with steps.opened("mine", kind=StepKind.GROUP, located=second) as step:
        assert step.identity == "001__mine"
    assert (first.key, step.key) == ("/mine", "/mine#2")


def test_a_step_needs_an_enclosing_step() -> None:
    with pytest.raises(RuntimeError, match="deploy"), steps.opened("deploy", kind=StepKind.GROUP):
        pytest.fail("it was opened")


def test_a_step_belongs_to_its_thread_and_new_threads_have_the_top_step(top: Step) -> None:
    with steps.opened("deploy", kind=StepKind.GROUP), ThreadPoolExecutor() as threads:
        assert threads.submit(steps.current).result() is None
        with steps.entered_by_process(top):
            assert threads.submit(steps.current).result() is top
        assert threads.submit(steps.current).result() is None


def test_files_of_a_step_contain_no_secrets(top: Step, tmp_path: Path) -> None:
    top.recorder.redactor.add(["hunter2"])
    with pytest.raises(CheckFailed), steps.opened("x", kind=StepKind.GROUP, detail="--token=hunter2"):
        raise CheckFailed("hunter2 is wrong")
    texts = [file.read_text() for file in (tmp_path / "000__x").iterdir()]
    assert len(texts) == 2
    assert not [text for text in texts if "hunter2" in text]


def test_a_secret_of_digits_leaves_the_files_readable(top: Step, tmp_path: Path) -> None:
    top.recorder.redactor.add([".00", "0.0", "202", "seconds"])
    with steps.opened("x", kind=StepKind.GROUP):
        pass
    assert isinstance(filesystem.read_json(tmp_path / "000__x/step.json")["seconds"], float)


@pytest.mark.usefixtures("top")
def test_a_step_whose_directory_was_removed_still_ends(tmp_path: Path) -> None:
    with steps.opened("x", kind=StepKind.GROUP) as step:
        (step.directory / "step.json").unlink()
        step.directory.rmdir()
    assert filesystem.read_json(tmp_path / "000__x/step.json")["verdict"] == "passed"


# Steps of a resumed run


def before(top: Step, *steps: tuple[str, str, StepKind, Verdict]) -> None:
    """Set the past of a resumed run: the directory, the key, the kind and the verdict of each ended step."""
    events: list[JournalEvent] = []
    for directory, key, kind, verdict in steps:
        name = key.rpartition("/")[2]
        events.append(StepStarted(directory, name, kind, "", key, "print"))
        events.append(StepFinished(directory, name, kind, verdict, None, "", 1.0))
    top.recorder.past = folded(events)


@pytest.mark.parametrize("kind", [StepKind.PHASE, StepKind.GROUP, StepKind.CELL])
def test_a_resumed_step_keeps_its_directory(top: Step, tmp_path: Path, kind: StepKind) -> None:
    before(top, ("005__deploy", "/deploy", kind, Verdict.FAILED))
    (tmp_path / "005__deploy").mkdir()
    (tmp_path / "005__deploy/FAILURE").write_text("of the time before")
    (tmp_path / "005__deploy/kept").touch()
    with steps.opened("deploy", kind=kind) as step:
        assert (step.identity, step.key) == ("005__deploy", "/deploy")
    assert (tmp_path / "005__deploy/kept").exists()
    assert not (tmp_path / "005__deploy/FAILURE").exists()


def test_a_repeated_command_has_a_new_directory(top: Step, tmp_path: Path) -> None:
    with steps.opened("a__b", kind=StepKind.COMMAND):
        pass
    before(top, ("000__a__b", "/a__b#2", StepKind.COMMAND, Verdict.FAILED))
    with steps.opened("a__b", kind=StepKind.COMMAND) as step:
        assert (step.identity, step.key) == ("001__a__b", "/a__b#2")
    assert (tmp_path / "000__a__b/step.json").exists()


def test_the_same_names_in_the_same_order_are_the_same_steps(top: Step) -> None:
    before(top, ("000__x", "/x", StepKind.GROUP, Verdict.PASSED), ("003__x", "/x#2", StepKind.GROUP, Verdict.PASSED))
    places = [top.locate("x", StepKind.GROUP) for _ in range(3)]
    assert [top.recorder.identity(place.directory) for place in places][:2] == ["000__x", "003__x"]
    assert [place.earlier is not None for place in places] == [True, True, False]
    assert [place.key for place in places] == ["/x", "/x#2", "/x#3"]


def test_the_key_of_a_step_contains_the_enclosing_steps(top: Step) -> None:
    before(top, ("000__a/000__x", "/a/x", StepKind.GROUP, Verdict.PASSED))
    with steps.opened("a", kind=StepKind.PHASE) as inner:
        assert inner.locate("x", StepKind.GROUP).earlier is not None
        assert top.locate("x", StepKind.GROUP).earlier is None


def test_the_identity_of_a_cell_is_not_in_its_directory(top: Step, tmp_path: Path) -> None:
    place = top.locate("batch=8", StepKind.CELL, identity="0a1b2c")
    assert (place.key, place.directory) == ("/0a1b2c", tmp_path / "000__batch=8")


@pytest.mark.parametrize(
    ("verdict", "fingerprint", "is_answered"),
    [
        (Verdict.PASSED, "print", True),
        (Verdict.PASSED, "other", False),
        (Verdict.FAILED, "print", False),
        (Verdict.SKIPPED, "print", False),
    ],
)
def test_a_passed_step_with_the_same_fingerprint_is_replayed(
    top: Step, events: list[Event], verdict: Verdict, fingerprint: str, is_answered: bool
) -> None:
    before(top, ("000__a__b", "/a__b", StepKind.COMMAND, verdict))
    place = top.locate("a__b", StepKind.COMMAND)
    assert top.replayed(place, fingerprint) is is_answered
    assert top.outcome() == (Outcome(Verdict.PASSED) if is_answered else None)
    notes = [event.text for event in events if isinstance(event, Note)]
    assert notes == (["the step passed before the run was resumed"] if is_answered else [])


def test_a_new_run_replays_nothing(top: Step) -> None:
    assert not top.replayed(top.locate("a", StepKind.GROUP))


def test_step_started_contains_the_key(top: Step, events: list[Event]) -> None:
    assert top.key == ""
    with steps.opened("a", kind=StepKind.COMMAND, detail="./run a", fingerprint="print"):
        pass
    assert events[0] == StepStarted("000__a", "a", StepKind.COMMAND, "./run a", "/a", "print")
