"""The blocks `matrix` and `targets` are validated, and mistakes are named."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.unit.matrix.conftest import matrix
from toolbox.config import contract
from toolbox.config.configuration import Configuration, Request
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.secrets import Secret
from toolbox.matrix import matrix_block
from toolbox.matrix.axes import expand
from toolbox.matrix.axis_values import canonical, path_of
from toolbox.matrix.matrix_block import MatrixBlock, PartialRetries, PartialTimeouts, Retries, TargetsBlock, Timeouts
from toolbox.matrix.workload_block import WorkloadBlock

CONTRACTS = Path(matrix_block.__file__).parent / "contracts"
AXES = {"model": ["a", "b"], "batch": [8, 16]}


def faults(model: Any, block: Any) -> list[str]:
    """Return the path and the message of each fault in a block."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(block)
    found = []
    for fault in caught.value.errors():
        location = ".".join(str(key) for key in fault["loc"])
        found.append(f"{location}: {fault['msg'].removeprefix('Value error, ')}")
    return found


def fault(axes: Any = AXES, **fields: Any) -> str:
    """Return the only fault of a matrix with these axes."""
    (found,) = faults(MatrixBlock, {"axes": axes, "workload": {"command": "true"}, **fields})
    return found


def fault_of_workload(**fields: Any) -> str:
    """Return the only fault of a workload with these fields."""
    (found,) = faults(WorkloadBlock, {"command": "true", **fields})
    return found


# The axes


def test_an_axis_that_is_null_is_left_out() -> None:
    assert matrix({"model": None, "batch": [8]}).axes == {"batch": [8]}


def test_values_that_differ_in_their_type_are_not_the_same() -> None:
    values = [1, 1.0, True, "1", None, "null", dt.date(2026, 1, 2), "2026-01-02", [1], {"a": 1}]
    assert matrix({"x": values}).axes["x"] == values


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([1], "axes: Input should be a valid dictionary"),
        ({"model": 5}, "axes.model: must be a list of values, or a mapping from labels to values"),
        (
            {"model": []},
            "axes.model: the axis has no values: give it at least one, or set the axis to null to remove it",
        ),
        (
            {"model": {}},
            "axes.model: the axis has no values: give it at least one, or set the axis to null to remove it",
        ),
        ({"model": [1, 2, 1]}, "axes.model.2: this value is on the axis `model` twice"),
        ({"model": [None, None]}, "axes.model.1: this value is on the axis `model` twice"),
        (
            {"model": {"a": {"x": 1, "y": 2}, "b": {"y": 2, "x": 1}}},
            "axes.model.b: this value is on the axis `model` twice",
        ),
        ({"model": {8: "x"}}, 'axes.model: the label 8 must be a string: write "8"'),
        ({8: ["x"]}, "axes.8.[key]: Input should be a valid string"),
        (
            {"model": [Secret("x")]},
            "axes.model: *** is a Secret, which cannot be a value of an axis",
        ),
        ({"": [1]}, "axes: the name of an axis is empty"),
        ({"a.": [1]}, "axes: an axis name with a dot or a bracket must be a path, and 'a.' is not a path"),
        ({"a.b": [1], 'a["b"]': [2]}, 'axes: the axes `a.b` and `a["b"]` are the same path'),
    ],
)
def test_axes_that_make_no_combinations_are_refused(axes: Any, message: str) -> None:
    assert fault(axes).startswith(message)


def test_an_axis_with_a_dot_or_a_bracket_is_a_path() -> None:
    assert path_of("training.settings.batch") == ("training", "settings", "batch")
    assert path_of('a["b.c"]') == ("a", "b.c")
    assert path_of("batch") is None


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([["model"]], "zip.0: List should have at least 2 items"),
        ([["model", "host"]], "zip.0: no axis `host`: did you mean hosts?"),
        ([["model", "model"]], "zip: axes occur more than once in `zip`: model"),
        ([["model", "batch"], ["chip", "batch"]], "zip: axes occur more than once in `zip`: batch"),
        (
            [["model", "hosts"]],
            "zip.0: axes that advance together must have the same number of values: model has 2, hosts has 3",
        ),
    ],
)
def test_axes_that_cannot_advance_together_are_refused(groups: Any, message: str) -> None:
    assert fault({**AXES, "chip": ["v4", "v5"], "hosts": [1, 2, 3]}, zip=groups).startswith(message)


# Entries and conditions that name axes


