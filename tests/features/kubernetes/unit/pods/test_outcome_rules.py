from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toolbox.features.kubernetes.pods.outcome_rules import (
    conclude,
    is_deletion_explained,
    outcome_from_job,
    outcome_if_late,
    outcome_if_unstartable,
)
from toolbox.features.kubernetes.pods.pod_state import Ended, JobView, PodView
from toolbox.ground.model.workloads import EndedBy, WorkloadOutcome

JOB = JobView("j", "u")
DEADLINE = JobView("j", "u", condition="Failed", reason="DeadlineExceeded")


def report(by: str = "exit", code: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a report in the format of the agent's termination message."""
    known = WorkloadOutcome(EndedBy(by), code, seconds=2.5, host="pod").as_json()
    return {**known, "logs": {"stdout": [0, 0], "stderr": [0, 0]}, "left": 0, **fields}


def pod(
    ended: Mapping[str, Any] | None = None, code: int = 0, reason: str = "Completed", message: str = "", **fields: Any
) -> PodView:
    """Return a pod whose container `workload` has ended, with or without a report of the agent."""
    return PodView("p", "u", "j", node="n", ended=Ended(code, reason, message, ended), **fields)


def end(*pods: PodView, job: JobView | None = JOB, expected: int = 1, is_cancelled: bool = False) -> WorkloadOutcome:
    """Return the outcome of an attempt with these pods."""
    outcome = conclude(pods, job, expected=expected, is_cancelled=is_cancelled)
    if outcome is None and job is not None:
        outcome = outcome_from_job(job, pods, is_cancelled=is_cancelled, is_discarded=False)
    assert outcome is not None
    return outcome


def running(**fields: Any) -> PodView:
    """Return a pod with a running workload."""
    return PodView("p", "u", "j", node="n", is_running=True, **fields)


def test_the_outcome_is_that_of_the_agents_report() -> None:
    outcome = end(pod(report("exit", 3), 3, "Error"))
    assert (outcome.ended_by, outcome.exit_code, outcome.seconds, outcome.host) == (EndedBy.EXIT, 3, 2.5, "n")


def test_an_attempt_has_not_ended_while_its_pod_runs_or_waits() -> None:
    for one in (running(), PodView("p", "u", "j"), running(is_deleted=True), running(disruption="Evicted")):
        assert conclude([one], JOB, expected=1, is_cancelled=False) is None
    assert conclude([], JOB, expected=1, is_cancelled=False) is None
    assert conclude([], None, expected=1, is_cancelled=False) is None


def test_out_of_memory_is_distinguished_from_other_kills() -> None:
    for one in (pod(report("signal", 137), 137, "OOMKilled", memory_limit="1G"), pod(None, 137, "OOMKilled")):
        assert end(one).ended_by is EndedBy.OUT_OF_MEMORY
    assert (
        "it used more memory than its limit (1G)"
        in end(pod(report("signal", 137), 137, "OOMKilled", memory_limit="1G")).message
    )
    assert end(pod(report("signal", 137), 137, "Error")).ended_by is EndedBy.SIGNAL


def test_a_workload_that_survives_an_out_of_memory_kill_has_exited() -> None:
    recovered = end(pod(report("exit", 0), 0, "OOMKilled"))
    assert (recovered.ended_by, recovered.oom_kills) == (EndedBy.EXIT, 1)


@pytest.mark.parametrize("of", [report("cancelled", 143), None])
def test_a_workload_that_was_ended_with_its_pod_was_evicted(of: Mapping[str, Any] | None) -> None:
    assert end(pod(of, 143, "Error", is_deleted=True)).ended_by is EndedBy.EVICTED
    outcome = end(pod(of, 143, "Error", disruption="Evicted: low on disk"))
    assert (outcome.ended_by, outcome.message) == (EndedBy.EVICTED, "Evicted: low on disk (node n)")


def test_a_workload_that_had_ended_before_its_pod_was_deleted_was_not_evicted() -> None:
    assert end(pod(report("exit", 0), is_deleted=True)).ended_by is EndedBy.EXIT
    assert end(pod(report("timeout", 143), 143, "Error", is_deleted=True)).ended_by is EndedBy.TIMEOUT


def test_a_cancelled_attempt_is_cancelled_even_if_its_pod_was_deleted() -> None:
    assert end(pod(report("cancelled", 143), 143, is_deleted=True), is_cancelled=True).ended_by is EndedBy.CANCELLED
    gone = JobView("j", "u", is_deleted=True)
    assert end(job=gone, is_cancelled=True).ended_by is EndedBy.CANCELLED


def test_a_pod_that_was_deleted_without_a_report_was_evicted() -> None:
    outcome = end(PodView("p", "u", "j", node="n", is_over=True, is_deleted=True))
    assert (outcome.ended_by, outcome.message) == (
        EndedBy.EVICTED,
        "its pod p was deleted, but not by Topgallant (node n)",
    )


def test_a_pod_that_is_being_deleted_has_not_ended_yet() -> None:
    dying = PodView("p", "u", "j", node="n", is_deleted=True)
    assert conclude([dying], JOB, expected=1, is_cancelled=False) is None


def test_the_message_says_that_the_job_was_deleted() -> None:
    outcome = end(job=JobView("j", "u", is_deleted=True))
    assert (outcome.ended_by, outcome.message) == (EndedBy.EVICTED, "its Job j was deleted, but not by Topgallant")


def test_the_message_names_the_pod_if_its_loss_made_us_delete_the_job() -> None:
    job, lost = JobView("j", "u", is_deleted=True), running(is_deleted=True)
    tainted = running(is_deleted=True, disruption="DeletionByTaintManager: tainted")
    for pods, is_discarded, message in (
        ([lost], True, "its pod p was deleted, but not by Topgallant (node n)"),
        ([lost], False, "its Job j was deleted, but not by Topgallant"),
        ([tainted], True, "DeletionByTaintManager: tainted (node n)"),
        ([tainted], False, "DeletionByTaintManager: tainted (node n)"),
    ):
        outcome = outcome_from_job(job, pods, is_cancelled=False, is_discarded=is_discarded)
        assert outcome is not None
        assert (outcome.ended_by, outcome.message) == (EndedBy.EVICTED, message)


def test_the_deadline_of_a_job_is_a_timeout_even_if_its_pod_was_deleted() -> None:
    assert end(job=DEADLINE).ended_by is EndedBy.TIMEOUT
    assert end(pod(report("cancelled", 143), 143, is_deleted=True), job=DEADLINE).ended_by is EndedBy.TIMEOUT
    assert end(pod(None, 137, "Error", is_deleted=True), job=DEADLINE).ended_by is EndedBy.TIMEOUT


def test_a_pod_without_a_report_that_was_deleted_at_the_deadline_is_a_timeout() -> None:
    job, late = JobView("j", "u", is_deleted=True, ends_at=100.0), running(is_deleted=True, deleted_at=100.0)
    outcomes = [outcome_from_job(job, [late], is_cancelled=cancelled, is_discarded=True) for cancelled in (False, True)]
    assert [outcome and outcome.ended_by for outcome in outcomes] == [EndedBy.TIMEOUT, EndedBy.CANCELLED]


@pytest.mark.parametrize(
    ("deleted_at", "expected"),
    [(98.0, EndedBy.EVICTED), (99.0, EndedBy.TIMEOUT), (100.0, EndedBy.TIMEOUT), (None, EndedBy.EVICTED)],
)
def test_a_pod_deleted_at_the_deadline_has_a_timeout_before_its_job_fails(
    deleted_at: float | None, expected: EndedBy
) -> None:
    late = JobView("j", "u", ends_at=100.0)
    for of in (report("cancelled", 143), None):
        assert end(pod(of, 143, is_deleted=True, deleted_at=deleted_at), job=late).ended_by is expected


def test_a_deletion_is_explained_by_its_time_or_by_the_job() -> None:
    known, unknown = running(is_deleted=True, deleted_at=1.0), running(is_deleted=True)
    assert is_deletion_explained([known, running()], JOB)
    assert not is_deletion_explained([known, unknown], JOB)
    assert not is_deletion_explained([known], None)
    assert is_deletion_explained([unknown], DEADLINE)
    assert is_deletion_explained([unknown], JobView("j", "u", is_deleted=True))


def test_a_workload_whose_agent_was_killed_is_lost() -> None:
    outcome = end(pod(None, 137, "Error"))
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.LOST, None)


