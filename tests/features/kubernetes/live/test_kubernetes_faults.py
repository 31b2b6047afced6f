"""Faults of a cluster during a run: affected cells end with the right cause, and the other cells continue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.features.kubernetes.live import pod_grid
from tests.features.kubernetes.live.pod_grid import TIMEOUT, PodGrid
from tests.features.kubernetes.servers import kubeconfigs, kubernetes
from tests.features.kubernetes.servers.api_proxy import ADDRESS, Proxy
from tests.features.kubernetes.servers.http_proxy import HttpProxy
from tests.features.kubernetes.servers.kubernetes import Cluster
from tests.functional.grid import wait
from toolbox.features.kubernetes.backends.kubernetes import REQUIRED_PERMISSIONS
from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live

ONCE_MORE: dict[str, Any] = {"infrastructure": 1, "capacity": 0, "backoff": {"first": 0.1}}
ROLE = [
    {"apiGroups": [permission.group], "resources": [permission.resource], "verbs": [permission.verb]}
    for permission in REQUIRED_PERMISSIONS
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with kubernetes.for_tests(is_here=True) as found:
        yield found


@pytest.fixture
def field(cluster: Cluster, workspace: Workspace) -> Iterator[PodGrid]:
    with pod_grid.opened(cluster, workspace) as found:
        yield found


def check_pass(field: PodGrid, outcome: Outcome, *cells: str) -> None:
    """Check that a run passed, that each cell ran once and has a complete log, and that no objects remain."""
    assert outcome.exit_code == 0, str(outcome)
    assert field.grid.verdicts == dict.fromkeys(cells, "passed")
    assert sorted(field.grid.lines) == sorted(f"{word} {cell}" for cell in cells for word in ("begin", "end"))
    field.check_logs(*cells)
    assert field.left() == []


# Components of the cluster


def test_a_run_waits_for_a_killed_api_server_and_then_for_a_killed_kubelet(field: PodGrid) -> None:
    grid = field.configure("abcd", jobs=4).mark("hold-b", "hold-c", "hold-d")
    with field.cluster.alone() as components, grid.start() as running:
        grid.wait_for("end a", "begin b", "begin c", "begin d")
        components.kill("kube-apiserver")
        # A controller that cannot renew its lease ends, and starts anew. The one of this cluster has no lease, and goes
        # on with an old view: for minutes, it replaces pods of deleted Jobs and does not delete what has no owner.
        components.kill("kube-controller-manager")
        grid.unmark("hold-b")
        grid.wait_for("end b")
        time.sleep(5)
        began = datetime.now(UTC)
        components.start("kube-apiserver")
        wait(lambda: field.cluster.is_well_since(began), "the API server")
        components.start("kube-controller-manager")  # ends if it does not reach the API server
        field.wait_for("AttemptReleased", 2)
        components.kill("kubelet")
        grid.unmark("hold-c")
        grid.wait_for("end c")
        time.sleep(3)
        components.start("kubelet")
        grid.unmark("hold-d")
        outcome = running.wait(TIMEOUT)
        check_pass(field, outcome, *"abcd")


# Objects that another user deletes


def test_cells_whose_pod_or_job_another_user_deletes_are_tried_again(field: PodGrid) -> None:
    grid = field.configure("abc", jobs=3, retries=ONCE_MORE).mark("hold-b", "hold-c")
    with grid.start() as running:
        grid.wait_for("begin b", "begin c")
        field.wait_for("AttemptReleased")  # a
        job = field.cluster.core.read_namespaced_pod(field.pod_of("c"), field.namespace).metadata.labels["job-name"]
        field.cluster.core.delete_namespaced_pod(field.pod_of("b"), field.namespace, grace_period_seconds=1)
        field.cluster.batch.delete_namespaced_job(job, field.namespace, propagation_policy="Background")
        # Kubernetes before 1.28 replaces the pod, and the new pod may begin before its Job is removed.
        wait(lambda: len([*grid.directory.glob("*__test/*/attempt-2")]) == 2, "another attempt of each")
        grid.unmark("hold-b", "hold-c")
        outcome = running.wait(TIMEOUT)
    assert outcome.exit_code == 0, str(outcome)
    assert grid.verdicts == dict.fromkeys("abc", "passed")
    for cell in "bc":
        first, second = field.step(cell)["attempts"]
        assert (first["verdict"], first["cause"], second["verdict"]) == ("error", "infrastructure", "passed")
        assert "was deleted, but not by Topgallant" in first["message"]
        assert grid.lines.count(f"end {cell}") == 1, grid.lines  # two attempts never run at once
    assert field.left() == []


def test_a_second_attempt_survives_the_deletion_of_the_first_owner(field: PodGrid) -> None:
    grid = field.configure("a", retries=ONCE_MORE).mark("hold-a")
    with grid.start() as running:
        grid.wait_for("begin a")
        field.cluster.core.delete_collection_namespaced_config_map(
            field.namespace, label_selector="app.kubernetes.io/managed-by=topgallant"
        )
        wait(lambda: grid.lines.count("begin a") == 2, "another attempt")
        grid.unmark("hold-a")
        outcome = running.wait(TIMEOUT)
    assert outcome.exit_code == 0, str(outcome)
    assert "the cell passed at attempt 2" in outcome.stdout
    assert field.left() == []


def test_a_deleted_namespace_ends_only_the_cells_in_it(field: PodGrid) -> None:
    settings = [{"when": {"x": ["c", "d"]}, "target": "here"}]
    grid = field.configure("abcd", targets={"here": {"backend": "local"}}, settings=settings, retries=ONCE_MORE)
    grid.mark("hold-b", "hold-d")
    with grid.start() as running:
        grid.wait_for("begin b", "end c", "begin d")
        running.wait_for("x=a passed")  # its result has been fetched
        field.cluster.core.delete_namespace(field.namespace)
        field.wait_for("not by Topgallant")
        grid.unmark("hold-b", "hold-d")
        outcome = running.wait(TIMEOUT)
    assert outcome.exit_code == 3, str(outcome)
    assert grid.verdicts == {"a": "passed", "b": "error", "c": "passed", "d": "passed"}
    assert field.step("b")["cause"] == "infrastructure", str(outcome)
    assert field.namespace in field.step("b")["message"] or "not by Topgallant" in field.step("b")["message"]


# Credentials


def test_a_token_that_is_renewed_in_its_file_is_used(field: PodGrid, workspace: Workspace) -> None:
    directory = workspace.directory
    with (
        field.cluster.account(field.namespace, directory, ROLE) as account,
        Proxy(account.kubeconfig, directory) as proxy,
    ):
        field.kubeconfig = proxy.kubeconfig
        grid = field.configure("abc", jobs=3).mark("hold-b", "hold-c")
        with grid.start() as running:
            grid.wait_for("end a", "begin b", "begin c")
            account.revoke()
            proxy.drop()  # an open connection would stay usable without a valid token
            grid.unmark("hold-b")
            grid.wait_for("end b")
            time.sleep(2)
            account.renew()
            kubeconfigs.derive(account.kubeconfig, proxy.kubeconfig, server=f"https://{ADDRESS}:{proxy.port}")
            grid.unmark("hold-c")
            outcome = running.wait(TIMEOUT)
    check_pass(field, outcome, *"abc")


def test_a_token_that_is_not_renewed_ends_only_the_cells_that_use_it(field: PodGrid, workspace: Workspace) -> None:
    directory, settings = workspace.directory, [{"when": {"x": ["c"]}, "target": "here"}]
    with (
        field.cluster.account(field.namespace, directory, ROLE) as account,
        Proxy(account.kubeconfig, directory) as proxy,
    ):
        field.kubeconfig = proxy.kubeconfig
        others = {"here": {"backend": "local"}}
        grid = field.configure("abc", targets=others, settings=settings, timeouts={"wait": 8, "run": 300})
        with grid.mark("hold-b", "hold-c").start() as running:
            grid.wait_for("begin b", "begin c")
            running.wait_for("x=a passed")  # its result has been fetched
            account.revoke()
            proxy.drop()
            field.wait_for("credentials are refused (401)")
            grid.unmark("hold-b", "hold-c")
            outcome = running.wait(TIMEOUT)
    assert outcome.exit_code == 3, str(outcome)
    assert grid.verdicts == {"a": "passed", "b": "error", "c": "passed"}
    assert field.step("b")["cause"] == "infrastructure"
    assert "the token has expired" in field.step("b")["message"]


# Answers of the API server


@pytest.fixture
def http(field: PodGrid, workspace: Workspace) -> Iterator[HttpProxy]:
    with HttpProxy(field.kubeconfig, workspace.directory) as proxy:
        field.kubeconfig = proxy.kubeconfig
        yield proxy


def test_the_client_waits_as_long_as_retry_after_says(field: PodGrid, http: HttpProxy) -> None:
    grid = field.configure("a")
    busy = http.inject("POST", "/jobs", 429, headers={"Retry-After": "2"}, times=1)
    with grid.start() as running:
        wait(lambda: busy.used == 1, "the first request")
        began = time.monotonic()
        wait(lambda: http.requests["POST", "jobs"] > 1, "the second request")
        seconds = time.monotonic() - began
        outcome = running.wait(TIMEOUT)
    assert 1.8 <= seconds < 20
    check_pass(field, outcome, "a")
    assert http.requests["POST", "jobs"] == 2


def test_requests_are_repeated_after_server_errors_without_a_second_job(field: PodGrid, http: HttpProxy) -> None:
    field.configure("ab")
    for path in ("/configmaps", "/jobs"):
        http.inject("POST", path, 503, times=3)
    http.inject("GET", "/log", 500, times=3)
    http.inject("DELETE", "/jobs", 504, times=3)
    outcome = field.grid.run()
    check_pass(field, outcome, *"ab")


GONE: dict[str, Any] = {"code": 410, "reason": "Expired", "message": "too old resource version"}


def test_an_expired_watch_begins_again_with_a_list(field: PodGrid, http: HttpProxy) -> None:
    grid = field.configure("ab").mark("hold-b")
    with grid.start() as running:
        grid.wait_for("end a", "begin b")
        lists = http.requests["LIST", "pods"]
        http.inject("GET", "watch=", 200, body={"type": "ERROR", "object": {"kind": "Status", **GONE}}, times=4)
        http.drop()
        grid.unmark("hold-b")
        outcome = running.wait(TIMEOUT)
    check_pass(field, outcome, *"ab")
    assert http.requests["LIST", "pods"] > lists


def test_broken_connections_lose_no_log_line(field: PodGrid, workspace: Workspace) -> None:
    with Proxy(field.kubeconfig, workspace.directory) as proxy:
        field.kubeconfig = proxy.kubeconfig
        grid = field.configure("ab").mark("hold-b")
        with grid.start() as running:
            grid.wait_for("end a", "begin b")
            for _ in range(3):
                time.sleep(1)
                proxy.drop()
            grid.unmark("hold-b")
            outcome = running.wait(TIMEOUT)
    check_pass(field, outcome, *"ab")


# A submission whose answer is lost


OFTEN: dict[str, Any] = {"infrastructure": 2, "capacity": 2, "backoff": {"first": 0.1}}


def lose_the_answer(field: PodGrid, http: HttpProxy, **matrix: Any) -> Outcome:
    """Run a cell whose Job is created while the API server becomes unreachable, and return the outcome of the run."""
    grid = field.configure("a", timeouts={"wait": 6, "run": 300}, retries=OFTEN, **matrix).mark("hold-a")
    http.lose("POST", "/jobs")
    with grid.start() as running:
        grid.wait_for("begin a")
        return running.wait(TIMEOUT)


def test_a_job_whose_creation_got_no_answer_is_not_created_twice(field: PodGrid, http: HttpProxy) -> None:
    outcome = lose_the_answer(field, http)
    assert outcome.exit_code == 3, str(outcome)
    assert field.grid.lines == ["begin a"]
    assert [each["target"] for each in field.grid.workspace.summary()["open_attempts"]] == ["there"]
    assert "the workload may have been started" in field.step("a")["message"]
    http.start()
    field.grid.unmark("hold-a")
    check_pass(field, field.grid.resume(), "a")


def test_an_abandoned_job_is_removed_when_the_server_answers(field: PodGrid, http: HttpProxy) -> None:
    lose_the_answer(field, http, target=["there", "here"], targets={"here": {"backend": "local"}})
    field.grid.unmark("hold-a")
    outcome = field.grid.resume("--abandon")
    assert outcome.exit_code == 0, str(outcome)
    assert [each["abandoned"] for each in field.step("a")["attempts"]] == [True, False]
    http.start()
    outcome = field.grid.resume()
    assert outcome.exit_code == 0, str(outcome)
    assert field.left() == []
