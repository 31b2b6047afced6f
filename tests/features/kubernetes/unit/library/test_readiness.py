"""The readiness of an object is derived from its status and from the problems of its pods."""

from __future__ import annotations

from typing import Any

import pytest

from toolbox.features.kubernetes.api import readiness

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"


def deployment(wanted: int = 2, *, seen: int = 1, **status: Any) -> dict[str, Any]:
    meta = {"name": "web", "generation": 1, "annotations": {REVISION: "2"}}
    status = {"observedGeneration": seen, **status}
    return {"kind": "Deployment", "metadata": meta, "spec": {"replicas": wanted}, "status": status}


def pod(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    status = {"name": "main", "state": state, **more}
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "some:1"}]}
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec, "status": {"containerStatuses": [status]}}


def waiting(reason: str, message: str = "it says") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("found", "lack"),
    [
        (deployment(replicas=2, updatedReplicas=2, readyReplicas=2), None),
        (deployment(0), None),
        (deployment(seen=0), "the cluster has not processed it yet"),
        (deployment(replicas=2, updatedReplicas=2, readyReplicas=1), "1 of 2 replicas are ready"),
        (
            deployment(replicas=3, updatedReplicas=1, readyReplicas=2),
            "0 of 2 replicas are ready, and 2 older replicas remain",
        ),
        ({"kind": "ConfigMap", "metadata": {}}, None),
        ({"kind": "Job", "status": {"conditions": [{"type": "Complete", "status": "True"}]}}, None),
        ({"kind": "Job"}, "it has not ended"),
        (
            {"kind": "Pod", "spec": {"containers": []}, "metadata": {"name": "p"}, "status": {"phase": "Succeeded"}},
            None,
        ),
    ],
)
def test_the_reason_why_an_object_is_not_ready_is_returned(found: dict[str, Any], lack: str | None) -> None:
    assert readiness.unready_reason(found) == lack


def test_an_exceeded_quota_is_named() -> None:
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    assert (
        readiness.unready_reason(deployment(1, conditions=[refused]))
        == "0 of 1 replicas are ready: FailedCreate: exceeded quota"
    )


def test_a_daemon_set_is_ready_when_it_is_updated_on_all_its_nodes() -> None:
    status = {"observedGeneration": 1, "desiredNumberScheduled": 3, "numberAvailable": 3, "updatedNumberScheduled": 2}
    found = {"kind": "DaemonSet", "metadata": {"generation": 1}, "status": status}
    assert readiness.unready_reason(found) == "it is available on 2 of 3 nodes"
    assert readiness.unready_reason({**found, "status": {**status, "updatedNumberScheduled": 3}}) is None


def test_a_crash_is_described_with_its_exit_code() -> None:
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    found = pod(waiting("CrashLoopBackOff", "back-off 10s"), lastState=last)
    problem = "pod p on n1: container main: CrashLoopBackOff: back-off 10s (it ended with exit code 137, OOMKilled)"
    assert readiness.problems([found]) == [problem]


def test_a_server_that_crashes_repeatedly_is_a_permanent_problem() -> None:
    assert readiness.permanent_problems([pod(waiting("CrashLoopBackOff"), restartCount=2)]) == []
    assert len(readiness.permanent_problems([pod(waiting("CrashLoopBackOff"), restartCount=3)])) == 1


def test_only_a_missing_image_is_a_permanent_problem() -> None:
    assert readiness.permanent_problems([pod(waiting("ErrImagePull", "dial tcp: i/o timeout"))]) == []
    assert len(readiness.permanent_problems([pod(waiting("ErrImagePull", "manifest unknown"))])) == 1
    assert len(readiness.permanent_problems([pod(waiting("InvalidImageName"))])) == 1


def test_the_problem_of_an_unschedulable_pod_has_its_reason() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    found = {"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"conditions": [unscheduled]}}
    assert readiness.problems([found]) == ["pod p: Unschedulable: 0/3 nodes"]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({}, ""),
        (waiting("ContainerCreating"), ""),
        (waiting("ErrImagePull", "no"), "ErrImagePull: no"),
        (waiting("RunContainerError"), None),
        ({"terminated": {"exitCode": 1}}, None),
        ({"running": {}}, None),
    ],
)
def test_an_image_was_pulled_if_its_container_was_started(state: dict[str, Any], why: str | None) -> None:
    assert readiness.pulls(pod(state)) == {"main": why}


def test_pods_of_old_revisions_are_left_out() -> None:
    sets = [
        {"metadata": {"labels": {HASH: hashed}, "annotations": {REVISION: revision}}}
        for hashed, revision in (("old", "1"), ("new", "2"))
    ]
    pods = [{"metadata": {"name": name, "labels": {HASH: name}}} for name in ("old", "new")]
    assert readiness.current_pods(deployment(), pods, sets) == pods[1:]


def test_a_failed_job_has_a_failure() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    assert readiness.failure({"kind": "Job", "status": {"conditions": [failed]}}) == "BackoffLimitExceeded"
    assert readiness.failure({"kind": "Job"}) is None
