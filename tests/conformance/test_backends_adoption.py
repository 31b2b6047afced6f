"""Requirements for every backend, on a real target: a workload outlives its orchestrator, and another can adopt it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.sites import Attempt, Bench, Orchestrator, wait_for, workload
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.workloads import AttemptState, EndedBy

# Prints numbered lines on both streams until a file exists.
COUNT = """
n=0
until test -e "$1"; do
    n=$((n + 1))
    echo "line $n"
    echo "error $n" >&2
    sleep 0.01
done
echo "lines: $n"
"""


@pytest.fixture
def stop(tmp_path: Path) -> Path:
    """Return the file that ends the counting when it exists."""
    return tmp_path / "stop"


def count(bench: Bench, stop: Path, by: Orchestrator) -> Attempt:
    """Start a workload that counts, or adopt the running one."""
    return bench.start("sh", "-c", COUNT, "sh", str(stop), by=by)


def wait_for_more(attempt: Attempt) -> None:
    """Wait until the log has new lines."""
    before = len(attempt.text())
    wait_for(lambda: len(attempt.text()) > before + 100, "more lines")


def begin(bench: Bench, stop: Path, by: Orchestrator) -> Attempt:
    """Start a workload that counts, and wait until its log has lines."""
    attempt = count(bench, stop, by)
    wait_for_more(attempt)
    return attempt


def assert_whole(attempt: Attempt) -> None:
    """Check that each line is in the logs exactly once."""
    *lines, last = attempt.text().splitlines()
    total = int(last.removeprefix("lines: "))
    assert total > 5
    assert lines == [f"line {n}" for n in range(1, total + 1)]
    assert attempt.text("stderr.log").splitlines() == [f"error {n}" for n in range(1, total + 1)]


def check_end(attempt: Attempt) -> None:
    """Check that the workload ended by itself, and that its logs are complete."""
    assert attempt.wait().exit_code == 0
    attempt.collect()
    assert_whole(attempt)


def test_a_workload_outlives_its_orchestrator_and_is_adopted(bench: Bench, stop: Path) -> None:
    first, second = bench.orchestrator(), bench.orchestrator()
    begin(bench, stop, first)
    first.backend.close()
    adopted = count(bench, stop, second)
    assert second.status(adopted.handle).state is AttemptState.RUNNING
    wait_for_more(adopted)
    stop.touch()
    check_end(adopted)
    assert first.notified == []


def test_a_workload_that_ends_without_an_orchestrator_is_adopted(bench: Bench, stop: Path) -> None:
    first, second = bench.orchestrator(), bench.orchestrator()
    attempt = begin(bench, stop, first)
    first.backend.close()
    stop.touch()
    attempt.end_there()
    adopted = count(bench, stop, second)
    check_end(adopted)


def test_dropped_connections_neither_lose_nor_repeat_lines(bench: Bench, stop: Path) -> None:
    orchestrator = bench.orchestrator()
    attempt = count(bench, stop, orchestrator)
    for _ in range(4):
        wait_for_more(attempt)
        before = orchestrator.connections()
        assert before
        orchestrator.drop_connections()
        orchestrator.wait_for_another(before)
    wait_for_more(attempt)
    stop.touch()
    check_end(attempt)
    assert orchestrator.notified == [attempt.handle.name]


def test_an_end_during_an_outage_is_notified_afterwards(bench: Bench, stop: Path) -> None:
    orchestrator = bench.orchestrator()
    attempt = begin(bench, stop, orchestrator)
    orchestrator.stall_connections()
    stop.touch()
    attempt.end_there()
    orchestrator.drop_connections()
    check_end(attempt)


def test_calls_during_an_outage_are_carried_out_afterwards(bench: Bench, stop: Path) -> None:
    orchestrator = bench.orchestrator()
    attempt = begin(bench, stop, orchestrator)
    orchestrator.drop_connections()
    assert attempt.cancel().ended_by is EndedBy.CANCELLED
    orchestrator.drop_connections()
    attempt.collect()
    orchestrator.drop_connections()
    orchestrator.backend.release(attempt.handle)
    assert attempt.text("exit_code") == "143\n"


def test_a_submission_whose_connection_breaks_is_one_workload(bench: Bench, tmp_path: Path) -> None:
    """The submission is repeated with the same name, which finds an existing attempt if only the answer was lost."""
    script = 'echo begun >> "$1"; until test -e "$2"; do sleep 0.05; done'
    orchestrator, begun, go = bench.orchestrator(), tmp_path / "begun", tmp_path / "go"
    with ThreadPoolExecutor() as threads:
        submitting = threads.submit(bench.start, "sh", "-c", script, "sh", str(begun), str(go), by=orchestrator)
        wait_for(lambda: bench.site.is_submitted(bench.handle()), "the workload")
        orchestrator.drop_connections()
        attempt = submitting.result()
    go.touch()
    assert attempt.wait().exit_code == 0
    assert begun.read_text() == "begun\n"


def test_an_unreachable_target_is_not_treated_as_without_the_attempt(bench: Bench, stop: Path) -> None:
    server = bench.site.server
    if server is None:
        pytest.skip("this machine is always reachable")
    attempt = begin(bench, stop, bench.orchestrator())
    server.stop()
    try:
        with pytest.raises(StepError, match=r"[Cc]onnection refused"):
            bench.orchestrator().backend.find(workload("true", wait=1.0), attempt.handle.name, attempt.directory)
    finally:
        server.start()
        stop.touch()
    attempt.wait()


def test_two_orchestrators_both_get_every_line(bench: Bench, stop: Path) -> None:
    first, second = bench.orchestrator(), bench.orchestrator()
    attempt = begin(bench, stop, first)
    again = begin(bench, stop, second)
    stop.touch()
    assert attempt.wait() == again.wait()
    attempt.collect()  # logs that are too long for the outcome are fetched with the files
    assert_whole(attempt)


def test_time_limits_hold_without_an_orchestrator(bench: Bench) -> None:
    first = bench.orchestrator()
    attempt = bench.start("sh", "-c", "echo up; sleep 600", by=first, run=1.0)
    first.backend.close()
    attempt.end_there()
    again = bench.start("sh", "-c", "echo up; sleep 600", by=bench.orchestrator())
    assert again.wait().ended_by is EndedBy.TIMEOUT


def test_many_workloads_survive_a_dropped_connection(bench: Bench, stop: Path) -> None:
    orchestrator = bench.orchestrator()
    script = 'until test -e "$1"; do sleep 0.1; done; echo "$2"'
    attempts = bench.start_all((["sh", "-c", script, "sh", str(stop), str(n)] for n in range(12)), by=orchestrator)
    assert orchestrator.connections()
    orchestrator.drop_connections()
    stop.touch()
    assert [attempt.wait().exit_code for attempt in attempts] == [0] * 12
    for number, attempt in enumerate(attempts):
        attempt.collect()
        assert attempt.text() == f"{number}\n"
    assert sorted(orchestrator.notified) == sorted(attempt.handle.name for attempt in attempts)


def test_a_server_may_be_started_again(bench: Bench, stop: Path) -> None:
    server = bench.site.server
    if server is None:
        pytest.skip("this machine is not reached through a server")
    orchestrator = bench.orchestrator()
    attempt = count(bench, stop, orchestrator)
    for _ in range(2):
        wait_for_more(attempt)
        server.stop()
        wait_for(lambda: not orchestrator.connections(), "no connection")
        server.start()
        wait_for(orchestrator.connections, "another connection")
    wait_for_more(attempt)
    stop.touch()
    check_end(attempt)


def test_an_attempt_on_a_target_that_stays_down_is_unreachable(bench: Bench, stop: Path) -> None:
    server = bench.site.server
    if server is None:
        pytest.skip("this machine is always reachable")
    orchestrator = bench.orchestrator()
    attempt = bench.start("sh", "-c", COUNT, "sh", str(stop), by=orchestrator, wait=bench.site.quick)
    wait_for_more(attempt)
    server.stop()
    try:
        status = orchestrator.end_of(attempt.handle)
    finally:
        server.start()
    assert (status.state, status.outcome) == (AttemptState.UNREACHABLE, None)
    assert bench.site.refusal in status.message
    adopted = count(bench, stop, bench.orchestrator())
    stop.touch()
    check_end(adopted)