def test_an_image_without_python_is_not_started() -> None:
    outcome = end(pod(None, 128, "StartError", 'exec: "python3": executable file not found in $PATH'))
    assert outcome.ended_by is EndedBy.NOT_STARTED
    assert "the image needs Python 3.8 or later" in outcome.message


def test_a_failed_job_without_a_report_is_lost() -> None:
    outcome = end(job=JobView("j", "u", condition="Failed", reason="BackoffLimitExceeded", message="m"))
    assert outcome.ended_by is EndedBy.LOST
    assert "Failed (BackoffLimitExceeded: m)" in outcome.message


def test_an_attempt_has_ended_when_all_of_its_pods_have_ended() -> None:
    good = pod(report("exit", 0), index=0)
    assert conclude([good, running(index=1)], JOB, expected=2, is_cancelled=False) is None
    assert end(good, pod(report("exit", 0), index=1), expected=2).ended_by is EndedBy.EXIT


def test_the_first_pod_that_fails_ends_the_attempt_and_is_named() -> None:
    outcome = end(running(index=0), pod(report("timeout", 143, message="it ran longer than 5 s"), index=1), expected=2)
    assert (outcome.ended_by, outcome.message) == (EndedBy.TIMEOUT, "host 1: it ran longer than 5 s")


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("ErrImageNeverPull", "", True),
        ("InvalidImageName", "", True),
        ("ErrImagePull", 'rpc error: code = NotFound desc = "a:b": not found', True),
        ("ImagePullBackOff", "pull access denied, repository does not exist", True),
        ("ErrImagePull", "dial tcp: i/o timeout", False),
        ("ContainerCreating", "", False),
    ],
)
def test_an_image_that_does_not_exist_is_not_waited_for(reason: str, message: str, expected: bool) -> None:
    found = outcome_if_unstartable(PodView("p", "u", "j", waiting=(reason, message)))
    assert (found is not None) is expected
    assert found is None or found.ended_by is EndedBy.NOT_STARTED


