"""The preset `kubernetes` of the project `inference`, on a real cluster: one pod for each config and test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.sites import wait_for
from tests.features.kubernetes.servers import kubernetes
from tests.features.kubernetes.servers.kubernetes import Account, Cluster
from tests.features.kubernetes.unit.backends.kubernetes_page import role
from toolbox.testing import Workspace

pytestmark = pytest.mark.live


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Yield a cluster that has this machine as a node, because the cells run the Python of the tests."""
    with kubernetes.for_tests() as found:
        found.pod_python()
        yield found


@pytest.fixture
def account(cluster: Cluster, tmp_path: Path) -> Iterator[Account]:
    """Yield an account with the documented permissions in a new namespace, which must be empty at the end."""
    with cluster.namespace() as namespace, cluster.account(namespace, tmp_path, role()["rules"]) as found:
        yield found
        wait_for(lambda: cluster.things(namespace) == [], "an empty namespace")


def run(workspace: Workspace, account: Account, *flags: str, **overrides: Any) -> dict[str, Any]:
    """Run the project, and return the cells by their config and test. `__` in an override stands for a dot."""
    values = {
        "targets.kubernetes.kubeconfig": str(account.kubeconfig),
        "targets.kubernetes.namespace": account.namespace,
        "host.capture_state.enabled": False,
        **{name.replace("__", "."): value for name, value in overrides.items()},
    }
    argv = ("project", "run", "inference", *flags, f"--overrides={json.dumps(values)}")
    outcome = workspace.run(*argv, timeout=300)
    assert outcome.exit_code == 0, str(outcome)
    cells = [step for step in workspace.summary()["steps"] if step["kind"] == "cell"]
    return {step["name"].removeprefix("model=reference,"): step for step in cells}


def targets(cells: dict[str, Any]) -> dict[str, list[str]]:
    """Return the target of each attempt of each cell."""
    return {name: [attempt["target"] for attempt in cell["attempts"]] for name, cell in cells.items()}


def test_each_config_is_served_and_judged_in_a_pod_of_its_own(workspace: Workspace, account: Account) -> None:
    cells = run(workspace, account, "--presets=kubernetes", "--cells=*config=float32* *config=two-shards*")
    names = [f"config={config},test=cases" for config in ("float32", "two-shards")]
    assert targets(cells) == {key: ["kubernetes"] for key in names}


def test_a_load_is_measured_in_the_pod_of_the_server(workspace: Workspace, account: Account) -> None:
    # A busy machine must not fail this test, so that the check allows any delay of the worker.
    checks = [{"check": "load", "max_client_delay": 60}, {"check": "exit_status"}]
    flags = ("--presets=kubernetes,load", "--cells=*config=float32,test=load")
    cells = run(workspace, account, *flags, matrix__checks=checks)
    name = "config=float32,test=load"
    assert targets(cells) == {name: ["kubernetes"]}
    measured = {metric["metric"]: metric["value"] for metric in cells[name]["metrics"]}
    assert measured["errors_at_rate_15"] == 0
    assert measured["first_token_p95_at_rate_30"] > 0
    assert measured["tokens_per_second_at_concurrency_4"] > 0
