"""Attempts that only a cluster can affect (no node, no image, no memory), and features that only pods have."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.sites import Attempt, Bench, Orchestrator, wait_for
from tests.features.kubernetes.conformance.pods import Pods
from tests.features.kubernetes.servers import kubernetes
from tests.features.kubernetes.servers.api_proxy import Proxy
from tests.features.kubernetes.servers.kubernetes import Cluster
from toolbox.features.kubernetes.backends.kubernetes import Target
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import EndedBy, WorkloadOutcome
from toolbox.matrix.attempt_judgement import outcome_without_checks

pytestmark = pytest.mark.live

AT_ONCE = 30.0  # seconds; the tests would wait 60 s for a node
BARE: dict[str, Any] = {"image": "busybox:local", "image_pull_policy": "Never", "resources": None}

Open = Callable[..., Bench]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with kubernetes.for_tests(is_here=True) as found:
        yield found


@pytest.fixture(scope="module")
def shared_namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace() as found:
        yield found


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Yield a namespace that no other test uses."""
    with cluster.namespace() as found:
        yield found


@pytest.fixture
def bench_of(cluster: Cluster, tmp_path: Path) -> Iterator[Open]:
    """Yield a function that opens a target in a namespace. Its pods have Python and these fields, or `only` these."""
    opened: list[tuple[Bench, Proxy]] = []

    def open_target(namespace: str, *, only: bool = False, **pod: Any) -> Bench:
        directory = tmp_path / f"target-{len(opened)}"
        directory.mkdir()
        proxy = Proxy(cluster.kubeconfig, directory).__enter__()
        whole = pod if only else {**cluster.pod_python(tmp_path), **pod}
        target = Target(kubeconfig=str(proxy.kubeconfig), namespace=namespace, pod=whole)
        site = Pods("kubernetes", target, server=proxy, proxy=proxy, cluster=cluster, namespace=namespace)
        bench = Bench(Orchestrator(site, directory), directory)
        opened.append((bench, proxy))
        return bench

    yield open_target
    for bench, proxy in opened:
        bench.close()
        bench.shared.backend.close()
        proxy.__exit__(None, None, None)


@pytest.fixture
def bench(bench_of: Open, shared_namespace: str) -> Bench:
    return bench_of(shared_namespace)


def verdict(outcome: WorkloadOutcome) -> tuple[Verdict, Cause | None]:
    """Return the verdict and the cause of an attempt whose workload did not end by itself."""
    found = outcome_without_checks(outcome)
    assert found is not None, outcome
    return found.verdict, found.cause


# Attempts that do not start


def test_a_missing_image_is_reported_at_once(bench: Bench) -> None:
    began = time.monotonic()
    _, outcome = bench.run("true", backend_fields={"pod": {"image": "no-such-image:1"}})
    assert outcome.ended_by is EndedBy.NOT_STARTED
    assert verdict(outcome) == (Verdict.ERROR, Cause.CONFIGURATION)
    assert "ErrImageNeverPull" in outcome.message
    assert "no-such-image:1" in outcome.message
    assert time.monotonic() - began < AT_ONCE


def test_a_pod_too_large_for_every_node_ends_with_cause_capacity(bench: Bench) -> None:
    began = time.monotonic()
    _, outcome = bench.run("true", wait=3.0, backend_fields={"pod": {"resources": {"request_cpu": 500, "gpu": 0}}})
    assert verdict(outcome) == (Verdict.ERROR, Cause.CAPACITY)
    assert outcome.message.startswith("no node took its pod in 3 s: ")
    assert "Insufficient cpu" in outcome.message
    assert 3.0 <= time.monotonic() - began < AT_ONCE


def test_an_exhausted_quota_is_named(cluster: Cluster, namespace: str, bench_of: Open) -> None:
    quota = {"metadata": {"name": "narrow"}, "spec": {"hard": {"pods": "0"}}}
    cluster.core.create_namespaced_resource_quota(namespace, quota)
    _, outcome = bench_of(namespace).run("true", wait=5.0)
    assert verdict(outcome) == (Verdict.ERROR, Cause.CAPACITY)
    assert "exceeded quota: narrow" in outcome.message


