"""The toolbox commands that run workloads on a cluster, on a real cluster, by the real command line."""

from __future__ import annotations

import json

import pytest

from tests.features.kubernetes.live.cluster_tools import Tools, changed
from tests.features.kubernetes.servers import kubernetes
from tests.functional.grid import wait
from toolbox.testing import Outcome

pytestmark = pytest.mark.live

LOCAL = "--image_pull_policy=Never"
WEB = "mkdir /w; echo hi > /w/index.html; echo started; exec httpd -f -p 8080 -h /w"
QUICK = "--patch={spec: {template: {spec: {terminationGracePeriodSeconds: 0}}}}"


# preload_image


def test_images_are_preloaded_and_nothing_is_left(tools: Tools, cluster: kubernetes.Cluster, namespace: str) -> None:
    tools("cluster", "preload_image", "busybox:local,host:local", f"--namespace={namespace}", LOCAL)
    assert len(tools.kept("src/preload.yaml")[0]["spec"]["template"]["spec"]["containers"]) == 2
    assert cluster.things(namespace) == []


def test_an_image_that_cannot_be_pulled_is_named_with_its_node(
    tools: Tools, cluster: kubernetes.Cluster, namespace: str
) -> None:
    images = "busybox:local,nothing:local"
    tools("cluster", "preload_image", images, f"--namespace={namespace}", LOCAL, fails=True)
    node = tools.kept("artifacts/pods.yaml")[0]["spec"]["nodeName"]
    assert f"on {node}: image nothing:local: ErrImageNeverPull" in tools.failure
    assert cluster.things(namespace) == []


# deploy_server, undeploy_server


def deploy(tools: Tools, namespace: str, script: str, *more: str, fails: bool = False) -> Outcome:
    """Deploy a server that runs a shell script."""
    argv = f"--argv={json.dumps(['sh', '-c', script])}"
    where = f"--namespace={namespace}"
    return tools("cluster", "deploy_server", "web", "busybox:local", "8080", argv, where, LOCAL, *more, fails=fails)


def test_a_server_is_deployed_and_removed(tools: Tools, cluster: kubernetes.Cluster, namespace: str) -> None:
    deploy(tools, namespace, WEB, QUICK, "--readiness=/")
    assert changed(deploy(tools, namespace, WEB, QUICK, "--readiness=/")) == []
    assert [each["kind"] for each in tools.kept("src/server.yaml")] == ["Deployment", "Service"]
    deploy(tools, namespace, WEB, QUICK, "--readiness=tcp")
    (container,) = tools.kept("artifacts/objects.yaml")[0]["spec"]["template"]["spec"]["containers"]
    assert {"httpGet", "tcpSocket"} & container["readinessProbe"].keys() == {"tcpSocket"}
    tools("cluster", "undeploy_server", "web", f"--namespace={namespace}")
    assert [log.read_text() for log in tools.step.glob("artifacts/logs/*/server.log")] == ["started\n"]
    assert cluster.things(namespace) == []
    assert changed(tools("cluster", "undeploy_server", "web", f"--namespace={namespace}")) == []


def test_the_exit_code_and_log_of_a_crashed_server_are_reported(tools: Tools, namespace: str) -> None:
    deploy(tools, namespace, "echo no model; exit 9", "--timeout=6", fails=True)
    assert "container server: CrashLoopBackOff" in tools.failure or "ended with exit code 9" in tools.failure
    assert "exit code 9" in tools.failure
    assert "no model\n" in {log.read_text() for log in tools.step.glob("artifacts/logs/*/server*.log")}


def test_the_failure_of_a_readiness_probe_is_reported(
    tools: Tools, cluster: kubernetes.Cluster, namespace: str
) -> None:
    never = "--readiness=/health"
    deploy(tools, namespace, WEB, QUICK, never, "--timeout=2", fails=True)
    # A busy kubelet sends its events minutes later.
    wait(
        lambda: "Unhealthy" in {each.reason for each in cluster.core.list_namespaced_event(namespace).items},
        "an event of the probe",
        420,
    )
    deploy(tools, namespace, WEB, QUICK, never, "--timeout=2", fails=True)
    assert "Deployment web is not ready after 2 s: 0 of 1 replicas are ready" in tools.failure
    assert "container server runs and is not ready" in tools.failure
    assert "Readiness probe failed: HTTP probe failed with statuscode: 404" in tools.failure


def test_a_server_without_a_suitable_node_reports_the_missing_resource(tools: Tools, namespace: str) -> None:
    needs = "--resources={limits: {nvidia.com/gpu: 8}}"
    deploy(tools, namespace, WEB, needs, "--timeout=3", fails=True)
    assert "Unschedulable: 0/" in tools.failure
    assert "Insufficient nvidia.com/gpu" in tools.failure


def test_a_server_of_another_user_is_not_removed(tools: Tools, cluster: kubernetes.Cluster, namespace: str) -> None:
    ports = [{"port": 80}]
    cluster.core.create_namespaced_service(namespace, {"metadata": {"name": "web"}, "spec": {"ports": ports}})
    tools("cluster", "undeploy_server", "web", f"--namespace={namespace}", fails=True)
    assert "Service web" in tools.failure
    assert "was not created by Topgallant" in tools.failure