CONDITIONAL: list[tuple[str, dict[str, Any]]] = [
    ("skip", {"reason": "slow"}),
    ("xfail", {"reason": "slow", "owner": "a team", "expires": dt.date(2026, 12, 31)}),
    ("settings", {"target": "big"}),
    ("owners", {"owner": "ada"}),
    ("checks", {"check": "exit_status"}),
]


@pytest.mark.parametrize("field", ["include", "exclude"])
def test_an_entry_with_an_unknown_axis_is_refused(field: str) -> None:
    assert getattr(matrix(AXES, **{field: [{"model": "c"}]}), field) == [{"model": "c"}]
    assert fault(**{field: [{"modle": "a"}]}) == f"{field}.0: no axis `modle`: did you mean model?"
    assert fault(**{field: [{}]}).startswith(f"{field}.0: Dictionary should have at least 1 item")


@pytest.mark.parametrize(("field", "entry"), CONDITIONAL)
def test_a_condition_with_an_unknown_axis_is_refused(field: str, entry: dict[str, Any]) -> None:
    entries = [{**entry, "when": {}}, {**entry, "when": {"model": ["a"]}}]
    assert len(getattr(matrix(AXES, **{field: entries}), field)) == 2
    assert fault(**{field: [{**entry, "when": {"chip": 1}}]}) == f"{field}.0: no axis `chip`: the axes are batch, model"


@pytest.mark.parametrize(("field", "entry"), CONDITIONAL)
def test_a_condition_with_a_secret_is_refused(field: str, entry: dict[str, Any]) -> None:
    assert "*** is a Secret" in fault(**{field: [{**entry, "when": {"model": Secret("x")}}]})


def test_axes_that_are_wrong_are_the_only_fault() -> None:
    assert fault({"model": []}, zip=[["model", "x"]], exclude=[{"x": 1}]).startswith("axes.model: ")


@pytest.mark.parametrize(("field", "text"), [("skip", "reason"), ("xfail", "reason"), ("xfail", "owner")])
def test_xfail_and_quarantine_need_an_owner_and_a_reason(field: str, text: str) -> None:
    entry = {**dict(CONDITIONAL)[field], "when": {}, text: ""}
    assert fault(**{field: [entry]}) == f"{field}.0.{text}: String should have at least 1 character"


def test_an_expected_failure_has_a_last_day() -> None:
    block = matrix(AXES, xfail=[{"when": {}, "reason": "bug", "owner": "a team", "expires": "2026-12-31"}])
    assert block.xfail[0].expires == dt.date(2026, 12, 31)
    assert fault(xfail=[{"when": {}, "reason": "bug", "owner": "a team"}]) == "xfail.0.expires: Field required"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"checks": [{}]}, "checks.0: the field `check` is missing, or not a name"),
        ({"checks": [{"check": ""}]}, "checks.0: the field `check` is missing, or not a name"),
        ({"checks": [{"check": 5}]}, "checks.0: the field `check` is missing, or not a name"),
        ({"checks": [{"check": "files", "when": ["model"]}]}, "checks.0: `when` must be a mapping from axes to values"),
        ({"metrics": {"loss": {"file": "x"}}}, "metrics.loss: the field `source` is missing, or not a name"),
        ({"metrics": {"loss": "x"}}, "metrics.loss: Input should be a valid dictionary"),
    ],
)
def test_a_check_and_a_metric_are_named(fields: dict[str, Any], message: str) -> None:
    assert fault(**fields) == message


# Numbers


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"jobs": 0}, "jobs"),
        ({"deadline": 0}, "deadline"),
        ({"deadline": 1e300}, "deadline"),
        ({"timeouts": {"run": 1e12}}, "timeouts.run"),
        ({"pools": {"licence": 0}}, "pools.licence"),
        ({"resources": {"gpu": -1}}, "resources.gpu"),
        ({"timeouts": {"wait": 0}}, "timeouts.wait"),
        ({"timeouts": {"run": float("inf")}}, "timeouts.run"),
        ({"timeouts": {"silence": -1}}, "timeouts.silence"),
        ({"timeouts": {"grace": float("nan")}}, "timeouts.grace"),
        ({"retries": {"product": 11}}, "retries.product"),
        ({"retries": {"check": -1}}, "retries.check"),
        ({"retries": {"backoff": {"factor": 0.5}}}, "retries.backoff.factor"),
        ({"retries": {"backoff": {"first": 0}}}, "retries.backoff.first"),
        ({"settings": [{"when": {}, "timeouts": {"run": 0}}]}, "settings.0.timeouts.run"),
        ({"settings": [{"when": {}, "retries": {"timeout": 11}}]}, "settings.0.retries.timeout"),
        ({"settings": [{"when": {}, "retries": {"backoff": {}}}]}, "settings.0.retries.backoff"),
        ({"jbos": 1}, "jbos"),
        ({"timeouts": {"rnu": 1}}, "timeouts.rnu"),
    ],
)
def test_impossible_values_are_refused_with_their_path(fields: dict[str, Any], place: str) -> None:
    assert fault(**fields).startswith(f"{place}: ")


