from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toolbox.kubernetes.pods.endings import conclude, hopeless, is_deletion_explained, outcome_from_job, overdue
from toolbox.kubernetes.pods.views import Ended, JobView, PodView
from toolbox.model.workloads import EndedBy, WorkloadOutcome

JOB = JobView("j", "u")
DEADLINE = JobView("j", "u", condition="Failed", reason="DeadlineExceeded")


def report(by: str = "exit", code: int = 0, **fields: Any) -> dict[str, Any]:
    """Return an outcome as an agent writes it."""
    known = WorkloadOutcome(EndedBy(by), code, seconds=2.5, host="pod").as_json()
    return {**known, "logs": {"stdout": [0, 0], "stderr": [0, 0]}, "left": 0, **fields}


def pod(
    ended: Mapping[str, Any] | None = None, code: int = 0, reason: str = "Completed", message: str = "", **fields: Any
) -> PodView:
    """Return a pod whose workload's container has ended: with what its agent told, or without."""
    return PodView("p", "u", "j", node="n", ended=Ended(code, reason, message, ended), **fields)


def end(*pods: PodView, job: JobView | None = JOB, expected: int = 1, is_cancelled: bool = False) -> WorkloadOutcome:
    """Return how an attempt of these pods ended."""
    outcome = conclude(pods, job, expected=expected, is_cancelled=is_cancelled)
    if outcome is None and job is not None:
        outcome = outcome_from_job(job, pods, is_cancelled=is_cancelled, is_discarded=False)
    assert outcome is not None
    return outcome


def running(**fields: Any) -> PodView:
    """Return a pod whose workload runs."""
    return PodView("p", "u", "j", node="n", is_running=True, **fields)


def test_what_the_agent_told_holds() -> None:
    outcome = end(pod(report("exit", 3), 3, "Error"))
    assert (outcome.ended_by, outcome.exit_code, outcome.seconds, outcome.host) == (EndedBy.EXIT, 3, 2.5, "n")


def test_nothing_has_ended_while_it_runs_or_waits() -> None:
    for one in (running(), PodView("p", "u", "j"), running(is_deleted=True), running(disruption="Evicted")):
        assert conclude([one], JOB, expected=1, is_cancelled=False) is None
    assert conclude([], JOB, expected=1, is_cancelled=False) is None
    assert conclude([], None, expected=1, is_cancelled=False) is None


def test_who_is_killed_for_memory_is_told_from_who_is_killed() -> None:
    for one in (pod(report("signal", 137), 137, "OOMKilled", memory_limit="1G"), pod(None, 137, "OOMKilled")):
        assert end(one).ended_by is EndedBy.OUT_OF_MEMORY
    assert (
        "it used more memory than its limit (1G)"
        in end(pod(report("signal", 137), 137, "OOMKilled", memory_limit="1G")).message
    )
    assert end(pod(report("signal", 137), 137, "Error")).ended_by is EndedBy.SIGNAL


def test_a_part_that_was_killed_for_memory_is_the_affair_of_who_got_over_it() -> None:
    assert end(pod(report("exit", 0), 0, "OOMKilled")).ended_by is EndedBy.EXIT


@pytest.mark.parametrize("of", [report("cancelled", 143), None])
def test_who_ends_with_its_pod_was_evicted(of: Mapping[str, Any] | None) -> None:
    assert end(pod(of, 143, "Error", is_deleted=True)).ended_by is EndedBy.EVICTED
    outcome = end(pod(of, 143, "Error", disruption="Evicted: low on disk"))
    assert (outcome.ended_by, outcome.message) == (EndedBy.EVICTED, "Evicted: low on disk (node n)")


def test_what_had_ended_by_itself_was_not_evicted() -> None:
    assert end(pod(report("exit", 0), is_deleted=True)).ended_by is EndedBy.EXIT
    assert end(pod(report("timeout", 143), 143, "Error", is_deleted=True)).ended_by is EndedBy.TIMEOUT


def test_what_we_asked_to_end_was_cancelled_whatever_becomes_of_its_pod() -> None:
    assert end(pod(report("cancelled", 143), 143, is_deleted=True), is_cancelled=True).ended_by is EndedBy.CANCELLED
    gone = JobView("j", "u", is_deleted=True)
    assert end(job=gone, is_cancelled=True).ended_by is EndedBy.CANCELLED


def test_a_pod_that_was_deleted_before_it_started_or_told_is_gone() -> None:
    outcome = end(PodView("p", "u", "j", node="n", is_over=True, is_deleted=True))
    assert (outcome.ended_by, outcome.message) == (
        EndedBy.EVICTED,
        "its pod p was deleted, but not by Topgallant (node n)",
    )


def test_a_pod_that_is_being_deleted_may_still_say_how_it_ended() -> None:
    dying = PodView("p", "u", "j", node="n", is_deleted=True)
    assert conclude([dying], JOB, expected=1, is_cancelled=False) is None


def test_a_job_that_is_gone_says_so() -> None:
    outcome = end(job=JobView("j", "u", is_deleted=True))
    assert (outcome.ended_by, outcome.message) == (EndedBy.EVICTED, "its Job j was deleted, but not by Topgallant")


def test_a_job_that_we_have_deleted_for_a_pod_says_what_became_of_the_pod() -> None:
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


