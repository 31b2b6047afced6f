"""The files of a workload are judged by the checks and metrics of the configuration."""

from pathlib import Path
from typing import Any

import pytest

from toolbox.ground.model.errors import CheckFailed, ConfigurationError, StepError
from toolbox.ground.model.events import CheckJudged
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import filesystem
from toolbox.orchestration import judging
from toolbox.records.runs.steps import Step

from .conftest import Seen

METRICS = {
    "step_time": {"source": "json_file", "file": "metrics.json", "path": "step_time", "unit": "s"},
    "loss": {"source": "json_file", "file": "metrics.json", "path": "loss"},
}
STATUS = {"check": "exit_status"}
SLOW = {"check": "metric", "metric": "step_time", "upper": 1}


@pytest.fixture
def attempt(tmp_path: Path, top: Step) -> Path:
    """Return the directory of a workload with the exit status 0 and a step time of 2.5 seconds."""
    assert top.directory == tmp_path
    directory = tmp_path / "attempt"
    filesystem.write_text(directory / "exit_code", "0\n")
    filesystem.write_json(directory / "metrics.json", {"step_time": 2.5})
    return directory


def test_passing_checks_are_reported_and_written(attempt: Path, tmp_path: Path, seen: Seen) -> None:
    judging.judge(attempt, [STATUS, {**SLOW, "upper": 3}], METRICS)
    assert [(event.check, event.passed) for event in seen.of(CheckJudged)] == [("exit_status", True), ("metric", True)]
    assert filesystem.read_json(tmp_path / "checks.json") == {
        "metrics": {
            "step_time": {"name": "step_time", "value": 2.5, "unit": "s", "fault": "", "samples": []},
            "loss": {"name": "loss", "value": None, "unit": "", "fault": "metrics.json has no loss", "samples": []},
        },
        "checks": [
            {
                "check": "exit_status",
                "passed": True,
                "message": "exit status 0, expected 0",
                "file": "",
                "line": None,
                "out_of_range": False,
            },
            {
                "check": "metric",
                "passed": True,
                "message": "step_time is 2.5 s, within [-, 3] s",
                "file": "",
                "line": None,
                "out_of_range": False,
            },
        ],
    }


def test_a_workload_that_could_not_test_is_an_error_of_the_infrastructure(attempt: Path, tmp_path: Path) -> None:
    filesystem.write_text(attempt / "exit_code", "75\n")
    with pytest.raises(StepError) as caught:
        judging.judge(attempt, [SLOW, {**STATUS, "infrastructure": [75]}], METRICS)
    assert (caught.value.verdict, caught.value.cause) == (Verdict.ERROR, Cause.INFRASTRUCTURE)
    assert str(caught.value) == "exit_status: exit status 75, expected 0"
    written = filesystem.read_json(tmp_path / "checks.json")["checks"]
    assert [check.get("cause") for check in written] == [None, "infrastructure"]


def test_a_failed_workload_is_a_failure_of_the_product(attempt: Path) -> None:
    filesystem.write_text(attempt / "exit_code", "1\n")
    with pytest.raises(CheckFailed) as caught:
        judging.judge(attempt, [STATUS])
    assert (caught.value.verdict, caught.value.cause) == (Verdict.FAILED, Cause.PRODUCT)


def test_all_checks_run_and_failed_ones_show_value_and_bound(attempt: Path, seen: Seen) -> None:
    missing = {"check": "files", "glob": "*.pb"}
    with pytest.raises(CheckFailed) as caught:
        judging.judge(attempt, [SLOW, STATUS, missing], METRICS)
    assert str(caught.value).splitlines() == [
        "metric: step_time is 2.5 s, above its upper bound 1 s",
        "files: 0 files match *.pb; required: at least one",
    ]
    assert (caught.value.verdict, caught.value.cause) == (Verdict.FAILED, Cause.CHECK)
    assert caught.value.directory == attempt
    assert [event.passed for event in seen.of(CheckJudged)] == [False, True, False]


def test_an_unreadable_metric_fails_only_its_own_checks(attempt: Path) -> None:
    (attempt / "metrics.json").write_text("{")
    judging.judge(attempt, [STATUS], METRICS)
    with pytest.raises(CheckFailed, match=r"step_time is unknown .*metrics\.json is not JSON"):
        judging.judge(attempt, [SLOW], METRICS)


def test_without_checks_a_note_says_that_nothing_is_judged(attempt: Path, tmp_path: Path, seen: Seen) -> None:
    judging.judge(attempt, [])
    assert filesystem.read_json(tmp_path / "checks.json") == {"metrics": {}, "checks": []}
    assert seen.lines == ["no checks are configured here: nothing is judged"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"check": "exit_statu"}, "unknown check `exit_statu`: did you mean exit_status"),
        ({"check": "../model/errors"}, "unknown check"),
        ({"check": "__init__"}, "unknown check"),
        ({}, "unknown check `None`"),
        ("exit_status", "a check must be a mapping"),
        ({"check": "files", "glob": "*", "count": "many"}, "check `files`: count: must be a valid integer"),
        ({"check": "metric", "metric": "x"}, "set `lower`, `upper` or both"),
    ],
)
def test_a_faulty_check_is_refused_before_any_check_runs(
    attempt: Path, tmp_path: Path, spec: Any, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        judging.judge(attempt, [STATUS, spec])
    assert not (tmp_path / "checks.json").exists()


def test_an_unknown_source_suggests_a_similar_name(attempt: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown source `json_fil`: did you mean json_file"):
        judging.judge(attempt, [STATUS], {"x": {"source": "json_fil"}})


def test_a_secret_in_a_judgement_is_masked_in_files(attempt: Path, tmp_path: Path, top: Step, seen: Seen) -> None:
    top.recorder.redactor.add(["hunter2"])
    (attempt / "exit_code").write_text("hunter2")
    with pytest.raises(CheckFailed):
        judging.judge(attempt, [STATUS])
    assert "hunter2" not in (tmp_path / "checks.json").read_text()
    assert "hunter2" not in seen.of(CheckJudged)[0].message


def test_bounds_auto_is_refused_outside_of_a_matrix(attempt: Path) -> None:
    auto = {"check": "metric", "metric": "step_time", "bounds": "auto"}
    with pytest.raises(ConfigurationError, match="works only for cells of a matrix"):
        judging.judge(attempt, [auto], METRICS)