def test_an_exhausted_quota_of_jobs_has_cause_capacity(cluster: Cluster, namespace: str, bench_of: Open) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    cluster.core.create_namespaced_resource_quota(namespace, quota)
    with pytest.raises(StepError, match="exceeded quota: few") as caught:
        bench_of(namespace).start("true", wait=5.0)
    assert (caught.value.verdict, caught.value.cause) == (Verdict.ERROR, Cause.CAPACITY)


def test_an_image_without_python_is_reported(bench_of: Open, shared_namespace: str) -> None:
    began = time.monotonic()
    _, outcome = bench_of(shared_namespace, only=True, **BARE).run("true", collect=())
    assert verdict(outcome) == (Verdict.ERROR, Cause.CONFIGURATION)
    assert "its container cannot start (the image needs Python 3.8 or later)" in outcome.message
    assert time.monotonic() - began < AT_ONCE


def test_a_missing_secret_of_a_pod_is_named(bench: Bench) -> None:
    pod = {"secrets": {"TOKEN": {"name": "no-such-secret", "key": "token"}}}
    _, outcome = bench.run("true", wait=4.0, backend_fields={"pod": pod})
    assert verdict(outcome) == (Verdict.ERROR, Cause.CONFIGURATION)
    assert 'secret "no-such-secret" not found' in outcome.message


# Ends of attempts

EATS = """
import time
held = []
while True:
    held.append(bytearray(b"x" * (8 << 20)))
    time.sleep(0.02)
"""


def test_a_workload_that_exceeds_its_memory_limit_is_reported(bench: Bench) -> None:
    pod = {"resources": {"request_memory_gb": 0.1, "limit_memory_gb": 0.1, "request_cpu": 0.1, "gpu": 0}}
    _, outcome = bench.run("python3", "-c", EATS, backend_fields={"pod": pod})
    assert outcome.ended_by is EndedBy.OUT_OF_MEMORY, outcome
    assert verdict(outcome) == (Verdict.FAILED, Cause.PRODUCT)
    assert outcome.message == "it was killed because it used more memory than its limit (100M)"


def test_an_attempt_cancelled_during_its_start_does_not_run_to_its_end(bench: Bench, tmp_path: Path) -> None:
    ends = tmp_path / "ends"
    ends.mkdir()
    short, long = range(0, 4, 2), range(1, 4, 2)
    seconds = {**dict.fromkeys(short, 0.5), **dict.fromkeys(long, 30)}
    attempts = bench.start_all([("sh", "-c", f"sleep {seconds[number]}; touch {ends}/{number}") for number in range(4)])

    def cancel_soon(number: int) -> tuple[WorkloadOutcome, bool]:
        time.sleep(number * 0.5)
        return attempts[number].cancel(), (ends / str(number)).exists()

    with ThreadPoolExecutor() as threads:
        results = list(threads.map(cancel_soon, range(len(attempts))))
    time.sleep(1.5)  # a short workload that still runs would end meanwhile
    ended = {number for number, (_, has_ended) in enumerate(results) if has_ended}
    assert {int(end.name) for end in ends.iterdir()} == ended
    assert {number for number, (outcome, _) in enumerate(results) if outcome.ended_by is EndedBy.EXIT} <= ended
    assert {results[number][0].ended_by for number in long} == {EndedBy.CANCELLED}
    assert ended.isdisjoint(long)


def test_a_job_that_exceeds_its_deadline_has_cause_timeout(
    cluster: Cluster, bench: Bench, shared_namespace: str
) -> None:
    attempt = bench.start("sh", "-c", "echo begun; exec sleep 600")
    attempt.printed("begun")
    # Kubernetes 1.20 sometimes forgets a deadline that a Job has from its beginning, but not one that is set later.
    job = manifest(attempt)["metadata"]["name"]
    cluster.batch.patch_namespaced_job(job, shared_namespace, {"spec": {"activeDeadlineSeconds": 1}})
    outcome = attempt.wait()
    assert outcome.ended_by is EndedBy.TIMEOUT
    assert "activeDeadlineSeconds" in outcome.message
    assert verdict(outcome) == (Verdict.FAILED, Cause.TIMEOUT)
    assert not attempt.left()
    attempt.collect()
    assert attempt.text() == "begun\n"


