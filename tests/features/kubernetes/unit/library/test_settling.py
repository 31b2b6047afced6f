"""The error of a Job that fails on a fake API server names the problem of its pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.kubernetes.fakes.api_server import HOLD, Answer, ApiServer, Request
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.objects import Objects
from toolbox.features.kubernetes.library import _settling
from toolbox.ground.model.errors import StepError, ToolboxError
from toolbox.ground.model.verdicts import Cause, Verdict

NAMESPACE = "/api/v1/namespaces/tests"
JOBS, PODS = "/apis/batch/v1/namespaces/tests/jobs", f"{NAMESPACE}/pods"
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}


def job(*conditions: dict[str, Any]) -> dict[str, Any]:
    """Return a Job as the API server has it."""
    meta = {"name": "j", "namespace": "tests", "uid": "j", "generation": 1}
    spec = {"selector": {"matchLabels": {"job-name": "j"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": spec,
        "status": {"conditions": list(conditions)},
    }


def pod(state: dict[str, Any]) -> dict[str, Any]:
    """Return the pod of the Job, with its container in a state."""
    meta = {"name": "j-1", "namespace": "tests", "uid": "p"}
    status = {"containerStatuses": [{"name": "main", "state": state}]}
    return {"metadata": meta, "spec": {"containers": [{"name": "main", "image": "i"}]}, "status": status}


def items(*found: dict[str, Any]) -> dict[str, Any]:
    """Return objects as a list of the API server."""
    return {"metadata": {"resourceVersion": "1"}, "items": list(found)}


def resources(*names: tuple[str, str]) -> dict[str, Any]:
    """Return the list of the kinds in an API group."""
    found = [{"kind": kind, "name": name, "namespaced": True, "verbs": ["list"]} for kind, name in names]
    return {"resources": found}


def test_the_error_of_a_failed_job_contains_a_problem_of_its_pod_that_is_listed_later(
    server: ApiServer, cluster: Cluster
) -> None:
    listed = [items(pod({"running": {}})), items(pod({"terminated": {"exitCode": 3}}))]

    def pods(request: Request) -> dict[str, Any]:
        assert request.get("labelSelector") == "job-name=j"
        return listed.pop(0)

    server.answers("GET", "/api/v1", resources(("Pod", "pods"), ("Event", "events")))
    server.answers("GET", "/apis/batch/v1", resources(("Job", "jobs")))
    server.answers("GET", JOBS, items(job(FAILED)))
    server.answers("GET", PODS, pods)
    server.answers("GET", f"{NAMESPACE}/events", items())
    for path in (JOBS, PODS):
        server.answers("WATCH", path, Answer([HOLD]))
    expected = "Job j has failed: pod j-1: container main ended with exit code 3; BackoffLimitExceeded"
    with pytest.raises(StepError, match=expected) as caught:
        _settling.ready(Objects(cluster), [job()], 20)
    assert (caught.value.verdict, caught.value.cause) == (Verdict.FAILED, Cause.PRODUCT)
    assert listed == []


@pytest.mark.parametrize(
    ("condition", "state", "cause"),
    [
        ({**FAILED, "reason": "DeadlineExceeded"}, {"running": {}}, Cause.TIMEOUT),
        (FAILED, {"waiting": {"reason": "ErrImagePull"}}, Cause.INFRASTRUCTURE),
    ],
)
def test_a_job_that_did_not_fail_by_its_own_program_has_another_cause(
    server: ApiServer, cluster: Cluster, condition: dict[str, Any], state: dict[str, Any], cause: Cause
) -> None:
    server.answers("GET", "/api/v1", resources(("Pod", "pods"), ("Event", "events")))
    server.answers("GET", "/apis/batch/v1", resources(("Job", "jobs")))
    server.answers("GET", JOBS, items(job(condition)))
    server.answers("GET", PODS, items(pod(state)))
    server.answers("GET", f"{NAMESPACE}/events", items())
    for path in (JOBS, PODS):
        server.answers("WATCH", path, Answer([HOLD]))
    with pytest.raises(ToolboxError, match="Job j has failed") as caught:
        _settling.ready(Objects(cluster), [job()], 20)
    assert caught.value.cause is cause