def test_a_price_of_zero_is_allowed() -> None:
    block = matrix(AXES, resources={"gpu": 0}, retries={"infrastructure": 0}, pools={"gpu": 1})
    assert (block.resources, block.retries.infrastructure) == ({"gpu": 0}, 0)


def test_given_timeouts_replace_earlier_timeouts() -> None:
    given = PartialTimeouts.model_validate({"run": 5, "wait": None})
    assert given.over(Timeouts(grace=1, silence=9)) == Timeouts(run=5, grace=1, silence=9)


def test_silence_can_be_allowed_again() -> None:
    assert PartialTimeouts(silence=None).over(Timeouts(silence=9)) == Timeouts()


def test_given_retries_replace_earlier_retries() -> None:
    assert PartialRetries(product=0, check=None).over(Retries(product=3, check=4)) == Retries(product=0, check=4)


@pytest.mark.parametrize("target", ["", [], [""]])
def test_an_empty_target_is_refused(target: Any) -> None:
    block = {"axes": AXES, "workload": {"command": "true"}, "target": target}
    assert all(found.startswith("target.") for found in faults(MatrixBlock, block))


# The workload


@pytest.mark.parametrize("command", ["echo $HOME", "@cell.command", ["train.py", 8, 1.5, "@cell.model", True, None]])
def test_a_command_is_arguments_or_text_for_a_shell(command: Any) -> None:
    found = WorkloadBlock(command=command).command
    assert [*map(type, found)] == [*map(type, command)]
    assert found == command


@pytest.mark.parametrize("command", ["", " \n", [], None, 5, ["run", [1]], ["run", {}], [Secret("x")], {"a": 1}])
def test_an_empty_command_is_refused(command: Any) -> None:
    assert all(found.startswith("command") for found in faults(WorkloadBlock, {"command": command}))


def test_a_variable_is_a_scalar_or_a_secret() -> None:
    env = {"A": "@cell.batch", "b_1": 8, "_": 0.5, "TOKEN": Secret("x"), "T": True, "N": None}
    assert WorkloadBlock(command="true", env=env).env == env
    assert fault_of_workload(env={"A": [1]}) == "env.A: must be a string, a number, true, false or null"


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "A B", "Ä"])
def test_an_invalid_name_of_a_variable_is_refused(name: str) -> None:
    assert "does not begin with a digit" in fault_of_workload(env={name: "x"})


@pytest.mark.parametrize("name", ["", ".", "/etc/x", "..", "../x", "a/../../x", "a\x00b", "a\nb"])
@pytest.mark.parametrize("field", ["files", "write"])
def test_a_file_outside_of_its_directory_is_refused(field: str, name: str) -> None:
    assert "must be a relative path to a file, without `..`" in fault_of_workload(**{field: {name: "x"}})


def test_collecting_files_outside_of_the_directory_is_refused() -> None:
    assert WorkloadBlock(command="true", collect=["logs/**", "*.json"]).collect == ["logs/**", "*.json"]
    assert fault_of_workload(collect=["../*"]).startswith("collect.0: must be a relative path to a file, without `..`")


def test_a_file_name_in_files_and_write_is_refused() -> None:
    twice = fault_of_workload(files={"a/b": "x", "c": "y"}, write={"./a//b": "z"})
    assert twice == ": `files` and `write` name a file twice: a/b"


