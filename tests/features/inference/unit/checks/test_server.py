"""The check `server` says why a server was not ready or ended, and shows the end of its log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolbox.features.inference.checks.server import Check
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.verdicts import Cause

FAULT = "the server ended with status 137 (SIGKILL)"


def judge(directory: Path, *, ready: object = 1.5, fault: object = None, log: bytes | None = None) -> Judgement:
    files = directory / "files"
    files.mkdir()
    (files / "worker.json").write_text(json.dumps({"server": {"ready_seconds": ready, "fault": fault}}))
    if log is not None:
        (files / "server.log").write_bytes(log)
    return Check().judge(Evidence(directory))


def test_a_server_that_ran_until_its_end_passes(tmp_path: Path) -> None:
    assert judge(tmp_path) == Judgement(True, "ready after 1.5 s")


def test_a_server_that_was_never_ready_is_an_error_of_the_infrastructure(tmp_path: Path) -> None:
    judgement = judge(tmp_path, ready=None, fault="the server was not ready within 3 s", log=b"loading\n")
    assert judgement.cause is Cause.INFRASTRUCTURE
    assert judgement.message == "the server was not ready within 3 s\nthe last line of files/server.log: loading"


def test_a_worker_that_ended_first_is_judged_by_its_exit_status(tmp_path: Path) -> None:
    judgement = judge(tmp_path, ready=None)
    assert judgement == Judgement(False, "the worker ended before the server was ready")


def test_a_server_that_ended_early_is_at_fault(tmp_path: Path) -> None:
    judgement = judge(tmp_path, fault=FAULT)
    assert (judgement.passed, judgement.cause, judgement.message) == (False, None, FAULT)


def test_the_evidence_is_the_last_line_of_the_log(tmp_path: Path) -> None:
    judgement = judge(tmp_path, fault=FAULT, log=b"one\ntwo\n\nthree\n out of memory\r\n \n")
    assert judgement.message == f"{FAULT}\nthe last line of files/server.log: out of memory"
    assert (judgement.file, judgement.line) == ("files/server.log", 5)


def test_the_lines_of_a_very_long_log_are_not_counted(tmp_path: Path) -> None:
    judgement = judge(tmp_path, fault=FAULT, log=b"x\n" * (17 << 20) + b"the end")
    assert judgement.message.endswith("files/server.log: the end")
    assert judgement.line is None


@pytest.mark.parametrize("log", [b"", b"\n \n", None])
def test_a_log_without_lines_is_no_evidence(tmp_path: Path, log: bytes | None) -> None:
    judgement = judge(tmp_path, fault=FAULT, log=log)
    assert (judgement.message, judgement.file, judgement.line) == (FAULT, "", None)


def test_the_texts_of_a_server_are_made_safe(tmp_path: Path) -> None:
    judgement = judge(tmp_path, fault="a\nb\x1b[31m" + "c" * 1000, log=b"\x1b]0;title\x07" + b"d" * 1000 + b"\xff")
    fault, line = judgement.message.splitlines()
    assert fault.startswith("a bccc")
    assert line.startswith("the last line of files/server.log: ddd")
    assert max(len(fault), len(line)) < 450


@pytest.mark.parametrize("content", ["", "{}", '{"server": []}', '{"server": {"ready_seconds": "x", "fault": null}}'])
def test_a_report_of_another_form_fails(tmp_path: Path, content: str) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/worker.json").write_text(content)
    message = "files/worker.json is not a report of the worker about its server"
    assert Check().judge(Evidence(tmp_path)) == Judgement(False, message)


def test_a_missing_report_fails(tmp_path: Path) -> None:
    assert Check().judge(Evidence(tmp_path)) == Judgement(False, "files/worker.json does not exist")
