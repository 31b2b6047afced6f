"""Several connections report on one attempt, and some of their reports are older than others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.features.kubernetes.fakes.api_server import HOLD, Answer, ApiServer, Request, failure, listing
from tests.features.kubernetes.unit.pods.following import (
    COMPLETE,
    JOBS,
    PODS,
    RUNNING,
    Followed,
    ended,
    listed_for,
    pod_json,
    stamped,
    wait_until,
)
from toolbox.features.kubernetes.pods import attempt_clock, log_followers, pod_state
from toolbox.features.kubernetes.pods.pod_state import ATTEMPT_LABEL, Ended, JobView, PodView
from toolbox.features.kubernetes.pods.tracker import Tracker
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.workloads import AttemptState, EndedBy

SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/tests/jobsets"
CREATING: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}


@pytest.fixture
def slow(server: ApiServer, followed: Followed) -> Callable[..., None]:
    """Return a function that makes the server list these pods, and take a second to return the Job."""

    def answers(*pods: dict[str, Any]) -> None:
        def answer(_: Request) -> dict[str, Any]:
            time.sleep(1)
            return {"metadata": {"name": "j", "uid": "u"}}

        server.answers("GET", PODS, listed_for(list(pods)))
        server.answers("GET", f"{JOBS}/j", answer)
        followed.start()

    return answers


def pod_lists(server: ApiServer) -> int:
    """Return how often the pods of the attempt were listed."""
    selector = f"{ATTEMPT_LABEL}=j"
    return sum((each.path, each.get("labelSelector")) == (PODS, selector) for each in server.requests)


def test_an_older_list_does_not_undo_a_newer_change_of_the_watch(
    followed: Followed, tracker: Tracker, server: ApiServer, slow: Callable[..., None]
) -> None:
    slow(pod_json("p", CREATING))
    attempt = followed.add(wait=0.2)
    wait_until(lambda: server.count("GET", f"{JOBS}/j"))
    tracker.store.see_pod(RUNNING)
    tracker.store.see_pod(ended(report={"left": 2}))
    assert followed.outcome(attempt).exit_code == 0
    time.sleep(1.5)
    assert tracker.pods_of(attempt)[0].holds_files


def test_a_pod_that_is_newer_than_the_list_is_not_gone(
    followed: Followed, tracker: Tracker, server: ApiServer, slow: Callable[..., None]
) -> None:
    slow()
    attempt = followed.add(wait=0.2)
    wait_until(lambda: server.count("GET", f"{JOBS}/j"))
    tracker.store.see_pod(RUNNING)
    time.sleep(1.5)
    assert attempt.status.outcome is None


def test_a_job_that_completes_while_events_are_requested_waits_for_its_pod(
    followed: Followed, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, may_answer = threading.Event(), threading.Event()

    def events(_: str) -> list[str]:
        requested.set()
        assert may_answer.wait(20)
        return []

    monkeypatch.setattr(followed.clock, "_events", events)
    followed.start()
    attempt = followed.add(wait=0.2)
    assert requested.wait(20)
    tracker.store.see_job(COMPLETE)  # the watch of Jobs is faster than the watch of pods
    tracker.store.see_pod(ended())
    may_answer.set()
    assert followed.outcome(attempt).exit_code == 0


def test_an_attempt_has_not_ended_while_a_replacement_pod_runs(
    followed: Followed, tracker: Tracker, server: ApiServer
) -> None:
    server.answers("GET", PODS, listed_for([pod_json("q", {"running": {}})]))
    followed.start()
    attempt = followed.add()
    tracker.store.see_job(JobView("j", "u"))
    tracker.store.see_pod(RUNNING)
    other = PodView("q", "w", "j", node="n", is_running=True)
    tracker.store.see_pod(other)
    tracker.store.see_pod(pod_state.gone(RUNNING), is_gone=True)
    wait_until(lambda: pod_lists(server) > 1)
    assert attempt.status.outcome is None
    server.answers("GET", PODS, listed_for([]))
    tracker.store.see_pod(pod_state.gone(other), is_gone=True)
    assert "its pod p was deleted" in followed.outcome(attempt).message


def test_a_replacement_pod_has_its_own_grace_period(
    followed: Followed, tracker: Tracker, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_clock, "_KILL_SECONDS", 0.1)
    other = pod_json("q", {"running": {}})
    other["spec"]["terminationGracePeriodSeconds"] = 3
    server.answers("GET", PODS, listed_for([other]))
    followed.start()
    attempt = followed.add()
    tracker.store.see_pod(RUNNING)
    tracker.store.see_pod(pod_state.pod(other))
    began = time.monotonic()
    tracker.store.see_pod(pod_state.gone(RUNNING), is_gone=True)
    assert followed.outcome(attempt).ended_by is EndedBy.EVICTED
    assert time.monotonic() - began > 2.5


def test_if_one_host_is_lost_the_other_hosts_end_first(followed: Followed, tracker: Tracker, server: ApiServer) -> None:
    first = PodView("p-0", "u", "j", index=0, node="n", is_running=True)
    killed = PodView("p-1", "u", "j", index=1, node="n", ended=Ended(137, "Error", "", None))
    server.answers("GET", PODS, listed_for([]))
    followed.start()
    attempt = followed.add(hosts=2)
    tracker.store.see_pod(first)
    tracker.store.see_pod(killed)
    assert followed.removed.get(timeout=20) == "j"
    wait_until(lambda: pod_lists(server) > 1)
    assert attempt.status.state is AttemptState.STOPPING
    tracker.store.see_pod(pod_state.gone(first), is_gone=True)
    outcome = followed.outcome(attempt)
    assert (outcome.ended_by, outcome.message[:7]) == (EndedBy.LOST, "host 1:")


def test_the_first_host_that_fails_ends_the_attempt_while_another_log_is_followed(
    followed: Followed, tracker: Tracker, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_followers, "_SHORT_SECONDS", 0.1)

    def log(request: Request) -> Answer:
        return Answer([stamped("one"), HOLD] if request.get("follow") == "true" else [stamped("one")])

    server.answers("GET", f"{PODS}/p-0/log", log)
    followed.start()
    attempt = followed.add(hosts=2)
    tracker.store.see_pod(PodView("p-0", "u", "j", index=0, node="n", is_running=True))
    wait_until((attempt.directory / "stdout.log").exists)
    tracker.store.see_pod(ended("p-1", code=3, index=1, report={"left": 2}))
    assert followed.outcome(attempt).exit_code == 3


def test_the_clock_continues_if_no_thread_can_be_started(
    followed: Followed, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(log_followers, "_SHORT_SECONDS", 0.05)
    monkeypatch.setattr(tracker.followers._threads, "submit", refuse)
    followed.start()
    followed.add("b", "k")
    tracker.store.see_pod(PodView("q", "u", "k", node="n", is_running=True))
    assert followed.outcome(followed.add(wait=0.5)).ended_by is EndedBy.NO_CAPACITY


def test_a_list_of_job_sets_removes_no_jobs(followed: Followed, tracker: Tracker, server: ApiServer) -> None:
    server.answers("GET", SETS, listing(1))
    server.answers("WATCH", SETS, Answer([HOLD]))
    followed.start()
    followed.add()
    tracker.store.see_job(JobView("j", "u"))
    tracker.watch_sets(5)
    assert tracker.has_job("j")


def test_a_tracker_that_fails_to_start_leaves_no_watch(tracker: Tracker, server: ApiServer) -> None:
    server.answers("GET", PODS, failure(403))
    with pytest.raises(StepError):
        tracker.start(1)
    wait_until(lambda: not [each for each in threading.enumerate() if each.name.startswith("watch-")])
