"""The tracker derives the state of an attempt from its Job and its pods, in whatever order their changes arrive."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.features.kubernetes.fakes.api_server import (
    HOLD,
    Answer,
    ApiServer,
    Conversation,
    Reply,
    Request,
    Talk,
    event,
    failure,
    listing,
)
from tests.features.kubernetes.unit.pods.following import (
    COMPLETE,
    EVENTS,
    JOBS,
    PODS,
    RUNNING,
    Followed,
    archive,
    ended,
    listed_for,
    logs,
    pod_json,
    report,
    stamped,
    wait_until,
)
from toolbox.features.kubernetes.pods import attempt_clock, log_followers, object_store
from toolbox.features.kubernetes.pods.pod_state import Ended, JobView, PodView
from toolbox.features.kubernetes.pods.tracker import Tracker
from toolbox.ground.model.workloads import AttemptState, EndedBy
from toolbox.targets.agent.pod import CONFIRMED, HOLDING, WORKLOAD_RUNS


def test_the_outcome_is_reported_once_and_written_to_files(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add()
    tracker.store.see_pod(RUNNING)
    assert attempt.status.state is AttemptState.RUNNING
    for _ in range(2):
        tracker.store.see_pod(ended(code=3))
    assert followed.outcome(attempt).exit_code == 3
    assert json.loads((attempt.directory / "outcome.json").read_text())["exit_code"] == 3
    assert {path.name for path in attempt.directory.iterdir()} == {
        "exit_code",
        "outcome.json",
        "stderr.log",
        "stdout.log",
    }
    assert followed.notified.empty()
    assert followed.removed.empty()


def test_an_attempt_that_waits_long_says_why_until_it_starts(
    followed: Followed, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_clock, "_WAITING_SECONDS", 0.0)
    followed.start()
    attempt = followed.add()
    tracker.store.see_job(JobView("j", "u"))
    tracker.store.see_pod(PodView("p", "u", "j", unschedulable="0/1 nodes are available"))
    wait_until(lambda: attempt.status.message == "waiting for a node: 0/1 nodes are available")
    assert followed.notified.get(timeout=20) == attempt.name
    tracker.store.see_pod(RUNNING)
    assert attempt.status.message == ""


def test_the_events_of_all_waiting_attempts_are_requested_together(
    followed: Followed, tracker: Tracker, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_clock, "_WAITING_SECONDS", 0.0)
    quota = {"metadata": {"name": "e"}, "involvedObject": {"name": "j"}, "message": "exceeded quota"}
    server.answers("GET", EVENTS, {"metadata": {}, "items": [quota]})
    followed.start()
    attempts = [followed.add(), followed.add("b", "k")]
    for job in ("j", "k"):
        tracker.store.see_job(JobView(job, "u"))
    wait_until(lambda: attempts[0].status.message == "waiting for its pod: exceeded quota")
    assert attempts[1].status.message == "waiting for its pod"
    assert server.count("GET", EVENTS) == 1


def test_objects_that_arrived_before_the_attempt_was_added_are_used(followed: Followed, tracker: Tracker) -> None:
    tracker.store.see_job(COMPLETE)
    tracker.store.see_pod(ended())
    assert tracker.has_job("j")
    assert followed.outcome(followed.add()).exit_code == 0


def test_the_logs_in_a_termination_message_replace_the_live_copy(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add()
    (attempt.directory / "stdout.log").write_text("oh\none\n")
    tracker.store.see_pod(RUNNING)
    tracker.store.see_pod(ended(report={"logs": logs(stdout=b"one\ntwo\n", stderr=b"oh\n")}))
    assert followed.outcome(attempt).log_fault == ""
    assert (attempt.directory / "stdout.log").read_text() == "one\ntwo\n"
    assert (attempt.directory / "stderr.log").read_text() == "oh\n"


def test_the_log_of_a_workload_that_ends_at_once_is_not_requested(
    followed: Followed, tracker: Tracker, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_followers, "_SHORT_SECONDS", 20)
    followed.start()
    attempt = followed.add()
    tracker.store.see_pod(RUNNING)
    time.sleep(0.3)  # the clock ticks several times
    tracker.store.see_pod(ended())
    assert followed.outcome(attempt).exit_code == 0
    assert server.count("GET", f"{PODS}/p/log") == 0


def test_the_log_of_a_long_workload_is_followed_while_it_runs(
    followed: Followed, tracker: Tracker, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_followers, "_SHORT_SECONDS", 0.1)
    server.answers("GET", f"{PODS}/p/log", Answer([stamped("one"), HOLD]))
    followed.start()
    attempt = followed.add()
    tracker.store.see_pod(RUNNING)
    copy = attempt.directory / "stdout.log"
    wait_until(lambda: copy.exists() and copy.read_text() == "one\n")
    assert server.count("GET", f"{PODS}/p/log") == 1


def test_the_pods_are_listed_once_if_the_job_ends_before_its_pod(
    followed: Followed, tracker: Tracker, server: ApiServer
) -> None:
    state = {"terminated": {"exitCode": 3, "reason": "Error", "message": json.dumps(report(3))}}
    server.answers("GET", PODS, listed_for([pod_json("p", state)]))
    followed.start()
    attempt = followed.add()
    tracker.store.see_job(COMPLETE)
    assert attempt.status.outcome is None  # the change of the pod may still arrive
    assert followed.outcome(attempt).exit_code == 3
    assert server.count("GET", PODS) == 2


def test_an_ended_job_without_a_report_of_a_pod_is_lost(
    followed: Followed, tracker: Tracker, server: ApiServer
) -> None:
    server.answers("GET", PODS, listed_for([]))
    complete = {"type": "Complete", "status": "True"}
    server.answers("GET", f"{JOBS}/j", {"metadata": {"name": "j", "uid": "u"}, "status": {"conditions": [complete]}})
    followed.start()
    attempt = followed.add()
    tracker.store.see_job(COMPLETE)
    outcome = followed.outcome(attempt)
    assert (outcome.ended_by, "no pod says how it ended" in outcome.message) == (EndedBy.LOST, True)


def test_the_report_of_a_replacement_pod_is_ignored(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add()
    tracker.store.see_job(JobView("j", "u"))
    tracker.store.see_pod(RUNNING)
    tracker.store.see_pod(PodView("p", "u", "j", node="n", is_over=True, is_deleted=True, deleted_at=100), is_gone=True)
    tracker.store.see_pod(ended("another"))
    outcome = followed.outcome(attempt)
    assert (outcome.ended_by, "its pod p was deleted" in outcome.message) == (EndedBy.EVICTED, True)
    assert followed.removed.get(timeout=20) == "j"
    assert "another" not in attempt.logs


def test_the_job_of_a_pod_that_is_being_deleted_is_removed_before_the_attempt_ends(
    followed: Followed, tracker: Tracker
) -> None:
    attempt = followed.add()
    tracker.store.see_job(JobView("j", "u", ends_at=200))
    tracker.store.see_pod(PodView("p", "u", "j", node="n", is_running=True, is_deleted=True, deleted_at=100))
    assert followed.removed.get(timeout=20) == "j"
    assert attempt.status.outcome is None


def test_a_pod_deleted_at_the_deadline_of_its_job_is_a_timeout(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add()
    tracker.store.see_job(JobView("j", "u", ends_at=100))
    tracker.store.see_pod(PodView("p", "u", "j", node="n", is_running=True, is_deleted=True, deleted_at=100))
    tracker.store.see_pod(ended(code=143, report={"ended_by": "cancelled"}, is_deleted=True, deleted_at=100))
    assert followed.outcome(attempt).ended_by is EndedBy.TIMEOUT
    assert followed.removed.get(timeout=20) == "j"  # only after the attempt has ended
    assert followed.removed.empty()


def test_a_pod_that_is_being_deleted_is_awaited_until_it_must_be_gone(
    followed: Followed, tracker: Tracker, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_clock, "_KILL_SECONDS", 1.0)
    dying = pod_json("p", {"running": {}})
    dying["metadata"] |= {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 1}
    server.answers("GET", PODS, listed_for([dying]))
    server.answers("GET", f"{JOBS}/j", failure(404))
    followed.start()
    attempt = followed.add()
    tracker.store.see_job(JobView("j", "u"))
    tracker.store.see_pod(PodView("p", "u", "j", node="n", is_running=True, is_deleted=True, deleted_at=1))
    assert followed.removed.get(timeout=20) == "j"
    tracker.store.see_job(JobView("j", "u", is_deleted=True), is_gone=True)
    began = time.monotonic()
    outcome = followed.outcome(attempt)  # the node is lost and never confirms the deletion
    assert time.monotonic() - began > 1.5
    assert (outcome.ended_by, "its pod p was deleted" in outcome.message) == (EndedBy.EVICTED, True)


def test_an_attempt_that_does_not_start_in_time_has_the_event_in_its_message(
    followed: Followed, tracker: Tracker
) -> None:
    followed.start()
    attempt = followed.add(wait=0.2)
    tracker.store.see_job(JobView("j", "u"))
    outcome = followed.outcome(attempt)
    assert outcome.ended_by is EndedBy.NO_CAPACITY
    assert outcome.message.endswith("an event of j")


def test_an_attempt_that_has_started_according_to_a_list_is_not_overdue(followed: Followed, server: ApiServer) -> None:
    server.answers("GET", PODS, listed_for([pod_json("p", {"running": {}})]))
    followed.start()
    attempt = followed.add(wait=0.2)  # the watch sends nothing about its pod
    wait_until(lambda: attempt.has_started)
    assert (attempt.status.outcome, attempt.status.state) == (None, AttemptState.RUNNING)


def test_no_attempt_is_overdue_while_the_server_is_unavailable(
    followed: Followed, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_REQUEST_SECONDS", 0.1)
    followed.start()
    server.answers("GET", PODS, failure(503))
    attempt = followed.add(wait=0.2)
    time.sleep(1)
    assert attempt.status.outcome is None
    server.answers("GET", PODS, listing(1))
    assert followed.outcome(attempt).ended_by is EndedBy.NO_CAPACITY


def test_an_attempt_that_is_queued_according_to_the_server_is_not_overdue(
    followed: Followed, tracker: Tracker, server: ApiServer
) -> None:
    suspended = {"metadata": {"name": "j", "uid": "u"}, "spec": {"suspend": True}}
    server.answers("GET", f"{JOBS}/j", suspended)
    followed.start()
    attempt = followed.add(wait=0.1)  # the watch sends nothing about its Job
    wait_until(lambda: tracker.has_job("j"))
    time.sleep(0.3)
    assert attempt.status.outcome is None


def test_an_overdue_attempt_has_one_request_at_a_time(followed: Followed, server: ApiServer) -> None:
    followed.start()

    def slow(_: Request) -> dict[str, Any]:
        time.sleep(0.5)
        return listing(1)

    server.answers("GET", PODS, slow)
    before = server.count("GET", PODS)
    followed.outcome(followed.add(wait=0.1))
    assert server.count("GET", PODS) - before == 1


def test_an_attempt_is_overdue_if_one_of_its_pods_does_not_start(
    followed: Followed, tracker: Tracker, server: ApiServer
) -> None:
    server.answers("GET", PODS, listed_for([pod_json("p", {"running": {}})]))
    followed.start()
    attempt = followed.add(wait=0.2, hosts=2)
    tracker.store.see_pod(RUNNING)
    assert followed.outcome(attempt).ended_by is EndedBy.NO_CAPACITY


def test_queued_and_running_attempts_are_not_overdue(followed: Followed, tracker: Tracker) -> None:
    followed.start()
    queued, running = followed.add(wait=0.2), followed.add("b", "k", wait=0.2)
    tracker.store.see_job(JobView("j", "u", is_suspended=True))
    tracker.store.see_pod(PodView("q", "u", "k", is_running=True))
    time.sleep(0.6)
    assert (queued.status.outcome, running.status.outcome) == (None, None)
    tracker.store.see_job(JobView("j", "u"))  # the queue has admitted the Job, which gets no pod
    assert followed.outcome(queued).ended_by is EndedBy.NO_CAPACITY


def test_an_image_that_does_not_exist_is_not_waited_for(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add()
    tracker.store.see_pod(PodView("p", "u", "j", waiting=("InvalidImageName", "no such")))
    assert followed.outcome(attempt).ended_by is EndedBy.NOT_STARTED
    assert followed.removed.get(timeout=20) == "j"  # otherwise the node would keep trying


def test_the_last_of_several_pods_ends_the_attempt(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add(hosts=3)
    for index in (2, 0, 1):
        assert attempt.status.outcome is None
        tracker.store.see_pod(ended(f"p-{index}", index=index))
    assert followed.outcome(attempt).exit_code == 0
    assert [pod.name for pod in tracker.pods_of(attempt)] == ["p-0", "p-1", "p-2"]
    assert sorted(path.name for path in (attempt.directory / "hosts").iterdir()) == ["1", "2"]


def test_a_job_is_not_removed_while_a_pod_holds_files(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add(hosts=2)
    tracker.store.see_pod(PodView("p-0", "u", "j", index=0, is_running=True))
    tracker.store.see_pod(ended("p-1", code=3, index=1, report={"left": 2}))
    assert followed.outcome(attempt).exit_code == 3
    assert followed.removed.empty()


def test_an_attempt_with_an_incomplete_forged_report_ends(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add()
    tracker.store.see_pod(PodView("p", "u", "j", ended=Ended(0, "Completed", "", {"ended_by": "exit", "exit_code": 0})))
    followed.outcome(attempt)


def test_an_attempt_ends_even_if_its_files_cannot_be_written(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add(hosts=2)
    (attempt.directory / "hosts").touch()
    for index in (0, 1):
        tracker.store.see_pod(ended(f"p-{index}", index=index))
    assert followed.outcome(attempt).exit_code == 0


def test_an_attempt_ends_even_if_the_removal_of_its_job_raises(
    followed: Followed, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistake(_: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(tracker, "_remove", mistake)
    attempt = followed.add()
    tracker.store.see_job(JobView("j", "u"))
    tracker.store.see_pod(ended(is_deleted=True, deleted_at=1.0))
    followed.outcome(attempt)


LONG = {"stdout": [7, 1], "stderr": [0, 0]}  # a record without the contents of the logs


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        ({"files": Ended(0, "Completed", "", None)}, "they were not fetched in time"),
        ({"has_files": False}, "they were not fetched in time"),
        ({"is_deleted": True, "deleted_at": 1.0}, "its pod was deleted"),
    ],
)
def test_a_log_that_can_no_longer_be_fetched_is_incomplete(
    followed: Followed, tracker: Tracker, pod: dict[str, Any], reason: str
) -> None:
    attempt = followed.add()
    (attempt.directory / "stdout.log").write_text("a copy\n")
    tracker.store.see_job(JobView("j", "u"))
    tracker.store.see_pod(ended(report={"logs": LONG}, **pod))
    assert followed.outcome(attempt).log_fault == f"{reason}; what was copied while the workload ran may lack lines"
    assert (attempt.directory / "stdout.log").read_text() == "a copy\n"


def test_a_live_copy_that_is_complete_needs_no_further_request(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add()
    (attempt.directory / "stdout.log").write_bytes(b"one\n")
    record = {**logs(stdout=b"one\n"), "content": None}
    tracker.store.see_pod(ended(report={"logs": record}, has_files=False))
    assert followed.outcome(attempt).log_fault == ""


LINES = b"one\n" * 9
RECORD = {"logs": {**logs(stdout=LINES), "content": None}}
HOLDER = PodView("p", "u", "j", node="n", is_running=True, has_files=False)


def send_logs(talk: Conversation) -> None:
    """Send the logs as an agent does, until the client must confirm their arrival."""
    for piece in (archive({"stdout.log": LINES}), b""):
        talk.hear()
        talk.send(1, b"%08d" % len(piece) + piece)


def send_and_release(talk: Conversation) -> None:
    """Send the logs, and confirm their arrival when the client does."""
    send_logs(talk)
    if talk.hear():
        talk.send(1, CONFIRMED)
        talk.end()


@pytest.fixture(name="holds")
def _holds(followed: Followed, server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each pod print the line which says that it holds its logs."""
    monkeypatch.setattr(log_followers, "_SHORT_SECONDS", 0.05)
    monkeypatch.setattr(log_followers, "_FIRST_PAUSE", 0.05)
    server.answers("GET", f"{PODS}/p/log", Answer([stamped("one", HOLDING), HOLD]))
    followed.start()


