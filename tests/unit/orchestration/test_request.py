"""The request for a run is stored so that the run can be resumed, and later changes are refused."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.matrix.conftest import Planned
from tests.unit.matrix.conftest import planned as planned  # noqa: PLC0414  # imports the fixture
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import ConfigurationError, UsageError
from toolbox.ground.system import filesystem
from toolbox.matrix import plan
from toolbox.matrix.plan import Selection
from toolbox.matrix.scheduler import Options
from toolbox.orchestration import request
from toolbox.orchestration.request import RunRequest

REQUEST = RunRequest(
    "tiny",
    ("small", "fast"),
    (Path("changes.yaml"),),
    {"a": dt.date(2026, 1, 2), "b": {"c": [1, "1", None]}},
    phases=("prepare", "test"),
    selection=Selection("x=*", (2, 3)),
    options=Options(4, fail_fast=True, max_failures=2, max_cost=7.5),
    deadline=90.5,
)


def kept(request: RunRequest, directory: Path) -> RunRequest:
    """Store a request, and return it as a resumed run reads it."""
    overrides = yaml_text.dump(dict(request.overrides))
    filesystem.write_json(directory / "run.json", {**request.as_json(), "overrides_text": overrides})
    return RunRequest.read(directory)


def test_a_request_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = kept(REQUEST, tmp_path)
    assert (found.project, tuple(found.presets), found.overrides) == ("tiny", ("small", "fast"), REQUEST.overrides)
    assert (found.selection, found.options, found.deadline) == (REQUEST.selection, REQUEST.options, 90.5)
    assert (found.phases, found.override_files) == (["prepare", "test"], [Path.cwd() / "changes.yaml"])


def test_the_overrides_of_a_job_come_before_those_of_the_comment() -> None:
    run = RunRequest("tiny", overrides={"b": 2, "c": 3}, trusted_overrides={"a": 1, "c": 1})
    assert list(run.as_json()["overrides"].items()) == [("a", 1), ("b", 2), ("c", 3)]


def test_unset_options_stay_unset_when_read(tmp_path: Path) -> None:
    found = kept(RunRequest("tiny"), tmp_path)
    assert (found.phases, found.selection, found.options, found.deadline) == (None, Selection(), Options(), None)
    assert (list(found.presets), list(found.override_files), found.overrides) == ([], [], {})


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", '{"project": "tiny"}'])
def test_an_unreadable_request_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(UsageError, match=r"/run\.json is damaged, and the run cannot be resumed without it: "):
        RunRequest.read(tmp_path)


# The configuration and the plan of a request


MATRIX = """
matrix:
  axes: {x: [a, b]}
  xfail: [{when: {}, reason: "#7", owner: me, expires: 2026-06-15}]
  workload: {command: ["@cell.x"]}