# run_job, fetch_logs


def run_job(tools: Tools, namespace: str, script: str, *more: str, fails: bool = False) -> Outcome:
    """Run a Job that runs a shell script."""
    argv = f"--argv={json.dumps(['sh', '-c', script])}"
    where = f"--namespace={namespace}"
    return tools("kubernetes", "run_job", "job", "busybox:local", argv, where, LOCAL, *more, fails=fails)


def test_a_job_is_run_to_its_end_and_deleted(tools: Tools, cluster: kubernetes.Cluster, namespace: str) -> None:
    run_job(tools, namespace, "echo $WORD", "--env={WORD: '{{ hello }}'}")
    assert [log.read_text() for log in tools.step.glob("artifacts/logs/*/main.log")] == ["{{ hello }}\n"]
    assert tools.kept("artifacts/ended.json")["pods"][0]["exit_codes"] == {"main": 0}
    assert cluster.things(namespace) == []


def test_the_exit_code_of_a_failed_job_is_reported(tools: Tools, cluster: kubernetes.Cluster, namespace: str) -> None:
    outcome = run_job(tools, namespace, "echo oh; exit 3", fails=True)
    assert outcome.exit_code == 1
    assert "kubernetes__run_job failed in" in outcome.stdout
    assert "Job job has failed: pod job-" in tools.failure
    assert "container main ended with exit code 3" in tools.failure
    assert [log.read_text() for log in tools.step.glob("artifacts/logs/*/main.log")] == ["oh\n"]
    assert cluster.things(namespace) == []


def test_a_job_that_was_kept_is_replaced(tools: Tools, cluster: kubernetes.Cluster, namespace: str) -> None:
    run_job(tools, namespace, "exit 1", "--keep", fails=True)
    (before,) = cluster.batch.list_namespaced_job(namespace).items
    run_job(tools, namespace, "exit 0", "--keep")
    (after,) = cluster.batch.list_namespaced_job(namespace).items
    assert before.metadata.uid != after.metadata.uid


def test_a_job_of_another_user_is_not_replaced(tools: Tools, cluster: kubernetes.Cluster, namespace: str) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "nothing:local"}]}
    theirs = {"metadata": {"name": "job"}, "spec": {"template": {"spec": pod}, "parallelism": 0}}
    cluster.batch.create_namespaced_job(namespace, theirs)
    run_job(tools, namespace, "exit 0", fails=True)
    assert "was not created by Topgallant" in tools.failure
    assert cluster.things(namespace) == ["job/job"]


def test_a_job_that_takes_too_long_is_ended(tools: Tools, cluster: kubernetes.Cluster, namespace: str) -> None:
    run_job(tools, namespace, "echo began; sleep 600", QUICK, "--timeout=4", fails=True)
    assert "Job job has not ended after 4 s" in tools.failure
    assert cluster.things(namespace) == []


def test_logs_of_all_containers_are_fetched_also_from_before_a_restart(
    tools: Tools, cluster: kubernetes.Cluster, namespace: str
) -> None:
    script = "echo again; test -f /kept/ran || { touch /kept/ran; exit 1; }; sleep 600"
    mount = {"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]}
    shared = {"image": "busybox:local", "imagePullPolicy": "Never"}
    one = {"name": "one", "command": ["sh", "-c", script], **mount, **shared}
    other = {"name": "other", "command": ["sh", "-c", "echo other; sleep 600"], **shared}
    spec = {"containers": [one, other], "volumes": [{"name": "kept", "emptyDir": {}}]}
    labels = {"app": "two"}
    cluster.core.create_namespaced_pod(namespace, {"metadata": {"name": "two", "labels": labels}, "spec": spec})
    wait(lambda: restarts(cluster, namespace) == 1, "a restart")
    tools("kubernetes", "fetch_logs", f"--namespace={namespace}", "--selector=app=two")
    files = {file.name: file.read_text() for file in tools.step.glob("artifacts/logs/two/*")}
    assert files == {"one.log": "again\n", "one.previous.log": "again\n", "other.log": "other\n"}
    assert tools.kept("artifacts/fetched.json")["missing"] == []


def restarts(cluster: kubernetes.Cluster, namespace: str) -> int:
    statuses = cluster.core.read_namespaced_pod("two", namespace).status.container_statuses or ()
    return sum(each.restart_count for each in statuses if each.state.running)


def test_a_missing_log_is_noted(tools: Tools, cluster: kubernetes.Cluster, namespace: str) -> None:
    spec = {"containers": [{"name": "main", "image": "nothing:local", "imagePullPolicy": "Never"}]}
    cluster.core.create_namespaced_pod(namespace, {"metadata": {"name": "one"}, "spec": spec})
    tools("kubernetes", "fetch_logs", f"--namespace={namespace}")
    (missing,) = tools.kept("artifacts/fetched.json")["missing"]
    assert missing.startswith("one/main.log: ")
