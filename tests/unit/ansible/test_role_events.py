"""The events of ansible-runner are written, logged and recorded."""

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolbox.ansible.role_events import RoleEvents
from toolbox.ground.model.events import Event, Note, TaskFinished, TaskStarted
from toolbox.ground.model.verdicts import CAUSE_KEY, Cause
from toolbox.ground.system.redaction import Redactor
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Step


@pytest.fixture
def shown() -> list[Event]:
    """Return the list of the events that a view receives."""
    return []


@pytest.fixture
def step(tmp_path: Path, shown: list[Event]) -> Step:
    return Step(tmp_path, Recorder(tmp_path.parent, Redactor(), [shown.append]), "host__x")


@pytest.fixture
def events(step: Step) -> Iterator[RoleEvents]:
    with RoleEvents(step) as found:
        yield found


def task(kind: str, result: dict[str, Any] | None = None, **data: Any) -> dict[str, Any]:
    """Return an event of a task in the format of ansible-runner."""
    base = {"task": "host_x : Read the state", "role": "host_x", "host": "localhost", "duration": 0.1234567}
    return {"uuid": "1", "stdout": "", "event": kind, "event_data": {**base, "res": result or {}, **data}}


Finish = Callable[..., TaskFinished]


@pytest.fixture
def finish(events: RoleEvents, shown: list[Event]) -> Finish:
    """Return a function that handles the end of a task, and returns the event that the view receives."""

    def call(kind: str, result: dict[str, Any] | None = None, **data: Any) -> TaskFinished:
        events.handle(task(f"runner_on_{kind}", result, **data))
        last = shown[-1]
        assert isinstance(last, TaskFinished)
        return last

    return call


def test_the_beginning_of_a_task_is_shown_by_its_name_without_the_role(events: RoleEvents, shown: list[Event]) -> None:
    events.handle({"event": "playbook_on_task_start", "event_data": {"name": "host_x : Read: a : b"}})
    events.handle({"event": "playbook_on_task_start", "event_data": {"name": "Gather"}})
    assert [event.name for event in shown if isinstance(event, TaskStarted)] == ["Read: a : b", "Gather"]


@pytest.mark.parametrize(
    ("kind", "result", "data", "status"),
    [
        ("ok", {"changed": False}, {}, "ok"),
        ("ok", {"changed": True}, {}, "changed"),
        ("skipped", {"skip_reason": "Conditional result was False"}, {}, "skipped"),
        ("failed", {"msg": "no"}, {}, "failed"),
        ("failed", {"msg": "no"}, {"ignore_errors": True}, "ignored"),
        ("failed", {"msg": "no"}, {"ignore_errors": None}, "failed"),
        ("unreachable", {"msg": "no route"}, {}, "unreachable"),
    ],
)
def test_the_end_of_a_task_has_a_status(
    finish: Finish, kind: str, result: dict[str, Any], data: dict[str, Any], status: str
) -> None:
    found = finish(kind, result, **data)
    assert (found.name, found.host, found.status, found.seconds) == ("Read the state", "localhost", status, 0.123)


def test_a_command_is_shown_with_its_output(finish: Finish) -> None:
    found = finish("ok", {"cmd": ["echo", "a b", "$x"], "stdout": "a b $x\n", "stderr": "careful", "msg": "", "rc": 0})
    assert (found.command, found.output) == ("echo 'a b' '$x'", "a b $x\ncareful")
    assert finish("ok", {"cmd": "echo | cat", "stdout": " \n"}).command == "echo | cat"


