"""A run needs only the documented permissions in a namespace, and starts nothing without one of them."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.features.kubernetes.live import pod_grid
from tests.features.kubernetes.live.pod_grid import TIMEOUT, PodGrid
from tests.features.kubernetes.servers import kubernetes
from tests.features.kubernetes.servers.kubernetes import Account, Cluster
from toolbox.features.kubernetes.api.permissions import Permission
from toolbox.features.kubernetes.backends.kubernetes import HOST_PERMISSIONS, REQUIRED_PERMISSIONS, Target
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError
from toolbox.ground.system import places
from toolbox.testing import Workspace

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with kubernetes.for_tests(is_here=True) as found:
        yield found


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace() as found:
        yield found


@pytest.fixture
def field(cluster: Cluster, workspace: Workspace) -> Iterator[PodGrid]:
    with pod_grid.opened(cluster, workspace) as found:
        yield found


def rules(required: Iterable[Permission]) -> list[dict[str, list[str]]]:
    return [
        {"apiGroups": [permission.group], "resources": [permission.resource], "verbs": [permission.verb]}
        for permission in required
    ]


def all_but(
    permission: Permission, required: Iterable[Permission] = REQUIRED_PERMISSIONS
) -> list[dict[str, list[str]]]:
    return rules(each for each in required if each != permission)


def documented() -> dict[tuple[str, str], set[str]]:
    """Return the verbs of the Role in the documentation, by API group and resource."""
    text = (places.builtin_root() / "docs/kubernetes.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    found = (document for block in blocks if "kind: Role\n" in block for document in yaml.safe_load_all(block))
    role = next(document for document in found if document["kind"] == "Role")
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"])
    }


def test_the_documented_role_has_exactly_the_required_permissions() -> None:
    needed: dict[tuple[str, str], set[str]] = {}
    for permission in REQUIRED_PERMISSIONS:
        needed.setdefault((permission.group, permission.resource), set()).add(permission.verb)
    assert documented() == needed


def test_an_account_with_only_the_required_permissions_runs_cells(field: PodGrid) -> None:
    workload = {"command": pod_grid.COMMAND + "\n: >left", "sample_seconds": None}
    with field.cluster.account(field.namespace, field.grid.root, rules(REQUIRED_PERMISSIONS)) as account:
        field.kubeconfig = account.kubeconfig
        field.configure("abc", workload=workload).mark("fail-c")
        with field.grid.start() as running:
            outcome = running.wait(TIMEOUT)
        assert outcome.exit_code == 1, str(outcome)
        assert field.grid.verdicts == {"a": "passed", "b": "passed", "c": "failed"}
        assert len([*field.grid.directory.glob("*__test/*/attempt-1/files/left")]) == 2
        assert field.left() == []
        for text in ("forbidden", "Forbidden", "still there"):
            assert text not in outcome.stdout + outcome.stderr


def fault(account: Account, pod: Mapping[str, Any] | None = None) -> str:
    """Return the message of the check before a run, as soon as the server knows the permissions of the account."""
    target = Target(kubeconfig=str(account.kubeconfig), namespace=account.namespace, pod=dict(pod or {}))
    found, deadline = "", time.monotonic() + 30
    while True:
        try:
            target.verify("there", {}, [])
        except ConfigurationError as error:
            found = str(error)
        if found.count(",") == 0 or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def test_permissions_for_several_hosts_are_checked_only_for_several_hosts(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    lacking = HOST_PERMISSIONS[0]
    with cluster.account(namespace, tmp_path, all_but(lacking, [*REQUIRED_PERMISSIONS, *HOST_PERMISSIONS])) as account:
        assert f"the account may not {lacking}: " in fault(account, {"hosts": 2})
        assert fault(account) == ""


def test_an_account_without_a_required_permission_starts_no_run(field: PodGrid) -> None:
    lacking = Permission("watch", "pods")
    with field.cluster.account(field.namespace, field.grid.root, all_but(lacking)) as account:
        fault(account)
        field.kubeconfig = account.kubeconfig
        outcome = field.configure("a").run()
    assert outcome.exit_code == 2, str(outcome)
    assert f"in the namespace {field.namespace} the account may not watch pods: " in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert field.grid.workspace.runs() == []
    assert field.grid.phases == []


def test_a_run_in_a_missing_namespace_is_not_started(field: PodGrid) -> None:
    grid = field.configure("a")
    grid.workspace.write({"config/grid.yaml": text_of(grid.root, field.namespace, "no-such-namespace")})
    outcome = grid.run()
    assert outcome.exit_code == 2, str(outcome)
    assert 'namespaces "no-such-namespace" not found' in outcome.stderr
    assert grid.workspace.runs() == []


def text_of(root: Path, old: str, new: str) -> str:
    return (root / "config/grid.yaml").read_text().replace(old, new)


def test_a_refused_token_is_distinguished_from_a_missing_permission(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with cluster.account(namespace, tmp_path, rules(REQUIRED_PERMISSIONS)) as account:
        account.revoke()
        target = Target(kubeconfig=str(account.kubeconfig), namespace=namespace)
        with pytest.raises((ConfigurationError, InfrastructureError), match=r"credentials are refused \(401\)"):
            target.verify("there", {}, [])
