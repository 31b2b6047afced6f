"""The first project, from the command line to its verdict: real trainings on this machine."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from toolbox.system import processes
from toolbox.testing import Workspace


def argv(tmp_path: Path, **overrides: object) -> list[str]:
    """Return a command line whose run and whose machine are both in the directory of the test."""
    values = {"training.directory": str(tmp_path / "machine"), **overrides}
    return [
        *("project", "run", "training_e2e", "--presets=smoke", f"--artifact_dir={tmp_path / 'runs'}"),
        f"--overrides={json.dumps(values)}",
    ]


def test_the_smoke_preset_passes_with_all_its_evidence(workspace: Workspace, tmp_path: Path) -> None:
    outcome = workspace.run(*argv(tmp_path), timeout=300)
    assert outcome.exit_code == 0, str(outcome)
    directory = workspace.run_directory(tmp_path / "runs")
    summary = workspace.summary(tmp_path / "runs")
    assert (summary["verdict"], summary["presets"]) == ("passed", ["smoke"])
    phases = [step["step"] for step in summary["steps"] if step["kind"] == "phase"]
    assert phases == ["000__prepare", "001__test", "002__post_cleanup"]
    assert list(directory.glob("000__prepare/*__host__capture_state/artifacts/host.json"))
    for name in ("tiny", "tiny-float64"):
        (model,) = directory.glob(f"001__test/*__train_models/*__{name}")
        checks = json.loads((model / "checks.json").read_text())
        assert [check["passed"] for check in checks["checks"]] == [True] * 5
        assert checks["metrics"]["step_time"]["value"] > 0
        (artifacts,) = model.glob("*__training__run/artifacts")
        assert "Finished training run" in (artifacts / "train.log").read_text()
        assert len(list(artifacts.glob("profile/**/*.xplane.pb"))) == 1
    assert list((tmp_path / "machine/runs").iterdir()) == []
    assert not list(directory.rglob("FAILURE"))


def test_a_bound_that_must_fail_fails_the_run_and_says_what_it_saw(workspace: Workspace, tmp_path: Path) -> None:
    overrides = {"training.bounds.step_time.upper": 0.00006, "host.capture_state.enabled": False}
    outcome = workspace.run(*argv(tmp_path, **overrides), timeout=300)
    assert outcome.exit_code == 1, str(outcome)
    summary = workspace.summary(tmp_path / "runs")
    assert (summary["verdict"], summary["cause"]) == ("failed", "check")
    judged = [check for step in summary["steps"] for check in step["checks"] if not check["passed"]]
    value = json.loads(next((tmp_path / "runs").rglob("checks.json")).read_text())["metrics"]["step_time"]["value"]
    said = f"step_time is {value:.6g} s, above its upper bound 6e-05 s"
    assert said in [check["message"] for check in judged]
    assert said in outcome.stdout
    assert summary["steps"][-1]["verdict"] == "passed"
    assert list((tmp_path / "machine/runs").iterdir()) == [], "post_cleanup ran"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_training_ends_it(
    workspace: Workspace, tmp_path: Path, number: signal.Signals
) -> None:
    overrides = {"training.settings.steps": 1_000_000, "host.capture_state.enabled": False}
    with workspace.start(*argv(tmp_path, **overrides)) as running:
        running.wait_for("Send the sources and the settings")  # what comes next is the training
        running.send(number)
        outcome = running.wait()
    assert outcome.exit_code == 128 + number, str(outcome)
    summary = workspace.summary(tmp_path / "runs")
    assert (summary["verdict"], summary["cause"]) == ("cancelled", "interrupted")
    assert summary["steps"][-1]["verdict"] == "passed"
    assert list((tmp_path / "machine/runs").iterdir()) == [], "post_cleanup ran"
    assert processes.marked(tmp_path / "runs") == []
