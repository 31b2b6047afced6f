"""The nightly tier of the project `tpu_ci` runs a suite on several types of TPUs of the test server, side by side."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.features.tpu.servers import tpu
from toolbox.testing import Workspace

pytestmark = pytest.mark.live

SUITE = """
import os, time
from xml.etree import ElementTree

suite = ElementTree.Element("testsuite")
for name in ("adds", "worker"):
    begin = time.perf_counter()
    case = ElementTree.SubElement(suite, "testcase", classname="sample", name=name)
    if not 0 <= int(os.environ.get("TOPGALLANT_HOST_INDEX", 0)) < int(os.environ.get("TOPGALLANT_HOSTS", 1)):
        ElementTree.SubElement(case, "failure", message="a wrong index")
    case.set("time", str(time.perf_counter() - begin + 0.01))
ElementTree.ElementTree(suite).write(os.environ["RESULTS"] + "/junit.xml")
"""
COVERAGE = '<?xml version="1.0"?><coverage line-rate="0.875" lines-valid="80" lines-covered="70"><packages/></coverage>'
WORKERS = {"v6e-1": 1, "v5e-16": 4, "v6e-4x2": 2}


@pytest.fixture(name="repository")
def _repository(workspace: Workspace) -> Path:
    """Return a repository whose suite has two test cases, in a directory that the workers of the test server see."""
    directory = workspace.directory / "repository"
    directory.mkdir()
    (directory / "suite.py").write_text(SUITE)
    (directory / "coverage.xml").write_text(COVERAGE)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for arguments in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(directory), *arguments], check=True)
    return directory


def test_the_nightly_tier_runs_on_one_worker_on_four_workers_and_on_two_slices(
    workspace: Workspace, repository: Path, tmp_path: Path
) -> None:
    with tpu.serving(tmp_path / "server", shared=workspace.directory) as server:
        changes = {
            "repository.url": str(repository),
            "environment.venv": False,
            "environment.install": [],
            "matrix.axes.suite.full": {
                "commands": ["python3 suite.py", 'cp coverage.xml "$RESULTS"'],
                "min_tests": 2,
            },
            "host.capture_state.enabled": False,
            "tpu.project": "my-project",
            "tpu.api_endpoint": server.endpoint,
            "tpu.ssh.user": "root",
            "tpu.ssh.port": server.ssh_port,
            "tpu.startup_script": "echo prepared\n",
        }
        flags = ["--presets=nightly,multislice", f"--overrides={json.dumps(changes)}", "--max_cost=20"]
        outcome = workspace.run("project", "run", "tpu_ci", *flags)
        assert outcome.exit_code == 0, str(outcome)
        assert (server.leftovers(), server.created_twice()) == ([], [])

    cells = {step["name"]: step for step in workspace.summary()["steps"] if step["kind"] == "cell"}
    for target, workers in WORKERS.items():
        cell = cells[f"target={target},suite=full"]
        assert cell["verdict"] == "passed"
        directory = workspace.run_directory() / cell["step"] / "attempt-1"
        others = [int(path.name) for path in (directory / "hosts").glob("*") if path.name != "0"]
        assert sorted(others) == list(range(1, workers))
        assert {metric["metric"]: metric["value"] for metric in cell["metrics"]}["coverage"] == 87.5

    cost = workspace.run("results", "cost", "--by=target", "--format=json")
    rows = json.loads(cost.stdout)
    spent = {row["target"]: row["cost"] for row in (rows["costs"] if isinstance(rows, dict) else rows)}
    assert spent.keys() == WORKERS.keys()
    assert all(amount > 0 for amount in spent.values())
    shown = workspace.run("results", "show", "--tests", "--format=json")
    assert len(json.loads(shown.stdout)) == 2 * len(WORKERS)
    report = (workspace.run_directory() / "report.html").read_text()
    assert all(target in report for target in WORKERS)
    assert "USD" in report
