"""The plan contains each cell with all its settings, and reports all faults before the first cell starts."""

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.backend import Machines
from tests.unit.matrix.conftest import TODAY, Planned
from toolbox.config.configuration import Configuration, Request
from toolbox.ground.model.bounds import Bound, Method
from toolbox.ground.model.errors import ConfigurationError, UsageError
from toolbox.ground.model.secrets import Secret
from toolbox.matrix import planner, targets
from toolbox.matrix.plan import Cell, Plan, Selection, frozen_bounds
from toolbox.targets import staging
from toolbox.testing import Workspace

AXES = {"x": ["a", "b"], "y": [1, 2]}
WORKLOAD: dict[str, Any] = {"workload": {"command": "true"}}
XFAIL = {"reason": "#12", "owner": "me", "expires": TODAY}


def names(plan: Plan) -> list[str]:
    return [cell.name for cell in plan.cells]


def positions(plan: Plan) -> list[int]:
    """Return the position of each selected cell in the whole matrix."""
    return [[each.id for each in plan.combinations].index(cell.id) for cell in plan.cells]


def only(plan: Plan) -> Cell:
    (cell,) = plan.cells
    return cell


# The configuration of a cell


def test_cells_are_in_the_order_of_the_matrix(planned: Planned) -> None:
    plan = planned({"axes": AXES})
    assert names(plan) == ["x=a,y=1", "x=a,y=2", "x=b,y=1", "x=b,y=2"]
    assert positions(plan) == [0, 1, 2, 3]
    assert plan.cells[1].settings == {"x": "a", "y": 2}
    assert len(plan.combinations) == 4


def test_a_cell_sees_its_settings_with_their_types(planned: Planned) -> None:
    workload = {"command": ["@cell.x", "--y={@cell.y}", "@cell.y"], "write": {"s.json": {"y": "@cell.y"}}}
    cell = planned({"axes": AXES, "workload": workload}).cells[3]
    assert cell.workload.command == ("b", "--y=2", "2")
    assert json.loads(cell.workload.text_files["s.json"]) == {"y": 2}


def test_an_axis_path_replaces_the_field_and_its_references(planned: Planned) -> None:
    model = {"size": 1, "args": ["--size={@model.size}"], "name": "m"}
    workload = {"command": "@model.args", "env": {"SIZE": "@model.size", "CELL": '@cell["model.size"]'}}
    plan = planned({"axes": {"model.size": [1, 70]}, "workload": workload}, model=model)
    assert names(plan) == ["size=1", "size=70"]
    assert [cell.workload.command for cell in plan.cells] == [("--size=1",), ("--size=70",)]
    assert plan.cells[1].workload.env == {"SIZE": "70", "CELL": "70"}


def test_an_axis_path_without_a_field_is_refused(planned: Planned) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.yaml:7: the axis `model\.sise`: .* did you mean size"):
        planned({"axes": {"model.sise": [1]}, "workload": {"command": "true"}}, model={"size": 1})


def test_a_wrong_entry_of_include_is_named_with_its_own_line(planned: Planned) -> None:
    block = {"axes": AXES, "zip": [["x", "y"]], "include": [{"x": "a"}, {"x": "c"}], **WORKLOAD}
    with pytest.raises(ConfigurationError, match=r"config\.yaml:16: `matrix\.include\[1\]`: x, y are zipped"):
        planned(block)


def test_an_unknown_setting_of_a_cell_is_named(planned: Planned) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.yaml:4: `matrix.workload.command\[0\]`: .*'@cell\.z'"):
        planned({"axes": {"x": ["a"]}, "workload": {"command": ["@cell.z"]}})


def test_a_text_is_run_by_a_strict_bash_and_a_list_is_a_command(planned: Planned) -> None:
    text, words = ({"axes": {"x": [1]}, "workload": {"command": command}} for command in ("a | b", ["a", 1.5]))
    assert only(planned(text)).workload.command == (
        "bash", "-o", "errexit", "-o", "nounset", "-o", "pipefail", "-c", "a | b",
    )  # fmt: skip
    assert only(planned(words)).workload.command == ("a", "1.5")


