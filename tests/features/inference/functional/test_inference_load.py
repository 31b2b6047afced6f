"""The load of a specification is a cell: its steps are judged, and its figures are compared with earlier runs.

The worker takes its figures from a table, without a server. `test_inference_load_project.py` has a real one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.features.inference.fakes.load_results import step
from tests.features.inference.functional.test_inference_cells import ORCHESTRATION
from toolbox.testing import Outcome, Workspace

WORKER = """
import json, pathlib, sys
settings = json.loads(pathlib.Path("../src/settings.json").read_text())
table = json.loads(pathlib.Path(sys.argv[1]).read_text())
cases = json.loads(pathlib.Path("../src/cases.json").read_text())["cases"]
if load := settings.get("load"):
    assert [case["name"] for case in cases] == ["cases/text"]
    content = {"objectives": load["objectives"], "steps": table["steps"][:len(load["steps"])]}
    pathlib.Path("load.json").write_text(json.dumps(content))
    sys.exit(table["status"])
with open("answers.jsonl", "w") as answers:
    for case in cases:
        generations = [{"text": "y", "stop_reason": "MAX_TOKENS"}]
        record = {"case": case["name"], "stream": False, "seconds": 0.5, "generations": generations}
        answers.write(json.dumps(record) + "\\n")
"""
LOAD = {"rates": [0.5], "concurrencies": [2], "seconds": 60, "bounds": ["end_to_end_p50"]}
METRIC = "end_to_end_p50_at_rate_0.5"
CELL = "@inference.cells.{@cell.model}.{@cell.config.name}.{@cell.test}"


@pytest.fixture
def served(workspace: Workspace) -> Workspace:
    """Return a workspace with the project, one config, a case and a load."""
    content = {
        "inference": {"image_tag": None, "cells": None},
        "frameworks": {"table": {"command": ["serve", "{grpc_port}"], "protocols": ["fmaas"]}},
        "tests": [
            {
                "model": "org/m",
                "streams": False,
                "configs": [{"deployment_framework": "table", "name": "one"}],
                "cases": ["cases.yaml"],
                "load": LOAD,
            }
        ],
        "matrix": {
            "axes": {"model": None, "config": None, "test": ["cases", "load"]},
            "zip": [],
            "retries": {"infrastructure": 0},
            "workload": {
                "command": ["python3", "../src/worker.py", str(workspace.directory / "table.json")],
                "files": {"worker.py": "worker.py"},
                "write": {f"{name}.json": f"{CELL}.{name}" for name in ("settings", "cases", "expectations")},
                "pod": f"{CELL}.pod",
            },
            "metrics": {},
            "checks": [
                {"check": "answers", "when": {"test": "cases"}},
                {"check": "load", "when": {"test": "load"}},
            ],
        },
        "results": {"baseline": True},
    }
    workspace.write(
        {
            "projects/served/orchestration.py": ORCHESTRATION,
            "command_args/served.yaml.j2": "",
            "worker.py": WORKER,
            "cases.yaml": "- {name: text, request: {requests: [{text: x}]}, response: {responses: [{text: y}]}}",
            "config/served.yaml": json.dumps(content, indent=1),
        }
    )
    measure(workspace)
    return workspace


def measure(served: Workspace, latency: float = 0.1, *, status: int = 0, **fields: Any) -> None:
    """Let the worker measure this latency, and end with this status. `fields` belong to the second step."""
    steps = [step(0.5, latency=latency), step(None, concurrency=2, latency=latency, **fields)]
    served.write({"table.json": json.dumps({"steps": steps, "status": status})})


def run(served: Workspace, *flags: str) -> Outcome:
    return served.run("project", "run", "served", *flags)


def cells(served: Workspace) -> dict[str, dict[str, Any]]:
    """Return the cells of the latest run, by the value of the axis `test`."""
    return {step["name"].rpartition("test=")[2]: step for step in served.summary()["steps"] if step["kind"] == "cell"}


def metrics(served: Workspace) -> dict[str, float | None]:
    """Return the metrics of the load."""
    return {metric["metric"]: metric["value"] for metric in cells(served)["load"]["metrics"]}


def test_cases_and_load_are_cells_and_each_figure_is_a_metric(served: Workspace) -> None:
    outcome = run(served)
    assert outcome.exit_code == 0, str(outcome)
    assert {test: cell["verdict"] for test, cell in cells(served).items()} == {"cases": "passed", "load": "passed"}
    assert cells(served)["cases"]["metrics"] == []
    measured = metrics(served)
    assert measured[METRIC] == 0.1
    assert measured["tokens_per_second_at_concurrency_2"] == 80
    assert len(measured) == 26


def test_only_loads_can_be_selected(served: Workspace) -> None:
    assert run(served, "--cells=*test=load").exit_code == 0
    assert cells(served).keys() == {"load"}


def test_failed_requests_fail_the_cell_with_their_messages(served: Workspace) -> None:
    messages = [{"message": "the queue is full", "requests": 20}]
    measure(served, errors=20, error_messages=messages)
    outcome = run(served)
    assert outcome.exit_code == 1, str(outcome)
    assert {test: (cell["verdict"], cell["cause"]) for test, cell in cells(served).items()} == {
        "cases": ("passed", None),
        "load": ("failed", "check"),
    }
    assert "concurrency=2: 20 of 200 requests failed (10.0%), more than the allowed 0.0%" in outcome.stdout
    assert "20 requests: the queue is full" in outcome.stdout


def test_a_metric_with_too_few_samples_fails_only_a_check_that_uses_it(served: Workspace) -> None:
    measure(served, samples=12)
    assert run(served).exit_code == 0
    found = metrics(served)
    assert (found["end_to_end_p95_at_concurrency_2"], found["end_to_end_p50_at_concurrency_2"]) == (None, 0.1)
    measure(served, samples=1)
    outcome = run(served)
    assert outcome.exit_code == 1
    assert "end_to_end_p50_at_concurrency_2 is unknown (the step concurrency=2 has no end_to_end_p50" in outcome.stdout


def test_an_overloaded_worker_is_an_error_of_the_infrastructure(served: Workspace) -> None:
    measure(served, client_delay={"samples": 200, "mean": 0.2, "p95": 0.4})
    outcome = run(served)
    assert outcome.exit_code == 3, str(outcome)
    assert "concurrency=2: the worker sent requests 400 ms late" in outcome.stdout


def test_a_server_that_died_is_at_fault_and_the_load_is_measured_again_by_resume(served: Workspace) -> None:
    measure(served, status=70)
    assert run(served).exit_code == 1
    assert (cells(served)["load"]["verdict"], cells(served)["load"]["cause"]) == ("failed", "product")
    measure(served, 0.2)
    outcome = served.run("project", "resume", str(served.run_directory()), "--failed")
    assert outcome.exit_code == 0, str(outcome)
    assert metrics(served)[METRIC] == 0.2


def test_a_run_with_a_changed_load_is_not_resumed(served: Workspace) -> None:
    measure(served, status=70)
    assert run(served).exit_code == 1
    file = served.directory / "config/served.yaml"
    file.write_text(file.read_text().replace('"seconds": 60', '"seconds": 61'))
    assert served.run("project", "resume", str(served.run_directory()), "--failed").exit_code == 2


def test_a_slower_server_is_found_as_a_regression(served: Workspace) -> None:
    for number in range(10):
        measure(served, 0.1 + 0.0005 * (number % 3))
        assert run(served, "--cells=*test=load").exit_code == 0
    assert served.run("results", "update_bounds", "served").exit_code == 0
    outcome = run(served)
    assert outcome.exit_code == 0, str(outcome)
    measure(served, 0.15)
    outcome = run(served)
    assert outcome.exit_code == 1, str(outcome)
    assert "test=load (regression)" in outcome.stdout
    assert f"{METRIC} is 0.15 s, 49.3 % above the usual 0.10045" in outcome.stdout
