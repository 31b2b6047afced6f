"""The preset `kubernetes` of `training_e2e`, on a real cluster, with only the Role in docs/kubernetes.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.sites import wait_for
from tests.features.kubernetes.servers import kubernetes
from tests.features.kubernetes.servers.kubernetes import Account, Cluster
from tests.features.kubernetes.unit.backends.kubernetes_page import role
from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Yield a cluster that has this machine as a node, because the cells run the Python of the tests."""
    with kubernetes.for_tests() as found:
        found.pod_python()
        yield found


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace() as found:
        yield found


def run(workspace: Workspace, account: Account) -> Outcome:
    """Run the project with the kubeconfig of an account."""
    values = {
        "targets.kubernetes.kubeconfig": str(account.kubeconfig),
        "targets.kubernetes.namespace": account.namespace,
    }
    flags = ("--presets=smoke,kubernetes", f"--overrides={json.dumps(values)}", "--cells=*model=tiny,batch=8*")
    return workspace.run("project", "run", "training_e2e", *flags, timeout=300)


def test_a_training_under_the_documented_role_passes_and_leaves_nothing(
    workspace: Workspace, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with cluster.account(namespace, tmp_path, role()["rules"]) as account:
        outcome = run(workspace, account)
    assert outcome.exit_code == 0, str(outcome)
    cells = [step for step in workspace.summary()["steps"] if step["kind"] == "cell"]
    assert [cell["verdict"] for cell in cells] == ["passed"] * 2
    for cell in cells:
        assert [attempt["target"] for attempt in cell["attempts"]] == ["kubernetes"]
        check_evidence(workspace.run_directory() / cell["step"] / "attempt-1")
    wait_for(lambda: cluster.things(namespace) == [], "an empty namespace")


def check_evidence(attempt: Path) -> None:
    """Check that the results of an attempt were fetched from its pod, and that its manifest was saved."""
    assert "Finished training run" in (attempt / "stdout.log").read_text()
    assert json.loads((attempt / "files/train_metrics.json").read_text())["step_time_seconds"] > 0
    assert len(list(attempt.glob("files/profile/**/*.xplane.pb"))) == 1
    assert (attempt / "samples.csv").read_text().startswith("seconds,cpu_percent,memory_bytes")
    assert '"kind": "Job"' in (attempt / "src/topgallant-job.json").read_text()


def test_a_missing_permission_is_named_before_anything_starts(
    workspace: Workspace, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    rules = [rule for rule in role()["rules"] if rule["resources"] != ["events"]]
    with cluster.account(namespace, tmp_path, rules) as account:
        outcome = run(workspace, account)
    assert outcome.exit_code == 2, str(outcome)
    assert f"in the namespace {namespace} the account may not list events: docs/kubernetes.md" in outcome.stderr
    assert (workspace.runs(), cluster.things(namespace)) == ([], [])
