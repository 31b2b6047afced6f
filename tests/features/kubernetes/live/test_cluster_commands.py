"""The toolbox commands that inspect and change a cluster, on a real cluster, by the real command line."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.features.kubernetes.fakes import gcloud, machine_api
from tests.features.kubernetes.live.cluster_tools import OURS, Tools, changed
from tests.features.kubernetes.servers import kubernetes
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.lease_objects import LeaseObject
from toolbox.ground.model.clusters import Access
from toolbox.records.leases import leases
from toolbox.records.leases.leases import Claim, Record
from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live

MANIFESTS = """
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      replicas: 1
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec:
          terminationGracePeriodSeconds: 0
          containers: [{name: main, image: "busybox:local", imagePullPolicy: Never, command: [sleep, "1000"]}]
    ---
    apiVersion: v1
    kind: Secret
    metadata: {name: token}
    stringData: {token: hunter2}
"""


# apply


def test_manifests_are_applied_and_nothing_changes_the_second_time(tools: Tools, namespace: str) -> None:
    tools.workspace.write({"web.yaml": MANIFESTS})
    assert changed(tools("cluster", "apply", "web.yaml", f"--namespace={namespace}")) == ["Apply the manifests"]
    assert changed(tools("cluster", "apply", "web.yaml", f"--namespace={namespace}")) == []
    assert tools.kept("artifacts/objects.yaml")[0]["status"]["readyReplicas"] == 1
    assert [each["kind"] for each in tools.kept("src/applied.yaml")] == ["Deployment", "Secret"]
    assert tools.workspace.holding("hunter2") == tools.workspace.holding("aHVudGVyMg") == []


def config_map(name: str, value: str = "1") -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{key: '{value}'}}\n"


def test_a_conflict_names_the_field_and_its_manager(tools: Tools, cluster: kubernetes.Cluster, namespace: str) -> None:
    tools.workspace.write({"a.yaml": config_map("a")})
    cluster.core.create_namespaced_config_map(
        namespace, {"metadata": {"name": "a"}, "data": {"key": "2"}}, field_manager="somebody"
    )
    tools("cluster", "apply", "a.yaml", f"--namespace={namespace}", fails=True)
    assert (
        'conflict with "somebody" using v1: .data.key; to take the fields over, use --force_conflicts' in tools.failure
    )
    tools("cluster", "apply", "a.yaml", f"--namespace={namespace}", "--force_conflicts")
    assert cluster.core.read_namespaced_config_map("a", namespace).data == {"key": "1"}


def test_a_deployment_that_does_not_become_ready_is_explained(tools: Tools, namespace: str) -> None:
    tools.workspace.write({"web.yaml": MANIFESTS.replace("busybox:local", "nothing:local")})
    tools("cluster", "apply", "web.yaml", f"--namespace={namespace}", fails=True)
    assert "Deployment web will not be ready: pod web-" in tools.failure
    assert "image nothing:local: ErrImageNeverPull" in tools.failure
    assert tools.kept("artifacts/objects.yaml")[0]["kind"] == "Deployment"


def test_a_kind_that_the_cluster_does_not_know_is_named(tools: Tools, namespace: str) -> None:
    tools.workspace.write({"a.yaml": "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: a}\n"})
    tools("cluster", "apply", "a.yaml", f"--namespace={namespace}", fails=True)
    assert "has no kind RayCluster of ray.io/v1: is its definition installed there?" in tools.failure


# wait_ready


def test_a_wait_for_more_nodes_reports_how_many_exist(tools: Tools) -> None:
    tools("cluster", "wait_ready", "--selector=nobody=here", "--timeout=1", fails=True)
    assert "is not ready after 1 s: (nodes with nobody=here) 0 of 1 required nodes are ready, 0 exist" in tools.failure


def test_a_node_that_is_not_ready_is_named_and_waited_for(tools: Tools, cluster: kubernetes.Cluster) -> None:
    with pool(cluster) as name:
        node = gcloud.add_node(cluster.core, name)
        lost = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no network"}
        cluster.core.patch_node_status(node, {"status": {"conditions": [lost]}})
        selected = f"--selector=cloud.google.com/gke-nodepool={name}"
        tools("cluster", "wait_ready", selected, "--timeout=1", fails=True)
        assert f"node {node}: it is not ready: KubeletNotReady: no network" in tools.failure
        timer = threading.Timer(1, make_ready, [cluster, node])
        timer.start()
        tools("cluster", "wait_ready", selected, "--timeout=30")
        timer.join()
        assert [each["metadata"]["name"] for each in tools.kept("artifacts/nodes.yaml")] == [node]


def make_ready(cluster: kubernetes.Cluster, node: str) -> None:
    cluster.core.patch_node_status(node, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    cluster.core.patch_node(node, {"spec": {"taints": None}})


@contextmanager
def pool(cluster: kubernetes.Cluster) -> Iterator[str]:
    """Yield a name for a node pool, and delete the nodes of this pool at the end."""
    name = f"test-{time.monotonic_ns() % 10**9}"
    try:
        yield name
    finally:
        cluster.core.delete_collection_node(label_selector=f"cloud.google.com/gke-nodepool={name}")


# capture_state


def test_the_state_of_a_cluster_has_its_accelerators_and_no_secret(
    tools: Tools, cluster: kubernetes.Cluster, namespace: str
) -> None:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"word":"c2VzYW1l"}}'}
    secret = {"metadata": {"name": "door", "annotations": applied}, "stringData": {"word": "sesame"}}
    cluster.core.create_namespaced_secret(namespace, secret)
    with pool(cluster) as name:
        node = gcloud.add_node(cluster.core, name)
        status = {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "7"}}
        cluster.core.patch_node_status(node, {"status": status})
        tools("cluster", "capture_state", f"--namespaces={namespace}")
    summary = tools.kept("artifacts/summary.json")
    (found,) = [each for each in summary["nodes"] if each["name"] == node]
    assert found["accelerators"] == {"nvidia.com/gpu": {"capacity": "8", "allocatable": "7"}}
    door = next(each for each in tools.kept("artifacts/secrets.yaml") if each["metadata"]["name"] == "door")
    assert door["data"] == {"word": "***"}
    assert tools.workspace.holding("c2VzYW1l") == []


def test_a_forbidden_resource_becomes_a_note_in_the_captured_state(
    workspace: Workspace, cluster: kubernetes.Cluster, namespace: str, tmp_path: Path
) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    with cluster.account(namespace, tmp_path, rules) as account:
        tools = Tools(workspace, account.kubeconfig)
        tools("cluster", "capture_state", f"--namespaces={namespace}")
    notes = tools.kept("artifacts/summary.json")["notes"]
    assert any('cannot list resource "secrets"' in note for note in notes)
    assert not any('"pods"' in note for note in notes)


# prepare_namespace


WANTED = (
    "--labels={team: ml}",
    "--quota={pods: 5}",
    "--limits={default: {cpu: 1, memory: 1Gi}}",
    "--image_pull_secret=pull",
    "--docker_config_file=docker.json",
    "--service_account=runner",
    "--network_policy=isolated",
    "--cells_need=hosts,leases",
)


def test_a_namespace_is_prepared_as_requested_and_nothing_changes_the_second_time(
    tools: Tools, cluster: kubernetes.Cluster, namespace: str
) -> None:
    tools.workspace.write({"docker.json": '{"auths": {"r.example": {"auth": "aHVudGVyMg=="}}}'})
    tools("cluster", "prepare_namespace", namespace, *WANTED)
    assert changed(tools("cluster", "prepare_namespace", namespace, *WANTED)) == []
    kinds = [each["kind"] for each in tools.kept("artifacts/objects.yaml")]
    assert kinds == ["ResourceQuota", "LimitRange", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy"]
    assert cluster.core.read_namespace(namespace).metadata.labels["team"] == "ml"
    assert cluster.core.read_namespaced_secret("pull", namespace).type == "kubernetes.io/dockerconfigjson"
    assert cluster.core.read_namespaced_service_account("runner", namespace).image_pull_secrets[0].name == "pull"
    assert tools.workspace.holding("aHVudGVyMg") == []
    assert {"services", "leases"} <= resources(tools)
    tools("cluster", "prepare_namespace", namespace, "--service_account=runner")  # without the quota and --cells_need
    assert cluster.core.list_namespaced_resource_quota(namespace).items == []
    assert not {"services", "leases", "jobsets"} & resources(tools)


def resources(tools: Tools) -> set[str]:
    """Return the resources of the Role that the last step has prepared."""
    (role,) = (each for each in tools.kept("artifacts/objects.yaml") if each["kind"] == "Role")
    return {resource for rule in role["rules"] for resource in rule["resources"]}


def test_only_a_created_namespace_gets_the_label_of_topgallant(tools: Tools, cluster: kubernetes.Cluster) -> None:
    with cluster.namespace() as theirs:
        tools("cluster", "prepare_namespace", theirs, "--labels={team: ml}")
        assert cluster.core.read_namespace(theirs).metadata.labels["app.kubernetes.io/managed-by"] != "topgallant"
        tools("cluster", "prepare_namespace", f"{theirs}-2")
        tools("cluster", "cleanup_namespace", f"{theirs}-2", "--delete_namespace")
    assert f"{theirs}-2" not in {each.metadata.name for each in cluster.core.list_namespace().items}


def test_an_invalid_docker_config_is_refused_without_being_shown(tools: Tools, namespace: str) -> None:
    content = tools.workspace.directory.parent / "docker_config"
    content.write_text("hunter2")
    secret = ("--image_pull_secret=pull", f"--docker_config=@{content}")
    outcome = tools("cluster", "prepare_namespace", namespace, *secret, fails=True)
    assert 'Secret "pull" is invalid' in tools.failure
    assert "hunter2" not in str(outcome)
    assert tools.workspace.holding("hunter2") == []


# cleanup_namespace


def put(cluster: kubernetes.Cluster, namespace: str, name: str, **more: Any) -> None:
    """Create a ConfigMap with the labels of a run."""
    labels = {**OURS, "topgallant.dev/run": name}
    metadata = {"name": name, "labels": labels, **more}
    cluster.core.create_namespaced_config_map(namespace, {"metadata": metadata})


def test_only_objects_of_topgallant_and_of_a_named_run_are_deleted(
    tools: Tools, cluster: kubernetes.Cluster, namespace: str
) -> None:
    put(cluster, namespace, "mine")
    put(cluster, namespace, "theirs")
    put(cluster, namespace, "foreign", labels={})
    tools("cluster", "cleanup_namespace", namespace, "--run=mine")
    assert tools.kept("artifacts/deleted.json")["deleted"] == ["ConfigMap mine"]
    assert [each["metadata"]["name"] for each in tools.kept("artifacts/before.yaml")] == ["mine"]
    assert cluster.things(namespace) == ["configmap/foreign", "configmap/theirs"]
    tools("cluster", "cleanup_namespace", namespace)
    assert cluster.things(namespace) == ["configmap/foreign"]
    assert changed(tools("cluster", "cleanup_namespace", namespace)) == []


def test_a_finalizer_that_prevents_a_deletion_is_named(
    tools: Tools, cluster: kubernetes.Cluster, namespace: str
) -> None:
    put(cluster, namespace, "held", finalizers=["example.com/never"])
    tools("cluster", "cleanup_namespace", namespace, "--timeout=1", fails=True)
    assert "objects remain after 1 s: ConfigMap held: its finalizers are example.com/never" in tools.failure
    tools("cluster", "cleanup_namespace", namespace, "--delete_namespace", "--timeout=3", fails=True)
    assert f"namespace {namespace} still exists after 3 s: " in tools.failure
    assert "ConfigMap held: its finalizers are example.com/never" in tools.failure
    cluster.core.patch_namespaced_config_map("held", namespace, {"metadata": {"finalizers": None}})


def test_a_namespace_that_topgallant_did_not_create_is_refused(tools: Tools, cluster: kubernetes.Cluster) -> None:
    with cluster.namespace() as theirs:
        put(cluster, theirs, "ours")
        tools("cluster", "cleanup_namespace", theirs, fails=True)
        assert f"namespace {theirs} was not created by Topgallant" in tools.failure
        tools("cluster", "cleanup_namespace", theirs, "--force")
        assert cluster.things(theirs) == []


def suspended_job(cluster: kubernetes.Cluster, namespace: str, run: str) -> None:
    """Create a Job with the labels of a run, which has no pods and so never ends."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "nothing:local"}]}
    meta = {"name": f"of-{run}", "labels": {**OURS, "topgallant.dev/run": run}}
    cluster.batch.create_namespaced_job(
        namespace, {"metadata": meta, "spec": {"template": {"spec": pod}, "parallelism": 0}}
    )


