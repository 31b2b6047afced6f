"""A real Kubernetes cluster for the tests. Environment variables name it, and all test sessions share it.

TOPGALLANT_TEST_KUBECONFIG      kubeconfig of a cluster in which tests may do anything
TOPGALLANT_TEST_KUBE_CLUSTER    program that kills and starts its components: `PROGRAM kill|start NAME`

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

from tests.features.kubernetes.servers import kubeconfigs
from tests.features.kubernetes.servers.turns import Turns

if TYPE_CHECKING:
    from kubernetes import client

from toolbox.ground.kit.process_tree import MARK

KUBECONFIG: Final = "TOPGALLANT_TEST_KUBECONFIG"
KUBE_CLUSTER: Final = "TOPGALLANT_TEST_KUBE_CLUSTER"
_IMAGE: Final = "host:local"  # an image without files that the mounted folders of this machine would hide
_TIMEOUT: Final = 120.0  # seconds
_LOOK_SECONDS: Final = 0.1
_NOT_FOUND: Final = 404
_UNAUTHORIZED: Final = 401
_TOKEN_SECONDS: Final = 3600
_LABELS: Final = {"app.kubernetes.io/managed-by": "topgallant-tests"}

Rules = Sequence[Mapping[str, Sequence[str]]]


class ClusterError(Exception):
    """The tests have no cluster. The message gives the reason and the remedy."""


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Use the cluster together with other processes.

    Raises:
        ClusterError: no cluster is named. A named cluster that does not answer raises other errors, so that tests fail.
    """
    named = os.environ.get(KUBECONFIG)
    if not named:
        raise ClusterError(f"no cluster to test on: {KUBECONFIG} names the kubeconfig of one that tests may use")
    try:
        from kubernetes import config
    except ImportError:
        raise ClusterError("the client of Kubernetes is not installed: pip install 'topgallant[kubernetes]'") from None
    turns = _turns(Path(named).resolve())
    with turns.together(), config.new_client_from_config(named) as api:
        yield Cluster(Path(named), api, turns)


@contextmanager
def for_tests(*, is_here: bool = False) -> Iterator[Cluster]:
    """Use the cluster in a test. The test is skipped if there is no cluster.

    Args:
        is_here: whether this machine has to be a node of the cluster.
    """
    import pytest

    try:
        with cluster() as found:
            if is_here and not found.is_here:
                pytest.skip("this machine is not a node of the cluster")
            yield found
    except ClusterError as error:
        pytest.skip(str(error))


@functools.cache
def _turns(file: Path) -> Turns:
    name = hashlib.sha256(os.fsencode(file)).hexdigest()[:8]
    return Turns(Path(tempfile.gettempdir()) / f"topgallant-cluster-{name}")