# Input and results of a pod


def manifest(attempt: Attempt) -> dict[str, Any]:
    """Return the manifest that was applied for an attempt."""
    found: dict[str, Any] = yaml.safe_load(attempt.text("src/topgallant-job.json"))
    return found


def test_a_patch_of_the_manifest_is_applied_and_saved(cluster: Cluster, bench: Bench, shared_namespace: str) -> None:
    patch = {
        "metadata": {"annotations": {"example.org/team": "compilers"}},
        "spec": {"template": {"spec": {"hostname": "patched", "containers": [{"name": "workload", "tty": False}]}}},
    }
    attempt, outcome = bench.run("hostname", backend_fields={"pod": {"patch": patch}})
    assert (outcome.exit_code, attempt.text()) == (0, "patched\n")
    kept = manifest(attempt)
    (job,) = (
        job
        for job in cluster.batch.list_namespaced_job(shared_namespace).items
        if job.metadata.name == kept["metadata"]["name"]
    )
    assert (
        job.metadata.annotations["example.org/team"]
        == "compilers"
        == kept["metadata"]["annotations"]["example.org/team"]
    )
    assert kept["spec"]["template"]["spec"]["hostname"] == "patched"
    assert job.metadata.labels.items() >= {"app.kubernetes.io/managed-by": "topgallant"}.items()


def test_a_secret_of_the_cluster_arrives_and_is_in_no_log(
    cluster: Cluster, bench: Bench, shared_namespace: str
) -> None:
    value = "s3cr3t-of-the-cluster"
    cluster.core.create_namespaced_secret(
        shared_namespace, {"metadata": {"name": "token"}, "stringData": {"value": value}}
    )
    pod = {"secrets": {"TOKEN": {"name": "token", "key": "value"}}}
    script = f'test "$TOKEN" = {value[:6]}"{value[6:]}" && echo "it is $TOKEN" && echo "$TOKEN" >&2'
    attempt, outcome = bench.run("sh", "-c", script, backend_fields={"pod": pod})
    assert outcome.exit_code == 0, attempt.text("stderr.log")
    assert (attempt.text(), attempt.text("stderr.log")) == ("it is ***\n", "***\n")
    assert value not in container_log(cluster, attempt, shared_namespace)
    assert not [path for path in attempt.directory.rglob("*") if path.is_file() and value in path.read_text()]


def container_log(cluster: Cluster, attempt: Attempt, namespace: str) -> str:
    """Return the log of the container, as `kubectl logs` prints it."""
    name = manifest(attempt)["metadata"]["name"]
    (pod,) = cluster.core.list_namespaced_pod(namespace, label_selector=f"job-name={name}").items
    return str(cluster.core.read_namespaced_pod_log(pod.metadata.name, namespace, container="workload"))


def test_the_container_log_has_the_lines_of_the_workload(cluster: Cluster, bench: Bench, shared_namespace: str) -> None:
    attempt, _ = bench.run("sh", "-c", "echo step 0 loss 4.2; echo warning: slow >&2; echo step 1 loss 4.1")
    lines = container_log(cluster, attempt, shared_namespace).splitlines()
    assert sorted(lines) == ["step 0 loss 4.2", "step 1 loss 4.1", "warning: slow"]
    assert (attempt.text(), attempt.text("stderr.log")) == ("step 0 loss 4.2\nstep 1 loss 4.1\n", "warning: slow\n")


WRITES = """
import os
os.mkdir("many")
for number in range(2000):
    with open(f"many/{number}.txt", "w") as stream:
        stream.write(str(number))
with open("large", "wb") as stream:
    for _ in range(20):
        stream.write(os.urandom(1 << 20))
"""