def test_the_message_of_a_module_is_its_output_if_it_ran_no_command(finish: Finish) -> None:
    assert finish("ok", {"msg": "all good"}).output == "all good"
    assert finish("ok", {"msg": {"not": "a text"}}).output == ""


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"msg": "No such file"}, "No such file"),
        ({}, "the task failed without a message"),
        ({"msg": ["a", 1]}, "['a', 1]"),
        ({"cmd": ["false"], "rc": 1, "msg": "non-zero return code", "stderr": ""}, "`false` ended with status 1"),
        ({"cmd": "x", "rc": 2, "stderr": "1\n2\n3\n4\n5\n6\n"}, "`x` ended with status 2\n3\n4\n5\n6"),
        ({"msg": "MODULE FAILURE", "module_stderr": "Traceback\nKeyError"}, "MODULE FAILURE\nTraceback\nKeyError"),
        ({"censored": "hidden due to no_log", "msg": "x"}, "hidden due to no_log"),
        (
            {"msg": "One or more items failed", "results": [{"msg": "fine"}, {"failed": True, "msg": "second"}, "odd"]},
            "second",
        ),
    ],
)
def test_a_failure_shows_the_message_and_the_last_errors(finish: Finish, result: dict[str, Any], message: str) -> None:
    assert finish("failed", result).output == message


def test_censored_output_is_not_shown(finish: Finish) -> None:
    assert finish("ok", {"censored": "hidden due to no_log", "changed": True}).output == ""


def test_the_items_of_a_loop_are_kept_and_their_task_is_shown(
    events: RoleEvents, shown: list[Event], tmp_path: Path
) -> None:
    for number in range(2):
        events.handle(task("runner_item_on_ok", {"item": number}))
    events.handle(task("runner_item_on_failed", {"item": 2, "failed": True}))
    assert shown == []
    assert len((tmp_path / "_ansible.events.jsonl").read_text().splitlines()) == 3


def failing(name: str) -> dict[str, Any]:
    return task("runner_on_failed", {"msg": f"{name} failed"}, task=f"host_x : {name}")


def stats(rescued: int) -> dict[str, Any]:
    return {"event": "playbook_on_stats", "event_data": {"rescued": {"localhost": rescued} if rescued else {}}}


def test_the_first_task_that_failed_made_the_role_fail(events: RoleEvents) -> None:
    for event in (failing("first"), failing("second"), stats(rescued=0)):
        events.handle(event)
    assert events.failed is not None
    assert events.failed.name == "first"


def test_after_a_rescue_the_last_task_that_failed_made_the_role_fail(events: RoleEvents) -> None:
    for event in (failing("rescued"), failing("second"), stats(rescued=1)):
        events.handle(event)
    assert events.failed is not None
    assert events.failed.name == "second"


def test_a_module_names_the_cause_of_its_failure(events: RoleEvents) -> None:
    causes = [events.cause]
    for cause in (Cause.CONFIGURATION, Cause.PRODUCT):
        events.handle(task("runner_on_failed", {"msg": "no", CAUSE_KEY: cause.value}))
    for rescued in (0, 1):
        events.handle(stats(rescued=rescued))
        causes.append(events.cause)
    assert causes == [None, Cause.CONFIGURATION, Cause.PRODUCT]


def test_an_unknown_cause_is_none(events: RoleEvents) -> None:
    events.handle(task("runner_on_failed", {"msg": "no", CAUSE_KEY: "sabotage"}))
    assert events.cause is None


@pytest.mark.parametrize(
    ("result", "data", "program"),
    [
        ({"msg": "Error executing command.", "cmd": "fio --version"}, {}, "fio"),
        ({"msg": "[Errno 2] No such file or directory: b'fio'", "cmd": ["fio"]}, {}, "fio"),
        ({"msg": "Error executing command.", "cmd": ["fio"]}, {"host": "gpu-1"}, ""),
        (
            {"msg": "Error executing command.", "cmd": "fio", "_ansible_delegated_vars": {"ansible_host": "localhost"}},
            {"host": "gpu-1"},
            "fio",
        ),
        ({"msg": "non-zero return code", "cmd": ["fio"], "delta": "0:00:01"}, {}, ""),
        ({"msg": "no"}, {}, ""),
    ],
)
def test_a_missing_program_of_this_machine_is_named(
    events: RoleEvents, result: dict[str, Any], data: dict[str, Any], program: str
) -> None:
    events.handle(task("runner_on_failed", {"rc": 2, **result}, **data))
    assert events.missing_program == program


