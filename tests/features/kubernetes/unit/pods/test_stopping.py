"""To stop an attempt, its pods are asked to end and awaited, and its Job is removed if necessary."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from queue import Empty, Queue
from typing import Any

import pytest

from tests.features.kubernetes.fakes.api_server import ApiServer, Conversation, Reply, Talk, failure
from tests.features.kubernetes.unit.pods.following import PODS, RUNNING, Followed, ended, wait_until
from toolbox.features.kubernetes.api.connection import Unavailable
from toolbox.features.kubernetes.pods import stopping
from toolbox.features.kubernetes.pods.pod_attempts import PodAttempt
from toolbox.features.kubernetes.pods.pod_state import JobView, PodView
from toolbox.features.kubernetes.pods.stopping import AgentCanceller, Stop
from toolbox.features.kubernetes.pods.tracker import Tracker
from toolbox.ground.model.workloads import EndedBy
from toolbox.targets.agent.pod import CANCELLING

WAITING = PodView("p", "u", "j")
STARTING = PodView("p", "u", "j", node="n", waiting=("ContainerCreating", ""))
GONE = PodView("p", "u", "j", node="n", is_over=True, is_deleted=True, deleted_at=1)
OLD = JobView("j", "u", replaces=True)  # a server older than Kubernetes 1.28 replaces deleted pods at once


@pytest.mark.parametrize(
    ("pod", "seconds"),
    [
        (RUNNING, 30.0),
        (STARTING, 15.0),
        (WAITING, 2.0),
        (PodView("p", "u", "j", unschedulable="0/1 nodes"), 0.0),
        (PodView("p", "u", "j", node="n", waiting=("ImagePullBackOff", "")), 0.0),
        (PodView("p", "u", "j", node="n", waiting=("CreateContainerConfigError", "")), 0.0),
        (GONE, 0.0),
        (ended(), 0.0),
    ],
)
def test_the_wait_for_a_pod_depends_on_its_state(pod: PodView, seconds: float) -> None:
    stop = Stop(since=100.0)
    assert not stop.awaits([pod], 100.0 + seconds, more=False)
    assert stop.awaits([pod], 100.0 + seconds - 0.1, more=False) is (seconds > 0)


def test_the_wait_for_a_pod_that_confirmed_includes_its_grace_period() -> None:
    stop, pod = Stop(since=100.0, confirmed={"p"}), PodView("p", "u", "j", node="n", is_running=True, grace_seconds=60)
    assert stop.awaits([pod], 204.0, more=False)
    assert not stop.awaits([pod], 205.0, more=False)


def test_the_wait_for_a_missing_pod_is_short() -> None:
    assert [Stop(since=0.0).awaits([], now, more=True) for now in (1.9, 2.0)] == [True, False]


@pytest.fixture
def asking() -> Iterator[AgentCanceller]:
    found = AgentCanceller()
    yield found
    found.close()


def test_only_running_pods_are_asked_until_they_confirm(asking: AgentCanceller) -> None:
    requested: Queue[str] = Queue()
    answers: list[Exception | None] = [Unavailable("not yet"), RuntimeError("ours"), None]

    def ask(pod: str) -> None:
        requested.put(pod)
        if (error := answers.pop(0)) is not None:
            raise error

    stop = Stop(since=0.0)
    for now, pods in ((0.0, [WAITING, STARTING]), (1.0, [RUNNING]), (2.0, [RUNNING]), (4.5, [RUNNING])):
        asking.request(stop, pods, ask, now)
        wait_until(lambda: not asking._pending)
    assert (requested.qsize(), stop.confirmed) == (2, set())
    asking.request(stop, [RUNNING], ask, 8.0)
    wait_until(lambda: stop.confirmed)
    asking.request(stop, [RUNNING], ask, 20.0)
    assert (requested.qsize(), stop.confirmed) == (3, {"p"})


def test_a_pod_without_an_answer_has_one_request_and_delays_no_other_pod(asking: AgentCanceller) -> None:
    release, requested = threading.Event(), Queue[str]()

    def ask(pod: str) -> None:
        requested.put(pod)
        assert pod != "p" or release.wait(20)

    stop = Stop(since=0.0)
    for now in (0.0, 10.0, 20.0):
        asking.request(stop, [RUNNING], ask, now)
    asking.request(stop, [PodView("q", "u", "j", node="n", is_running=True)], ask, 20.0)
    wait_until(lambda: stop.confirmed == {"q"})
    release.set()
    assert {requested.get(timeout=20), requested.get(timeout=20)} == {"p", "q"}
    with pytest.raises(Empty):
        requested.get(timeout=0.1)


def hear(talk: Conversation) -> None:
    """Confirm the cancellation as the agent does."""
    talk.send(1, CANCELLING.encode())
    talk.end()


def give_up(talk: Conversation) -> None:
    """Report that there is no workload, as the agent does."""
    talk.send(2, b"there is no workload\n")
    talk.end()


def removed(followed: Followed) -> bool:
    """Return whether the tracker removes the Job within 0.3 seconds."""
    try:
        return followed.removed.get(timeout=0.3) == "j"
    except Empty:
        return False


def cancelled(followed: Followed) -> PodAttempt:
    """Return an attempt that was cancelled while its pod was starting."""
    tracker, attempt = followed.tracker, followed.add()
    followed.start()
    tracker.store.see_job(JobView("j", "u"))
    tracker.store.see_pod(STARTING)
    tracker.cancel(attempt)
    return attempt


@pytest.mark.parametrize("answers", [(Talk(hear),), (failure(500), Talk(give_up), Talk(hear))])
def test_a_starting_pod_is_asked_when_it_runs_and_its_job_stays(
    followed: Followed, tracker: Tracker, server: ApiServer, monkeypatch: pytest.MonkeyPatch, answers: tuple[Reply, ...]
) -> None:
    monkeypatch.setattr(stopping, "_AGAIN_SECONDS", 0.1)
    server.answers("GET", f"{PODS}/p/exec", *answers)
    attempt = cancelled(followed)
    assert not removed(followed)
    assert server.count("GET", f"{PODS}/p/exec") == 0
    tracker.store.see_pod(RUNNING)
    wait_until(lambda: attempt.stop and attempt.stop.confirmed == {"p"})
    assert server.count("GET", f"{PODS}/p/exec") == len(answers)
    tracker.store.see_pod(ended(code=143, report={"ended_by": "cancelled"}))
    assert followed.outcome(attempt).ended_by is EndedBy.CANCELLED
    assert not removed(followed)


def test_a_pod_that_succeeds_before_it_is_asked_has_exited(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add()
    tracker.store.see_job(JobView("j", "u"))
    tracker.cancel(attempt)
    tracker.store.see_pod(STARTING)
    tracker.store.see_pod(ended())
    assert followed.outcome(attempt).ended_by is EndedBy.EXIT
    assert not removed(followed)


def test_the_job_of_a_pod_that_does_not_start_is_removed_after_a_timeout(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_START_SECONDS", 2.0)
    cancelled(followed)
    assert not removed(followed)
    assert followed.removed.get(timeout=20) == "j"


@pytest.mark.parametrize(
    "known",
    [
        [JobView("j", "u", is_suspended=True)],
        [PodView("p", "u", "j", unschedulable="0/1 nodes")],
        [JobView("j", "u"), GONE],
    ],
)
def test_the_job_of_a_pod_that_cannot_start_is_removed_at_once(
    followed: Followed, tracker: Tracker, known: list[JobView | PodView]
) -> None:
    attempt = followed.add()
    for view in known:
        tracker.store.see_job(view) if isinstance(view, JobView) else tracker.store.see_pod(view)
    tracker.cancel(attempt)
    assert followed.removed.get(timeout=20) == "j"  # no clock runs, so only `cancel` or a new view can remove the Job


def test_all_pods_of_an_attempt_are_asked_and_awaited(followed: Followed, tracker: Tracker, server: ApiServer) -> None:
    for name in ("p-0", "p-1"):
        server.answers("GET", f"{PODS}/{name}/exec", Talk(hear))
    attempt = followed.add(hosts=2)
    tracker.store.see_job(JobView("j", "u"))
    tracker.store.see_pod(PodView("p-0", "u0", "j", index=0, node="n", is_running=True))
    tracker.cancel(attempt)
    tracker.store.see_pod(PodView("p-1", "u1", "j", index=1, node="n", waiting=("ContainerCreating", "")))
    tracker.store.see_pod(PodView("p-1", "u1", "j", index=1, node="n", is_running=True))
    wait_until(lambda: attempt.stop and attempt.stop.confirmed == {"p-0", "p-1"})
    assert not removed(followed)


# A pod that replaces a deleted pod


def replaced(followed: Followed, server: ApiServer, **own: Any) -> None:
    """Show the tracker a deleted pod and its starting replacement, which will confirm a cancellation."""
    server.answers("GET", f"{PODS}/again/exec", Talk(hear))
    tracker = followed.tracker
    tracker.store.see_job(OLD)
    tracker.store.see_pod(PodView("p", "u", "j", node="n", is_deleted=True, deleted_at=1, **own))
    tracker.store.see_pod(PodView("again", "v", "j", node="n", waiting=("ContainerCreating", "")))


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("own", [{"is_running": True}, {"is_over": True}])
def test_a_replacement_is_asked_to_end_before_the_job_is_removed(
    followed: Followed, tracker: Tracker, server: ApiServer, own: dict[str, Any], is_cancelled: bool
) -> None:
    server.answers("GET", f"{PODS}/p/exec", Talk(hear))
    attempt = followed.add()
    replaced(followed, server, **own)
    if is_cancelled:
        tracker.cancel(attempt)
    assert not removed(followed)
    assert attempt.status.outcome is None
    tracker.store.see_pod(PodView("again", "v", "j", node="n", is_running=True))
    wait_until(lambda: attempt.stop and "again" in attempt.stop.confirmed)
    assert not removed(followed)
    tracker.store.see_pod(ended("again", code=143, report={"ended_by": "cancelled"}))
    tracker.store.see_pod(ended(code=143, report={"ended_by": "cancelled"}, is_deleted=True, deleted_at=1))
    tracker.store.see_job(JobView("j", "u", replaces=True, condition="Failed", reason="BackoffLimitExceeded"))
    was_evicted = not is_cancelled or "is_over" in own  # the pod had been evicted before the cancellation
    assert followed.outcome(attempt).ended_by is (EndedBy.EVICTED if was_evicted else EndedBy.CANCELLED)


def test_a_missing_replacement_is_awaited_for_a_moment(
    followed: Followed, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_PLACE_SECONDS", 0.7)
    attempt = followed.add()
    followed.start()
    tracker.store.see_job(OLD)
    tracker.store.see_pod(PodView("p", "u", "j", node="n", is_running=True, is_deleted=True, deleted_at=1))
    began = time.monotonic()
    assert followed.removed.get(timeout=20) == "j"
    assert time.monotonic() - began > 0.5
    assert attempt.status.outcome is None


def test_the_job_is_removed_at_once_if_the_server_does_not_replace_pods_early(
    followed: Followed, tracker: Tracker
) -> None:
    followed.add()
    tracker.store.see_job(JobView("j", "u"))
    tracker.store.see_pod(PodView("p", "u", "j", node="n", is_running=True, is_deleted=True, deleted_at=1))
    assert followed.removed.get(timeout=20) == "j"  # no clock runs, so only `cancel` or a new view can remove the Job