@pytest.mark.usefixtures("holds")
def test_a_pod_that_holds_its_logs_has_them_fetched_while_it_runs(
    followed: Followed, tracker: Tracker, server: ApiServer
) -> None:
    seen = []

    def send(talk: Conversation) -> None:
        send_logs(talk)
        talk.hear()
        seen.append((attempt.directory / "stdout.log").read_bytes())
        talk.send(1, CONFIRMED)
        talk.end()

    server.answers("GET", f"{PODS}/p/exec", Talk(send))
    attempt = followed.add()
    tracker.store.see_pod(HOLDER)
    wait_until(lambda: seen)
    assert seen == [LINES]  # the logs were stored before the pod was released
    request = next(request for request in server.requests if request.path.endswith("/exec"))
    assert (request.get("container"), request.query["command"][-1]) == ("workload", '["stdout", "stderr"]')
    tracker.store.see_pod(ended(report=RECORD, has_files=False))
    assert followed.outcome(attempt).log_fault == ""
    assert server.count("GET", f"{PODS}/p/exec") == 1


@pytest.mark.usefixtures("holds")
def test_logs_that_are_still_being_fetched_when_the_pod_has_ended_are_waited_for(
    followed: Followed, tracker: Tracker, server: ApiServer
) -> None:
    is_requested = threading.Event()

    def send_late(talk: Conversation) -> None:
        is_requested.set()
        time.sleep(1)
        send_logs(talk)
        talk.end()  # the container of the pod has ended

    server.answers("GET", f"{PODS}/p/exec", Talk(send_late))
    attempt = followed.add()
    tracker.store.see_pod(HOLDER)
    assert is_requested.wait(60)
    tracker.store.see_pod(ended(report=RECORD, has_files=False))
    assert followed.outcome(attempt).log_fault == ""
    assert (attempt.directory / "stdout.log").read_bytes() == LINES


