from __future__ import annotations

import json
import math
from typing import Any

import pytest

from toolbox.features.kubernetes.pods import pod_state

REPORT = {"ended_by": "exit", "exit_code": 3, "left": 1}


def pod(**fields: Any) -> dict[str, Any]:
    """Return a pod in the format of the API server."""
    meta = {"name": "p", "uid": "u", "labels": {pod_state.ATTEMPT_LABEL: "j"}, **fields.pop("meta", {})}
    container = {"name": "workload", "resources": {"limits": {"memory": "128G"}}, **fields.pop("container", {})}
    return {
        "metadata": meta,
        "spec": {"nodeName": "n", "containers": [container], **fields.pop("spec", {})},
        "status": fields,
    }


def states(**of: Any) -> list[dict[str, Any]]:
    """Return container statuses with these states."""
    return [{"name": name, "state": state} for name, state in of.items()]


def test_a_view_has_the_name_the_job_and_the_node_of_its_pod() -> None:
    view = pod_state.pod(pod())
    assert (view.name, view.job, view.node, view.memory_limit) == ("p", "j", "n", "128G")
    assert (view.is_running, view.ended, view.index) == (False, None, None)


def test_the_report_of_the_agent_is_read_from_the_status() -> None:
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": json.dumps(REPORT)}}
    view = pod_state.pod(pod(containerStatuses=states(workload=ended, files={"running": {}})))
    assert view.ended == pod_state.Ended(3, "Error", json.dumps(REPORT), REPORT)
    assert view.files is None


def test_a_message_that_the_kubelet_truncated_within_the_logs_has_the_outcome() -> None:
    report: dict[str, Any] = {**REPORT, "message": 'a ", "content": ', "logs": {"stdout": [3, 5], "stderr": [0, 0]}}
    message = json.dumps({**report, "logs": {**report["logs"], "content": "eJzLz0sFAAKCAUY="}})
    for cut in range(message.index("eJz"), len(message)):
        ended = {"terminated": {"exitCode": 3, "message": message[:cut]}}
        assert pod_state.pod(pod(containerStatuses=states(workload=ended))).report == report


def test_a_termination_message_that_is_not_the_agents_is_not_a_report() -> None:
    for message in ("", "no JSON", "[1]", '{"some": "thing"}', "[" * 4000, '{"a":' * 800):
        ended = {"terminated": {"exitCode": 1, "message": message}}
        view = pod_state.pod(pod(containerStatuses=states(workload=ended)))
        assert view.ended is not None
        assert (view.ended.report, view.ended.message) == (None, message)


def test_the_reason_why_a_pod_waits_is_read() -> None:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no GPU"}]
    assert pod_state.pod(pod(conditions=conditions)).unschedulable == "no GPU"
    waiting = states(workload={"waiting": {"reason": "ErrImagePull", "message": "not found"}})
    assert pod_state.pod(pod(containerStatuses=waiting)).waiting == ("ErrImagePull", "not found")


def test_a_pod_that_was_scheduled_is_not_unschedulable() -> None:
    conditions = [{"type": "PodScheduled", "status": "True"}]
    assert pod_state.pod(pod(conditions=conditions)).unschedulable == ""


def test_a_disruption_is_read_from_the_condition_or_the_reason_of_the_pod() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "by x"}
    assert pod_state.pod(pod(conditions=[condition])).disruption == "PreemptionByScheduler: by x"
    assert pod_state.pod(pod(reason="Evicted", message="disk")).disruption == "Evicted: disk"
    assert pod_state.pod(pod()).disruption == ""


def test_a_pod_that_is_being_deleted_counts_as_deleted() -> None:
    assert pod_state.pod(pod(meta={"deletionTimestamp": "2026-01-02T03:04:05Z"})).is_deleted
    assert pod_state.pod(pod(), is_gone=True).is_deleted
    assert not pod_state.pod(pod(containerStatuses=states(workload={"running": {}})), is_gone=True).is_running
    assert pod_state.gone(pod_state.pod(pod())).is_deleted
    assert not pod_state.pod(pod()).is_deleted


def test_the_time_of_a_deletion_request_excludes_the_grace_period() -> None:
    meta = {"deletionTimestamp": "1970-01-01T00:01:40Z", "deletionGracePeriodSeconds": 30}
    assert pod_state.pod(pod(meta=meta)).deleted_at == 70
    assert pod_state.pod(pod()).deleted_at is None


def test_the_deadline_of_a_job_counts_from_its_start() -> None:
    begun = {"metadata": {"name": "j", "uid": "u"}, "status": {"startTime": "1970-01-01T00:01:40Z"}}
    assert pod_state.job({**begun, "spec": {"activeDeadlineSeconds": 5}}).ends_at == 105
    assert pod_state.job({**begun, "spec": {}}).ends_at == math.inf
    assert pod_state.job(job({"activeDeadlineSeconds": 5})).ends_at == math.inf


def test_a_job_without_a_pod_replacement_policy_replaces_pods_at_once() -> None:
    spec: dict[str, Any] = {"template": {}}
    assert pod_state.job(job(spec)).replaces
    assert not pod_state.job(job({**spec, "podReplacementPolicy": "Failed"})).replaces
    assert not pod_state.job(job({"replicatedJobs": []})).replaces


def test_the_index_of_a_pod_counts_the_hosts_of_earlier_slices() -> None:
    env = {"env": [{"name": "TOPGALLANT_HOSTS", "value": "4"}]}
    one = pod(container=env, meta={"annotations": {pod_state.INDEX: "3"}, "labels": {pod_state.ATTEMPT_LABEL: "j"}})
    assert pod_state.pod(one).index == 3
    labels = {pod_state.ATTEMPT_LABEL: "j", pod_state.SLICE: "2"}
    assert pod_state.pod(pod(container=env, meta={"annotations": {pod_state.INDEX: "3"}, "labels": labels})).index == 11


def job(spec: dict[str, Any] | None = None, *conditions: dict[str, str]) -> dict[str, Any]:
    """Return a Job in the format of the API server."""
    meta = {"name": "j", "uid": "u"}
    return {"metadata": meta, "spec": spec or {}, "status": {"conditions": list(conditions)}}


def test_only_a_true_condition_is_terminal() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "late"}
    view = pod_state.job(job({}, {"type": "Complete", "status": "False"}, failed))
    assert (view.condition, view.reason, view.message) == ("Failed", "DeadlineExceeded", "late")
    assert pod_state.job(job({}, {"type": "Suspended", "status": "True"})).condition == ""


def test_the_condition_completed_of_a_job_set_is_read_as_complete() -> None:
    view = pod_state.job(job({"replicatedJobs": [], "suspend": True}, {"type": "Completed", "status": "True"}))
    assert (view.is_set, view.is_suspended, view.condition) == (True, True, "Complete")


DIGEST = f"sha256:{'a1' * 32}"


@pytest.mark.parametrize(
    ("requested", "image_id", "image"),
    [
        ("registry.example/x:1", f"docker-pullable://registry.example/x@{DIGEST}", f"registry.example/x:1@{DIGEST}"),
        ("x:1", DIGEST, f"x:1@{DIGEST}"),
        (f"x@{DIGEST}", f"docker.io/library/x@{DIGEST}", f"x@{DIGEST}"),
        ("x:1", "", ""),
        ("x:1", "sha256:short", ""),
    ],
)
def test_the_image_of_a_pod_has_the_digest_that_its_node_reports(requested: str, image_id: str, image: str) -> None:
    status = {"name": "workload", "state": {}, "imageID": image_id}
    assert pod_state.pod(pod(container={"image": requested}, containerStatuses=[status])).image == image
