"""The worker on this machine: its files, its server, and what its end means."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from toolbox.features.inference import local_worker
from toolbox.features.inference.local_worker import RunningServer, WorkerEnd
from toolbox.ground.model.errors import ToolboxError
from toolbox.ground.model.verdicts import ExitCode

HTTP = RunningServer(url="http://127.0.0.1:8000")


def run(directory: Path, program: str) -> tuple[WorkerEnd, list[str]]:
    """Run a program in place of the worker, and return its end and the lines that it printed."""
    said: list[str] = []
    end = local_worker.run(
        directory,
        {"server": HTTP.settings(7)},
        {"cases": []},
        say=said.append,
        program=[sys.executable, "-c", program],
    )
    return end, said


def test_the_worker_finds_the_settings_and_the_cases(tmp_path: Path) -> None:
    end, said = run(
        tmp_path, "import pathlib, sys; print(pathlib.Path(sys.argv[1]).resolve()); print(pathlib.Path.cwd().name)"
    )
    settings = json.loads((tmp_path / "src/settings.json").read_text())
    assert (end.status, said) == (0, [str(tmp_path / "src/settings.json"), "files"])
    assert (settings["server"]["url"], settings["server"]["ready"]) == (HTTP.url, {"timeout": 7})
    assert json.loads((tmp_path / "src" / settings["cases"]).read_text()) == {"cases": []}


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
def test_the_last_error_of_the_worker_says_why_it_ended(
    tmp_path: Path, status: int, exit_code: ExitCode, message: str
) -> None:
    how = f"os.kill(os.getpid(), {-status})" if status < 0 else f"sys.exit({status})"
    errors = "print('first', file=sys.stderr); print('inference_client: the reason', file=sys.stderr)"
    end, _ = run(tmp_path, f"import os, sys; {errors}; print('a step', flush=True); {how}")
    error = end.error()
    assert isinstance(error, ToolboxError)
    assert (error.exit_code, str(error)) == (exit_code, message)


def test_a_line_of_the_worker_cannot_control_the_terminal_and_has_a_limit(tmp_path: Path) -> None:
    end, said = run(tmp_path, r"print('\x1b]0;pwned\x07' + 10_000 * 'x')")
    assert said == [end.message] == [f"{297 * 'x'}..."]


@pytest.mark.parametrize(
    ("server", "fault"),
    [
        (RunningServer(), "write --url=http://HOST:PORT or --grpc=HOST:PORT"),
        (RunningServer(url="a:80"), "--url must be"),
        (RunningServer(url="http://user:s3cret@a"), "without user, key or query"),
        (RunningServer(url="http://a/?key=s3cret"), "without user, key or query"),
        (RunningServer(url="http://a:{port}"), "--url must be"),
        (RunningServer(url="http://a:99999"), "--url must be"),
        (RunningServer(url="http://[a"), "--url must be"),
        (RunningServer(grpc="a:1", model="m"), "--model has an effect only with --url"),
        (RunningServer(url="http://a", api_key_variable="sk-s3cret"), "not the key itself"),
        (RunningServer(grpc="http://a:1"), "--grpc must be HOST:PORT"),
        (RunningServer(grpc="unix:///run/server"), "--grpc must be HOST:PORT"),
        (RunningServer(grpc="a:{grpc_port}"), "--grpc must be HOST:PORT"),
        (RunningServer(grpc="a:1", api_key_variable="HOME"), "--grpc must be grpcs://a:1, because the API key"),
        (RunningServer(url="https://a", ca_file=Path("/no/file")), "--ca_file: /no/file is not a file"),
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
        HTTP,
        RunningServer(url="https://models.example/v1"),
        RunningServer(url="http://[::1]:8000/"),
        RunningServer(url="http://a:8000", grpc="models.example:8033"),
        RunningServer(grpc="[::1]:8033", api_key_variable="HOME"),
        RunningServer(grpc="grpcs://a:8033", api_key_variable="HOME", ca_file=Path(__file__)),
    ],
)
def test_an_address_is_accepted(server: RunningServer) -> None:
    assert server.faults() == []