def test_a_warning_of_a_module_is_a_note(events: RoleEvents, shown: list[Event]) -> None:
    events.handle(task("runner_on_ok", {"changed": False, "warnings": ["there is no namespace tset"]}))
    assert [event.text for event in shown if isinstance(event, Note)] == ["there is no namespace tset"]


def test_an_ignored_failure_does_not_make_the_role_fail(events: RoleEvents) -> None:
    events.handle(task("runner_on_failed", {"msg": "no"}, ignore_errors=True))
    events.handle(task("runner_on_ok"))
    assert events.failed is None


def test_an_unreachable_host_makes_the_role_fail(events: RoleEvents) -> None:
    events.handle(task("runner_on_unreachable", {"msg": "no route"}, host="node-1"))
    assert events.failed is not None
    assert (events.failed.status, events.failed.host) == ("unreachable", "node-1")


def test_the_log_contains_the_output_of_ansible(events: RoleEvents, tmp_path: Path) -> None:
    for number in range(3):
        events.handle({"event": "verbose", "stdout": f"line {number}\r\n\r\n  more {number}"})
    assert (tmp_path / "_ansible.log").read_text().splitlines()[:3] == ["line 0", "", "  more 0"]
    assert events.last_lines() == "line 1 / more 1 / line 2 / more 2"


def test_every_event_is_one_line_of_json(events: RoleEvents, tmp_path: Path) -> None:
    given = [task("runner_on_ok", {"stdout": "a\nb \u2028 ☃"}), stats(0), {"event": "made_up_later", "stdout": ""}]
    assert [events.handle(event) for event in given] == [False] * 3
    lines = (tmp_path / "_ansible.events.jsonl").read_text().split("\n")
    assert [json.loads(line) for line in lines if line] == given


def test_the_files_are_private(events: RoleEvents, tmp_path: Path) -> None:
    events.handle(stats(0))
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


def test_output_that_is_not_unicode_is_kept_escaped(events: RoleEvents, shown: list[Event], tmp_path: Path) -> None:
    events.handle({**task("runner_on_ok", {"cmd": ["x"], "stdout": "caf\udce9"}), "stdout": "caf\udce9"})
    assert json.loads((tmp_path / "_ansible.events.jsonl").read_text())["stdout"] == "caf\udce9"
    assert (tmp_path / "_ansible.log").read_text() == "caf\\udce9\n"
    assert len(shown) == 1


@pytest.mark.parametrize("secret", ['hunter"2\nsecond line', "it's", "1234", "0.5", "event", "runner_on_ok"])
def test_a_secret_of_any_form_is_neither_shown_nor_written(
    step: Step, events: RoleEvents, shown: list[Event], tmp_path: Path, secret: str
) -> None:
    step.recorder.redactor.add([secret])
    result = {"cmd": ["login", secret], "stdout": f"<{secret}>", "rc": 1234, secret: [secret]}
    events.handle({**task("runner_on_ok", result, duration=0.51234), "stdout": f"<{secret}>"})
    (found,) = shown
    assert isinstance(found, TaskFinished)
    assert (found.output, found.seconds) == ("<***>", 0.512)
    assert secret not in found.command
    kept = json.loads((tmp_path / "_ansible.events.jsonl").read_text())
    assert kept["event_data"]["res"] == {"cmd": ["login", "***"], "stdout": "<***>", "rc": 1234, "***": ["***"]}
    assert (tmp_path / "_ansible.log").read_text() == "<***>\n"


def test_a_secret_in_a_failure_is_masked_in_its_message(step: Step, events: RoleEvents) -> None:
    step.recorder.redactor.add(["hunter2"])
    events.handle(task("runner_on_failed", {"cmd": "login hunter2", "rc": 1, "stderr": "hunter2 is wrong"}))
    assert events.failed is not None
    assert events.failed.output == "`login ***` ended with status 1\n*** is wrong"
