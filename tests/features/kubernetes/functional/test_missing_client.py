"""A missing client library is reported before anything starts, with the command that installs the library."""

from __future__ import annotations

import pytest

from tests.functional.test_missing_libraries import refuse_flag, refuse_run
from tests.functional.test_missing_libraries import without as without  # noqa: PLC0414  # re-exports the fixture
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
SHARED = "clusters: {sut: {existing: {kubeconfig: none}}}\n"


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (CREATE, "the cluster `scratch` needs kubernetes"),
        (SHARED, "the cluster `sut` needs kubernetes"),
        (TARGET, "a cluster needs kubernetes"),
    ],
    ids=["create", "existing", "target"],
)
def test_a_run_whose_library_is_missing_starts_nothing(
    small: Workspace, without: dict[str, str], config: str, what: str
) -> None:
    refuse_run(small, without, config, what, "kubernetes")


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
    ],
)
def test_a_wrong_flag_is_named_before_a_missing_library(
    small: Workspace, without: dict[str, str], command: list[str], fault: str
) -> None:
    refuse_flag(small, without, command, fault)