def test_a_workload_that_a_cell_makes_invalid_is_reported_with_the_field(planned: Planned) -> None:
    with pytest.raises(
        ConfigurationError, match=r"config\.yaml:4: `matrix.workload.command\[0\]` must be a string, .*, not \[1\]"
    ):
        planned({"axes": {"x": [[1]]}, "workload": {"command": ["@cell.x"]}})


def test_the_files_of_a_cell_may_be_a_reference(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    workload = {"command": "true", "files": "@sources.{@cell.x}"}
    block: dict[str, Any] = {"axes": {"x": ["a", "b"]}, "workload": workload}
    plan = planned(block, sources={"a": {"main.py": "train.py"}, "b": {}})
    assert [dict(cell.workload.files) for cell in plan.cells] == [{"main.py": tmp_path / "train.py"}, {}]
    with pytest.raises(ConfigurationError, match=r"`matrix\.workload\.files` must be a mapping, not 7"):
        planned(block, sources={"a": 7, "b": {}})


def test_files_are_relative_to_the_root_and_must_exist(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    block: dict[str, Any] = {"axes": {"x": ["train"]}}
    workload = {"command": "true", "files": {"main.py": "{@cell.x}.py"}}
    assert only(planned({**block, "workload": workload})).workload.files == {"main.py": tmp_path / "train.py"}
    (tmp_path / "train.py").unlink()
    with pytest.raises(
        ConfigurationError, match=r"config\.yaml:5: `matrix\.workload\.files\[\"main\.py\"\]`: .*train\.py does not"
    ):
        planned({**block, "workload": workload})


def test_a_pipe_in_a_folder_to_send_is_a_fault_of_the_plan(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder/pipe")
    workload = {"command": "true", "files": {"sent": "folder"}}
    with pytest.raises(ConfigurationError, match=r"`matrix\.workload\.files`.*: .*folder/pipe cannot be sent: it is a"):
        planned({"axes": {"x": ["a"]}, "workload": workload})


def test_written_files_are_text_json_or_yaml_by_their_names(planned: Planned) -> None:
    write = {"a.txt": "{@cell.x}\n", "a.json": ["@cell.x"], "a.yml": {"k": "@cell.x"}}
    cell = only(planned({"axes": {"x": [8]}, "workload": {"command": "true", "write": write}}))
    assert cell.workload.text_files == {"a.txt": "8\n", "a.json": "[\n  8\n]\n", "a.yml": "k: 8\n"}


# Secrets


SECRETS = {"secrets": {"dir": {"env_key": "OUR_SECRETS"}, "token": "token-file"}}


def with_token(planned: Planned) -> Cell:
    workload = {"command": "true", "env": {"TOKEN": "*$@secrets.token", "N": 1}}
    return only(planned({"axes": {"x": ["a"]}, "workload": workload}, **SECRETS))


def test_a_secret_is_fingerprinted_by_its_reference(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_SECRETS", str(tmp_path))
    prints = set()
    for value in ("hunter2", "changed"):
        (tmp_path / "token-file").write_text(value)
        cell = with_token(planned)
        token = cell.workload.env["TOKEN"]
        assert isinstance(token, Secret)
        assert token.reveal() == value
        prints.add(cell.fingerprint)
        assert value not in json.dumps(cell.as_json(), default=str)
    assert len(prints) == 1


# Skipped cells and expected failures


def test_a_skipped_cell_has_the_first_reason(planned: Planned) -> None:
    skip = [{"when": {"x": "a", "y": 1}, "reason": "broken"}, {"when": {"x": "a"}, "reason": "slow"}]
    assert [cell.skip for cell in planned({"axes": AXES, "skip": skip}).cells] == ["broken", "slow", "", ""]


@pytest.mark.parametrize(("days", "holds"), [(-1, True), (0, True), (1, False)])
def test_an_xfail_applies_up_to_its_last_day(planned: Planned, days: int, holds: bool) -> None:
    block = {"axes": {"x": ["a", "b"]}, "xfail": [{"when": {"x": "b"}, **XFAIL}]}
    plan = planned(block, today=TODAY + dt.timedelta(days))
    assert plan.cells[0].xfail is None
    assert (plan.cells[1].xfail is not None) is holds
    assert plan.cells[1].note == (
        "" if holds else "expected to fail until 2026-06-15 (me: #12): this entry has expired"
    )


def test_the_first_xfail_that_has_not_expired_applies(planned: Planned) -> None:
    over = {"when": {}, "reason": "old", "owner": "me", "expires": dt.date(2020, 1, 1)}
    cell = only(planned({"axes": {"x": ["a"]}, "xfail": [over, {"when": {}, **XFAIL}, {"when": {}, **over}]}))
    assert cell.xfail is not None
    assert cell.xfail.reason == "#12"
    assert cell.note.count("this entry has expired") == 2


def test_all_entries_that_name_expected_tests_apply_together(planned: Planned) -> None:
    energy = {"when": {}, **XFAIL, "tests": ["energy"]}
    fit = {"when": {}, "reason": "#13", "owner": "me", "expires": dt.date(2026, 6, 20), "tests": ["fit", "energy"]}
    cell = only(planned({"axes": {"x": ["a"]}, "xfail": [fit, energy, {"when": {}, **XFAIL}]}))
    assert cell.as_json()["xfail"] == {
        "tests": ["fit", "energy"], "reason": "#13; #12", "owner": "me", "expires": "2026-06-15",
    }  # fmt: skip


# Settings for some combinations


def test_later_matching_settings_win_field_by_field(planned: Planned) -> None:
    settings = [
        {"when": {"x": "a"}, "timeouts": {"run": 60, "silence": 5}, "retries": {"product": 1}, "resources": {"gpu": 2}},
        {"when": {"x": "a", "y": 2}, "timeouts": {"run": 90, "silence": None}, "resources": {"gpu": 0}},
    ]
    plan = planned({"axes": AXES, "resources": {"gpu": 1, "nic": 1}, "settings": settings})
    first, second, other = plan.cells[:3]
    assert [cell.resources for cell in (first, second, other)] == [
        {"gpu": 2, "nic": 1},
        {"nic": 1},
        {"gpu": 1, "nic": 1},
    ]
    assert [(t.run, t.silence, t.grace) for t in (cell.workload.timeouts for cell in (first, second, other))] == [
        (60, 5, 10), (90, None, 10), (3600, None, 10),
    ]  # fmt: skip
    assert [cell.retries.product for cell in (first, second, other)] == [1, 1, 0]
    assert first.retries.infrastructure == 2


# Targets


@pytest.fixture
def machines() -> Machines:
    return Machines()


def test_a_target_is_selected_once_by_name_or_label(planned: Planned, machines: Machines) -> None:
    park = (machines.target("v5", "tpu"), machines.target("v6", "tpu", "new"), machines.target("h100", "gpu"))
    found = [
        only(planned({"axes": {"x": ["a"]}, "target": target}, *park)).targets
        for target in ("tpu", ["new", "tpu"], "h100", ["gpu", "v5"])
    ]
    assert found == [("v5", "v6"), ("v6", "v5"), ("h100",), ("h100", "v5")]


def test_an_axis_that_names_the_target_overrides_other_settings(planned: Planned, machines: Machines) -> None:
    park = [machines.target(name) for name in ("one", "two", "spare")]
    block = {"axes": {"x": ["a"], "target": ["one", "two"]}, "target": "spare"}
    plan = planned({**block, "settings": [{"when": {}, "target": "spare"}]}, *park)
    assert [cell.targets for cell in plan.cells] == [("one",), ("two",)]
    assert list(plan.targets) == ["one", "two"]


def test_settings_choose_the_target_of_some_cells(planned: Planned, machines: Machines) -> None:
    park = [machines.target(name) for name in ("one", "two")]
    settings = [{"when": {"x": "b"}, "target": ["two"]}]
    plan = planned({"axes": {"x": ["a", "b"]}, "target": "one", "settings": settings}, *park)
    assert [cell.targets for cell in plan.cells] == [("one",), ("two",)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target": "tpv"}, "no target `tpv`: did you mean tpu"),
        ({"target": "x"}, "no target `x`: the targets and labels are gpu, tpu, v5"),
        ({"resources": {"chip": 5}}, r"no target has the capacity for the cell \(5 chip\): v5"),
        ({"resources": {"licence": 3}, "pools": {"licence": 2}}, "the cell needs 3 licence, but the pool has only 2"),
    ],
)
def test_a_cell_without_a_possible_target_is_refused(
    planned: Planned, machines: Machines, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"config\.yaml:\d+: `matrix\.(target|resources)`: {message}"):
        planned({"axes": {"x": ["a"]}, **fields}, machines.target("v5", "tpu", "gpu", chip=4))


def test_a_target_without_enough_capacity_is_omitted(planned: Planned, machines: Machines) -> None:
    park = (machines.target("small", chip=1), machines.target("big", chip=8), machines.target("boundless"))
    cell = only(planned({"axes": {"x": ["a"]}, "resources": {"chip": 4}}, *park))
    assert cell.targets == ("big", "boundless")


# Checks and metrics


def test_a_metric_with_a_condition_belongs_only_to_matching_cells(planned: Planned) -> None:
    metrics = {"v": {"source": "log", "pattern": "(.*)", "when": {"x": "a"}}, "w": {"source": "log", "pattern": "(.*)"}}
    plan = planned({"axes": {"x": ["a", "b"]}, "metrics": metrics})
    assert {cell.name: list(cell.expectations.sources) for cell in plan.cells} == {"x=a": ["v", "w"], "x=b": ["w"]}


def test_a_cell_has_its_own_checks_and_the_check_of_its_exit_status(planned: Planned) -> None:
    checks = [{"check": "files", "glob": "*.pb", "when": {"x": "a"}}, {"check": "exit_status", "expected": "@cell.y"}]
    plan = planned({"axes": AXES, "checks": checks})
    first, last = plan.cells[0].expectations, plan.cells[3].expectations
    assert [check.name for check in first.checks] == ["files", "exit_status"]
    assert [(check.name, vars(check.check)["expected"]) for check in last.checks] == [("exit_status", 2)]
    assert [check.name for check in only(planned({"axes": {"x": ["a"]}})).expectations.checks] == ["exit_status"]


def test_a_check_or_a_metric_that_is_invalid_for_one_cell_is_reported(planned: Planned) -> None:
    block: dict[str, Any] = {"axes": {"x": ["a"]}}
    with pytest.raises(ConfigurationError, match=r"config\.yaml:9: `matrix\.checks\[0\]`: unknown check `a`"):
        planned({**block, "checks": [{"check": "@cell.x"}]})
    with pytest.raises(ConfigurationError, match=r"config\.yaml:9: `matrix\.metrics\.loss`: unknown source `a`"):
        planned({**block, "metrics": {"loss": {"source": "@cell.x"}}})


def test_a_comparison_with_a_cell_on_an_unknown_axis_is_an_error(planned: Planned) -> None:
    block = {"axes": {"x": ["a"]}, "metrics": {"t": {"source": "log", "pattern": "(?P<value>.)"}}}
    with pytest.raises(ConfigurationError, match="check `relation`: no axis `z`"):
        planned({**block, "checks": [{"check": "relation", "metric": "t", "lower": 1, "to": {"z": 1}}]})


FAULTY: dict[str, Any] = {
    "axes": {"x": ["a", "b"], "y": [1]},
    "workload": {"command": ["run", "@cell.z"], "env": {"A": "{@cell.w}"}, "cwd": "@model.name"},
    "metrics": {"t": {"source": "log", "pattern": "("}, "u": {"source": "logs"}},
    "checks": [
        {"check": "files", "glob": "*", "count": -1},
        {"check": "metric", "metric": "v", "lower": 1, "when": {"x": "b"}},
        {"check": "relation", "metric": "t", "to": {"z": 1}, "lower": 1},
        {"check": "exit_status", "expected": "@cell.q"},
    ],
    "target": "tpv",
}


def test_every_fault_of_every_cell_is_named_with_its_own_line(planned: Planned, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        planned(FAULTY, model={"name": "m"})
    lines = (tmp_path / "config.yaml").read_text().splitlines()
    faults = [fault.partition(": ")[::2] for fault in caught.value.faults]
    named = [(lines[int(where.rpartition(":")[2]) - 1].strip(), text.split(": ")[0]) for where, text in faults]
    assert named == [
        ("- '@cell.z'", "`matrix.workload.command[1]`"),
        ("A: '{@cell.w}'", "`matrix.workload.env.A`"),
        ("expected: '@cell.q'", "`matrix.checks[3].expected`"),
        ("t:", "`matrix.metrics.t`"),
        ("u:", "`matrix.metrics.u`"),
        ("- check: files", "`matrix.checks[0]`"),
        ("- check: relation", "`matrix.checks[2]`"),
        ("target: tpv", "`matrix.target`"),
        ("- check: metric", "`matrix.checks[1]`"),
    ]
    assert [text.rpartition(" (")[2] for _, text in faults if text.endswith("`)")] == ["the cell `x=b,y=1`)"]


def test_a_fault_of_some_cells_names_one_of_them(planned: Planned) -> None:
    block = {"axes": {"x": ["a", "b", "c"]}, "checks": [{"check": "file", "when": {"x": ["b", "c"]}}]}
    with pytest.raises(ConfigurationError, match=r"unknown check `file`: .* \(2 of 3 cells, as `x=b`\)$"):
        planned(block)


def test_without_axes_there_is_one_cell(planned: Planned) -> None:
    for axes in ({}, None, {"x": None}):
        plan = planned({"axes": axes, **WORKLOAD})
        assert (names(plan), len(plan.combinations), only(plan).settings) == (["default"], 1, {})
    assert names(planned(WORKLOAD)) == ["default"]
    assert names(planned({"axes": {}, **WORKLOAD}, selection=Selection("default"))) == ["default"]


# Selected cells


def test_cells_are_chosen_by_a_pattern_of_their_name_or_their_id(planned: Planned) -> None:
    plan = planned({"axes": AXES}, selection=Selection("x=a,*"))
    assert names(plan) == ["x=a,y=1", "x=a,y=2"]
    assert len(plan.combinations) == 4
    assert names(planned({"axes": AXES}, selection=Selection(plan.cells[1].id))) == ["x=a,y=2"]
    assert positions(planned({"axes": AXES}, selection=Selection("*y=2"))) == [1, 3]


def test_cells_are_chosen_by_several_patterns_in_the_order_of_the_matrix(planned: Planned) -> None:
    assert names(planned({"axes": AXES}, selection=Selection("x=b,y=1 *y=2"))) == ["x=a,y=2", "x=b,y=1", "x=b,y=2"]
    with pytest.raises(UsageError, match=r"^--cells=x=c: no cell has such a name"):
        planned({"axes": AXES}, selection=Selection("x=a,* x=c"))


def test_a_name_that_is_also_a_pattern_is_a_name_first(planned: Planned) -> None:
    block = {"axes": {"x": ["[ab]", "a", "b", "*"]}}
    assert names(planned(block, selection=Selection("x=[ab]"))) == ["x=[ab]"]
    assert names(planned(block, selection=Selection("x=*"))) == ["x=*"]
    assert names(planned(block, selection=Selection("x=[a]"))) == ["x=a"]


def test_a_pattern_without_a_match_names_similar_cells(planned: Planned) -> None:
    with pytest.raises(UsageError, match=r"^--cells=x=a,y=3: no cell has such a name; did you mean x=a,y=\d"):
        planned({"axes": AXES}, selection=Selection("x=a,y=3"))
    with pytest.raises(UsageError, match=r"no cell has such a name; the cells are x=a,y=1, .* and 2 more$"):
        planned({"axes": {**AXES, "y": [1, 2, 3]}}, selection=Selection("?"))


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@given(SIZES, st.integers(1, 12), st.sampled_from([None, "*", "*a0=0*"]))
def test_the_shards_of_a_plan_are_disjoint_and_complete(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], parts: int, pattern: str | None
) -> None:
    axes = {f"a{number}": list(range(size)) for number, size in enumerate(sizes)}
    file = tmp_path_factory.mktemp("plan") / "config.yaml"
    file.write_text(yaml.safe_dump({"matrix": {"axes": axes, "workload": {"command": "true"}}}))
    configuration = Configuration.load(Request(file))
    park = targets.read(configuration)

    def ids(shard: tuple[int, int] | None) -> list[str]:
        selection = Selection(pattern, shard)
        made = planner.make(configuration, park, selection, root=file.parent, today=TODAY)
        return [cell.id for cell in made.cells]

    found = [ids((part, parts)) for part in range(1, parts + 1)]
    assert sorted(sum(found, [])) == sorted(ids(None))  # noqa: RUF017  # the lists are few
    assert max(map(len, found)) - min(map(len, found)) <= 1


COMPARED = {
    "axes": {"x": [1, 2, 3], "batch": [1, 2, 4]},
    "workload": {"command": "true"},
    "metrics": {"t": {"source": "log", "pattern": "t=(.*)"}},
    "checks": [{"check": "relation", "metric": "t", "to": {"batch": 1}, "upper": 3}],
}


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_cells_that_are_compared_are_in_the_same_shard(planned: Planned, parts: int) -> None:
    plans = [planned(COMPARED, selection=Selection(shard=(part, parts))) for part in range(1, parts + 1)]
    assert sum(len(plan.cells) for plan in plans) == 9
    for plan in plans:
        values = {cell.settings["x"] for cell in plan.cells}
        assert len(plan.cells) == 3 * len(values)
        shown = [(item["name"], item["shard"]) for item in plan.as_json()["shards"]]
        assert shown == [(cell["name"], cell["shard"]) for cell in plans[0].as_json()["shards"]]
    loads = sorted(len(plan.cells) for plan in plans)
    assert loads == {1: [9], 2: [3, 6], 3: [3, 3, 3], 5: [0, 0, 3, 3, 3]}[parts]


def test_a_comparison_with_a_cell_that_is_not_selected_binds_no_cells(planned: Planned) -> None:
    plans = [planned(COMPARED, selection=Selection("*batch=[24]*", (part, 3))) for part in (1, 2, 3)]
    assert [len(plan.cells) for plan in plans] == [2, 2, 2]


def test_only_the_plan_of_a_shard_lists_all_shards(planned: Planned) -> None:
    assert "shards" not in planned(COMPARED).as_json()


# The stored plan


def test_the_plan_is_frozen_as_json(planned: Planned, tmp_path: Path) -> None:
    block = {
        "axes": {"x": ["a"], "day": [dt.date(2026, 1, 2)]},
        "resources": {"chip": 1},
        "xfail": [{"when": {}, **XFAIL}],
        "timeouts": {"run": 60},
    }
    plan = planned(block)
    plan.write(tmp_path)
    kept = json.loads((tmp_path / "plan.json").read_text())
    assert kept["total"] == 1
    assert kept["cells"] == [
        {
            "id": plan.cells[0].id,
            "name": "x=a,day=2026-01-02",
            "settings": {"x": "a", "day": "2026-01-02"},
            "labels": {"x": "a", "day": "2026-01-02"},
            "targets": ["local"],
            "resources": {"chip": 1},
            "timeouts": {"wait": 600, "run": 60, "silence": None, "grace": 10},
            "skip": None,
            "xfail": {"reason": "#12", "owner": "me", "expires": "2026-06-15"},
            "quarantine": None,
            "note": "",
            "command": ["a"],
            "fingerprint": plan.cells[0].fingerprint,
            "bounds": {},
            "owner": None,
        }
    ]


def test_the_fingerprint_depends_on_the_contents_of_files(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("1")
    block = {"axes": {"x": ["a"]}, "workload": {"command": ["a"], "files": {"main.py": "train.py"}}}
    before = planned(block)
    (tmp_path / "train.py").write_text("2")
    after = planned(block)
    assert before.cells[0].fingerprint != after.cells[0].fingerprint
    assert list(before.files) == ["train.py"]
    assert before.files != after.files


def test_a_file_is_read_once_for_all_cells(planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    read: list[Path] = []
    digests = staging.digests

    def reading(source: Path) -> dict[str, str]:
        read.append(source)
        return digests(source)

    monkeypatch.setattr(staging, "digests", reading)
    planned({"axes": {"x": list("abc")}, "workload": {"command": ["a"], "files": {"main.py": "train.py"}}})
    assert read == [tmp_path / "train.py"]


CHANGES: dict[str, tuple[dict[str, Any], bool]] = {
    "the command": ({"workload": {"command": ["b"]}}, True),
    "a variable": ({"workload": {"command": ["a"], "env": {"N": 1}}}, True),
    "the working directory": ({"workload": {"command": ["a"], "cwd": "/tmp"}}, True),
    "a text that is sent": ({"workload": {"command": ["a"], "write": {"f": "x"}}}, True),
    "what is brought back": ({"workload": {"command": ["a"], "collect": ["*.pb"]}}, True),
    "a check": ({"checks": [{"check": "exit_status", "expected": 3}]}, True),
    "a metric": ({"metrics": {"t": {"source": "json_file", "file": "m.json", "path": "t"}}}, True),
    "a time limit": ({"timeouts": {"run": 5}}, False),
    "what it takes": ({"resources": {"chip": 1}}, False),
    "other cells": ({"axes": {"x": ["c", "a"]}}, False),
}


@pytest.mark.parametrize(("change", "differs"), CHANGES.values(), ids=CHANGES)
def test_the_fingerprint_depends_on_workload_checks_and_metrics(
    planned: Planned, change: dict[str, Any], differs: bool
) -> None:
    block: dict[str, Any] = {"axes": {"x": ["a"]}, "workload": {"command": ["a"]}}
    before, after = only(planned(block)), planned({**block, **change}).cells[-1]
    assert (before.fingerprint != after.fingerprint) is differs
    assert before.id == after.id


def test_entries_without_effect_are_noted(planned: Planned) -> None:
    plan = planned({"axes": AXES, "skip": [{"when": {"x": "c"}, "reason": "gone"}]})
    assert plan.notes == ["`matrix.skip[0]` matches no combination: {'x': 'c'}"]


def test_the_limits_of_the_run_come_from_the_matrix(planned: Planned) -> None:
    plan = planned({"axes": AXES, "jobs": 3, "deadline": 60, "pools": {"licence": 2}})
    assert (plan.jobs, plan.deadline, plan.pools) == (3, 60, {"licence": 2})


def test_the_plan_reports_a_wrong_matrix(tmp_path: Path) -> None:
    def make(text: str) -> Plan:
        (tmp_path / "c.yaml").write_text(f"matrix: {text}")
        found = Configuration.load(Request(tmp_path / "c.yaml"))
        return planner.make(found, {}, Selection(), root=tmp_path, today=TODAY)

    with pytest.raises(ConfigurationError, match=r"c\.yaml:1: `matrix\.workload` is missing"):
        make("{axes: {x: [1]}}")
    digits = list(range(10))
    with pytest.raises(ConfigurationError, match=r"c\.yaml:1: the axes of the matrix have 1,000,000 combinations"):
        make(f"{{axes: {dict.fromkeys('abcdef', digits)}, workload: {{command: x}}}}")


KEPT = {"when": {"x": "a"}, "reason": "#9", "owner": "me"}


def test_the_last_matching_entry_names_the_owner(planned: Planned) -> None:
    owners = [{"when": {}, "owner": "team"}, {"when": {"x": "b"}, "owner": "ada"}, {"when": {"x": "c"}, "owner": "me"}]
    plan = planned({"axes": {"x": ["a", "b"]}, "owners": owners})
    assert [(cell.owner, cell.as_json()["owner"]) for cell in plan.cells] == [("team", "team"), ("ada", "ada")]
    assert [note for note in plan.notes if "owners" in note] == [
        "`matrix.owners[2]` matches no combination: {'x': 'c'}"
    ]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[2J", "\u202eada", "a" * 201, None, 5])
def test_the_name_of_an_owner_is_one_printable_line(planned: Planned, name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"matrix\.owners\[0\]\.owner"):
        planned({"axes": {"x": ["a"]}, "owners": [{"when": {}, "owner": name}]})


def test_a_quarantine_applies_up_to_its_last_day(planned: Planned) -> None:
    block = {"axes": {"x": ["a", "b"]}, "quarantine": [{**KEPT, "expires": TODAY}]}
    assert [cell.quarantine is not None for cell in planned(block).cells] == [True, False]
    over = planned(block, today=TODAY + dt.timedelta(days=1)).cells[0]
    assert over.quarantine is None
    assert over.note == "in quarantine until 2026-06-15 (me: #9): this entry has expired"


@pytest.mark.parametrize("missing", ["reason", "owner", "expires"])
def test_a_quarantine_has_a_reason_an_owner_and_an_end(planned: Planned, missing: str) -> None:
    entry = {key: value for key, value in {**KEPT, "expires": TODAY}.items() if key != missing}
    with pytest.raises(ConfigurationError, match=missing):
        planned({"axes": {"x": ["a"]}, "quarantine": [entry]})


def test_the_plan_keeps_its_bounds(planned: Planned, tmp_path: Path) -> None:
    bound = Bound(1, 2, 1.5, 30, Method.PREDICTION, "s", 0.999)
    key = planned(AUTO).cells[0].id, "t"
    planned(AUTO, bounds={key: bound}).write(tmp_path)
    assert frozen_bounds(tmp_path) == {key: bound}
    assert frozen_bounds(tmp_path / "none") == {}
    (tmp_path / "plan.json").write_text("[]")
    with pytest.raises(UsageError, match="is damaged, and the run cannot be resumed without it"):
        frozen_bounds(tmp_path)


AUTO: dict[str, Any] = {
    "axes": {"x": ["a", "b"]},
    "metrics": {"t": {"source": "log", "pattern": "(.*)"}, "u": {"source": "log", "pattern": "(.*)"}},
    "checks": [{"check": "metric", "metric": "t", "bounds": "auto"}],
}


def test_a_cell_has_the_bounds_of_its_bounded_metrics(planned: Planned) -> None:
    first, second = planned(AUTO).cells
    bound = Bound(1, 2, 1.5, 30, Method.PREDICTION)
    cells = planned(AUTO, bounds={(first.id, "t"): bound, (first.id, "u"): bound}).cells
    assert [dict(cell.bounds) for cell in cells] == [{"t": bound}, {}]
    kept = cells[0].as_json()["bounds"]["t"]
    assert (kept["lower"], kept["upper"], kept["samples"], kept["method"]) == (1, 2, 30, "prediction")
    assert [cell.id for cell in cells] == [first.id, second.id]


# The fields that backends add

CRANE = """
from typing import ClassVar
from pydantic import BaseModel
from {package}.backends import {base} as base

class Fields({model}):
    hook: int = 1

class Target(base.Target):
    workload_fields: ClassVar[type[BaseModel]] = Fields
"""


@pytest.fixture
def extended(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Create a workspace with a backend that adds the field `hook`, and with a broken backend."""
    monkeypatch.setenv("TOPGALLANT_WORKSPACE", str(workspace.directory))
    return workspace.write({
        "backends/crane.py": CRANE.format(package="toolbox.targets", base="local", model="BaseModel"),
        "backends/broken.py": "raise RuntimeError('no luck')\n",
    })  # fmt: skip


@pytest.mark.usefixtures("extended")
def test_a_field_of_a_backend_is_validated_by_its_model(planned: Planned, caplog: pytest.LogCaptureFixture) -> None:
    block = {"axes": {"x": ["a"]}, "workload": {"command": "true"}}
    plain = only(planned(block))
    assert plain.workload.backend_fields == {}
    assert caplog.text == "", "no backend is imported for a workload without such a field"
    hooked = only(planned({**block, "workload": {"command": "true", "hook": "7"}}))
    assert hooked.workload.backend_fields == {"hook": 7}
    assert hooked.fingerprint != plain.fingerprint
    assert "broken.py is broken: RuntimeError: no luck" in caplog.text
    with pytest.raises(
        ConfigurationError, match=r"config\.yaml:4: `matrix\.workload\.hook` must be a valid integer, not 'x'"
    ):
        planned({**block, "workload": {"command": "true", "hook": "x"}})
    with pytest.raises(ConfigurationError, match=r"`matrix\.workload\.hok` is an unknown field: did you mean hook"):
        planned({**block, "workload": {"command": "true", "hok": 1}})
