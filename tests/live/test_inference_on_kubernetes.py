"""The preset `kubernetes` of the project `inference`, on a real cluster: one pod for each config."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.sites import wait_for
from tests.servers import kubernetes
from tests.servers.kubernetes import Cluster
from tests.unit.backends.kubernetes_page import role
from toolbox.testing import Workspace

pytestmark = pytest.mark.live


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Yield a cluster that has this machine as a node, because the cells run the Python of the tests."""
    with kubernetes.for_tests() as found:
        found.pod_python()
        yield found


def test_each_config_is_served_and_judged_in_a_pod_of_its_own(
    workspace: Workspace, cluster: Cluster, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    volume = {"name": "model", "mount_path": str(model), "host_path": str(model)}
    with cluster.namespace() as namespace, cluster.account(namespace, tmp_path, role()["rules"]) as account:
        values = {
            "targets.kubernetes.kubeconfig": str(account.kubeconfig),
            "targets.kubernetes.namespace": account.namespace,
            "targets.kubernetes.pod.volumes": [volume],
            "reference_server.checkpoint": str(model / "model.npz"),
            "host.capture_state.enabled": False,
        }
        argv = ("project", "run", "inference", "--presets=kubernetes", f"--overrides={json.dumps(values)}")
        outcome = workspace.run(*argv, timeout=300)
        assert outcome.exit_code == 0, str(outcome)
        cells = [step for step in workspace.summary()["steps"] if step["kind"] == "cell"]
        assert [attempt["target"] for cell in cells for attempt in cell["attempts"]] == ["kubernetes"] * 3
        wait_for(lambda: cluster.things(namespace) == [], "an empty namespace")