@pytest.mark.usefixtures("holds")
@pytest.mark.parametrize("trouble", [failure(403, "a webhook is away"), Talk(lambda talk: talk.send(1, WORKLOAD_RUNS))])
def test_logs_that_could_not_be_fetched_are_fetched_again(
    followed: Followed, tracker: Tracker, server: ApiServer, trouble: Reply
) -> None:
    forged, real = stamped("one", HOLDING), stamped(HOLDING, first=9)
    server.answers("GET", f"{PODS}/p/log", Answer([forged]), Answer([forged, real, HOLD]))
    server.answers("GET", f"{PODS}/p/exec", trouble, trouble, Talk(send_and_release))
    attempt = followed.add(wait=1)
    tracker.store.see_pod(HOLDER)
    wait_until(lambda: server.count("GET", f"{PODS}/p/exec") == 3)
    log = attempt.directory / "stdout.log"
    wait_until(lambda: log.exists() and log.read_bytes() == LINES)
    tracker.store.see_pod(ended(report=RECORD, has_files=False))
    assert followed.outcome(attempt).log_fault == ""


@pytest.mark.usefixtures("holds")
def test_a_line_in_a_pod_that_cannot_hold_its_logs_requests_nothing(
    followed: Followed, tracker: Tracker, server: ApiServer
) -> None:
    attempt = followed.add()
    tracker.store.see_pod(RUNNING)
    wait_until((attempt.directory / "stdout.log").exists)
    assert server.count("GET", f"{PODS}/p/exec") == 0


