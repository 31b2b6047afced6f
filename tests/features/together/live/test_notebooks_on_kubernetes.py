"""The preset `kubernetes` of the project `notebooks`, on a real cluster: one pod for each runtime and machine.

The pods cannot reach a package index, so the environments are made on this machine, which is a node of the cluster, and
mounted into the pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.sites import wait_for
from tests.features.kubernetes.servers import kubernetes
from tests.features.kubernetes.servers.kubernetes import Account, Cluster
from tests.features.kubernetes.unit.backends.kubernetes_page import role
from tests.features.notebooks.functional import notebook_runs
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
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory with the environments of both runtimes of the demo."""
    notebook_runs.demo_pythons(tmp_path_factory)
    return notebook_runs.shared_environments(tmp_path_factory)


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
    outcome = run(workspace, account, environments, notebook_runs.ONE_CELL_OF_EACH)
    assert outcome.exit_code == 1, str(outcome)
    assert notebook_runs.verdicts(workspace) == notebook_runs.ENDS_OF_EACH
    cells = notebook_runs.cells(workspace)
    assert {attempt["target"] for cell in cells.values() for attempt in cell["attempts"]} == {"kubernetes"}
    for name in notebook_runs.ENDS_OF_EACH:
        results = notebook_runs.results(workspace, name)
        failed = [test for test, record in results.items() if record["outcome"] not in {"passed", "skipped"}]
        assert failed == (["notebook.energy"] if name.startswith("current") else [])
        assert results["python.threads:cpus"]["outcome"] == "passed"
        assert notebook_runs.report(workspace, name)["environment_seconds"] is None


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
