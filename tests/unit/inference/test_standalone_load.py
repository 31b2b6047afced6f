"""A load on a running server: the files of the worker, and what its end means."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from toolbox.inference import case_files
from toolbox.inference.load_steps import Load
from toolbox.inference.standalone_load import RunningServer, StandaloneLoad
from toolbox.model.errors import StepError, ToolboxError, UsageError
from toolbox.model.verdicts import ExitCode

CASES = """
- {name: text, request: {prompt: x}}
- {name: error, request: {prompt: x}, error: {status: 400}}
- {name: other, request: {requests: [{text: x}]}}
"""
HTTP = RunningServer(url="http://127.0.0.1:8000")
LOAD = Load(rates=[2], concurrencies=[3], seconds=5, warm_up=1)


@pytest.fixture
def cases(tmp_path: Path) -> list[case_files.Case]:
    file = tmp_path / "prompts.yaml"
    file.write_text(CASES)
    return case_files.load(file)


def run(directory: Path, program: str) -> list[str]:
    """Run a program in place of the worker, and return the lines that it printed."""
    said: list[str] = []
    StandaloneLoad({}, {}).run(directory, say=said.append, program=[sys.executable, "-c", program])
    return said


def test_the_worker_gets_the_server_the_steps_and_the_cases_that_are_fit(
    tmp_path: Path, cases: list[case_files.Case]
) -> None:
    load = StandaloneLoad.of(HTTP, LOAD, cases, timeout=7)
    copy = "import pathlib, sys; print(pathlib.Path(sys.argv[1]).read_text()); print(pathlib.Path.cwd().name)"
    said: list[str] = []
    load.run(tmp_path, say=said.append, program=[sys.executable, "-c", copy])
    settings = json.loads((tmp_path / "src/settings.json").read_text())
    assert (settings["server"]["url"], settings["timeout"], settings["load"]) == (HTTP.url, 7, LOAD.settings)
    sent = json.loads((tmp_path / "src" / settings["cases"]).read_text())
    assert [case["name"] for case in sent["cases"]] == ["prompts/text"]
    assert said[-1] == "files"


def test_a_load_without_a_fit_case_is_refused_with_the_reasons(cases: list[case_files.Case]) -> None:
    with pytest.raises(
        UsageError, match=r"no case is left for the load.*: the server does not speak fmaas, only openai"
    ):
        StandaloneLoad.of(HTTP, LOAD, cases[1:], timeout=7)


@pytest.mark.parametrize(
    ("status", "exit_code", "message"),
    [
        (2, ExitCode.USAGE, "the reason"),
        (70, ExitCode.FAILED, "the reason"),
        (75, ExitCode.ERROR, "the reason"),
        (1, ExitCode.ERROR, "the worker ended with status 1: the reason"),
        (-9, ExitCode.ERROR, "the worker ended with status -9: the reason"),
    ],
)
def test_the_last_line_of_the_worker_says_why_it_ended(
    tmp_path: Path, status: int, exit_code: ExitCode, message: str
) -> None:
    end = f"os.kill(os.getpid(), {-status})" if status < 0 else f"sys.exit({status})"
    with pytest.raises(ToolboxError) as caught:
        run(tmp_path, f"import os, sys; print('first'); print('inference_client: the reason', flush=True); {end}")
    assert (caught.value.exit_code, str(caught.value)) == (exit_code, message)


def test_a_line_of_the_worker_cannot_control_the_terminal_and_has_a_limit(tmp_path: Path) -> None:
    with pytest.raises(StepError) as caught:
        run(tmp_path, r"import sys; print('\x1b]0;pwned\x07' + 10_000 * 'x'); sys.exit(75)")
    assert str(caught.value) == f"{297 * 'x'}..."


@pytest.mark.parametrize(
    ("server", "fault"),
    [
        (RunningServer(), "either --url=http://HOST:PORT or --grpc=HOST:PORT"),
        (RunningServer(url="http://a", grpc="a:1"), "either --url=http://HOST:PORT or --grpc=HOST:PORT"),
        (RunningServer(url="a:80"), "--url must be"),
        (RunningServer(url="http://user:s3cret@a"), "without user, key or query"),
        (RunningServer(url="http://a/?key=s3cret"), "without user, key or query"),
        (RunningServer(url="http://a:{port}"), "--url must be"),
        (RunningServer(url="http://a:99999"), "--url must be"),
        (RunningServer(url="http://[a"), "--url must be"),
        (RunningServer(grpc="http://a:1"), "--grpc must be HOST:PORT"),
        (RunningServer(grpc="unix:///run/server"), "--grpc must be HOST:PORT"),
        (RunningServer(url="http://a", api_key_variable="NOT_SET"), "the environment variable NOT_SET is not set"),
    ],
)
def test_a_wrong_server_is_refused_without_repeating_it(server: RunningServer, fault: str) -> None:
    (found,) = server.faults()
    assert fault in found
    assert "s3cret" not in found


@pytest.mark.parametrize(
    "server",
    [
        RunningServer(url="http://127.0.0.1:8000"),
        RunningServer(url="https://models.example/v1"),
        RunningServer(url="http://[::1]:8000/"),
        RunningServer(grpc="models.example:8033"),
        RunningServer(grpc="[::1]:8033", api_key_variable="HOME"),
    ],
)
def test_an_address_is_accepted(server: RunningServer) -> None:
    assert server.faults() == []