def test_twenty_megabytes_and_two_thousand_files_are_collected(bench: Bench) -> None:
    source = f"{WRITES}\nimport hashlib; print(hashlib.md5(open('large', 'rb').read()).hexdigest())"
    attempt, outcome = bench.run("python3", "-c", source)
    assert outcome.exit_code == 0, attempt.text("stderr.log")
    results = attempt.directory / "files"
    assert sorted(int(path.read_text()) for path in (results / "many").iterdir()) == list(range(2000))
    assert f"{hashlib.md5((results / 'large').read_bytes()).hexdigest()}\n" == attempt.text()
    assert (results / "large").stat().st_size == 20 << 20


HOSTILE = """
echo ok > ok
ln -s /etc/passwd absolute
ln -s ../../../../../../../../etc/passwd upwards
ln -s /etc folder
mkfifo pipe
echo forged > ../step.json
echo forged > ../FAILURE
"""


def test_pipes_and_links_out_of_a_pod_are_not_collected(bench: Bench) -> None:
    attempt, outcome = bench.run("sh", "-c", HOSTILE)
    assert outcome.exit_code == 0, attempt.text("stderr.log")
    assert [path.name for path in (attempt.directory / "files").iterdir()] == ["ok"]
    assert not {"step.json", "FAILURE"} & {path.name for path in attempt.directory.iterdir()}


def test_each_of_two_hosts_has_its_own_log_and_files(bench: Bench) -> None:
    script = 'echo "I am $HOSTNAME of $TOPGALLANT_HOSTS"; echo it > mine; test -n "$TOPGALLANT_COORDINATOR"'
    attempt, outcome = bench.run("sh", "-c", script, backend_fields={"pod": {"hosts": 2}})
    assert outcome.exit_code == 0, attempt.text("stderr.log")
    first, second = attempt.text(), attempt.text("hosts/1/stdout.log")
    assert first.endswith(" of 2\n")
    assert second.endswith(" of 2\n")
    assert first != second
    assert attempt.text("files/mine") == attempt.text("hosts/1/files/mine") == "it\n"
    bench.shared.backend.release(attempt.handle)
    assert bench.site.remains(attempt.handle) == []


def test_one_failing_host_ends_all_hosts_of_a_cell(bench: Bench, tmp_path: Path) -> None:
    script = f"if mkdir {tmp_path}/first; then exit 7; fi; sleep 600"
    attempt = bench.start("sh", "-c", script, backend_fields={"pod": {"hosts": 2}})
    outcome = attempt.wait()
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.EXIT, 7)
    wait_for(lambda: not attempt.left(), "the end of the other host")


def test_long_lines_and_binary_output_arrive_unchanged(bench: Bench) -> None:
    source = "import os; os.write(1, b'x' * 1_000_000 + b'\\n' + bytes(range(256)) * 100 + b'\\r\\n\\x00end')"
    attempt, _ = bench.run("python3", "-c", source)
    expected = b"x" * 1_000_000 + b"\n" + bytes(range(256)) * 100 + b"\r\n\x00end"
    assert (attempt.directory / "stdout.log").read_bytes() == expected


@pytest.mark.parametrize("collect", [("**",), ()], ids=["with files", "without files"])
def test_a_log_that_the_kubelet_rotates_arrives_complete(bench: Bench, collect: tuple[str, ...]) -> None:
    """A kubelet rotates the log at 10 MB, and a reader of the log does not follow it into the next file."""
    source = "for number in range(150_000): print(f'{number:099d}')"
    attempt, outcome = bench.run("python3", "-c", source, collect=collect, run=300.0)
    assert outcome.exit_code == 0
    assert outcome.log_fault == ""
    with (attempt.directory / "stdout.log").open() as log:
        assert all(line == f"{number:099d}\n" for number, line in enumerate(log))
    assert (attempt.directory / "stdout.log").stat().st_size == 15_000_000


def test_the_outcome_of_a_pod_is_saved_as_on_every_target(bench: Bench) -> None:
    attempt, outcome = bench.run("sh", "-c", "exit 3")
    assert (outcome.ended_by, outcome.exit_code, outcome.host) == (EndedBy.EXIT, 3, "node-1")
    assert json.loads(attempt.text("outcome.json"))["exit_code"] == 3
