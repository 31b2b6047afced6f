"""The backend uses a fake API server, mostly with JobSets; `tests/live` uses a real cluster without JobSets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any, Final

import pytest

from tests.fakes.ledger import MemoryLedger
from tests.features.kubernetes.fakes.api_server import (
    BREAK,
    HOLD,
    Answer,
    ApiServer,
    Conversation,
    Request,
    Talk,
    failure,
    listing,
)
from tests.features.kubernetes.unit.pods.following import archive, wait_until
from toolbox.features.kubernetes.api.connection import ApiError
from toolbox.features.kubernetes.backends.kubernetes import (
    HOST_PERMISSIONS,
    REQUIRED_PERMISSIONS,
    SLICE_PERMISSIONS,
    Target,
)
from toolbox.features.kubernetes.pods import manifests
from toolbox.features.kubernetes.pods.pod_state import ATTEMPT_LABEL, INDEX, SLICE
from toolbox.ground.extensions.protocols import Backend
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError, StepError, SubmissionUnknown
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.model.workloads import (
    AttemptState,
    EndedBy,
    Handle,
    TargetContext,
    Timeouts,
    Workload,
    WorkloadOutcome,
)
from toolbox.ground.system import cancellation

NAME = "run-1-cell"
JOB = manifests.job_name("run-1", NAME)
JOBS, PODS = "/apis/batch/v1/namespaces/tests/jobs", "/api/v1/namespaces/tests/pods"
SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/tests/jobsets"
TWO_SLICES: dict[str, Any] = {"tpu": {"accelerator": "tpu-v5p-slice", "topology": "2x2x1", "chips": 4}, "slices": 2}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ONE = Workload(("true",))
SLICES = Workload(
    ("true",),
    backend_fields={
        "pod": {"tpu": {"accelerator": "tpu-v5p-slice", "topology": "2x2x2", "chips": 4}, "hosts": 2, "slices": 2}
    },
)
CONTAINER = {"name": "workload", "command": ["python3"], "env": [{"name": "TOPGALLANT_HOSTS", "value": "2"}]}


def job_set() -> dict[str, Any]:
    """Return the JobSet of a cell of two slices with two hosts each."""
    spec = {"completions": 2, "template": {"spec": {"containers": [CONTAINER]}}}
    replicated = {"name": "slice", "replicas": 2, "template": {"spec": spec}}
    meta = {"name": JOB, "uid": "u", "labels": {ATTEMPT_LABEL: JOB}, "resourceVersion": "2"}
    return {"metadata": meta, "spec": {"replicatedJobs": [replicated]}}


def pod(of_slice: int, index: int) -> dict[str, Any]:
    """Return a pod of the JobSet that has ended with exit code 0."""
    outcome = WorkloadOutcome(EndedBy.EXIT, 0).as_json()
    message = json.dumps({**outcome, "logs": {"stdout": [0, 0], "stderr": [0, 0]}, "left": 0})
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}
    name = f"{JOB}-{of_slice}-{index}"
    labels = {ATTEMPT_LABEL: JOB, SLICE: str(of_slice)}
    meta = {"name": name, "uid": name, "labels": labels, "annotations": {INDEX: str(index)}, "resourceVersion": "2"}
    status = {"containerStatuses": [{"name": "workload", "state": state}]}
    return {"metadata": meta, "spec": {"nodeName": "n", "containers": [CONTAINER]}, "status": status}


@pytest.fixture
def notified() -> Queue[str]:
    return Queue()


@pytest.fixture
def backend(server: ApiServer, tmp_path: Path, notified: Queue[str]) -> Iterator[Backend]:
    for path in (JOBS, PODS, SETS):
        server.answers("GET", path, listing(1))
        server.answers("WATCH", path, Answer([HOLD]))
    target = Target(kubeconfig=str(server.kubeconfig), pod={"image": "any"})
    found = target.open(TargetContext("tpu", "run-1", tmp_path / "mark", {}, tuple, notified.put, MemoryLedger()))
    yield found
    found.close()


def test_a_cell_of_several_slices_is_found_again_and_followed_to_its_end(
    server: ApiServer, backend: Backend, tmp_path: Path, notified: Queue[str]
) -> None:
    server.answers("GET", f"{SETS}/{JOB}", job_set())
    items = [pod(of_slice, index) for of_slice in (0, 1) for index in (0, 1)]
    server.answers("GET", PODS, {"metadata": {"resourceVersion": "2"}, "items": items})
    server.answers("GET", SETS, {"metadata": {"resourceVersion": "2"}, "items": [job_set()]})
    server.answers("DELETE", f"{SETS}/{JOB}", {})
    (tmp_path / "attempt").mkdir()
    handle = backend.find(SLICES, NAME, tmp_path / "attempt")
    assert handle is not None
    assert notified.get(timeout=20) == NAME
    status = backend.poll([handle])[handle]
    assert (status.state, status.outcome and status.outcome.exit_code) == (AttemptState.ENDED, 0)
    assert sorted(path.name for path in (tmp_path / "attempt/hosts").iterdir()) == ["1", "2", "3"]
    backend.release(handle)
    assert (server.count("DELETE", f"{SETS}/{JOB}"), server.count("DELETE", f"{JOBS}/{JOB}")) == (1, 0)


LOGS: Final = {"stdout": [7, 1], "stderr": [0, 0]}


def holding(*, is_over: bool = False) -> dict[str, Any]:
    """Return a pod whose workload has ended and whose logs are in the container `files`.

    With `is_over`, the container `files` has ended too, with exit code 1.
    """
    whole = pod(0, 0)
    outcome = WorkloadOutcome(EndedBy.EXIT, 0).as_json()
    message = json.dumps({**outcome, "logs": LOGS, "left": 0})
    of_workload = {"name": "workload", "state": {"terminated": {"exitCode": 0, "message": message}}}
    of_files = {"name": "files", "state": {"terminated": {"exitCode": 1}} if is_over else {"running": {}}}
    spec = {"nodeName": "n", "containers": [{**CONTAINER, "env": []}, {"name": "files"}]}
    return {**whole, "spec": spec, "status": {"containerStatuses": [of_workload, of_files]}}


def test_logs_that_can_no_longer_be_fetched_are_an_error(
    server: ApiServer, backend: Backend, tmp_path: Path, notified: Queue[str]
) -> None:
    spec = {"template": {"spec": {"containers": [CONTAINER]}}}
    server.answers("GET", f"{JOBS}/{JOB}", {"metadata": {"name": JOB, "uid": "u"}, "spec": spec})
    server.answers("GET", PODS, {"metadata": {"resourceVersion": "1"}, "items": [holding()]})
    has_ended = threading.Event()

    def news() -> Iterator[bytes]:
        assert has_ended.wait(20)
        yield json.dumps({"type": "MODIFIED", "object": holding(is_over=True)}).encode() + b"\n"
        yield HOLD

    server.answers("WATCH", PODS, Answer(news()))
    handle = backend.find(ONE, NAME, tmp_path)
    assert handle is not None
    assert notified.get(timeout=20) == NAME
    outcome = backend.poll([handle])[handle].outcome
    assert outcome is not None
    assert outcome.log_fault == ""  # the container `files` still has the logs
    has_ended.set()
    time.sleep(0.5)
    with pytest.raises(StepError, match=r"the logs of .* are incomplete: stdout"):
        backend.collect(handle, ONE)


def test_a_log_that_the_workload_deleted_is_an_error(
    server: ApiServer, backend: Backend, tmp_path: Path, notified: Queue[str]
) -> None:
    def send(talk: Conversation) -> None:
        for piece in (archive({}), b""):
            talk.hear()
            talk.send(1, b"%08d" % len(piece) + piece)
        talk.end()

    ended = holding()
    spec = {"template": {"spec": {"containers": [CONTAINER]}}}
    server.answers("GET", f"{JOBS}/{JOB}", {"metadata": {"name": JOB, "uid": "u"}, "spec": spec})
    server.answers("GET", PODS, {"metadata": {"resourceVersion": "1"}, "items": [ended]})
    server.answers("GET", f"{PODS}/{ended['metadata']['name']}/exec", Talk(send))
    handle = backend.find(ONE, NAME, tmp_path)
    assert handle is not None
    assert notified.get(timeout=20) == NAME
    with pytest.raises(StepError, match="are incomplete: stdout"):
        backend.collect(handle, ONE)


@pytest.mark.parametrize("known", [{}, {"nodeName": "n"}])
def test_a_pod_that_succeeds_before_it_can_be_cancelled_has_passed(
    server: ApiServer, backend: Backend, tmp_path: Path, notified: Queue[str], known: dict[str, str]
) -> None:
    ended = pod(0, 0)
    bare = {key: value for key, value in ended["spec"].items() if key != "nodeName"}
    placed = {**ended, "spec": {**bare, **known}, "status": {}}  # the backend has seen no state of the container yet
    spec = {"template": {"spec": {"containers": [CONTAINER]}}}
    server.answers("GET", f"{JOBS}/{JOB}", {"metadata": {"name": JOB, "uid": "u"}, "spec": spec})
    server.answers("GET", PODS, {"metadata": {"resourceVersion": "1"}, "items": [placed]})
    is_cancelled = threading.Event()

    def news() -> Iterator[bytes]:
        assert is_cancelled.wait(20)
        yield json.dumps({"type": "MODIFIED", "object": ended}).encode() + b"\n"
        yield HOLD

    server.answers("WATCH", PODS, Answer(news()))
    (tmp_path / "attempt").mkdir()
    handle = backend.find(ONE, NAME, tmp_path / "attempt")
    assert handle is not None
    backend.cancel(handle)
    is_cancelled.set()
    assert notified.get(timeout=20) == NAME
    outcome = backend.poll([handle])[handle].outcome
    assert outcome is not None
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.EXIT, 0)
    assert (
        server.count("DELETE", f"{JOBS}/{JOB}") == 0
    )  # deleting the Job could have removed the pod before its outcome was read


def test_the_job_of_a_pod_that_gets_no_node_is_removed_when_it_is_cancelled(
    server: ApiServer, backend: Backend, tmp_path: Path
) -> None:
    status = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    waiting = {**pod(0, 0), "spec": {"containers": [CONTAINER]}, "status": status}
    spec = {"template": {"spec": {"containers": [CONTAINER]}}}
    server.answers("GET", f"{JOBS}/{JOB}", {"metadata": {"name": JOB, "uid": "u"}, "spec": spec})
    server.answers("GET", PODS, {"metadata": {"resourceVersion": "1"}, "items": [waiting]})
    server.answers("DELETE", f"{JOBS}/{JOB}", {})
    handle = backend.find(ONE, NAME, tmp_path)
    assert handle is not None
    backend.cancel(handle)
    wait_until(lambda: server.count("DELETE", f"{JOBS}/{JOB}"))


def test_releasing_a_past_attempt_deletes_both_its_job_and_its_job_set(
    server: ApiServer, backend: Backend, tmp_path: Path
) -> None:
    server.answers("DELETE", f"{SETS}/{JOB}", {})
    backend.release(Handle(NAME, tmp_path))
    assert server.count("DELETE", f"{SETS}/{JOB}") == 1


def test_releasing_without_permission_for_job_sets_is_not_an_error(
    server: ApiServer, backend: Backend, tmp_path: Path
) -> None:
    server.answers("DELETE", f"{JOBS}/{JOB}", {})
    server.answers("DELETE", f"{SETS}/{JOB}", failure(403, "jobsets is forbidden"))
    backend.release(Handle(NAME, tmp_path))
    assert server.count("DELETE", f"{JOBS}/{JOB}") == 1


def test_an_attempt_without_a_job_or_a_job_set_is_not_found(backend: Backend, tmp_path: Path) -> None:
    assert backend.find(ONE, NAME, tmp_path) is None


@pytest.mark.parametrize(("workload", "path", "status"), [(ONE, JOBS, 403), (SLICES, SETS, 422)])
def test_a_failed_request_does_not_mean_that_the_attempt_is_absent(
    server: ApiServer, backend: Backend, tmp_path: Path, workload: Workload, path: str, status: int
) -> None:
    server.answers("GET", f"{path}/{JOB}", failure(status))
    with pytest.raises(ApiError):
        backend.find(workload, NAME, tmp_path)


@pytest.mark.parametrize(
    ("block", "hint"),
    [
        ({"sut": None}, r"did you mean sut\?"),
        ({"lab": Access()}, "the clusters are lab"),
        ({}, "there are no clusters"),
    ],
)
def test_a_cluster_that_the_run_does_not_use_is_named(block: dict[str, Access | None], hint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"no cluster `sutt` in the block `clusters`: {hint}"):
        Target(cluster="sutt").verify("there", block, [])


def test_a_cluster_that_is_not_acquired_yet_gets_no_requests() -> None:
    Target(cluster="sut").verify("there", {"sut": None}, [])


@pytest.mark.parametrize(
    ("pods", "required"),
    [
        ([], REQUIRED_PERMISSIONS),
        ([{}, {"resources": None}], REQUIRED_PERMISSIONS),
        ([{}, {"hosts": 2}], (*REQUIRED_PERMISSIONS, *HOST_PERMISSIONS)),
        ([TWO_SLICES], (*REQUIRED_PERMISSIONS, *SLICE_PERMISSIONS)),
        ([{"hosts": 2}, TWO_SLICES], (*REQUIRED_PERMISSIONS, *SLICE_PERMISSIONS, *HOST_PERMISSIONS)),
    ],
)
def test_the_required_permissions_depend_on_the_pods_of_the_cells(
    server: ApiServer, pods: list[dict[str, Any]], required: tuple[object, ...]
) -> None:
    server.answers("POST", REVIEWS, {"status": {"allowed": False}})
    target = Target(kubeconfig=str(server.kubeconfig), pod={"image": "any"})
    with pytest.raises(ConfigurationError) as caught:
        target.verify("there", {}, [Workload(("true",), backend_fields={"pod": found}) for found in pods])
    expected = f"the target `there`: in the namespace tests the account may not {', '.join(map(str, required))}: "
    assert str(caught.value).startswith(expected)


# A submission whose answer is lost


CONFIG_MAPS = "/api/v1/namespaces/tests/configmaps"
BRIEF = Workload(("true",), collect=(), timeouts=Timeouts(wait=1))


def submit(server: ApiServer, backend: Backend, directory: Path, *answers: Answer) -> StepError:
    """Submit a workload with these answers to the creation of its Job, and return the error."""
    server.answers("POST", CONFIG_MAPS, {"metadata": {"name": "owner", "uid": "o"}})
    server.answers("POST", JOBS, *answers)
    with pytest.raises(StepError) as caught:
        backend.submit(BRIEF, NAME, directory)
    return caught.value


LOST = Answer([b"{", BREAK])


@pytest.mark.parametrize(
    ("answers", "is_undecided"),
    [
        ([LOST], True),
        ([LOST, failure(403, "jobs is forbidden")], True),  # a restarting server may refuse the second request
        ([failure(500)], True),
        ([failure(401)], False),
        ([failure(403, "jobs is forbidden")], False),
        ([failure(422)], False),
    ],
)
def test_a_job_that_may_have_been_created_is_not_reported_as_refused(
    server: ApiServer, backend: Backend, tmp_path: Path, answers: list[Answer], is_undecided: bool
) -> None:
    error = submit(server, backend, tmp_path, *answers)
    assert isinstance(error, SubmissionUnknown) is is_undecided


def test_a_job_may_exist_if_the_run_is_cancelled_while_it_is_created(
    server: ApiServer, backend: Backend, tmp_path: Path
) -> None:
    with cancellation.opened() as scope:

        def lose(_request: Request) -> Answer:
            scope.cancel("the run is ending")
            return LOST

        server.answers("POST", CONFIG_MAPS, {"metadata": {"name": "owner", "uid": "o"}})
        server.answers("POST", JOBS, lose)
        with pytest.raises(SubmissionUnknown) as caught:
            backend.submit(BRIEF, NAME, tmp_path)
    assert caught.value.verdict is Verdict.CANCELLED


def test_a_job_of_an_earlier_request_without_an_answer_is_used(
    server: ApiServer, backend: Backend, tmp_path: Path
) -> None:
    server.answers("POST", CONFIG_MAPS, {"metadata": {"name": "owner", "uid": "o"}})
    server.answers("POST", JOBS, LOST, failure(409))
    assert backend.submit(BRIEF, NAME, tmp_path) == Handle(NAME, tmp_path)
