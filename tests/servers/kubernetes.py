"""A real Kubernetes cluster for the tests: the one that the environment names, shared by all who test at the time.

TOPGALLANT_TEST_KUBECONFIG      the kubeconfig of a cluster on which tests may do as they like
TOPGALLANT_TEST_KUBE_CLUSTER    the program that ends and starts its components: `PROGRAM kill|start NAME`

with kubernetes.cluster() as cluster, cluster.namespace() as namespace:
    cluster.core.list_namespaced_pod(namespace)
    with cluster.alone() as components:
        components.kill("kube-apiserver")
"""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.servers import kubeconfigs
from tests.servers.turns import Turns

if TYPE_CHECKING:
    from kubernetes import client

from toolbox.system.processes import MARK

KUBECONFIG: Final = "TOPGALLANT_TEST_KUBECONFIG"
KUBE_CLUSTER: Final = "TOPGALLANT_TEST_KUBE_CLUSTER"
_IMAGE: Final = "host:local"  # nothing in it is in the way of this machine's own folders
_TIMEOUT: Final = 120.0  # seconds
_LOOK_SECONDS: Final = 0.1
_NOT_FOUND: Final = 404
_UNAUTHORIZED: Final = 401
_TOKEN_SECONDS: Final = 3600
_LABELS: Final = {"app.kubernetes.io/managed-by": "topgallant-tests"}

Rules = Sequence[Mapping[str, Sequence[str]]]