@dataclass(frozen=True)
class Cluster:
    """The cluster, with an administrator's permissions.

    Args:
        kubeconfig: kubeconfig of an administrator.
        api: API client. The objects that it returns are typed `Any`, because by their types every field may be None.
    """

    kubeconfig: Path
    api: client.ApiClient
    turns: Turns

    @functools.cached_property
    def core(self) -> Any:
        """API of pods, namespaces, nodes and other core objects."""
        from kubernetes import client

        return client.CoreV1Api(self.api)

    @functools.cached_property
    def batch(self) -> Any:
        """API of Jobs."""
        from kubernetes import client

        return client.BatchV1Api(self.api)

    @functools.cached_property
    def rbac(self) -> Any:
        """API of Roles."""
        from kubernetes import client

        return client.RbacAuthorizationV1Api(self.api)

    @property
    def kubelet(self) -> Path:
        """Directory of the kubelet with the volumes of the pods. It exists only if this machine is a node."""
        return self.kubeconfig.resolve().parent / "kubelet"

    @property
    def is_here(self) -> bool:
        """Whether this machine is a node of the cluster."""
        return self.kubelet.is_dir()

    def pod_python(self, *shared: Path) -> dict[str, Any]:
        """Return the `pod` of a target whose cells run the Python of this machine.

        Args:
            shared: folders of this machine that are mounted into the pod at the same paths, writable.

        Raises:
            ClusterError: this machine is not a node of the cluster.
        """
        if not self.is_here:
            raise ClusterError(f"this machine is not a node of the cluster: {self.kubelet} does not exist")
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
        """Make a namespace, and request its deletion afterwards without waiting for it."""
        name = f"topgallant-test-{secrets.token_hex(4)}"
        self.core.create_namespace({"metadata": {"name": name, "labels": _LABELS}})
        try:
            yield name
        finally:
            # Without this, each pod may take its grace period of 30 s.
            with _unless_absent():
                self.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
            with _unless_absent():
                self.core.delete_namespace(name)

    def things(self, namespace: str, labels: str = "") -> list[str]:
        """Return the objects in a namespace as `kind/name`, without the objects that Kubernetes itself puts there.

        Args:
            labels: label selector.
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
        """Make an account that has only certain permissions in a namespace.

        Args:
            directory: directory for its kubeconfig.
            rules: rules of its Role, such as `{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}`.
            cluster_rules: rules of its ClusterRole, in the same form.
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
        finally:  # the other objects are deleted with the namespace
            if cluster_rules:
                self.rbac.delete_cluster_role_binding(name)
                self.rbac.delete_cluster_role(name)

    @contextmanager
    def alone(self) -> Iterator[Components]:
        """Use the cluster alone, so that the test can break it. Killed components are started again at the end.

        Raises:
            ClusterError: no program is named that kills components.
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
        """Return whether a node was ready after a moment, which needs all components but scheduler and controllers."""
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
    """A ServiceAccount with few permissions.

    Args:
        name: name of the ServiceAccount, of its Role and of its bindings.
        kubeconfig: kubeconfig with its token.
    """

    cluster: Cluster
    namespace: str
    name: str
    kubeconfig: Path

    def renew(self) -> None:
        """Write a new token into the kubeconfig, as a user does after a token has expired."""
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
        """Make the token invalid, and wait until the server refuses it with 401, which takes up to ten seconds.

        A test cannot wait for a token to expire: the shortest lifetime is ten minutes.
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
    """The components of the cluster: `etcd`, `kube-apiserver`, `kube-scheduler`, `kubelet` and so on.

    Args:
        program: program that kills and starts components.
    """

    cluster: Cluster
    program: str
    _killed: list[str] = field(default_factory=list)

    def kill(self, name: str) -> None:
        """Kill a component."""
        self._killed.append(name)
        self._run("kill", name)

    def start(self, name: str) -> None:
        """Start a component again, without waiting until it serves; see `Cluster.is_well_since`."""
        self._run("start", name)

    def restore(self) -> None:
        """Start all killed components, and wait until the cluster is well."""
        began = datetime.now(UTC)
        for name in dict.fromkeys(self._killed):
            self.start(name)
        if self._killed:
            _wait_for(lambda: self.cluster.is_well_since(began), "the cluster to be well again")
        self._killed.clear()

    def _run(self, verb: str, name: str) -> None:
        place = {"KUBE_DIR": str(self.cluster.kubeconfig.resolve().parent)}
        # A restarted component outlives the test session. Without these variables it is not reported as a leftover.
        own = {variable: value for variable, value in os.environ.items() if not variable.startswith(("PYTEST_", MARK))}
        program = Path(self.program).resolve()
        subprocess.run([program, verb, name], env={**own, **place}, cwd="/", check=True)


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_TIMEOUT:g} s for {what}")
        time.sleep(_LOOK_SECONDS)


@contextmanager
def _unless_absent() -> Iterator[None]:
    """Ignore the error for an object that does not exist."""
    from kubernetes.client import ApiException

    try:
        yield
    except ApiException as error:
        if error.status != _NOT_FOUND:
            raise