def test_a_cancelled_attempt_whose_logs_are_missing_is_cancelled(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add()
    tracker.store.see_pod(HOLDER)
    tracker.cancel(attempt)
    tracker.store.see_pod(ended(report=RECORD, has_files=False))
    assert followed.outcome(attempt).ended_by is EndedBy.CANCELLED


@pytest.fixture
def single_follower(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one thread follow all logs in short turns."""
    monkeypatch.setattr(log_followers, "_SHORT_SECONDS", 0.05)
    monkeypatch.setattr(log_followers, "_TURN_SECONDS", 0.1)
    monkeypatch.setattr(log_followers, "_FOLLOWERS", 1)
    monkeypatch.setattr(tracker.followers, "_threads", ThreadPoolExecutor(1))


@pytest.mark.usefixtures("single_follower")
def test_more_logs_than_can_be_followed_at_once_take_turns(
    followed: Followed, tracker: Tracker, server: ApiServer
) -> None:
    attempts = [followed.add("a", "j"), followed.add("b", "k")]
    for job in ("j", "k"):
        server.answers("GET", f"{PODS}/{job}-pod/log", Answer([stamped("one")]))
        tracker.store.see_pod(PodView(f"{job}-pod", "u", job, node="n", is_running=True))
    followed.start()
    wait_until(lambda: all((attempt.directory / "stdout.log").exists() for attempt in attempts))


@pytest.mark.usefixtures("single_follower")
def test_a_pod_that_may_hold_its_logs_does_not_wait_for_silent_logs(
    followed: Followed, tracker: Tracker, server: ApiServer
) -> None:
    followed.start()
    names = ["q1", "q2", "p"]
    for name in names:
        silent = Answer([stamped("one"), HOLD])
        server.answers("GET", f"{PODS}/{name}/log", Answer([stamped("one")]), silent)
        followed.add(f"attempt-{name}", f"job-{name}")
    with tracker.store.lock:  # the tracker knows all pods before it follows the first log
        for name in names:
            tracker.store.see_pod(PodView(name, "u", f"job-{name}", node="n", is_running=True, has_files=name != "p"))
    wait_until(lambda: all(server.count("GET", f"{PODS}/{name}/log") for name in names))
    order = [request.path.split("/")[-2] for request in server.requests if request.path.endswith("/log")]
    assert order.index("p") < order.index("q2")


def test_the_last_lines_of_a_container_explain_why_it_did_not_start(
    followed: Followed, tracker: Tracker, server: ApiServer
) -> None:
    text = b"Traceback\nModuleNotFoundError: no json\n"
    server.answers("GET", f"{PODS}/p/log", Answer(text, headers={"Content-Type": "text/plain"}))
    attempt = followed.add()
    tracker.store.see_pod(PodView("p", "u", "j", node="n", ended=Ended(1, "Error", "", None)))
    outcome = followed.outcome(attempt)
    assert outcome.ended_by is EndedBy.NOT_STARTED
    assert outcome.message.endswith("left no outcome: Error\nTraceback\nModuleNotFoundError: no json")


def test_an_attempt_whose_files_were_not_fetched_in_time_is_lost(followed: Followed, tracker: Tracker) -> None:
    attempt = followed.add()
    tracker.store.see_pod(ended(report={"left": 2}, files=Ended(0, "Completed", "", None)))
    outcome = followed.outcome(attempt)
    assert outcome.ended_by is EndedBy.LOST
    assert outcome.message == "its files are lost: they were not fetched within 3600 s"


def test_an_attempt_that_is_no_longer_followed_writes_no_log(followed: Followed, tracker: Tracker) -> None:
    """The attempt may be found again and added once more; the new `PodAttempt` then writes to the same directory."""
    attempt = followed.add(wait=1)
    tracker.store.see_pod(RUNNING)
    copy = attempt.logs["p"]
    copy._take([stamped("one").rstrip()], b"")
    tracker.report_silence(2, "no route")
    assert attempt.status.state is AttemptState.UNREACHABLE
    copy._take([stamped("two", first=1).rstrip()], b"")
    assert (attempt.directory / "stdout.log").read_bytes() == b"one\n"


def test_an_attempt_is_unreachable_after_an_outage_longer_than_its_wait(followed: Followed, tracker: Tracker) -> None:
    impatient, patient = followed.add(wait=5), followed.add("b", "k", wait=50)
    tracker.report_silence(4, "no route")
    assert impatient.status.state is AttemptState.SUBMITTED
    tracker.report_silence(6, "no route")
    assert followed.notified.get(timeout=20) == "a"
    assert (impatient.status.state, impatient.status.message) == (AttemptState.UNREACHABLE, "no route")
    assert patient.status.state is AttemptState.SUBMITTED


def test_objects_that_are_missing_from_a_new_list_are_gone(followed: Followed, tracker: Tracker) -> None:
    one, other = followed.add(), followed.add("b", "k")
    for name, job in (("p", "j"), ("q", "k")):
        tracker.store.see_pod(PodView(name, "u", job, node="n", is_running=True))
        tracker.store.see_job(JobView(job, "u"))
    tracker.store.keep_jobs({"k"})
    tracker.store.keep_pods({"q"})
    assert followed.outcome(one).ended_by is EndedBy.EVICTED
    assert (other.status.outcome, tracker.has_job("j"), tracker.has_job("k")) == (None, False, True)


def test_the_watches_are_read(followed: Followed, tracker: Tracker, server: ApiServer) -> None:
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "message": json.dumps(report())}}
    found = pod_json("p", state)
    pod = json.dumps({"type": "ADDED", "object": found}).encode() + b"\n"
    foreign = event("ADDED", 4, "foreign", spec={}, status={})
    server.answers("WATCH", PODS, Answer([foreign, pod, HOLD]))
    server.answers("WATCH", JOBS, Answer([foreign, HOLD]))
    attempt = followed.add()
    followed.start()
    assert followed.outcome(attempt).exit_code == 0
    assert not tracker.has_job("foreign")
    assert {each.get("labelSelector") for each in server.requests if each.path in {JOBS, PODS}} == {"run=r"}


def test_closing_does_not_wait_and_nothing_is_reported_afterwards(
    followed: Followed, tracker: Tracker, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_followers, "_SHORT_SECONDS", 0.05)
    server.answers("GET", f"{PODS}/p/log", Answer([HOLD]))
    followed.start()
    attempt = followed.add()
    tracker.store.see_pod(RUNNING)
    wait_until(lambda: server.count("GET", f"{PODS}/p/log"))
    began = time.monotonic()
    tracker.close()
    tracker.store.see_pod(ended())
    assert time.monotonic() - began < 20
    assert (attempt.status.state, followed.notified.empty()) == (AttemptState.RUNNING, True)
    wait_until(lambda: not [each for each in threading.enumerate() if each.name.startswith("logs_")])


def test_forgotten_attempts_leave_nothing_in_memory(followed: Followed, tracker: Tracker) -> None:
    for number in range(1000):
        attempt = followed.add(f"a-{number}", f"j-{number}")
        job, pod = JobView(f"j-{number}", "u"), ended(f"p-{number}", f"j-{number}")
        tracker.store.see_job(job)
        tracker.store.see_pod(pod)
        followed.outcome(attempt)
        tracker.forget(attempt)
        assert not any((tracker.store._jobs, tracker.store._pods))
        tracker.store.see_pod(pod)  # the watch reports the deletion afterwards
        tracker.store.see_pod(pod, is_gone=True)
        tracker.store.see_job(job, is_gone=True)
    assert not any((tracker.book.attempts(), tracker.store._jobs, tracker.store._pods))
    assert threading.active_count() < 200


def test_an_attempt_whose_job_cannot_be_removed_is_unreachable(followed: Followed, server: ApiServer) -> None:
    """The Job may still start later, at the same time as another attempt."""
    server.answers("GET", PODS, listed_for([]))
    server.answers("GET", f"{JOBS}/j", {"metadata": {"name": "j", "uid": "u"}})
    followed.can_remove = False
    followed.start()
    attempt = followed.add(wait=0.1)
    assert followed.notified.get(timeout=20) == attempt.name
    assert followed.removed.get(timeout=20) == "j"
    assert attempt.status.state is AttemptState.UNREACHABLE
    assert "its Job could not be removed, and may still run" in attempt.status.message
