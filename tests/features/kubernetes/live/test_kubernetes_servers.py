"""The servers for the tests of Kubernetes: the cluster, the lock that its users share, and the proxies.

The tests of Kubernetes themselves cover that commands in pods, watches and tokens pass through the proxies.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.conformance.sites import wait_for
from tests.features.kubernetes.servers.api_proxy import ADDRESS, Proxy
from tests.features.kubernetes.servers.http_proxy import Head, HttpProxy, requested
from tests.features.kubernetes.servers.kubernetes import Account, Cluster
from tests.features.kubernetes.servers.turns import Turns

pytestmark = pytest.mark.live

SPEAKER = "for n in $(seq 1000000); do echo line $n; sleep 0.05; done"


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace() as found:
        yield found


@pytest.fixture(scope="module")
def pod(cluster: Cluster, namespace: str) -> str:
    """Return the name of a pod that prints lines without end."""
    run_pod(cluster, namespace, "speaker", {"image": "busybox:local", "command": ["sh", "-c", SPEAKER]})
    return "speaker"


@pytest.fixture(params=[Proxy, HttpProxy])
def proxy(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[Proxy]:
    with request.param(cluster.kubeconfig, tmp_path) as found:
        yield found


@pytest.fixture
def http(cluster: Cluster, tmp_path: Path) -> Iterator[HttpProxy]:
    with HttpProxy(cluster.kubeconfig, tmp_path) as found:
        yield found


@pytest.fixture
def kubectl(proxy: Proxy, namespace: str) -> Callable[..., str]:
    """Return a function that runs kubectl by way of the proxy, and returns its output."""
    return lambda *words, **options: run(proxy.kubeconfig, namespace, *words, **options)


def run(kubeconfig: Path, namespace: str, *words: str, **options: Any) -> str:
    command = ["kubectl", "--kubeconfig", str(kubeconfig), "--namespace", namespace, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def run_pod(cluster: Cluster, namespace: str, name: str, container: Mapping[str, Any], **spec: Any) -> None:
    """Start a pod, and wait until it runs or has ended."""
    whole = {"name": "only", "imagePullPolicy": "Never", **container}
    body = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [whole], **spec}}
    cluster.core.create_namespaced_pod(namespace, body)
    over = {"Running", "Succeeded", "Failed"}
    wait_for(lambda: cluster.core.read_namespaced_pod(name, namespace).status.phase in over, f"the pod {name}")


def status(kubeconfig: Path, namespace: str, **options: Any) -> int:
    """List the pods of a namespace, and return the status of the answer."""
    from kubernetes import client, config

    with config.new_client_from_config(str(kubeconfig)) as api:
        try:
            client.CoreV1Api(api).list_namespaced_pod(namespace, **options)
        except client.ApiException as error:
            return int(error.status)
    return 200


# Shared and exclusive use. The locks belong to open files, so two objects in one process act like two processes.


def test_several_processes_can_share_the_lock(tmp_path: Path) -> None:
    first, second = Turns(tmp_path / "it"), Turns(tmp_path / "it")
    with first.together(), second.together(), first.together():
        pass


def test_later_users_wait_behind_a_waiting_exclusive_user(tmp_path: Path) -> None:
    order: list[str] = []

    def take(turn: Any, name: str) -> None:
        with turn:
            order.append(name)
            time.sleep(0.1)
            order.append(name)

    threads = [
        Thread(target=take, args=(Turns(tmp_path / "it").alone(), "alone")),
        Thread(target=take, args=(Turns(tmp_path / "it").together(), "late")),
    ]
    with Turns(tmp_path / "it").together():
        for thread in threads:
            thread.start()
            time.sleep(0.3)
        assert order == []
    for thread in threads:
        thread.join()
    assert order == ["alone", "alone", "late", "late"]


def test_a_sharing_process_can_use_the_resource_alone_meanwhile(tmp_path: Path) -> None:
    ours, theirs = Turns(tmp_path / "it"), Turns(tmp_path / "it")
    with ThreadPoolExecutor() as threads, ours.together():
        with ours.alone(), ours.together():
            waiting = threads.submit(theirs.together().__enter__)
            time.sleep(0.3)
            assert not waiting.done()
        waiting.result(timeout=10)
        with pytest.raises(BlockingIOError):
            try_alone(tmp_path / "it")


def try_alone(name: Path) -> None:
    import fcntl

    with Path(f"{name}.room").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# The cluster


def test_the_objects_of_a_namespace_are_listed_and_deleted_with_it(cluster: Cluster) -> None:
    with cluster.namespace() as name:
        for kind in ("config_map", "secret"):
            getattr(cluster.core, f"create_namespaced_{kind}")(name, {"metadata": {"name": "a", "labels": {"b": kind}}})
        assert cluster.things(name) == ["configmap/a", "secret/a"]
        assert cluster.things(name, "b=secret") == ["secret/a"]
    wait_for(lambda: cluster.things(name) == [], "an empty namespace")


@pytest.fixture
def account(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Account]:
    with cluster.account(namespace, tmp_path, [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]) as found:
        yield found


def test_a_token_can_be_revoked_and_renewed(account: Account, namespace: str) -> None:
    account.revoke()
    assert status(account.kubeconfig, namespace) == 401
    account.renew()
    assert status(account.kubeconfig, namespace) == 200


# Both proxies


class Follower:
    """Follows the log of a pod by kubectl."""

    def __init__(self, proxy: Proxy, namespace: str, pod: str) -> None:
        command = ["kubectl", "--kubeconfig", str(proxy.kubeconfig), "-n", namespace, "logs", "-f", "--tail=1", pod]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.lines: list[bytes] = []
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            self.lines.extend(iter(stream.readline, b""))

    def wait_for_more(self) -> None:
        before = len(self.lines)
        wait_for(lambda: len(self.lines) > before + 2, "more lines")

    def close(self) -> int:
        """Kill kubectl, and return its exit status, which is -9 if kubectl was still running."""
        self.process.kill()
        self._thread.join()
        return self.process.wait()


@pytest.fixture
def follower(proxy: Proxy, namespace: str, pod: str) -> Iterator[Follower]:
    found = Follower(proxy, namespace, pod)
    found.wait_for_more()
    yield found
    found.close()


def test_a_stalled_proxy_holds_bytes_back_and_loses_none(proxy: Proxy, follower: Follower) -> None:
    proxy.stall()
    time.sleep(0.3)  # for the bytes that kubectl has already received
    before = len(follower.lines)
    time.sleep(0.5)
    assert len(follower.lines) == before
    assert proxy.connections()
    proxy.resume()
    follower.wait_for_more()
    numbers = [int(line.split()[1]) for line in follower.lines]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_request_to_a_stalled_proxy_is_answered_later(proxy: Proxy, namespace: str) -> None:
    with ThreadPoolExecutor() as threads:
        proxy.stall()
        answer = threads.submit(status, proxy.kubeconfig, namespace)
        time.sleep(0.5)
        assert not answer.done()
        proxy.resume()
        assert answer.result(timeout=30) == 200


def test_a_dropped_connection_is_broken_and_the_next_one_is_not(
    proxy: Proxy, follower: Follower, kubectl: Callable[..., str], pod: str
) -> None:
    assert len(proxy.connections()) >= 1
    proxy.drop()
    follower.process.wait(timeout=30)
    assert proxy.connections() == []
    assert pod in kubectl("get", "pods", "-o", "name")


def test_one_connection_can_be_broken(proxy: Proxy, follower: Follower, namespace: str, pod: str) -> None:
    before = proxy.connections()
    other = Follower(proxy, namespace, pod)
    other.wait_for_more()
    for each in proxy.connections():
        if each not in before:
            each.kill()
    other.process.wait(timeout=30)
    other.close()
    follower.wait_for_more()


def test_a_proxy_that_is_stopped_refuses_until_it_is_started(
    proxy: Proxy, follower: Follower, kubectl: Callable[..., str], pod: str
) -> None:
    port = proxy.port
    proxy.stop()
    follower.process.wait(timeout=30)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((ADDRESS, port), timeout=5)
    proxy.start()
    assert proxy.port == port
    assert pod in kubectl("get", "pods", "-o", "name")


def test_a_client_that_has_closed_its_connection_is_forgotten(proxy: Proxy, follower: Follower) -> None:
    assert proxy.connections()
    assert follower.close() == -9
    wait_for(lambda: proxy.connections() == [], "no connection")


# The proxy that understands HTTP


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GET /api/v1/namespaces/a/pods/b/log?follow=true", ("GET", "pods/log")),
        ("GET /api/v1/namespaces/a/pods?labelSelector=b%3Dc", ("LIST", "pods")),
        ("GET /apis/batch/v1/namespaces/a/jobs?watch=True&timeoutSeconds=9", ("WATCH", "jobs")),
        ("GET /apis/batch/v1/namespaces/a/jobs?watch=false", ("LIST", "jobs")),
        ("POST /apis/batch/v1/namespaces/a/jobs", ("POST", "jobs")),
        ("DELETE /api/v1/namespaces/a", ("DELETE", "namespaces")),
        ("GET /api/v1/nodes", ("LIST", "nodes")),
        ("PATCH /apis/apps/v1/namespaces/a/deployments/b/scale", ("PATCH", "deployments/scale")),
        ("GET /version?timeout=32s", ("GET", "/version")),
        ("GET /api/v1", ("GET", "/api/v1")),
    ],
)
def test_a_request_has_a_short_name(line: str, expected: tuple[str, str]) -> None:
    assert requested(Head(b"", f"{line} HTTP/1.1".split(" "), {})) == expected


def test_requests_are_counted(http: HttpProxy, namespace: str, pod: str) -> None:
    for _ in range(3):
        assert status(http.kubeconfig, namespace) == 200
    assert http.requests == {("LIST", "pods"): 3}
    run(http.kubeconfig, namespace, "logs", "--tail=1", pod)
    assert http.requests["GET", "pods/log"] == 1


@pytest.mark.parametrize("code", [401, 410, 429, 500, 503])
def test_an_injected_answer_is_given_as_often_as_configured(http: HttpProxy, namespace: str, code: int) -> None:
    injection = http.inject("GET", f"namespaces/{namespace}/pods", code, times=2)
    assert [status(http.kubeconfig, namespace) for _ in range(3)] == [code, code, 200]
    assert injection.used == http.requests["LIST", "pods"] - 1 == 2
    http.inject("*", "/pods", code, times=None)
    assert status(http.kubeconfig, namespace) == code
    assert status(http.kubeconfig, "default", limit=1) == code
    http.clear()
    assert status(http.kubeconfig, namespace) == 200


def test_a_change_reaches_a_watch_at_once(http: HttpProxy, cluster: Cluster, namespace: str) -> None:
    from kubernetes import client, config, watch

    with config.new_client_from_config(str(http.kubeconfig)) as api, ThreadPoolExecutor() as threads:
        method: Any = client.CoreV1Api(api).list_namespaced_config_map
        version = method(namespace).metadata.resource_version
        events = watch.Watch().stream(method, namespace, resource_version=version, timeout_seconds=30)
        received = threads.submit(next, events)
        wait_for(lambda: http.requests["WATCH", "configmaps"], "the watch")
        cluster.core.create_namespaced_config_map(namespace, {"metadata": {"name": "news"}})
        assert received.result(timeout=5)["object"].metadata.name == "news"
        http.drop()