def test_jobs_of_a_run_that_holds_a_lease_stay(tools: Tools, cluster: kubernetes.Cluster, namespace: str) -> None:
    suspended_job(cluster, namespace, "r-1")
    lock = LeaseObject(Cluster(Access(str(cluster.kubeconfig), None, namespace)))
    claim = Claim("r-1", "ann@lab", "nightly", run="r-1", ttl=3600)
    assert lock.write(Record(claim, leases.now(), leases.now()), "", 30) is not None
    tools("cluster", "cleanup_namespace", namespace, "--run=r-1", fails=True)
    assert "the run r-1 holds a lease of the cluster and has unfinished Jobs, so it is still active" in tools.failure
    tools("cluster", "cleanup_namespace", namespace, "--run=r-1", "--force")
    assert "job/of-r-1" not in cluster.things(namespace)


def test_names_that_the_cluster_does_not_have_are_reported(tools: Tools, namespace: str) -> None:
    for argv in (
        ("cluster", "capture_state", "--namespaces=no-such"),
        ("kubernetes", "fetch_logs", "--namespace=no-such"),
    ):
        assert "there is no namespace no-such" in tools(*argv).stdout
    outcome = tools("cluster", "cleanup_namespace", namespace, "--run=r-9")
    assert f"nothing in namespace {namespace} belongs to the run r-9" in outcome.stdout
    outcome = tools("kubernetes", "fetch_logs", f"--namespace={namespace}", "--selector=app=none")
    assert f"namespace {namespace} has no pods with the labels app=none" in outcome.stdout
    outcome = tools("cluster", "release_lease", "--name=no-such", f"--namespace={namespace}")
    assert "there is no lease no-such in the namespace" in outcome.stdout


