"""Phases that are executed by separate command lines use the same created cluster."""

from __future__ import annotations

import json
import textwrap

import pytest

from tests.functional.test_run_steps import CONFIG, Steps
from tests.functional.test_run_steps import steps as steps  # noqa: PLC0414  # re-exports the fixture

CLUSTER = """
    clusters:
      scratch: {create: {command: "cp ../kubeconfig $KUBECONFIG; touch made", destroy: "touch destroyed"}}
"""
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "lab",
    "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "ann"}}],
    "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [{"name": "ann", "user": {"token": "t0k3n-of-ann"}}],
}


@pytest.fixture
def on_cluster(steps: Steps) -> Steps:
    """Return a run that creates a cluster of its own."""
    kubeconfig = steps.workspace.directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(KUBECONFIG))
    cluster = CLUSTER.replace("../kubeconfig", str(kubeconfig))
    steps.workspace.write({"config/steps.yaml": CONFIG + textwrap.dedent(cluster)})
    return steps


def test_a_cluster_that_the_run_creates_needs_no_pre_cleanup(on_cluster: Steps) -> None:
    outcome = on_cluster.workspace.run("project", "run", "steps")
    assert outcome.exit_code == 0, str(outcome)
    assert on_cluster.log == ["prepare", "test built-7", "post_cleanup built-7"]
    assert "the phase pre_cleanup is not needed" in outcome.stdout


@pytest.mark.parametrize("shared", ["machine: {lock_file: lock}"])
def test_a_shared_machine_beside_a_new_cluster_is_cleaned_up_first(on_cluster: Steps, shared: str) -> None:
    file = on_cluster.workspace.directory / "config/steps.yaml"
    file.write_text(f"{file.read_text()}  dgx: {{{shared}}}\n")
    outcome = on_cluster.workspace.run("project", "run", "steps")
    assert outcome.exit_code == 0, str(outcome)
    assert on_cluster.log[0] == "pre_cleanup"


def test_a_created_cluster_is_kept_between_steps_and_removed_by_the_last_one(on_cluster: Steps) -> None:
    assert on_cluster.begin("prepare").exit_code == 0
    assert on_cluster.step("test").exit_code == 0
    assert on_cluster.workspace.run("resources", "reap").exit_code == 0
    assert list(on_cluster.workspace.directory.rglob("destroyed")) == []
    made = on_cluster.workspace.directory / "made"
    made.unlink()  # a second cluster would make the file again
    outcome = on_cluster.step("post_cleanup")
    assert outcome.exit_code == 0, str(outcome)
    assert not made.exists()
    assert (on_cluster.workspace.directory / "destroyed").exists()


def test_a_step_on_a_machine_without_the_cluster_of_the_run_is_refused(on_cluster: Steps) -> None:
    assert on_cluster.begin("prepare").exit_code == 0
    (kubeconfig,) = on_cluster.workspace.home.rglob("clusters/*/kubeconfig")
    kubeconfig.rename(kubeconfig.with_name("elsewhere"))
    outcome = on_cluster.step("test")
    assert outcome.exit_code == 2, str(outcome)
    assert "the cluster scratch of the run was created on another machine" in outcome.stderr
