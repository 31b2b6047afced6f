"""The logs of a pod, copied while the connection does what it likes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tests.fakes.api_server import BREAK, HOLD, Answer, ApiServer, failure, listing
from toolbox.agent import frames
from toolbox.agent.log_files import END_BYTES
from toolbox.kubernetes.api.connection import Cluster
from toolbox.kubernetes.pods import pod_logs
from toolbox.kubernetes.pods.pod_logs import PodLogs

PODS = "/api/v1/namespaces/tests/pods"
PATH = f"{PODS}/p/log"
TEXT = {"Content-Type": "text/plain"}


@pytest.fixture
def copied(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PodLogs:
    monkeypatch.setattr(pod_logs, "_FIRST_PAUSE", 0.02)
    return PodLogs(cluster, "p", tmp_path, 5)


def said(content: bytes, offset: int = 0, stream: str = "stdout") -> bytes:
    return frames.encode(stream, offset, content)


def spoken(*pieces: bytes) -> Answer:
    return Answer(pieces, headers=TEXT)


def follow(copied: PodLogs, **ended: int) -> None:
    """Follow the logs of a workload that has said so much of each, and has ended before all of it is here."""
    timer = threading.Timer(0.1, copied.end, [ended])
    timer.start()
    copied.follow()
    timer.join()


def since(server: ApiServer) -> list[bool]:
    """Tell for each request whether it left out what was there."""
    return [each.get("sinceSeconds") is not None for each in server.asked]


def test_both_streams_come_each_into_its_file(server: ApiServer, copied: PodLogs, tmp_path: Path) -> None:
    both = said(b"one\n") + said(b"oh\n", 0, "stderr") + said(b"two\n", 4)
    server.says("GET", PATH, spoken(both))
    follow(copied, stdout=8, stderr=3)
    assert (tmp_path / "stdout.log").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "stderr.log").read_bytes() == b"oh\n"
    assert (server.asked[0].get("container"), copied.missing(), copied.is_whole()) == ("workload", 0, True)


def test_what_is_binary_stays_what_it_is_however_it_is_cut(server: ApiServer, copied: PodLogs, tmp_path: Path) -> None:
    content = os.urandom(50_000)
    whole = said(content)
    server.says("GET", PATH, spoken(*(whole[start : start + 1001] for start in range(0, len(whole), 1001))))
    follow(copied, stdout=50_000)
    assert (tmp_path / "stdout.log").read_bytes() == content


def test_a_connection_that_breaks_costs_nothing_and_nothing_comes_twice(
    server: ApiServer, copied: PodLogs, tmp_path: Path
) -> None:
    lines = [said(b"line %d\n" % number, 7 * number) for number in range(9)]
    server.says("GET", PATH, spoken(*lines[:4], lines[4][:5], BREAK), spoken(*lines[2:7], BREAK), spoken(*lines[5:]))
    follow(copied, stdout=63)
    assert (tmp_path / "stdout.log").read_bytes() == b"".join(b"line %d\n" % number for number in range(9))
    assert since(server)[:3] == [False, True, True]


def test_what_is_missing_between_is_read_from_the_start(server: ApiServer, copied: PodLogs, tmp_path: Path) -> None:
    lines = [said(b"line %d\n" % number, 7 * number) for number in range(6)]
    server.says("GET", PATH, spoken(*lines[:2], BREAK), spoken(*lines[4:]), spoken(*lines))
    follow(copied, stdout=42)
    assert (tmp_path / "stdout.log").read_bytes() == b"".join(b"line %d\n" % number for number in range(6))
    assert since(server)[:3] == [False, True, False]


def test_what_is_missing_within_what_comes_at_once_is_missed(
    server: ApiServer, copied: PodLogs, tmp_path: Path
) -> None:
    lines = [said(b"line %d\n" % number, 7 * number) for number in range(6)]
    at_once = b"".join([*lines[:2], *lines[1:3], *lines[4:]])
    server.says("GET", PATH, spoken(at_once, BREAK), spoken(*lines))
    follow(copied, stdout=42)
    assert (tmp_path / "stdout.log").read_bytes() == b"".join(b"line %d\n" % number for number in range(6))
    assert since(server)[:2] == [False, False]


def test_a_line_that_a_busy_node_gives_by_halves_is_waited_for(
    server: ApiServer, copied: PodLogs, tmp_path: Path
) -> None:
    whole = said(b"one\n") + said(b"two\n", 4)
    server.says("GET", PATH, spoken(whole[:-3]), spoken(whole))
    follow(copied, stdout=8, stderr=0)
    assert (tmp_path / "stdout.log").read_bytes() == b"one\ntwo\n"
    assert copied.is_whole()


def test_what_a_node_gives_again_is_no_reason_to_ask_it_quickly(
    server: ApiServer, copied: PodLogs, tmp_path: Path
) -> None:
    begun, whole = said(b"begin\n"), said(b"begin\n") + said(b"end\n", 6)
    late = time.monotonic() + 0.8
    server.says("GET", PATH, lambda _: spoken(begun if time.monotonic() < late else whole))
    copied.end({"stdout": 10})
    copied.follow()
    assert (tmp_path / "stdout.log").read_bytes() == b"begin\nend\n"
    assert len(server.asked) <= 8


def test_what_is_there_already_is_gone_on_with(server: ApiServer, copied: PodLogs, tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_bytes(b"one\ntw")  # by an orchestrator that was killed
    server.says("GET", PATH, spoken(said(b"one\n"), said(b"two\n", 4)))
    follow(copied, stdout=8)
    assert (tmp_path / "stdout.log").read_bytes() == b"one\ntwo\n"


def test_what_somebody_else_prints_is_in_no_log_and_the_end_of_it_is_known(
    server: ApiServer, copied: PodLogs, tmp_path: Path
) -> None:
    foreign = b"".join(b"Traceback %d\n" % number for number in range(9))
    server.says("GET", PATH, spoken(said(b"one\n"), b"\n", foreign, b"no end"))
    follow(copied, stdout=4)
    assert (tmp_path / "stdout.log").read_bytes() == b"one\n"
    assert copied.stray == [*(f"Traceback {number}" for number in range(5, 9)), "no end"]


def test_a_container_that_has_not_started_is_waited_for(server: ApiServer, copied: PodLogs, tmp_path: Path) -> None:
    server.says("GET", PATH, failure(400, "ContainerCreating"), failure(500), spoken(said(b"one\n")))
    follow(copied, stdout=4)
    assert (tmp_path / "stdout.log").read_bytes() == b"one\n"


def test_the_log_of_a_pod_that_is_gone_is_not_waited_for(server: ApiServer, copied: PodLogs) -> None:
    server.says("GET", PODS, listing(1))
    copied.follow()
    assert server.count("GET", PATH) == 1


def test_a_node_that_has_not_heard_of_a_pod_yet_is_asked_again(
    server: ApiServer, copied: PodLogs, tmp_path: Path
) -> None:
    server.says("GET", PODS, listing(1, "p"))
    server.says("GET", PATH, failure(404, "pod does not exist"), failure(404), spoken(said(b"one\n")))
    follow(copied, stdout=4)
    assert (tmp_path / "stdout.log").read_bytes() == b"one\n"
    assert {each.get("fieldSelector") for each in server.asked if each.path == PODS} == {"metadata.name=p"}


def test_what_the_node_has_not_kept_is_asked_for_a_few_times_and_counted(
    server: ApiServer, copied: PodLogs, tmp_path: Path
) -> None:
    server.says("GET", PATH, spoken(said(b"two\n", 4)))  # it has dropped the beginning
    copied.end({"stdout": 8, "stderr": 0})
    copied.follow()
    assert (copied.missing(), copied.is_whole(), server.count("GET", PATH)) == (8, False, 7)
    assert {each.get("follow") for each in server.asked} == {"false"}
    assert not (tmp_path / "stdout.log").exists()


def test_of_a_workload_that_told_no_end_all_is_taken_that_there_is(
    server: ApiServer, copied: PodLogs, tmp_path: Path
) -> None:
    server.says("GET", PATH, failure(500), spoken(said(b"one\n")))
    copied.end(None)
    copied.follow()
    assert (tmp_path / "stdout.log").read_bytes() == b"one\n"
    assert (copied.is_whole(), copied.missing(), server.count("GET", PATH)) == (False, 0, 2)


def test_what_has_all_come_is_not_asked_for(server: ApiServer, copied: PodLogs, tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_bytes(b"one\n")
    copied.end({"stdout": 4, "stderr": 0})
    copied.follow()
    assert server.asked == []


def test_who_stops_following_waits_for_nothing(server: ApiServer, copied: PodLogs, tmp_path: Path) -> None:
    server.says("GET", PATH, spoken(said(b"one\n"), HOLD))
    follower = threading.Thread(target=copied.follow)
    follower.start()
    while not (tmp_path / "stdout.log").exists():
        time.sleep(0.01)
    began = time.monotonic()
    copied.close()
    follower.join()
    assert time.monotonic() - began < 2


def test_what_a_disk_does_not_take_is_missing_and_nothing_else(
    server: ApiServer, copied: PodLogs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "stdout.log").symlink_to("/dev/full")
    server.says("GET", PATH, spoken(said(b"one\n") + said(b"oh\n", 0, "stderr")))
    copied.end({"stdout": 4, "stderr": 3})
    copied.follow()
    assert (tmp_path / "stderr.log").read_bytes() == b"oh\n"
    assert copied.missing() == 4
    assert "stdout.log cannot be written: " in caplog.text


def test_a_copy_does_not_become_longer_than_the_limit_of_the_log(
    server: ApiServer, cluster: Cluster, tmp_path: Path
) -> None:
    copied = PodLogs(cluster, "p", tmp_path, 5, log_bytes=10)
    server.says("GET", PATH, spoken(said(bytes(1 << 18))))
    follow(copied, stdout=10 + END_BYTES)
    assert (tmp_path / "stdout.log").stat().st_size == 10 + END_BYTES


def test_a_line_without_end_is_not_held_in_memory(server: ApiServer, copied: PodLogs, tmp_path: Path) -> None:
    server.says("GET", PATH, spoken(*[b"x" * (1 << 16)] * 64, b"\n", said(b"one\n")))
    follow(copied, stdout=4)
    assert (tmp_path / "stdout.log").read_bytes() == b"one\n"
    assert [len(line) for line in copied.stray] == [1000] * 5