@pytest.mark.parametrize("name", ["kube-system", "default"])
def test_a_system_namespace_is_refused_even_with_force(tools: Tools, name: str) -> None:
    tools("cluster", "cleanup_namespace", name, "--delete_namespace", "--force", fails=True)
    assert f"namespace {name} " in tools.failure


# set_scale


def set_scale(
    tools: Tools, env: Mapping[str, str], name: str, replicas: int, *more: str, fails: bool = False
) -> Outcome:
    """Set the number of nodes of a node pool of the cluster `big`."""
    where = ("--cluster=big", "--location=us-central1", "--timeout=30")
    return tools("cluster", "set_scale", "gke", name, f"--replicas={replicas}", *where, *more, fails=fails, env=env)


def nodes_of(cluster: kubernetes.Cluster, name: str) -> list[str]:
    found = cluster.core.list_node(label_selector=f"cloud.google.com/gke-nodepool={name}").items
    return [node.metadata.name for node in found]


def test_a_node_pool_grows_evenly_over_its_zones_and_loses_pods_of_other_users_only_with_force(
    tools: Tools, cluster: kubernetes.Cluster, namespace: str, tmp_path: Path
) -> None:
    with pool(cluster) as name:
        env = gcloud.install(tmp_path / "bin", "big", name, zones=2)
        set_scale(tools, env, name, 4)
        command = (tools.step / "src/resize.txt").read_text().split()
        assert command[:5] == ["gcloud", "container", "clusters", "resize", "big"]
        assert command[5:] == [f"--node-pool={name}", "--num-nodes=2", "--quiet", "--location=us-central1"]
        assert changed(set_scale(tools, env, name, 4)) == []
        node, *others = nodes_of(cluster, name)
        assert len(others) == 3
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "nothing:local"}]}
        cluster.core.create_namespaced_pod(namespace, {"metadata": {"name": "theirs"}, "spec": spec})
        set_scale(tools, env, name, 0, fails=True)
        assert (
            f"4 of its 4 nodes would be removed, and pods of other users run on them: {namespace}/theirs on {node}"
            in tools.failure
        )
        assert [words[1] for words in json.loads(Path(env[gcloud.STATE]).read_text())["calls"]].count("clusters") == 1
        set_scale(tools, env, name, 0, "--force")
        assert nodes_of(cluster, name) == []