class ClusterError(Exception):
    """There is no such cluster to be had; the text says why, and what to do."""


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Use the cluster, at the same time as others may.

    Raises:
        ClusterError: none is named. One that is named, and does not answer, is a failure.
    """
    named = os.environ.get(KUBECONFIG)
    if not named:
        raise ClusterError(f"no cluster to test on: {KUBECONFIG} names the kubeconfig of one that tests may use")
    try:
        from kubernetes import config
    except ImportError:
        raise ClusterError("no client of Kubernetes here: pip install 'topgallant[kubernetes]'") from None
    turns = _turns(Path(named).resolve())
    with turns.together(), config.new_client_from_config(named) as api:
        yield Cluster(Path(named), api, turns)


@contextmanager
def for_tests(*, is_here: bool = False) -> Iterator[Cluster]:
    """Use the cluster in a test, which is skipped where there is none.

    Args:
        is_here: whether a node of it has to be this machine.
    """
    import pytest

    try:
        with cluster() as found:
            if is_here and not found.is_here:
                pytest.skip("no node of the cluster is this machine")
            yield found
    except ClusterError as error:
        pytest.skip(str(error))


@functools.cache
def _turns(file: Path) -> Turns:
    name = hashlib.sha256(os.fsencode(file)).hexdigest()[:8]
    return Turns(Path(tempfile.gettempdir()) / f"topgallant-cluster-{name}")


@dataclass(frozen=True)
class Cluster:
    """The cluster, as who may do everything.

    Args:
        kubeconfig: how it is reached.
        api: for whatever the official client has. Its parts are `Any`: by its types all may be missing everywhere.
    """

    kubeconfig: Path
    api: client.ApiClient
    turns: Turns

    @functools.cached_property
    def core(self) -> Any:
        """Pods, namespaces, nodes and the like."""
        from kubernetes import client

        return client.CoreV1Api(self.api)

    @functools.cached_property
    def batch(self) -> Any:
        """Jobs."""
        from kubernetes import client

        return client.BatchV1Api(self.api)

    @functools.cached_property
    def rbac(self) -> Any:
        """Roles."""
        from kubernetes import client

        return client.RbacAuthorizationV1Api(self.api)

    @property
    def kubelet(self) -> Path:
        """The directory of the kubelet, with the volumes of the pods below, where a node of it is this machine."""
        return self.kubeconfig.resolve().parent / "kubelet"

    @property
    def is_here(self) -> bool:
        """Whether a node of it is this machine."""
        return self.kubelet.is_dir()

    def pod_python(self, *shared: Path) -> dict[str, Any]:
        """Return the `pod` of a target whose cells run the Python of this machine.

        Args:
            shared: folders of this machine that a cell sees too, at the same places, and may change.

        Raises:
            ClusterError: no node of the cluster is this machine.
        """
        if not self.is_here:
            raise ClusterError(f"no node of the cluster is this machine: there is no {self.kubelet}")
        kept = [Path("/usr"), Path("/lib"), Path("/lib64")]
        kept += [folder for folder in (Path(sys.base_prefix), Path(sys.prefix)) if not folder.is_relative_to("/usr")]
        folders = {**dict.fromkeys(map(str, kept), True), **dict.fromkeys(map(str, shared), False)}
        return {
            "image": _IMAGE,
            "image_pull_policy": "Never",
            "python": sys.executable,
            "resources": None,
            "volumes": [
                {"name": f"host-{number}", "mount_path": folder, "read_only": read_only, "host_path": folder}
                for number, (folder, read_only) in enumerate(folders.items())
            ],
        }

    @contextmanager
    def namespace(self) -> Iterator[str]:
        """Make a namespace, which is deleted afterwards; nobody waits until it is gone."""
        name = f"topgallant-test-{secrets.token_hex(4)}"
        self.core.create_namespace({"metadata": {"name": name, "labels": _LABELS}})
        try:
            yield name
        finally:
            # Otherwise each pod would have its grace, of 30 s.
            with _unless_absent():
                self.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
            with _unless_absent():
                self.core.delete_namespace(name)

    def things(self, namespace: str, labels: str = "") -> list[str]:
        """Return what there is of ours in a namespace, as `kind/name`: what Kubernetes itself puts there is left out.

        Args:
            labels: a selector.
        """
        found = {
            "job": self.batch.list_namespaced_job(namespace, label_selector=labels).items,
            "pod": self.core.list_namespaced_pod(namespace, label_selector=labels).items,
            "configmap": self.core.list_namespaced_config_map(namespace, label_selector=labels).items,
            "secret": [
                secret
                for secret in self.core.list_namespaced_secret(namespace, label_selector=labels).items
                if secret.type != "kubernetes.io/service-account-token"
            ],
        }
        names = (f"{kind}/{item.metadata.name}" for kind, items in found.items() for item in items)
        return sorted(name for name in names if name != "configmap/kube-root-ca.crt")

    @contextmanager
    def account(self, namespace: str, directory: Path, rules: Rules, cluster_rules: Rules = ()) -> Iterator[Account]:
        """Make an account that may do certain things in a namespace, and nothing else.

        Args:
            directory: for its kubeconfig.
            rules: of a Role, `{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}`.
            cluster_rules: likewise, of a ClusterRole.
        """
        name = f"topgallant-test-{secrets.token_hex(4)}"
        account = Account(self, namespace, name, directory / name)
        metadata = {"name": name, "labels": _LABELS}
        group = "rbac.authorization.k8s.io"
        subjects = [{"kind": "ServiceAccount", "namespace": namespace, "name": name}]
        self.rbac.create_namespaced_role(namespace, {"metadata": metadata, "rules": rules})
        role = {"apiGroup": group, "kind": "Role", "name": name}
        self.rbac.create_namespaced_role_binding(
            namespace, {"metadata": metadata, "roleRef": role, "subjects": subjects}
        )
        if cluster_rules:
            self.rbac.create_cluster_role({"metadata": metadata, "rules": cluster_rules})
            role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
            self.rbac.create_cluster_role_binding({"metadata": metadata, "roleRef": role, "subjects": subjects})
        try:
            account.renew()
            yield account
        finally:  # the rest goes with the namespace
            if cluster_rules:
                self.rbac.delete_cluster_role_binding(name)
                self.rbac.delete_cluster_role(name)

    @contextmanager
    def alone(self) -> Iterator[Components]:
        """Have the cluster alone, to break it; in the end it is whole again.

        Raises:
            ClusterError: nobody has said how to break it.
        """
        program = os.environ.get(KUBE_CLUSTER)
        if not program:
            raise ClusterError(f"the cluster cannot be broken: {KUBE_CLUSTER} names the program that kills its parts")
        with self.turns.alone():
            components = Components(self, program)
            try:
                yield components
            finally:
                components.restore()

    def is_well_since(self, moment: datetime) -> bool:
        """Tell whether a node has been ready after a moment: all but the scheduler and the controllers it takes."""
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            nodes = self.core.list_node(_request_timeout=5).items
        except (ApiException, HTTPError):
            return False
        conditions = [condition for node in nodes for condition in node.status.conditions or ()]
        return any(
            condition.type == "Ready" and condition.status == "True" and condition.last_heartbeat_time > moment
            for condition in conditions
        )


@dataclass
class Account:
    """Who may do little.

    Args:
        name: of its ServiceAccount, its Role and so on.
        kubeconfig: by which it comes in.
    """

    cluster: Cluster
    namespace: str
    name: str
    kubeconfig: Path

    def renew(self) -> None:
        """Write a new token into the kubeconfig, as who looks after it would."""
        from kubernetes.client import ApiException

        core = self.cluster.core
        try:
            core.create_namespaced_service_account(self.namespace, {"metadata": {"name": self.name}})
        except ApiException as error:
            if error.status != 409:
                raise
        body = {"spec": {"expirationSeconds": _TOKEN_SECONDS}}
        answer = core.create_namespaced_service_account_token(self.name, self.namespace, body)
        kubeconfigs.derive(self.cluster.kubeconfig, self.kubeconfig, token=answer.status.token)

    def revoke(self) -> None:
        """Make the token worth nothing, as its expiry does, which takes ten minutes at least: 401 from now on.

        The server notices within ten seconds, for which this waits.
        """
        self.cluster.core.delete_namespaced_service_account(self.name, self.namespace)
        _wait_for(lambda: self._status() == _UNAUTHORIZED, f"the token of {self.name} to be refused")

    def _status(self) -> int:
        from kubernetes import client, config

        try:
            with config.new_client_from_config(str(self.kubeconfig)) as api:
                client.CoreV1Api(api).list_namespaced_pod(self.namespace)
        except client.ApiException as error:
            return int(error.status)
        return 200


@dataclass
class Components:
    """What the cluster is made of: `etcd`, `kube-apiserver`, `kube-scheduler`, `kubelet` and so on.

    Args:
        program: that ends and starts them.
    """

    cluster: Cluster
    program: str
    _killed: list[str] = field(default_factory=list)

    def kill(self, name: str) -> None:
        """End one at once."""
        self._killed.append(name)
        self._run("kill", name)

    def start(self, name: str) -> None:
        """Start one again. That it serves takes longer; see `Cluster.is_well_since`."""
        self._run("start", name)

    def restore(self) -> None:
        """Start all that were killed, and wait until the cluster is well."""
        began = datetime.now(UTC)
        for name in dict.fromkeys(self._killed):
            self.start(name)
        if self._killed:
            _wait_for(lambda: self.cluster.is_well_since(began), "the cluster to be well again")
        self._killed.clear()

    def _run(self, verb: str, name: str) -> None:
        place = {"KUBE_DIR": str(self.cluster.kubeconfig.resolve().parent)}
        # A part that is started again outlives the session of the tests, which is not to take it for a leftover.
        own = {variable: value for variable, value in os.environ.items() if not variable.startswith(("PYTEST_", MARK))}
        program = Path(self.program).resolve()
        subprocess.run([program, verb, name], env={**own, **place}, cwd="/", check=True)


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} was waited for, for {_TIMEOUT:g} s")
        time.sleep(_LOOK_SECONDS)


@contextmanager
def _unless_absent() -> Iterator[None]:
    """Bear with what is gone already."""
    from kubernetes.client import ApiException

    try:
        yield
    except ApiException as error:
        if error.status != _NOT_FOUND:
            raise
