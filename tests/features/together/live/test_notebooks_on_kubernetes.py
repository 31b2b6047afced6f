"""The preset `kubernetes` of the project `notebooks`, on a real cluster: one pod for each runtime and machine.

The pods cannot reach a package index, so the environments are made on this machine, which is a node of the cluster, and
mounted into the pods.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.conformance.sites import wait_for
from tests.features.kubernetes.servers import kubernetes
from tests.features.kubernetes.servers.kubernetes import Account, Cluster
from tests.features.kubernetes.unit.backends.kubernetes_page import role
from tests.features.notebooks.functional import notebook_runs
from toolbox.features.notebooks.worker import requirement_lines
from toolbox.features.notebooks.worker.environment_log import EnvironmentLog
from toolbox.features.notebooks.worker.environments import EnvironmentStore
from toolbox.ground.system import places
from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live

SMALL = {"target": "kubernetes", "cpus": 1, "memory_gb": 1}
LARGE = {"target": "kubernetes", "cpus": 1, "memory_gb": 2}


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


@pytest.fixture
def environments(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """Return a directory with the environments of both runtimes of the shipped configuration."""
    directory = notebook_runs.shared_environments(tmp_path_factory)
    shipped = yaml.safe_load((places.builtin_root() / "config/notebooks.yaml").read_text())
    for runtime in shipped["runtimes"].values():
        store = EnvironmentStore(directory, EnvironmentLog(tmp_path / "environment.log", print), 600)
        with store.prepared(requirement_lines.with_kernel(runtime["requirements"]), sys.executable):
            pass
    return directory


def run(workspace: Workspace, account: Account, environments: Path, *flags: str, **overrides: object) -> Outcome:
    """Run the project in pods that share the environments. `__` in an override stands for a dot."""
    volume = {"name": "environments", "host_path": str(environments), "mount_path": str(environments)}
    flag = notebook_runs.overrides(
        workspace,
        environments,
        targets__kubernetes__kubeconfig=str(account.kubeconfig),
        targets__kubernetes__namespace=account.namespace,
        targets__kubernetes__pod__volumes=[volume],
        **{"machines": {"small": SMALL, "large": LARGE}, **overrides},
    )
    argv = ("project", "run", "notebooks", "--presets=kubernetes", flag, *flags)
    return workspace.run(*argv, timeout=notebook_runs.TIMEOUT)


def test_both_runtimes_are_tested_in_pods_with_the_limits_of_their_machines(
    workspace: Workspace, account: Account, environments: Path
) -> None:
    outcome = run(workspace, account, environments)
    assert outcome.exit_code == 1, str(outcome)
    expected = {"classic": "passed", "current": "failed"}
    names = {f"{runtime} on {machine}": expected[runtime] for runtime in expected for machine in ("small", "large")}
    assert notebook_runs.verdicts(workspace) == names
    cells = notebook_runs.cells(workspace)
    assert {attempt["target"] for cell in cells.values() for attempt in cell["attempts"]} == {"kubernetes"}
    for name in names:
        results = notebook_runs.results(workspace, name)
        failed = [test for test, record in results.items() if record["outcome"] not in {"passed", "skipped"}]
        assert failed == (["notebook.energy"] if name.startswith("current") else [])
        assert results["python.threads:cpus"]["outcome"] == "passed"
        assert notebook_runs.report(workspace, name)["environment_seconds"] is None
    assert "failed cells have in common: runtime=current: 2 of 2 failed; elsewhere 0 of 2" in outcome.stdout


def test_a_notebook_that_needs_more_memory_than_the_pod_has_fails_alone(
    workspace: Workspace, account: Account, environments: Path
) -> None:
    books = {"greedy": "data = bytearray(4 * 10**9)", "modest": "print(1)"}
    workspace.write({f"books/{name}.ipynb": notebook_runs.notebook(source) for name, source in books.items()})
    runtime = {"kernel": "python3", "notebooks": [str(workspace.directory / f"books/{name}.ipynb") for name in books]}
    machines = {"small": SMALL, "large": {**LARGE, "runtimes": []}}
    fields = {"runtimes": {"plain": runtime}, "machines": machines, "notebooks__checks": []}
    outcome = run(workspace, account, environments, "--cells=*machine=small", **fields)
    assert outcome.exit_code == 1, str(outcome)
    results = notebook_runs.results(workspace, "plain on small")
    assert {name: record["fault"] for name, record in results.items()} == {
        "notebook.greedy": "out_of_memory", "notebook.modest": None,
    }  # fmt: skip
