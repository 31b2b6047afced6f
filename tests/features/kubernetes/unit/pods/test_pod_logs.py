"""The live copy of a pod's log continues after a broken connection, and lines that a node repeats are copied once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.features.kubernetes.fakes.api_server import BREAK, HOLD, Answer, ApiServer, failure, listing
from tests.features.kubernetes.unit.pods.following import stamped
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.pods import pod_logs
from toolbox.features.kubernetes.pods.pod_logs import LiveCopy
from toolbox.targets.agent.log_files import END_BYTES
from toolbox.targets.agent.pod import HOLDING

PODS = "/api/v1/namespaces/tests/pods"
PATH = f"{PODS}/p/log"
TEXT = {"Content-Type": "text/plain"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "stdout.log"


@pytest.fixture
def copy(cluster: Cluster, file: Path) -> LiveCopy:
    return LiveCopy(cluster, "p", file, may_hold=True)


def answer(*pieces: bytes) -> Answer:
    return Answer(pieces, headers=TEXT)


def follow(copy: LiveCopy, seconds: float = 0.5) -> bool:
    """Follow the log for some seconds, and return whether there may be more to copy."""
    end = time.monotonic() + seconds
    return copy.follow(lambda: time.monotonic() > end)


def test_lines_are_copied_without_their_times(server: ApiServer, copy: LiveCopy, file: Path) -> None:
    server.answers("GET", PATH, answer(stamped("one", "  two  words", "")))
    assert follow(copy)
    assert file.read_text() == "one\n  two  words\n\n"
    request = server.requests[0]
    assert [request.get(name) for name in ("container", "follow", "timestamps", "sinceTime")] == [
        "workload",
        "true",
        "true",
        None,
    ]


def test_a_copy_continues_after_its_last_line_when_a_connection_breaks(
    server: ApiServer, copy: LiveCopy, file: Path
) -> None:
    lines = [stamped(f"line {number}", first=number) for number in range(9)]
    server.answers(
        "GET", PATH, answer(*lines[:4], lines[4][:20], BREAK), answer(*lines[2:7], BREAK), answer(*lines[5:])
    )
    follow(copy)
    assert file.read_text() == "".join(f"line {number}\n" for number in range(9))
    since = [each.get("sinceTime") for each in server.requests[:3]]
    assert since == [None, "2026-01-02T03:04:03.000000000Z", "2026-01-02T03:04:06.000000000Z"]


def test_the_whole_log_is_requested_again_only_if_its_container_runs_for_longer(
    server: ApiServer, copy: LiveCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(pod_logs, "_END_SECONDS", 7.0)
    monkeypatch.setattr(copy._is_closed, "wait", pauses.append)
    server.answers("GET", PATH, answer(stamped("one"), BREAK), answer(stamped("two", first=1)))
    copy.follow(lambda: server.count("GET", PATH) > 2)
    assert [pause > 5 for pause in pauses] == [False, True]


def test_lines_of_the_same_time_are_all_copied(server: ApiServer, copy: LiveCopy, file: Path) -> None:
    server.answers("GET", PATH, answer(stamped("one") + stamped("two")))
    follow(copy)
    assert file.read_text() == "one\ntwo\n"


def test_a_copy_of_an_earlier_session_is_replaced(server: ApiServer, copy: LiveCopy, file: Path) -> None:
    file.write_text("one\nhalf a li")
    server.answers("GET", PATH, answer(stamped("one", "two")))
    follow(copy)
    assert file.read_text() == "one\ntwo\n"


def test_text_without_a_time_is_not_copied(server: ApiServer, copy: LiveCopy, file: Path) -> None:
    server.answers("GET", PATH, answer(b"unable to retrieve container logs\n", stamped("one"), b"no end"))
    follow(copy)
    assert file.read_text() == "one\n"


def test_a_request_is_repeated_until_the_container_has_started(server: ApiServer, copy: LiveCopy, file: Path) -> None:
    server.answers("GET", PATH, failure(400, "ContainerCreating"), failure(500), answer(stamped("one")))
    follow(copy, 2)
    assert file.read_text() == "one\n"


def test_following_the_log_of_a_deleted_pod_ends(server: ApiServer, copy: LiveCopy) -> None:
    server.answers("GET", PODS, listing(1))
    assert not copy.follow(lambda: False)
    assert server.count("GET", PATH) == 1


def test_a_request_is_repeated_if_the_node_does_not_know_the_pod_yet(
    server: ApiServer, copy: LiveCopy, file: Path
) -> None:
    server.answers("GET", PODS, listing(1, "p"))
    server.answers("GET", PATH, failure(404, "pod does not exist"), answer(stamped("one")))
    follow(copy)
    assert file.read_text() == "one\n"


def test_the_line_of_a_pod_that_holds_its_logs_is_detected(server: ApiServer, copy: LiveCopy, file: Path) -> None:
    server.answers("GET", PATH, answer(stamped("one", HOLDING), HOLD))
    assert not copy.follow(lambda: False)
    assert copy.is_held
    assert file.read_text() == "one\n"


def test_a_pod_that_holds_its_logs_is_detected_after_its_node_has_stopped_sending(
    server: ApiServer, cluster: Cluster, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_logs, "_HOLD_TIMEOUTS", (5.0, 0.3))
    copy = LiveCopy(cluster, "p", file, may_hold=True)
    server.answers("GET", PATH, answer(stamped("one"), HOLD), answer(stamped(HOLDING, first=1), HOLD))
    assert not copy.follow(lambda: False)
    assert copy.is_held


def test_the_holding_line_of_a_pod_that_cannot_hold_its_logs_is_copied(
    server: ApiServer, cluster: Cluster, file: Path
) -> None:
    copy = LiveCopy(cluster, "p", file)
    server.answers("GET", PATH, answer(stamped("one", HOLDING, "two")))
    follow(copy)
    assert not copy.is_held
    assert file.read_text() == f"one\n{HOLDING}\ntwo\n"


def test_a_line_of_the_workload_itself_does_not_end_the_copy(server: ApiServer, copy: LiveCopy, file: Path) -> None:
    forged = stamped("one", HOLDING)
    server.answers("GET", PATH, answer(forged), answer(forged, stamped("two", HOLDING, first=2)))
    assert not copy.follow(lambda: False)
    copy.go_on()
    assert not copy.follow(lambda: False)
    assert copy.is_held
    assert "two\n" in file.read_text()


def test_a_pod_that_holds_its_logs_is_detected_after_its_clock_was_set_back(server: ApiServer, copy: LiveCopy) -> None:
    server.answers("GET", PATH, answer(stamped("one", first=9)), answer(stamped(HOLDING, first=3), HOLD))
    assert not copy.follow(lambda: False)
    assert copy.is_held


def test_closing_a_copy_ends_it_at_once_and_keeps_its_content(server: ApiServer, copy: LiveCopy, file: Path) -> None:
    server.answers("GET", PATH, answer(stamped("one"), HOLD))
    follower = threading.Thread(target=copy.follow, args=[lambda: False])
    follower.start()
    while not file.exists() or not file.read_text():
        time.sleep(0.01)
    began = time.monotonic()
    copy.close()
    follower.join()
    assert time.monotonic() - began < 20
    copy._take([stamped("two", first=1)[:-1]], b"")
    assert file.read_text() == "one\n"


def test_a_full_disk_does_not_end_a_copy(
    server: ApiServer, copy: LiveCopy, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.mkdir()
    server.answers("GET", PATH, answer(stamped("one", HOLDING)))
    copy.follow(lambda: False)
    assert copy.is_held
    assert "stdout.log cannot be written: " in caplog.text


def test_a_copy_has_the_limit_of_a_log(server: ApiServer, cluster: Cluster, file: Path) -> None:
    copy = LiveCopy(cluster, "p", file, log_bytes=10)
    server.answers("GET", PATH, answer(*(stamped("x" * 50_000, first=number) for number in range(5))))
    follow(copy)
    assert file.stat().st_size == 10 + END_BYTES


def test_a_line_without_end_is_not_held_in_memory(
    server: ApiServer, copy: LiveCopy, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_logs, "_LONGEST_LINE", 1000)
    server.answers(
        "GET", PATH, answer(stamped("x" * 99)[:-1], *[b"x" * (1 << 16)] * 64, b"\n", stamped("one", first=1))
    )
    follow(copy)
    first, second = file.read_text().splitlines()
    assert len(first) < 1 << 17
    assert second == "one"
