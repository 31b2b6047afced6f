"""Requirements for every backend, on a real target: every kind of end is known, and no processes remain."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conformance.sites import Attempt, Bench, wait_for
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.workloads import EndedBy

# Child processes leave their session or their parent, or ignore signals. Each prints `up`, and waits.
FAMILY = """
import os, signal, sys, time
def child(*steps):
    if os.fork() == 0:
        for step in steps:
            step()
        os.write(1, b"up\\n")
        time.sleep(600)
        os._exit(0)
def second_fork():
    if os.fork():
        os._exit(0)
def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child(os.setsid)
child(second_fork)
child(os.setsid, second_fork, deaf)
child(lambda: os.chdir("/"), lambda: os.closerange(3, 100))
"""
STAY = "time.sleep(600)"
# The first thread ends, so that the process looks like a zombie.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
DEAF = "trap '' TERM; echo up; while :; do sleep 0.1; done"


def up(attempt: Attempt, count: int = 1) -> Attempt:
    """Wait until `count` processes of the workload have printed `up`."""
    wait_for(lambda: attempt.text().count("up\n") >= count, f"{count} times `up`")
    return attempt


def test_a_silent_workload_is_ended(bench: Bench) -> None:
    _, outcome = bench.run("sh", "-c", "echo working; sleep 600", silence=0.5)
    assert (outcome.ended_by, outcome.message) == (EndedBy.SILENCE, "it printed nothing for 0.5 s")
    assert outcome.exit_code == 128 + signal.SIGTERM


def test_a_workload_that_keeps_printing_is_not_silent(bench: Bench) -> None:
    _, outcome = bench.run("sh", "-c", "for _ in 1 2 3 4 5 6 7 8; do echo; sleep 0.2; done", silence=1.0)
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.EXIT, 0)


def test_a_workload_that_takes_too_long_is_ended(bench: Bench) -> None:
    _, outcome = bench.run("sh", "-c", "while :; do echo; sleep 0.1; done", run=0.5)
    assert (outcome.ended_by, outcome.message) == (EndedBy.TIMEOUT, "it ran longer than 0.5 s")


def test_a_cancelled_workload_may_clean_up(bench: Bench) -> None:
    attempt = up(
        bench.start("sh", "-c", "trap 'echo saved > saved; exit 7' TERM; echo up; while :; do sleep 0.05; done")
    )
    outcome = attempt.cancel()
    attempt.collect()
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.CANCELLED, 7)
    assert attempt.text("files/saved") == "saved\n"


def test_a_workload_that_does_not_end_is_killed_after_the_grace(bench: Bench) -> None:
    outcome = up(bench.start("sh", "-c", DEAF, grace=0.3)).cancel()
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.CANCELLED, 128 + signal.SIGKILL)


def test_a_cancelled_workload_ends_with_all_its_processes(bench: Bench) -> None:
    attempt = up(bench.start("python3", "-c", FAMILY + STAY, grace=0.3), 4)
    assert len(attempt.left()) == 5
    assert attempt.cancel().ended_by is EndedBy.CANCELLED
    assert attempt.left() == []


def test_a_stopped_workload_can_be_cancelled(bench: Bench) -> None:
    attempt = up(bench.start("sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done"))
    (shell,) = attempt.supervisor.children()
    shell.suspend()
    assert attempt.cancel().exit_code == 9


def test_a_workload_whose_first_thread_has_ended_can_be_cancelled(bench: Bench) -> None:
    attempt = up(bench.start("python3", "-c", HEADLESS))
    (process,) = attempt.supervisor.children()
    wait_for(lambda: process.status() == psutil.STATUS_ZOMBIE, "a first thread that has ended")
    assert attempt.cancel().ended_by is EndedBy.CANCELLED
    assert not process.is_running()


def test_a_repeated_or_late_cancel_changes_nothing(bench: Bench) -> None:
    attempt = up(bench.start("sh", "-c", DEAF, grace=0.3))
    attempt.by.backend.cancel(attempt.handle)
    outcome = attempt.cancel()
    assert outcome.exit_code == 128 + signal.SIGKILL
    assert attempt.cancel() == outcome


def test_leftover_processes_of_a_workload_are_counted_and_ended(bench: Bench) -> None:
    attempt, outcome = bench.run("python3", "-c", FAMILY + "time.sleep(0.5)", grace=0.3)
    assert (outcome.ended_by, outcome.exit_code, outcome.leftovers) == (EndedBy.EXIT, 0, 4)
    assert attempt.left() == []


@pytest.mark.parametrize("close", ["exec >&- 2>&-", ":"])
def test_an_attempt_ends_with_its_workload_and_not_with_its_output(bench: Bench, close: str) -> None:
    """This holds even if the workload closes both streams long before its end."""
    _, outcome = bench.run("sh", "-c", f"{close}; sleep 0.3; exit 4")
    assert (outcome.ended_by, outcome.exit_code, outcome.leftovers) == (EndedBy.EXIT, 4, 0)


def test_a_missing_program_is_named(bench: Bench) -> None:
    _, outcome = bench.run("there-is-no-such-program")
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.NOT_STARTED, 127)
    assert outcome.message == "`there-is-no-such-program` cannot be started: No such file or directory"


def test_a_file_that_is_not_executable_is_named(bench: Bench) -> None:
    _, outcome = bench.run("/etc/passwd")
    assert outcome.message == "`/etc/passwd` cannot be started: Permission denied"


def test_a_missing_working_directory_is_named(bench: Bench) -> None:
    _, outcome = bench.run("true", cwd="/nowhere/at all")
    assert outcome.ended_by is EndedBy.NOT_STARTED
    assert outcome.message == "its working directory /nowhere/at all cannot be entered: No such file or directory"


def test_a_workload_may_delete_its_working_directory(bench: Bench) -> None:
    attempt, outcome = bench.run("sh", "-c", 'rm -rf "$ARTIFACT_DIR"; echo gone; exit 6')
    assert (outcome.ended_by, outcome.exit_code, attempt.text()) == (EndedBy.EXIT, 6, "gone\n")


def test_the_outcome_of_a_workload_that_deletes_everything_is_known(bench: Bench) -> None:
    attempt, outcome = bench.run("sh", "-c", 'rm -rf "$TOPGALLANT_STEP" 2>/dev/null; exit 6')
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.EXIT, 6)
    assert attempt.text("exit_code") == "6\n"


def test_a_workload_that_deletes_everything_can_be_cancelled(bench: Bench, tmp_path: Path) -> None:
    attempt = bench.start("sh", "-c", f'rm -rf "$TOPGALLANT_STEP"; touch {tmp_path}/gone; exec sleep 600')
    wait_for((tmp_path / "gone").exists, "the deletion of its directory")
    assert attempt.cancel().exit_code == 128 + signal.SIGKILL
    assert attempt.left() == []


def test_a_workload_dies_with_its_supervisor_and_is_lost(bench: Bench) -> None:
    attempt = up(bench.start("python3", "-c", FAMILY + STAY), 4)
    attempt.supervisor.kill()
    outcome = attempt.wait()
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.LOST, None)
    wait_for(lambda: not attempt.left(), "the end of its processes")
    attempt.collect()
    assert not (attempt.directory / "exit_code").exists()


def test_a_lost_workload_is_not_started_again(bench: Bench) -> None:
    attempt = up(bench.start("sh", "-c", "echo up; sleep 600"))
    attempt.supervisor.kill()
    assert attempt.wait().ended_by is EndedBy.LOST
    assert bench.start("sh", "-c", "echo up; sleep 600", by=bench.orchestrator()).wait().ended_by is EndedBy.LOST
    assert attempt.text() == "up\n"


def test_a_running_attempt_is_not_removed(bench: Bench, tmp_path: Path) -> None:
    attempt = up(bench.start("sh", "-c", f"echo up; until test -e {tmp_path}/go; do sleep 0.05; done"))
    if bench.site.is_apart:
        with pytest.raises(StepError, match="in use: its workload is still running"):
            attempt.by.backend.release(attempt.handle)
    assert bench.orchestrator().backend.find(attempt.workload, attempt.handle.name, attempt.directory) == attempt.handle
    (tmp_path / "go").touch()
    wait_for(lambda: not attempt.left(), "the end of the workload")


@pytest.fixture
def background() -> Iterator[None]:
    """Ignore the signals that a shell ignores for programs in the background."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("background")
def test_a_workload_does_not_inherit_ignored_signals(bench: Bench) -> None:
    """Python ignores SIGPIPE: a workload that inherited that would not end with the reader of its pipe."""
    _, outcome = bench.run("python3", "-c", "import os; print(open('/proc/self/status').read())", silence=10)
    attempt, _ = bench.run("grep", "Sig[IB]", "/proc/self/status", name="signals")
    assert outcome.exit_code == 0
    # Only the signals below 32 are checked: 32 and 33 are reserved by the C library, and no program can change them.
    assert [int(line.split()[1], 16) & 0x7FFFFFFF for line in attempt.text().splitlines()] == [0, 0]