@pytest.mark.parametrize(
    ("view", "expected", "text"),
    [
        (PodView("p", "u", "j", unschedulable="0/1 nodes"), EndedBy.NO_CAPACITY, "no node took its pod in 60 s: 0/1"),
        (
            PodView("p", "u", "j", waiting=("ErrImagePull", "timeout")),
            EndedBy.IMAGE,
            "its image was not pulled in 60 s",
        ),
        (
            PodView("p", "u", "j", waiting=("CreateContainerConfigError", "no secret")),
            EndedBy.NOT_STARTED,
            "CreateContainerConfigError: no secret",
        ),
        (PodView("p", "u", "j", node="n"), EndedBy.LOST, "did not start in 60 s on n"),
    ],
)
def test_the_message_of_an_overdue_attempt_says_what_it_waited_for(view: PodView, expected: EndedBy, text: str) -> None:
    outcome = outcome_if_late([view], 60, [])
    assert outcome.ended_by is expected
    assert text in outcome.message


@pytest.mark.parametrize("by", ["cancelled", "timeout", "silence"])
def test_a_workload_that_the_agent_ended_is_not_out_of_memory(by: str) -> None:
    assert end(pod(report(by, 143), 143, "OOMKilled"), is_cancelled=by == "cancelled").ended_by is EndedBy(by)


def test_the_pod_that_has_not_started_is_named() -> None:
    waiting = PodView("q", "u", "j", index=1, unschedulable="0/1 nodes")
    outcome = outcome_if_late([running(index=0), waiting], 60, [])
    assert (outcome.ended_by, "0/1 nodes" in outcome.message) == (EndedBy.NO_CAPACITY, True)
    assert outcome_if_late([running(index=0), PodView("q", "u", "j", node="m")], 60, []).host == "m"
    outcome = outcome_if_late([running(index=0)], 60, [])
    assert (outcome.ended_by, outcome.message) == (EndedBy.NO_CAPACITY, "some of its pods did not exist in 60 s")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ('MountVolume.SetUp failed for volume "x" : configmap "absent" not found', EndedBy.NOT_STARTED),
        ('MountVolume.SetUp failed for volume "x" : references non-existent secret key: k', EndedBy.NOT_STARTED),
        ('MountVolume.SetUp failed for volume "x" : mount failed: exit status 32', EndedBy.LOST),
        ("Error: not found", EndedBy.LOST),
    ],
)
def test_an_attempt_with_a_volume_of_a_missing_object_is_not_started(event: str, expected: EndedBy) -> None:
    outcome = outcome_if_late([PodView("p", "u", "j", node="n")], 60, [event, "Unable to attach or mount volumes"])
    assert outcome.ended_by is expected
    assert (event in outcome.message) is (expected is EndedBy.NOT_STARTED)


def test_the_message_of_a_job_without_pods_has_the_event_of_the_cluster() -> None:
    outcome = outcome_if_late([], 60, ["exceeded quota: cpu"])
    assert (outcome.ended_by, outcome.message) == (
        EndedBy.NO_CAPACITY,
        "it had no pod in 60 s: exceeded quota: cpu",
    )
