"""All checks refuse wrong fields, and fail if their log is missing."""

import importlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from toolbox.ground.model.evidence import Judgement

from .conftest import Judge

VALID: dict[str, dict[str, object]] = {
    "exit_status": {},
    "files": {"glob": "*"},
    "junit": {"glob": "*"},
    "log_contains": {"text": "x"},
    "log_lacks": {"text": "x"},
    "log_matches": {"pattern": "x", "at_most": 0},
}


@pytest.mark.parametrize(
    ("check", "field", "values"),
    [
        ("exit_status", "expected", ["none", 1.5]),
        ("exit_status", "file", [None, "../exit_code"]),
        ("exit_status", "status", [0]),
        ("files", "glob", ["", "/etc/*", "../*", "a/../../*", ".", "a\0b", "**.pb", "a/**"]),
        ("files", "valid", ["xml", "JSON"]),
        ("files", "count", [-1, "many"]),
        ("files", "pattern", ["*"]),
        ("junit", "glob", ["../*.xml", "", "/x"]),
        ("junit", "fail_on", [[], ["lost"], "failed"]),
        ("junit", "min_tests", [0, -1]),
        ("junit", "file", ["x"]),
        ("log_contains", "text", ["", None, "a\nb", "a\n"]),
        ("log_contains", "file", [3, "/var/log/x", "../x"]),
        ("log_contains", "pattern", ["x"]),
        ("log_lacks", "text", ["", "a\n"]),
        ("log_lacks", "file", ["../x"]),
        ("log_lacks", "count", [0]),
    ],
)
def test_a_wrong_field_is_refused_and_named(check: str, field: str, values: list[object]) -> None:
    kind = importlib.import_module(f"toolbox.judges.checks.{check}").Check
    for value in values:
        with pytest.raises(ValidationError) as caught:
            kind.model_validate({**VALID[check], field: value})
        assert [error["loc"][0] for error in caught.value.errors()] == [field]


@pytest.mark.parametrize("is_directory", [False, True])
@pytest.mark.parametrize("check", ["log_contains", "log_lacks", "log_matches"])
def test_a_log_that_is_not_there_proves_nothing(judge: Judge, tmp_path: Path, check: str, is_directory: bool) -> None:
    if is_directory:
        (tmp_path / "stdout.log").mkdir()
    fault = "is not a regular file" if is_directory else "does not exist"
    assert judge(check=check, **VALID[check]) == Judgement(False, f"stdout.log {fault}")
