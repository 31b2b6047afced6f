"""The project `training_e2e`, from the command line to its verdict, with real trainings on this machine."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import yaml

from tests.functional.grid import wait
from toolbox.ground.system import processes
from toolbox.testing import Workspace

ONE_CELL = "--cells=model=tiny,batch=8,*32"
CORPUS = [".topgallant-training", "corpus.txt"]


def argv(tmp_path: Path, **overrides: object) -> list[str]:
    """Return a command line whose run directory and training directory are both below `tmp_path`."""
    values = {"training.directory": str(tmp_path / "machine"), **overrides}
    return [
        *("project", "run", "training_e2e", "--presets=smoke", f"--artifact_dir={tmp_path / 'runs'}"),
        f"--overrides={json.dumps(values)}",
    ]


def on_machine(tmp_path: Path) -> list[str]:
    """Return the names of the files in the training directory."""
    return sorted(path.name for path in (tmp_path / "machine").iterdir())


def test_the_smoke_preset_passes_with_all_its_evidence(workspace: Workspace, tmp_path: Path) -> None:
    outcome = workspace.run(*argv(tmp_path), timeout=300)
    assert outcome.exit_code == 0, str(outcome)
    directory = workspace.run_directory(tmp_path / "runs")
    summary = workspace.summary(tmp_path / "runs")
    assert (summary["verdict"], summary["presets"]) == ("passed", ["smoke"])
    phases = [step["step"] for step in summary["steps"] if step["kind"] == "phase"]
    assert phases == ["000__prepare", "001__test", "002__post_cleanup"]
    assert list(directory.glob("000__prepare/*__host__capture_state/artifacts/host.json"))
    cells = [step for step in summary["steps"] if step["kind"] == "cell"]
    assert len(cells) == 6
    for cell in cells:
        unjudged = [check["message"] for check in cell["checks"] if not check["passed"]]
        assert len(unjudged) == 1, unjudged
        assert unjudged[0].endswith("writes bounds when there are enough runs")
        assert {metric["metric"]: metric["fault"] for metric in cell["metrics"]} == dict.fromkeys(
            ["step_time", "tokens_per_second", "loss_drop", "last_loss"], ""
        )
        check_evidence(directory / cell["step"], cell["name"])
    assert on_machine(tmp_path) == CORPUS
    assert not list(directory.rglob("FAILURE"))


def check_evidence(cell: Path, name: str) -> None:
    """Check that the results of a cell are complete and agree with its name and its settings."""
    settings = yaml.safe_load((cell / "settings.yaml").read_text())
    used = json.loads((cell / "attempt-1/files/train_metrics.json").read_text())["settings"]
    assert f"batch={used['batch']},precision={used['precision']}" in name
    assert {key: used[key] for key in settings["model"]} == settings["model"]
    assert "Finished training run" in (cell / "attempt-1/stdout.log").read_text()
    assert (cell / "attempt-1/samples.csv").read_text().startswith("seconds,cpu_percent,memory_bytes")
    assert len(list((cell / "attempt-1/files/profile").rglob("*.xplane.pb"))) == 1


def test_a_violated_bound_fails_the_run_and_the_training_text_is_removed_unless_keep_is_set(
    workspace: Workspace, tmp_path: Path
) -> None:
    overrides = {
        "training.bounds.step_time.upper": 0.00006,
        "training.corpus.keep": False,
        "host.capture_state.enabled": False,
    }
    outcome = workspace.run(*argv(tmp_path, **overrides), ONE_CELL, timeout=300)
    assert outcome.exit_code == 1, str(outcome)
    summary = workspace.summary(tmp_path / "runs")
    assert (summary["verdict"], summary["cause"]) == ("failed", "check")
    (cell,) = [step for step in summary["steps"] if step["kind"] == "cell"]
    value = next(metric["value"] for metric in cell["metrics"] if metric["metric"] == "step_time")
    message = f"step_time is {value:.6g} s, above its upper bound 6e-05 s"
    assert [check["message"] for check in cell["checks"] if check["passed"] is False] == [message]
    assert message in outcome.stdout
    assert message in summary["message"]
    assert summary["steps"][-1]["verdict"] == "passed", "post_cleanup did not pass"
    assert not (tmp_path / "machine").exists()
    (before,) = (tmp_path / "runs").rglob("*__training__cleanup/artifacts/before.json")
    assert [Path(name).name for name in json.loads(before.read_text())] == CORPUS


def test_a_signal_in_the_middle_of_a_training_ends_it(workspace: Workspace, tmp_path: Path) -> None:
    overrides = {
        "training.settings.steps": 1_000_000,
        "training.corpus.keep": False,
        "host.capture_state.enabled": False,
    }
    with workspace.start(*argv(tmp_path, **overrides)) as running:
        running.wait_for("> model=tiny,batch=8,precision=float64")
        logs = "runs/training_e2e/*/*__test/*/attempt-1/stdout.log"  # deeper files appear and disappear
        wait(lambda: sum("step 0 " in log.read_text() for log in tmp_path.glob(logs)) >= 2, "a step of each training")
        running.send(signal.SIGINT)
        outcome = running.wait()
    assert outcome.exit_code == 128 + signal.SIGINT, str(outcome)
    summary = workspace.summary(tmp_path / "runs")
    assert (summary["verdict"], summary["cause"]) == ("cancelled", "interrupted")
    assert summary["steps"][-1]["verdict"] == "passed"
    assert not (tmp_path / "machine").exists(), "post_cleanup did not run"
    assert processes.marked(tmp_path / "runs") == []


def test_a_missing_directory_causes_no_warning(workspace: Workspace, tmp_path: Path) -> None:
    for command in ("cleanup", "prepare_corpus"):
        outcome = workspace.run("training", command, str(tmp_path / "machine"))
        assert outcome.exit_code == 0, str(outcome)
        assert "is not a directory" not in str(outcome)


def test_cleanup_refuses_directories_that_it_did_not_create(workspace: Workspace, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis.txt").touch()
    for command in ("prepare_corpus", "cleanup"):
        outcome = workspace.run("training", command, str(theirs))
        assert outcome.exit_code == 3, str(outcome)
        assert "was not made by `training prepare_corpus`" in " ".join(outcome.stdout.split())
    assert [path.name for path in theirs.iterdir()] == ["thesis.txt"]


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """Return a `python3` that has only the standard library, in a folder without other programs."""
    script = tmp_path / "bare/python3"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    script.chmod(0o755)
    return script


def test_an_interpreter_without_numpy_is_refused_before_the_training(
    workspace: Workspace, tmp_path: Path, bare_python: Path
) -> None:
    outcome = workspace.run("training", "prepare_corpus", str(tmp_path / "machine"), f"--python={bare_python}")
    assert outcome.exit_code == 3, str(outcome)
    assert f"{bare_python} has no numpy on localhost" in " ".join(outcome.stdout.split())
    assert not (tmp_path / "machine").exists()


def test_on_this_machine_python3_is_the_interpreter_of_topgallant(
    workspace: Workspace, tmp_path: Path, bare_python: Path
) -> None:
    env = {"PATH": f"{bare_python.parent}{os.pathsep}{os.environ['PATH']}"}
    overrides = {"host.capture_state.enabled": False}
    outcome = workspace.run(*argv(tmp_path, **overrides), ONE_CELL, env=env, timeout=300)
    assert outcome.exit_code == 0, str(outcome)
