"""The project inference measures the reference server under load, also if the run is killed meanwhile."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from typing import Any

from tests.conformance.sites import wait_for
from toolbox.ground.system import processes
from toolbox.testing import Workspace

STEPS = ["rate=30", "concurrency=2"]
# A busy machine must not fail these tests, so that the check allows any delay of the worker.
CHECKS = [{"check": "load", "max_client_delay": 60}, {"check": "exit_status"}]


def flags(workspace: Workspace, **overrides: Any) -> list[str]:
    """Return the command line that runs the load on one config. `__` in the name of an override stands for a dot."""
    values = {name.replace("__", "."): value for name, value in overrides.items()}
    always = {"host.capture_state.enabled": False, "matrix.checks": CHECKS}
    workspace.write({"overrides.yaml": json.dumps({**always, **values})})
    selection = ["--presets=load", "--cells=*config=float32,test=load", "--overrides=overrides.yaml"]
    return ["project", "run", "inference", *selection]


def cell(workspace: Workspace) -> dict[str, Any]:
    """Return the only cell of the run."""
    (found,) = [step for step in workspace.summary()["steps"] if step["kind"] == "cell"]
    return dict(found)


def steps(directory: Path) -> list[str]:
    """Return the names of the steps that have ended in an attempt."""
    file = directory / "files/load.json"
    return [step["name"] for step in json.loads(file.read_text())["steps"]] if file.exists() else []


def test_the_preset_measures_each_step_and_shows_charts(workspace: Workspace) -> None:
    outcome = workspace.run(*flags(workspace))
    assert outcome.exit_code == 0, str(outcome)
    measured = {metric["metric"]: metric["value"] for metric in cell(workspace)["metrics"]}
    assert measured["errors_at_rate_15"] == 0
    assert measured["goodput_at_concurrency_4"] > 0
    assert measured["first_token_p95_at_rate_30"] > measured["first_token_p50_at_rate_30"] > 0
    (samples,) = workspace.run_directory().glob("*__test/*/attempt-1/files/load_samples.csv")
    with samples.open() as file:
        assert {row["case"] for row in csv.DictReader(file)} == {"load/Short", "load/Long"}
    assert 'id="section-load"' in (workspace.run_directory() / "report.html").read_text()


def test_a_load_goes_on_if_its_run_is_killed(workspace: Workspace) -> None:
    load = {"rates": [30], "concurrencies": [2], "seconds": 2, "warm_up": 0.5}
    with workspace.start(*flags(workspace, **{"tests[0]__load": load})) as running:

        def attempts() -> list[Path]:
            return sorted(workspace.artifacts.glob("inference/2*/*__test/*/attempt-*"))

        wait_for(lambda: [directory for directory in attempts() if steps(directory)], "the end of a step")
        running.send(signal.SIGKILL)
        running.wait()
    outcome = workspace.run("project", "resume", str(workspace.run_directory()))
    assert outcome.exit_code == 0, str(outcome)
    (attempt,) = attempts()
    assert steps(attempt) == STEPS
    assert processes.marked(workspace.directory) == []
