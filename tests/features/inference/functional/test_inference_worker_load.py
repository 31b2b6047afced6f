"""The worker runs the steps of a load, and keeps the results of each step, whatever the server does."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.features.inference.functional.test_inference_worker import KEY, Outcome, outcome, run, start
from tests.features.inference.servers.inference import http_server
from toolbox.features.inference import load_results
from toolbox.features.inference.load_results import LoadResults
from toolbox.ground.system import places

SHORT = {"seconds": 0.5}


def load(*steps: Mapping[str, Any], **objectives: float) -> dict[str, Any]:
    return {"steps": [SHORT | dict(step) for step in steps], "objectives": objectives}


def results(end: Outcome) -> LoadResults:
    return load_results.read(end.directory, load_results.FILE.rpartition("/")[2])


def samples(end: Outcome) -> Sequence[Mapping[str, str]]:
    with (end.directory / "load_samples.csv").open(newline="") as stream:
        return list(csv.DictReader(stream, strict=True))


def ended(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a worker with the settings in a directory, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "toolbox.features.inference.client", "settings.json"],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(places.builtin_root())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


def run_against(directory: Path, url: str, **settings: Any) -> Outcome:
    """Run a worker against a server that it does not start."""
    (directory / "cases.json").write_text(
        json.dumps({"cases": [{"name": "a", "protocol": "completions", "request": {"prompt": "a", "model": "m"}}]})
    )
    (directory / "settings.json").write_text(json.dumps({"server": {"url": url, "ready": {"timeout": 5}}} | settings))
    worker = ended(directory)
    return Outcome(worker.returncode, worker.stdout, [], json.loads((directory / "worker.json").read_text()), directory)


def test_each_step_has_its_figures_and_each_request_a_row(tmp_path: Path) -> None:
    steps = load({"rate": 20, "arrivals": "constant", "warm_up": 0.25}, {"concurrency": 2}, end_to_end=5)
    end = run(tmp_path, "none", load=steps)
    assert end.status == 0, end.output
    rate, concurrency = results(end).steps
    assert (rate.name, rate.requests, rate.errors, rate.offered_rate) == ("rate=20", 5, 0, 20)
    assert (concurrency.name, concurrency.errors) == ("concurrency=2", 0)
    assert rate.goodput
    assert 0 < rate.figure("first_token_p50") <= rate.figure("end_to_end_p50")
    rows = samples(end)
    assert [row["case"] for row in rows if row["step"] == "rate=20"] == [*["first", "second", "third"] * 3, "first"]
    assert {(row["tokens"], row["error"]) for row in rows} == {("1", "")}
    assert end.report["steps"] == 2
    assert end.report["server"]["exit_status"] == 0
    assert "step concurrency=2: begins, takes 0.5 s" in end.output
    assert "step rate=20: 5 requests, 0 errors, first token p50" in end.output
    assert not (end.directory / "answers.jsonl").exists()


def test_errors_of_requests_are_results_of_the_worker(tmp_path: Path) -> None:
    end = run(tmp_path, "sends_half_a_stream", load=load({"rate": 20}))
    assert end.status == 0, end.output
    (step,) = results(end).steps
    assert step.errors == step.requests > 0
    assert "ended without a stop reason" in step.error_messages[0].message
    assert "ended without a stop reason" in samples(end)[0]["error"]


def test_a_server_that_dies_ends_the_load_and_keeps_the_earlier_steps(tmp_path: Path) -> None:
    steps = load({"rate": 20}, {"concurrency": 4, "seconds": 1000}, {"concurrency": 5})
    worker = start(tmp_path, "none", load=steps)
    assert worker.stdout
    for line in worker.stdout:
        if "step concurrency=4: begins" in line:
            break
    (server,) = psutil.Process(worker.pid).children()
    server.kill()
    end = outcome(worker, tmp_path)
    assert end.status == 70
    assert [step.name for step in results(end).steps] == ["rate=20"]
    assert "step concurrency=4: not complete, because the server ended with status 137" in end.output
    assert "server.log: listening" in end.output
    assert (end.report["server"]["died"], end.report["steps"]) == (True, 1)


def test_a_server_that_is_never_ready_leaves_no_results(tmp_path: Path) -> None:
    end = run(tmp_path, "never_ready", server={"ready": {"path": "/health", "timeout": 0.5}}, load=load({"rate": 1}))
    assert end.status == 75
    assert not (end.directory / "load.json").exists()
    assert end.report["steps"] == 0


def test_a_signal_ends_the_server_and_keeps_the_earlier_steps(tmp_path: Path) -> None:
    worker = start(tmp_path, "none", load=load({"rate": 20}, {"rate": 5, "seconds": 1000}))
    assert worker.stdout
    for line in worker.stdout:
        if "step rate=5: begins" in line:
            break
    (server,) = psutil.Process(worker.pid).children()
    worker.send_signal(signal.SIGTERM)
    end = outcome(worker, tmp_path)
    assert end.status == 143
    assert not server.is_running()
    assert [step.name for step in results(end).steps] == ["rate=20"]
    assert len(samples(end)) >= results(end).steps[0].requests


def test_a_server_that_goes_away_is_not_asked_all_the_time(tmp_path: Path) -> None:
    def script(_: http_server.HttpRequest) -> list[bytes]:
        raise http_server.ResetConnectionError

    with http_server.serving(script) as server:
        end = run_against(tmp_path, server.url, load=load({"concurrency": 10, "seconds": 1}))
    assert end.status == 0, end.output
    (step,) = results(end).steps
    assert 10 <= step.requests <= 10 * 4  # after 0, 0.1, 0.3 and 0.7 s, or later
    assert [each.requests for each in step.error_messages] == [step.errors] == [step.requests]


def test_connections_are_kept(tmp_path: Path) -> None:
    events = [http_server.event(http_server.choice("b", "length")), http_server.event("[DONE]")]
    body = http_server.response(b"".join(events), kind="text/event-stream")
    with http_server.serving(http_server.answering(body), keeps_connections=True) as server:
        end = run_against(tmp_path, server.url, load=load({"concurrency": 3}))
    assert results(end).steps[0].errors == 0
    assert results(end).steps[0].requests > 5
    assert server.connections <= 5  # with those that asked whether the server is ready


STREAM = http_server.response(
    http_server.event(http_server.choice("b", "length")) + http_server.event("[DONE]"), kind="text/event-stream"
)
BUSY = http_server.response({"error": "busy"}, status=503, headers="Retry-After: 0\r\n")


def alternating(*answers: bytes) -> http_server.Script:
    """Return a script that gives the answers in turn. In place of an empty answer, the connection ends."""
    turns = itertools.cycle(answers)

    def script(_: http_server.HttpRequest) -> Iterator[bytes]:
        if not (answer := next(turns)):
            raise http_server.EndConnectionError
        yield answer

    return script


def test_a_healthy_server_that_closes_its_connections_silently_has_no_errors(tmp_path: Path) -> None:
    with http_server.serving(alternating(STREAM, b""), keeps_connections=True) as server:
        end = run_against(tmp_path, server.url, load=load({"concurrency": 1}))
    (step,) = results(end).steps
    assert (step.errors, step.refused) == (0, 0), end.output
    assert step.resent >= step.requests - 1 > 1


def test_a_server_that_is_busy_for_a_moment_refuses_requests(tmp_path: Path) -> None:
    with http_server.serving(alternating(STREAM, BUSY), keeps_connections=True) as server:
        end = run_against(tmp_path, server.url, load=load({"rate": 40, "arrivals": "constant"}))
    (step,) = results(end).steps
    assert (step.requests, step.errors, step.refused, step.error_messages) == (20, 0, 10, []), end.output
    assert f"{step.requests} requests, 0 errors, 10 refused" in end.output
    assert {row["error"] for row in samples(end)} == {"", "HTTP 503: busy"}


def test_a_refused_case_is_sent_again(tmp_path: Path) -> None:
    whole = http_server.response(http_server.choice("b", "length"))
    case = {"name": "a", "protocol": "completions", "request": {"prompt": "a", "model": "m"}, "retries": 1}
    with http_server.serving(alternating(BUSY, whole)) as server:
        (tmp_path / "cases.json").write_text(json.dumps({"cases": [case]}))
        (tmp_path / "settings.json").write_text(json.dumps({"server": {"url": server.url}}))
        worker = ended(tmp_path)
    assert worker.returncode == 0, worker.stdout
    assert ", refused before: 1" in worker.stdout
    (answer,) = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert (answer["error"], answer["refusals"], answer["generations"][0]["text"]) == (None, 1, "b")


def test_the_key_is_in_no_file_and_no_output_of_a_load(tmp_path: Path) -> None:
    end = run(tmp_path, "repeats_the_key", server={"api_key_variable": "TINY_API_KEY"}, load=load({"rate": 20}))
    assert end.status == 0, end.output
    assert results(end).steps[0].error_messages[0].message.endswith("wrong key Bearer ***")
    everything = end.output + "".join(path.read_text() for path in end.directory.iterdir())
    assert KEY not in everything


@pytest.mark.parametrize(
    ("settings", "cases", "message"),
    [
        ({"steps": [{"rate": 1}]}, [], "a load needs a case"),
        ({"steps": [{"rate": 1}]}, [{"name": "a", "protocol": "models"}], "has the protocol models, but a load"),
        (
            {"steps": [{"rate": 1, "seconds": 1000}]},
            [{"name": "a", "protocol": "completions", "request": {"model": "m", "temperature": float("nan")}}],
            "a request is invalid: the case a: ",
        ),
    ],
)
def test_a_wrong_load_is_one_message(tmp_path: Path, settings: dict[str, Any], cases: list[Any], message: str) -> None:
    with http_server.serving(http_server.answering()) as server:
        (tmp_path / "cases.json").write_text(json.dumps({"cases": cases}))
        content = {"server": {"url": server.url}, "load": settings}
        (tmp_path / "settings.json").write_text(json.dumps(content))
        worker = ended(tmp_path)
    assert worker.returncode == 2, worker.stdout
    assert message in worker.stdout
    assert "Traceback" not in worker.stdout