def test_a_pool_with_an_autoscaler_is_not_scaled(tools: Tools, cluster: kubernetes.Cluster, tmp_path: Path) -> None:
    with pool(cluster) as name:
        env = gcloud.install(tmp_path / "bin", "big", name, autoscaled=True)
        set_scale(tools, env, name, 1, fails=True)
    assert "it is scaled by an autoscaler, which would change the number again" in tools.failure


def test_the_error_of_gcloud_is_reported(tools: Tools, tmp_path: Path) -> None:
    env = gcloud.install(tmp_path / "bin", "big", "pool")
    set_scale(tools, env, "other", 1, fails=True)
    assert "code=404, message=Not found: clusters/big/nodePools/other." in tools.failure


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Return the kubeconfig file of the server with MachineSets."""
    return tmp_path / "kubeconfig"


SCALE = ("cluster", "set_scale", "openshift", "a100")


def test_a_machine_set_is_scaled(workspace: Workspace, kubeconfig: Path) -> None:
    tools = Tools(workspace, kubeconfig)
    with machine_api.serving(kubeconfig) as server:
        found = server.add(machine_api.SETS, "a100", spec={"replicas": 1})
        tools(*SCALE, "--replicas=3", "--timeout=30")
        assert found["spec"]["replicas"] == 3
        assert changed(tools(*SCALE, "--replicas=3", "--timeout=30")) == []


def test_a_machine_set_with_an_autoscaler_is_not_scaled(workspace: Workspace, kubeconfig: Path) -> None:
    tools = Tools(workspace, kubeconfig)
    noted = {"machine.openshift.io/cluster-api-autoscaler-node-group-max-size": "8"}
    with machine_api.serving(kubeconfig) as server:
        found = server.add(machine_api.SETS, "a100", metadata={"annotations": noted}, spec={"replicas": 1})
        tools(*SCALE, "--replicas=3", fails=True)
    assert "MachineSet a100: it is scaled by an autoscaler" in tools.failure
    assert found["spec"]["replicas"] == 1


def test_machines_with_pods_of_other_users_are_removed_only_with_force(workspace: Workspace, kubeconfig: Path) -> None:
    tools = Tools(workspace, kubeconfig)
    with machine_api.serving(kubeconfig) as server:
        server.add(machine_api.SETS, "a100", spec={"replicas": 1})
        machines = machine_api.SETS.replace("machinesets", "machines")
        server.add(machines, "a100-1", status={"nodeRef": {"name": "n1"}})
        server.add("/api/v1/nodes", "n1")
        server.add("/api/v1/pods", "theirs", metadata={"namespace": "ns"}, spec={"nodeName": "n1"})
        tools(*SCALE, "--replicas=0", fails=True)
        assert "pods of other users run on them: ns/theirs on n1" in tools.failure
        tools(*SCALE, "--replicas=0", "--force", "--timeout=30")


def test_a_missing_machine_is_reported_with_the_number_of_machines(workspace: Workspace, kubeconfig: Path) -> None:
    tools = Tools(workspace, kubeconfig)
    with machine_api.serving(kubeconfig, is_idle=True) as server:
        server.add(machine_api.SETS, "a100", spec={"replicas": 1}, status={"replicas": 1, "readyReplicas": 1})
        tools(*SCALE, "--replicas=3", "--timeout=1", fails=True)
    assert "MachineSet a100: 1 of 3 machines are ready after 1 s, 1 exist" in tools.failure
