"""The check `exit_status` compares the exit status of a workload."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from toolbox.ground.model.evidence import Judgement
from toolbox.ground.model.verdicts import Cause

from .conftest import Judge


@pytest.mark.parametrize("text", ["0", "0\n", " 0 \n"])
def test_the_expected_status_passes(judge: Judge, tmp_path: Path, text: str) -> None:
    (tmp_path / "exit_code").write_text(text)
    assert judge(check="exit_status") == Judgement(True, "exit status 0, expected 0")


@pytest.mark.parametrize(
    ("status", "shown"), [("1", "1"), ("137", "137 (SIGKILL)"), ("-9", "-9"), ("128", "128"), ("256", "256")]
)
def test_another_status_fails_and_is_shown(judge: Judge, tmp_path: Path, status: str, shown: str) -> None:
    (tmp_path / "exit_code").write_text(status)
    assert judge(check="exit_status") == Judgement(False, f"exit status {shown}, expected 0")


def test_a_failure_shows_the_last_line_of_standard_error(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "exit_code").write_text("2\n")
    (tmp_path / "stderr.log").write_bytes(b"warming up\nno device \xff found\n\n")
    judgement = judge(check="exit_status")
    assert judgement.message == "exit status 2, expected 0; the last line of stderr: no device \ufffd found"
    assert judgement.file == "stderr.log"


def test_a_status_other_than_zero_may_be_expected(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "status.txt").write_text("3\n")
    assert judge(check="exit_status", file="status.txt", expected=3).passed


@pytest.mark.parametrize(
    ("status", "cause"), [("75", Cause.INFRASTRUCTURE), ("70", Cause.INTERNAL), ("1", None), ("0", None)]
)
def test_a_workload_reports_by_its_status_that_it_could_not_test(
    judge: Judge, tmp_path: Path, status: str, cause: Cause | None
) -> None:
    (tmp_path / "exit_code").write_text(status)
    assert judge(check="exit_status", infrastructure=[75], internal=[70]).cause is cause


def test_a_status_has_one_cause(judge: Judge) -> None:
    with pytest.raises(ValidationError, match="the status 75 is both in `infrastructure` and in `internal`"):
        judge(check="exit_status", infrastructure=[74, 75], internal=[70, 75])


def test_a_missing_exit_status_fails(judge: Judge) -> None:
    assert judge(check="exit_status") == Judgement(
        False, "exit_code does not exist: the workload did not end by itself"
    )


@pytest.mark.parametrize("content", [b"", b"zero", b"0 0", b"\xff\xfe", b"0x0", b"x" * 10_000], ids=range(6))
def test_a_malformed_status_fails_with_a_short_message(judge: Judge, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "exit_code").write_bytes(content)
    judgement = judge(check="exit_status")
    assert not judgement.passed
    assert "must contain an exit status" in judgement.message
    assert len(judgement.message) < 120


def test_a_directory_in_place_of_the_status_file_fails(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "exit_code").mkdir()
    assert "cannot be read" in judge(check="exit_status").message