def test_the_deadline_of_a_job_is_a_timeout_also_where_the_pod_was_deleted_for_it() -> None:
    assert end(job=DEADLINE).ended_by is EndedBy.TIMEOUT
    assert end(pod(report("cancelled", 143), 143, is_deleted=True), job=DEADLINE).ended_by is EndedBy.TIMEOUT
    assert end(pod(None, 137, "Error", is_deleted=True), job=DEADLINE).ended_by is EndedBy.TIMEOUT


def test_a_pod_that_went_at_the_deadline_before_it_ran_is_a_timeout_too() -> None:
    job, late = JobView("j", "u", is_deleted=True, ends_at=100.0), running(is_deleted=True, deleted_at=100.0)
    outcomes = [outcome_from_job(job, [late], is_cancelled=cancelled, is_discarded=True) for cancelled in (False, True)]
    assert [outcome and outcome.ended_by for outcome in outcomes] == [EndedBy.TIMEOUT, EndedBy.CANCELLED]


@pytest.mark.parametrize(
    ("deleted_at", "expected"),
    [(98.0, EndedBy.EVICTED), (99.0, EndedBy.TIMEOUT), (100.0, EndedBy.TIMEOUT), (None, EndedBy.EVICTED)],
)
def test_a_pod_that_is_deleted_when_its_time_is_up_has_a_timeout_before_its_job_says_so(
    deleted_at: float | None, expected: EndedBy
) -> None:
    late = JobView("j", "u", ends_at=100.0)
    for of in (report("cancelled", 143), None):
        assert end(pod(of, 143, is_deleted=True, deleted_at=deleted_at), job=late).ended_by is expected


def test_what_pods_were_deleted_for_is_told_by_their_times_or_by_the_job() -> None:
    known, unknown = running(is_deleted=True, deleted_at=1.0), running(is_deleted=True)
    assert is_deletion_explained([known, running()], JOB)
    assert not is_deletion_explained([known, unknown], JOB)
    assert not is_deletion_explained([known], None)
    assert is_deletion_explained([unknown], DEADLINE)
    assert is_deletion_explained([unknown], JobView("j", "u", is_deleted=True))


def test_an_agent_that_was_killed_leaves_a_workload_that_is_lost() -> None:
    outcome = end(pod(None, 137, "Error"))
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.LOST, None)


def test_an_image_without_python_is_a_matter_of_configuration() -> None:
    outcome = end(pod(None, 128, "StartError", 'exec: "python3": executable file not found in $PATH'))
    assert outcome.ended_by is EndedBy.NOT_STARTED
    assert "the image needs Python 3.8 or later" in outcome.message


def test_a_job_that_is_terminal_without_a_word_is_lost() -> None:
    outcome = end(job=JobView("j", "u", condition="Failed", reason="BackoffLimitExceeded", message="m"))
    assert outcome.ended_by is EndedBy.LOST
    assert "Failed (BackoffLimitExceeded: m)" in outcome.message


def test_several_pods_have_ended_when_all_of_them_have() -> None:
    good = pod(report("exit", 0), index=0)
    assert conclude([good, running(index=1)], JOB, expected=2, is_cancelled=False) is None
    assert end(good, pod(report("exit", 0), index=1), expected=2).ended_by is EndedBy.EXIT


def test_the_first_of_several_that_fails_ends_all_and_is_named() -> None:
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
    found = hopeless(PodView("p", "u", "j", waiting=(reason, message)))
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
def test_what_has_not_started_in_time_says_what_it_waited_for(view: PodView, expected: EndedBy, text: str) -> None:
    outcome = overdue([view], 60, [])
    assert outcome.ended_by is expected
    assert text in outcome.message


@pytest.mark.parametrize("by", ["cancelled", "timeout", "silence"])
def test_who_was_ended_for_another_reason_was_not_killed_for_memory(by: str) -> None:
    assert end(pod(report(by, 143), 143, "OOMKilled"), is_cancelled=by == "cancelled").ended_by is EndedBy(by)


def test_of_several_pods_the_one_that_has_not_started_is_named() -> None:
    waiting = PodView("q", "u", "j", index=1, unschedulable="0/1 nodes")
    outcome = overdue([running(index=0), waiting], 60, [])
    assert (outcome.ended_by, "0/1 nodes" in outcome.message) == (EndedBy.NO_CAPACITY, True)
    assert overdue([running(index=0), PodView("q", "u", "j", node="m")], 60, []).host == "m"
    outcome = overdue([running(index=0)], 60, [])
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
def test_a_volume_of_what_there_is_not_is_a_matter_of_configuration(event: str, expected: EndedBy) -> None:
    outcome = overdue([PodView("p", "u", "j", node="n")], 60, [event, "Unable to attach or mount volumes"])
    assert outcome.ended_by is expected
    assert (event in outcome.message) is (expected is EndedBy.NOT_STARTED)


def test_a_job_that_gets_no_pod_says_what_the_cluster_says() -> None:
    outcome = overdue([], 60, ["exceeded quota: cpu"])
    assert (outcome.ended_by, outcome.message) == (
        EndedBy.NO_CAPACITY,
        "it had no pod in 60 s: exceeded quota: cpu",
    )
