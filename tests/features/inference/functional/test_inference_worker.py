"""The worker starts a server, sends the cases, and ends the server, whatever the server does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.features.inference.servers.inference import grpc_server, http_server
from tests.functional.grid import wait
from tests.servers import certificates
from toolbox.ground.system import places

ROOT = places.builtin_root()
CLIENT = ROOT / "toolbox/features/inference/client"
KIT = ROOT / "toolbox/ground/kit"
CASES = [
    {"name": "first", "protocol": "completions", "request": {"prompt": "a"}},
    {"name": "second", "protocol": "completions", "request": {"prompt": "b"}, "stream": True},
    {"name": "third", "protocol": "completions", "request": {"prompt": "c"}},
]
KEY = "sk-very-secret"


@dataclass(frozen=True)
class Outcome:
    """What a worker left: its exit status, its output and its files."""

    status: int
    output: str
    answers: Sequence[Mapping[str, Any]]
    report: Mapping[str, Any]
    directory: Path

    @property
    def faults(self) -> Sequence[str | None]:
        return [answer["fault"] for answer in self.answers]


def start(
    directory: Path,
    fault: str,
    *flags: str,
    server: Mapping[str, Any] | None = None,
    prefix: Sequence[str] = (),
    **settings: Any,
) -> subprocess.Popen[str]:
    """Start a worker as on a target: from a copy of its folder, in the directory `files`."""
    source, files = directory / "src", directory / "files"
    for package in (CLIENT, KIT):
        shutil.copytree(package, source / package.relative_to(ROOT), ignore=shutil.ignore_patterns("__pycache__"))
    files.mkdir()
    command = [sys.executable, "-m", "tests.features.inference.servers.inference", fault, "--port={port}", *flags]
    description = {"command": command, "env": {"PYTHONPATH": str(ROOT)}, "ready": {"path": "/health", "timeout": 20}}
    content = {"server": description | dict(server or {}), "timeout": 10} | settings
    (source / "settings.json").write_text(json.dumps(content))
    (source / "cases.json").write_text(json.dumps({"protocol": "openai", "cases": CASES}))
    return subprocess.Popen(
        [*prefix, sys.executable, "../src/toolbox/features/inference/client", "../src/settings.json"],
        cwd=files,
        env=os.environ | {"TINY_API_KEY": KEY},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def outcome(worker: subprocess.Popen[str], directory: Path) -> Outcome:
    output, _ = worker.communicate(timeout=60)
    files = directory / "files"
    answers = (files / "answers.jsonl").read_text() if (files / "answers.jsonl").exists() else ""
    report = json.loads((files / "worker.json").read_text()) if (files / "worker.json").exists() else {}
    complete = [line for line in answers.splitlines(keepends=True) if line.endswith("\n")]
    return Outcome(worker.returncode, output, [json.loads(line) for line in complete], report, files)


def run(directory: Path, fault: str, *flags: str, **settings: Any) -> Outcome:
    return outcome(start(directory, fault, *flags, **settings), directory)


def test_each_case_of_a_good_server_has_its_answers(tmp_path: Path) -> None:
    end = run(tmp_path, "none")
    assert end.status == 0, end.output
    assert [(answer["case"], answer["stream"], answer["fault"]) for answer in end.answers] == [
        ("first", False, None),
        ("second", False, None),
        ("second", True, None),
        ("third", False, None),
    ]
    assert all(answer["generations"][0]["text"] == "b" for answer in end.answers)
    assert end.report["server"]["exit_status"] == 0
    assert not end.report["server"]["died"]
    assert (end.report["cases"], end.report["faults"]) == (3, 0)
    assert "case second as a stream: answered" in end.output
    assert "listening" in (end.directory / "server.log").read_text()


def test_a_server_that_dies_during_a_request_fails_the_remaining_cases(tmp_path: Path) -> None:
    end = run(tmp_path, "dies")
    assert end.status == 70
    first, second, stream, third = end.faults
    assert first is None
    assert second is None
    assert str(stream).endswith("; the server ended with status 137 (SIGKILL)")
    assert third == "the request was not sent: the server ended with status 137 (SIGKILL)"
    assert [chunk["text"] for chunk in end.answers[2]["chunks"]] == ["b"]
    assert end.report["server"]["died"]
    assert end.report["server"]["exit_status"] == 137
    assert "server.log: out of memory" in end.output
    assert end.report["server"]["fault"] == "the server ended with status 137 (SIGKILL)"


def test_a_server_that_falls_silent_gets_no_further_requests(tmp_path: Path) -> None:
    end = run(tmp_path, "falls_silent", timeout=0.2)
    assert end.status == 70
    assert end.faults[:3] == ["the time limit of 0.2 s was exceeded"] * 3
    assert end.faults[3] == "the request was not sent: the last 3 requests exceeded the time limit of 0.2 s"
    assert not end.report["server"]["died"]


def test_half_a_stream_is_a_fault_of_its_case_alone(tmp_path: Path) -> None:
    end = run(tmp_path, "sends_half_a_stream")
    assert end.status == 70
    assert [fault is None for fault in end.faults] == [True, True, False, True]
    assert "ended without a stop reason" in str(end.faults[2])


def test_nonsense_is_a_fault_without_control_characters_on_the_terminal(tmp_path: Path) -> None:
    end = run(tmp_path, "sends_nonsense")
    assert end.status == 70
    assert "not JSON" in str(end.faults[0])
    assert "has the type 'text/html'" in str(end.faults[2])
    assert "\x1b" not in end.output


def test_a_server_that_is_never_ready_is_infrastructure(tmp_path: Path) -> None:
    end = run(tmp_path, "never_ready", server={"ready": {"path": "/health", "timeout": 0.5}})
    assert end.status == 75
    assert "not ready within 0.5 s: GET /health: " in end.output
    assert end.answers == []
    assert end.report["server"]["ready_seconds"] is None


def test_the_death_of_a_server_ends_the_wait_with_its_last_lines(tmp_path: Path) -> None:
    end = run(tmp_path, "dies_at_once", server={"ready": {"timeout": 1000}})
    assert end.status == 75
    assert "the server ended with status 3 before it was ready" in end.output
    assert "server.log: CUDA error: out of memory" in end.output
    assert end.report["server"]["died"]


def test_a_server_that_finds_its_port_taken_gets_another_one(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    end = run(tmp_path, "none", f"--taken={taken}")
    assert end.status == 0, end.output
    assert "starting it again with other ports" in end.output
    started = [line for line in end.output.splitlines() if line.startswith("started the server")]
    assert len(started) == 2
    assert started[0].endswith(taken.read_text())
    assert not started[1].endswith(taken.read_text())


def test_a_server_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    end = run(tmp_path, "ignores_sigterm", server={"grace": 0.2})
    assert end.status == 0, end.output
    assert end.report["server"]["exit_status"] == 137
    log = (end.directory / "server.log").read_text()
    child = int(log.split("child ")[1].split()[0])
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_server_too(tmp_path: Path, number: signal.Signals, status: int) -> None:
    worker = start(tmp_path, "falls_silent", timeout=100)
    assert worker.stdout
    for line in worker.stdout:
        if "is ready" in line:
            break
    children = psutil.Process(worker.pid).children()
    worker.send_signal(number)
    end = outcome(worker, tmp_path)
    assert end.status == status
    assert children
    assert not any(child.is_running() for child in children)
    assert end.report["server"]["exit_status"] == 0


def test_the_server_does_not_survive_a_worker_that_is_killed(tmp_path: Path) -> None:
    worker = start(tmp_path, "falls_silent", timeout=100)
    assert worker.stdout
    for line in worker.stdout:
        if "is ready" in line:
            break
    (server,) = psutil.Process(worker.pid).children()
    log = tmp_path / "files/server.log"
    wait(lambda: "listening" in log.read_text(), "a line that the server writes after its first answer")
    worker.kill()
    worker.communicate(timeout=60)
    assert "listening" in log.read_text()
    try:
        server.wait(timeout=20)
    finally:
        if server.is_running():
            server.kill()


def test_a_signal_during_the_end_of_the_server_leaves_nothing(tmp_path: Path) -> None:
    worker = start(tmp_path, "ignores_sigterm", server={"grace": 1})
    assert worker.stdout
    for line in worker.stdout:
        if "case third" in line:
            break
    worker.send_signal(signal.SIGTERM)
    end = outcome(worker, tmp_path)
    assert end.status == 143
    assert end.report["server"]["exit_status"] == 137
    assert not end.report["server"]["died"]


def test_answers_that_cannot_be_written_end_the_worker_and_its_server(tmp_path: Path) -> None:
    # A file has at most 1 KiB. Python would write cut bytecode and fail to load it.
    limit = 'ulimit -f 1 && PYTHONDONTWRITEBYTECODE=1 exec "$0" "$@"'
    end = run(tmp_path, "none", prefix=["bash", "-c", limit])
    assert end.status == 74
    assert end.output.endswith("inference_client: the results cannot be written: File too large\n")
    assert "Traceback" not in end.output
    assert end.report["server"]["exit_status"] == 0


def test_the_path_is_asked_although_all_cases_use_the_other_protocol(tmp_path: Path) -> None:
    with (
        http_server.serving(lambda _: [http_server.response({})]) as health,
        grpc_server.serving(grpc_server.answering(b"")) as server,
    ):
        settings = {"server": {"url": health.url, "grpc": server.address, "ready": {"path": "/health"}}}
        (tmp_path / "cases.json").write_text(json.dumps({"cases": [{"name": "a", "protocol": "fmaas"}]}))
        (tmp_path / "settings.json").write_text(json.dumps(settings))
        worker = subprocess.run(
            [sys.executable, "-m", "toolbox.features.inference.client", tmp_path / "settings.json"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
        )
    assert worker.returncode == 0
    assert [request.path for request in health.requests] == ["/health"]


def test_a_server_of_fmaas_with_tls_gets_the_key_in_each_request(tmp_path: Path) -> None:
    keys = []

    def script(_: bytes, context: grpc_server.Context) -> list[bytes]:
        keys.append(dict(context.invocation_metadata())["authorization"])
        return [b""]

    certificate = certificates.make(tmp_path / "server.pem", "127.0.0.1")
    with grpc_server.serving(script, certificate=certificate) as server:
        address = {"grpc": f"grpcs://{server.address}", "ca_file": "server.pem", "api_key_variable": "TINY_API_KEY"}
        (tmp_path / "cases.json").write_text(json.dumps({"cases": [{"name": "a", "protocol": "model_info"}]}))
        (tmp_path / "settings.json").write_text(json.dumps({"server": address}))
        worker = subprocess.run(
            [sys.executable, "-m", "toolbox.features.inference.client", tmp_path / "settings.json"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "TINY_API_KEY": KEY},
            timeout=60,
            check=False,
        )
    assert worker.returncode == 0
    assert keys == [f"Bearer {KEY}"] * 2  # until the server is ready, and for the case


def test_several_cases_can_be_sent_at_once(tmp_path: Path) -> None:
    together = threading.Barrier(3)

    def script(_: http_server.HttpRequest) -> list[bytes]:
        together.wait(20)  # passes only if three requests are here at once
        return [http_server.response(http_server.choice("b", "length"))]

    with http_server.serving(script) as server:
        (tmp_path / "src").mkdir()
        cases = [
            {"name": str(n), "protocol": "completions", "request": {"prompt": "a", "model": "m"}} for n in range(6)
        ]
        (tmp_path / "src/cases.json").write_text(json.dumps({"cases": cases}))
        (tmp_path / "src/settings.json").write_text(json.dumps({"server": {"url": server.url}, "concurrency": 3}))
        worker = subprocess.run(
            [sys.executable, "-m", "toolbox.features.inference.client", tmp_path / "src/settings.json"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
        )
    assert worker.returncode == 0
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 6
    assert json.loads((tmp_path / "worker.json").read_text())["server"]["log"] is None


def test_the_key_is_in_no_file_and_no_output(tmp_path: Path) -> None:
    end = run(tmp_path, "repeats_the_key", server={"api_key_variable": "TINY_API_KEY"})
    assert end.status == 0, end.output
    assert end.answers[0]["error"]["message"] == "wrong key Bearer ***"
    everything = end.output + "".join(path.read_text() for path in end.directory.iterdir())
    assert KEY not in everything


def test_an_answer_that_spells_the_key_is_left_out(tmp_path: Path) -> None:
    end = run(tmp_path, "spells_the_key", server={"api_key_variable": "TINY_API_KEY"})
    assert end.status == 70
    assert end.faults == [None, None, "the answer contains the API key in parts, and is left out", None]
    assert end.answers[2]["chunks"] == []


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"command": ["/no/such/program", "{port}"]}, "cannot be started: /no/such/program: No such file"),
        ({"api_key_variable": "NO_SUCH_KEY"}, "the environment variable NO_SUCH_KEY for the API key is not set"),
        ({"url": "http://user:pw@host"}, "without user, key or query"),
        ({"command": ["server"]}, "the server has no `url`, and its command no `{port}`"),
    ],
)
def test_wrong_settings_are_one_message(tmp_path: Path, server: dict[str, Any], message: str) -> None:
    end = run(tmp_path, "none", server=server)
    assert end.status == 2
    assert message in end.output
    assert "Traceback" not in end.output


def test_a_missing_library_names_the_interpreter_and_the_package(tmp_path: Path) -> None:
    (tmp_path / "httpx.py").write_text("raise ModuleNotFoundError(\"No module named 'httpx'\", name='httpx')")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        end = run(tmp_path, "none")
    assert end.status == 2
    assert f"{sys.executable} has no package httpx" in end.output
    assert end.answers == []