def test_a_written_file_is_text_json_or_yaml() -> None:
    write = {"a": "text", "b.json": {"x": [1, None]}, "c.yaml": [dt.date(2026, 1, 2)], "d.yml": None, "e.json": "{"}
    assert WorkloadBlock(command="true", write=write).write == write


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.txt",
            {"x": 1},
            "the content of a.txt must be a string, because the name does not end in .json, .yaml or .yml",
        ),
        ("a", None, "the content of a must be a string"),
        ("a.json", {"x": dt.date(2026, 1, 2)}, "the content of a.json cannot be written as JSON: Object of type date"),
        ("a.json", [float("nan")], "the content of a.json cannot be written as JSON: "),
        ("a", Secret("x"), "a secret is never written to a file: pass the secret in `env`"),
        ("a.yaml", {"x": [{"y": Secret("x")}]}, "a secret is never written to a file: pass the secret in `env`"),
    ],
)
def test_content_that_cannot_be_written_is_refused(name: str, content: Any, message: str) -> None:
    assert fault_of_workload(write={name: content}).startswith(f"write: {message}")


@pytest.mark.parametrize("fields", [{"log_bytes": 4095}, {"sample_seconds": 0.05}, {"cwd": ""}, {"cmd": "x"}])
def test_an_impossible_workload_is_refused(fields: dict[str, Any]) -> None:
    assert fault_of_workload(**fields).startswith(f"{next(iter(fields))}: ")


# The targets


def test_a_target_has_the_fields_of_its_backend() -> None:
    gpu = {"backend": "ssh", "host": "gpu-1.example.com", "port": 22, "capacity": {"gpu": 0, "jobs": 2}}
    targets = TargetsBlock.model_validate({"local": {}, "gpu-1": gpu}).root
    assert targets["local"].backend == "local"
    assert targets["gpu-1"].model_extra == {"host": "gpu-1.example.com", "port": 22}
    assert targets["gpu-1"].capacity == {"gpu": 0, "jobs": 2}


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"a b": {}}, ": the name of the target 'a b' may contain only letters"),
        ({"": {}}, ": the name of the target '' may contain only letters"),
        ({"a": {"labels": ["big", "b"]}, "b": {}}, ": the label b of the target a is the name of a target"),
        ({"a": {"labels": ["a"]}}, ": the label a of the target a is the name of a target"),
        ({"a": {"capacity": {"jobs": 0}}}, "a.capacity: `jobs` must be at least 1"),
        ({"a": {"capacity": {"gpu": -1}}}, "a.capacity.gpu: "),
        ({"a": {"backend": ""}}, "a.backend: "),
        ({"a": None}, "a: "),
    ],
)
def test_an_impossible_target_is_refused(targets: Any, message: str) -> None:
    (found,) = faults(TargetsBlock, targets)
    assert found.startswith(message)


# The contracts


BAD = """\
matrix:
  axes:
    model: {tiny: {layers: 1}}
    batch: [8, 8]
  jobs: 0
  workload: {command: [train.py]}
targets:
  big: {capacity: {jobs: 0}}
"""


def test_an_axis_that_advances_with_others_may_repeat_a_value() -> None:
    found = matrix({"chip": ["a", "b"], "batch": [8, 8]}, zip=[["chip", "batch"]])
    assert [combination.name for combination in expand(found)] == ["chip=a,batch=8", "chip=b,batch=8"]


def test_the_contracts_are_found_in_their_folder() -> None:
    found = {path: contract.load(file) for path, file in contract.files(CONTRACTS).items()}
    assert found == {("matrix",): MatrixBlock, ("targets",): TargetsBlock}


def test_a_configuration_is_validated_by_the_contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(BAD)
    configuration = Configuration.load(Request(Path("config.yaml"), contracts=[CONTRACTS]))
    with pytest.raises(ConfigurationError) as caught:
        configuration.check()
    assert str(caught.value).split("\n  ") == [
        "2 faults in the configuration:",
        "config.yaml:5: `matrix.jobs` must be greater than or equal to 1, not 0",
        "config.yaml:8: `targets.big.capacity` is {'jobs': 0}: `jobs` must be at least 1",
    ]


def test_a_value_that_is_on_an_axis_twice_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("matrix:\n  workload: {command: 'true'}\n  axes:\n    batch:\n      - 8\n      - 16\n      - 8\n")
    with pytest.raises(ConfigurationError) as caught:
        Configuration.load(Request(file, contracts=[CONTRACTS])).check()
    (fault,) = caught.value.faults
    assert fault == f"{file}:7: `matrix.axes.batch[2]` is 8: this value is on the axis `batch` twice"


def test_a_value_that_is_not_plain_data_has_no_canonical_json() -> None:
    with pytest.raises(
        ValueError,
        match="b'x' is a bytes, which cannot be a value of an axis",
    ):
        canonical([{"a": b"x"}])
