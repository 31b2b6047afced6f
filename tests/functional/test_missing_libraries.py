"""A missing client library is reported before anything starts, with the command that installs the library."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from toolbox.system import places
from toolbox.testing import Workspace

CREATE = """
    clusters:
      scratch:
        create: {command: [touch, made], destroy: [touch, destroyed]}
    commands: {prepare: [], test: ["true"], cleanup: []}
    checks: []
    metrics: {}
"""
TARGET = """
    targets: {gpus: {backend: kubernetes, pod: {image: "x:1"}}}
    matrix: {axes: {x: [1]}, target: gpus, workload: {command: ["true"]}}
"""
STORE = "results: {database: postgresql://nowhere.invalid/db}\n"
SHARED = "clusters: {sut: {existing: {kubeconfig: none}}}\n"


@pytest.fixture
def without(tmp_path: Path) -> dict[str, str]:
    """Return the environment variables with which Python cannot import the optional libraries."""
    hidden = (
        "import sys\nsys.modules.update(dict.fromkeys(['kubernetes', 'psycopg', 'google.cloud.tpu_v2', 'httpx']))\n"
    )
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/sitecustomize.py").write_text(hidden)
    return {"PYTHONPATH": str(tmp_path / "hidden")}


@pytest.mark.parametrize(
    ("config", "what", "extra"),
    [
        (CREATE, "the cluster `scratch` needs kubernetes", "kubernetes"),
        (SHARED, "the cluster `sut` needs kubernetes", "kubernetes"),
        (TARGET, "a cluster needs kubernetes", "kubernetes"),
        (STORE, "the database of `results` needs psycopg", "postgres"),
    ],
    ids=["create", "existing", "target", "store"],
)
def test_a_run_whose_library_is_missing_starts_nothing(
    small: Workspace, without: dict[str, str], config: str, what: str, extra: str
) -> None:
    small.write({"config/small.yaml": config})
    outcome = small.run("project", "run", "small", env=without)
    assert outcome.exit_code == 2, str(outcome)
    assert what in outcome.stderr
    assert not (small.directory / "made").exists()
    assert small.runs() == []
    hint = outcome.stderr.rpartition(": ")[2]
    assert shlex.split(hint)[:4] == [sys.executable, "-m", "pip", "install"]
    assert f"{places.builtin_root()}[{extra}]" in hint


@pytest.mark.parametrize("command", [["cluster", "wait_ready"], ["kubernetes", "fetch_logs", "--namespace=x"]])
def test_a_toolbox_command_is_not_started_without_its_library(
    small: Workspace, without: dict[str, str], command: list[str]
) -> None:
    outcome = small.run(*command, env=without)
    assert outcome.exit_code == 2, str(outcome)
    assert f"{command[0]} {command[1]} needs kubernetes" in outcome.stderr
    assert list(small.artifacts.glob("toolbox/*__*")) == []


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (["cluster", "set_scale", "--kind=gke", "--name=x", "--replicas=1"], "--cluster is missing"),
        (["cluster", "apply", "nofile.yaml"], "nofile.yaml cannot be read"),
        (["cluster", "wait_ready", "--nods=1"], "unknown argument --nods"),
        (
            ["inference", "load", "--url=http://127.0.0.1:1", "--cases=x"],
            "a load needs --rates, --concurrencies or both",
        ),
        (["inference", "record_cases", "--url=nowhere", "--cases=x", "--output=y"], "--url must be http://HOST:PORT"),
        (["results", "list", "--since=nope", "--database=postgresql://x/y"], "--since=nope is not a time"),
    ],
)
def test_a_wrong_flag_is_named_before_a_missing_library(
    small: Workspace, without: dict[str, str], command: list[str], fault: str
) -> None:
    outcome = small.run(*command, env=without)
    assert outcome.exit_code == 2, str(outcome)
    assert fault in outcome.stderr
    assert "not installed" not in outcome.stderr


def test_a_command_for_tpus_needs_its_library(small: Workspace, without: dict[str, str]) -> None:
    outcome = small.run("tpu", "list", "--project=my-project", env=without)
    assert outcome.exit_code == 2, str(outcome)
    assert "the TPU API needs google.cloud.tpu_v2, which is not installed" in outcome.stderr


def test_commands_that_need_no_extra_library_run(small: Workspace, without: dict[str, str]) -> None:
    assert small.run("project", "run", "small", env=without).exit_code == 0