"""


@pytest.fixture
def tiny(repository: Path) -> Path:
    """Return the configuration file of a project."""
    (repository / "projects/tiny").mkdir(parents=True)
    (repository / "projects/tiny/orchestration.py").write_text("def test(): ...\n")
    (repository / "config").mkdir()
    return repository / "config/tiny.yaml"


def test_a_project_with_a_matrix_has_a_plan(tiny: Path) -> None:
    tiny.write_text(MATRIX)
    loaded = request.load(RunRequest("tiny", selection=Selection("x=b")))
    assert loaded.plan is not None
    assert [cell.name for cell in loaded.plan.cells] == ["x=b"]


@pytest.mark.parametrize(("today", "is_expected"), [(dt.date(2026, 6, 15), True), (dt.date(2026, 6, 16), False)])
def test_expired_expectations_of_failure_have_no_effect(tiny: Path, today: dt.date, is_expected: bool) -> None:
    tiny.write_text(MATRIX)
    loaded = request.load(RunRequest("tiny"), today=today)
    assert loaded.plan is not None
    assert (loaded.plan.cells[0].xfail is not None) is is_expected


@pytest.mark.parametrize("selection", [Selection("x=a"), Selection(shard=(1, 2))])
def test_selecting_cells_without_a_matrix_is_refused(tiny: Path, selection: Selection) -> None:
    tiny.write_text("a: 1\n")
    assert request.load(RunRequest("tiny")).plan is None
    with pytest.raises(UsageError, match=r"^--cells, --shard: config/tiny\.yaml has no matrix to take cells from$"):
        request.load(RunRequest("tiny", selection=selection))


def test_a_matrix_is_checked_against_its_contract(tiny: Path) -> None:
    tiny.write_text(MATRIX.replace("axes: {x", "axs: {x") + "targets: {far: {capacity: {jobs: 0}}}\n")
    with pytest.raises(ConfigurationError) as caught:
        request.load(RunRequest("tiny"))
    text = str(caught.value)
    assert text.startswith("2 faults in the configuration:")
    assert "config/tiny.yaml:3: `matrix.axs` is an unknown field: did you mean axes" in text


def test_targets_are_checked_before_anything_starts(tiny: Path) -> None:
    tiny.write_text(f"{MATRIX}targets:\n  far: {{backend: shh}}\n")
    with pytest.raises(ConfigurationError, match=r"tiny\.yaml:7: the target `far`: unknown backend `shh`"):
        request.load(RunRequest("tiny"))


# Changes since the run began


def refusal(directory: Path, was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the changes that the error names."""
    with pytest.raises(ConfigurationError) as caught:
        request.refuse_changes(directory, was, now, None)
    head, *changes = str(caught.value).splitlines()
    assert head == (
        f"the configuration has changed since the run {directory.name} began. Undo the changes, or start a new run:"
    )
    return [change.strip() for change in changes]


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b was 1, is 2"]),
        ({"a": 1}, {"a": "1"}, ["a was 1, is '1'"]),
        ({"a": 1}, {"a": 1.0}, ["a was 1, is 1.0"]),
        ({"a": True}, {"a": 1}, ["a was true, is 1"]),
        ({"a": None}, {"a": {}}, ["a was null, is {}"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["a[1] was 2, is 3"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a was [1], is [1, 2]"]),
        ({"a": 1}, {"b": 1}, ["$.a is gone", "$.b is new"]),
        ({"a": {"b": {}}}, {"a": {"b": {"c": 1}}}, ["$.a.b.c is new"]),
        ({"a": "x" * 99}, {"a": "y"}, [f"a was '{'x' * 56}..., is 'y'"]),
    ],
)
def test_changed_fields_are_named(tmp_path: Path, was: dict[str, Any], now: dict[str, Any], message: list[str]) -> None:
    assert refusal(tmp_path, was, now) == message


def test_at_most_five_changes_are_named(tmp_path: Path) -> None:
    was, now = ({str(key): value for key in range(9)} for value in (1, 2))
    assert refusal(tmp_path, was, now)[-2:] == ["4 was 1, is 2", "and 4 more"]


def test_the_order_of_fields_does_not_matter(tmp_path: Path) -> None:
    request.refuse_changes(tmp_path, {"a": 1, "b": [dt.date(2026, 1, 2)]}, {"b": [dt.date(2026, 1, 2)], "a": 1}, None)


def test_a_changed_plan_is_refused(tmp_path: Path, planned: Planned) -> None:
    block: dict[str, Any] = {"axes": {"x": ["a"], "day": [dt.date(2026, 1, 2)]}}
    planned(block).write(tmp_path)
    request.refuse_changes(tmp_path, {}, {}, planned(block))
    with pytest.raises(ConfigurationError, match=r"plan\.json\.cells\[0\]\.timeouts\.run was 3600, is 5"):
        request.refuse_changes(tmp_path, {}, {}, planned({**block, "timeouts": {"run": 5}}))
    frozen = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps({**frozen, "total": 2}))
    with pytest.raises(ConfigurationError, match=r"plan\.json\.total was 2, is 1"):
        request.refuse_changes(tmp_path, {}, {}, planned(block))


def test_the_notes_of_a_plan_may_change(tmp_path: Path, planned: Planned) -> None:
    block: dict[str, Any] = {"axes": {"x": ["a"]}}
    planned(block).write(tmp_path)
    frozen = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps({**frozen, "notes": ["other words"]}))
    request.refuse_changes(tmp_path, {}, {}, planned(block))


def test_the_prices_of_a_run_are_read_from_its_plan(tmp_path: Path, planned: Planned) -> None:
    planned({"axes": {"x": ["a"]}}, targets={"local": {"cost_per_hour": 1.5}}).write(tmp_path)
    assert plan.frozen_prices(tmp_path)["local"].per_hour == 1.5


def test_changed_files_are_named(tmp_path: Path, planned: Planned) -> None:
    (tmp_path / "lib").mkdir()
    for name in ("a.py", "lib/b.py", "lib/c.py"):
        (tmp_path / name).write_text("1")
    sent = {"a.py": "a.py", "lib": "lib"}
    block: dict[str, Any] = {"axes": {"x": list("abcdef")}, "workload": {"command": ["a"], "files": sent}}
    planned(block).write(tmp_path)
    request.refuse_changes(tmp_path, {}, {}, planned(block))
    (tmp_path / "a.py").write_text("2")
    (tmp_path / "lib/b.py").unlink()
    (tmp_path / "lib/d.py").touch()
    with pytest.raises(ConfigurationError) as caught:
        request.refuse_changes(tmp_path, {}, {}, planned(block))
    head, *files_named = str(caught.value).splitlines()
    assert head.startswith("the files of `matrix.workload.files` have changed since the run ")
    assert [line.strip() for line in files_named] == ["lib/b.py is gone", "lib/d.py is new", "a.py has changed"]


def test_a_request_can_be_written_as_json(tmp_path: Path) -> None:
    written = json.dumps(RunRequest("tiny", override_files=[tmp_path / "o.yaml"]).as_json())
    assert json.loads(written)["override_files"] == [str(tmp_path / "o.yaml")]
