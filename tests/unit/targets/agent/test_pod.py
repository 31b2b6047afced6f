"""The programs of a pod's containers run as processes in a directory of the test."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import ROOT
from toolbox.ground.kit.attempt_files import STREAMS
from toolbox.targets.agent import log_transfer
from toolbox.targets.agent.pod import CONFIRMED, HOLDING, LOGS_SENT, WORKLOAD_RUNS

# In a real pod, these two files have fixed paths outside of the attempt's directory.
DRIVER = f"""
import os, signal, sys; sys.path.insert(0, {str(ROOT)!r})
from toolbox.targets.agent import attempt_directory, durable, pod, supervisor
if "DELETED" in os.environ:
    durable.sync_tree = lambda top: os.kill(os.getpid(), signal.SIGTERM)
attempt_directory.TIMEOUT_SECONDS = float(os.environ.get("TIMEOUT", attempt_directory.TIMEOUT_SECONDS))
pod.ARCHIVE, pod.TERMINATION_LOG = "sources.tar.gz", "termination-log"
pod._FIRST_REPEAT_SECONDS = 0.1
supervisor._ECHO_SECONDS = 1.0  # most tests do not read the output
pod.main()
"""
ORDER: dict[str, Any] = {
    "cwd": None,
    "secrets": [],
    "collect": ["**"],
    "hold_seconds": 0,
    "run_seconds": None,
    "silence_seconds": None,
    "grace_seconds": 0.1,
    "log_bytes": 1 << 20,
    "sample_seconds": None,
}


class Pod:
    """The programs of a pod's containers, which run in a directory of the test."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.directory = place / "attempt"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, verb: str, *args: str, **env: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", DRIVER, verb, str(self.directory), *args]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.started.append(subprocess.Popen(command, cwd=self.place, env={**os.environ, **env}, **pipes))
        return self.started[-1]

    def supervise(self, *command: str, env: dict[str, str] | None = None, **order: Any) -> subprocess.Popen[bytes]:
        return self.start("supervise", json.dumps({**ORDER, **order}), "--", *command, **(env or {}))

    def keep(self, *patterns: str, seconds: float = 60) -> subprocess.Popen[bytes]:
        return self.start("keep", json.dumps(seconds), json.dumps(patterns))

    def termination_message(self) -> dict[str, Any]:
        """Return the content of the termination message."""
        found: dict[str, Any] = json.loads((self.place / "termination-log").read_text())
        return found

    def wait_for(self, name: str) -> None:
        deadline = time.monotonic() + 20
        while not (self.directory / name).exists():
            assert time.monotonic() < deadline, f"there is no {name}"
            time.sleep(0.02)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    found = Pod(tmp_path)
    (found.directory / "files").mkdir(parents=True)
    yield found
    for process in found.started:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Wait until a process has ended, and return its exit status, its output and its errors."""
    out, error = process.communicate(timeout=30)
    return process.returncode, out, error


def runs(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process still runs after 0.6 seconds, which are enough for it to notice a change."""
    time.sleep(0.6)
    return process.poll() is None


def test_a_container_prints_the_lines_of_its_workload_and_reports_how_it_ended(pod: Pod) -> None:
    assert end(pod.supervise("sh", "-c", "echo one; echo two >&2; touch result; exit 3")) == (3, b"one\n", b"two\n")
    report = pod.termination_message()
    assert (report["ended_by"], report["exit_code"], report["left"]) == ("exit", 3, 1)


def test_a_termination_message_carries_short_logs(pod: Pod) -> None:
    end(pod.supervise("sh", "-c", "yes a line | head -n 3000; printf oh >&2"))
    carried = {"stdout": b"a line\n" * 3000, "stderr": b"oh"}
    assert log_transfer.unpack(pod.termination_message()["logs"], STREAMS) == carried
    assert (pod.place / "termination-log").stat().st_size <= 12 * 1024 / 8
    assert (pod.directory / LOGS_SENT).exists()


@pytest.mark.parametrize("count", [600, 900])
def test_a_termination_message_fits_into_a_pod_with_eight_containers(pod: Pod, count: int) -> None:
    """A long message about the start fits too, although JSON escapes each of its characters in 6 bytes."""
    end(pod.supervise("sh", "-c", f"head -c {count} /dev/urandom"))
    assert ("content" in pod.termination_message()["logs"]) is (count == 600)
    assert (pod.place / "termination-log").stat().st_size <= 12 * 1024 / 8
    (pod.directory / "exit_code").unlink()
    end(pod.supervise("true", cwd="/" + "é" * 5000))
    assert pod.termination_message()["message"].startswith("its working directory /é")
    assert (pod.place / "termination-log").stat().st_size <= 12 * 1024 / 8


@pytest.mark.parametrize("change", ["rm", ":>", "echo more >>"])
@pytest.mark.parametrize("log_bytes", [4, 1 << 20])
def test_a_log_that_the_workload_changed_is_reported_as_it_was_written(pod: Pod, change: str, log_bytes: int) -> None:
    end(pod.supervise("sh", "-c", f"echo NaN ERROR; sleep 0.3; {change} ../stdout.log", log_bytes=log_bytes))
    report = pod.termination_message()["logs"]
    written = b"NaN ERROR\n"
    if log_bytes == 4:
        written = b"NaN \n[topgallant: 0 bytes are left out here: the log has reached its limit]\nERROR\n"
    assert report == {"stdout": [len(written), zlib.crc32(written)], "stderr": [0, 0]}
    assert not (pod.directory / LOGS_SENT).exists()


def test_a_container_without_files_runs_until_its_long_logs_have_been_fetched(pod: Pod) -> None:
    supervisor = pod.supervise("sh", "-c", "head -c 100000 /dev/urandom; exit 3", collect=[], hold_seconds=60)
    pod.wait_for("exit_code")
    assert supervisor.stdout is not None
    printed = b""
    while not printed.endswith(f"\n{HOLDING}\n".encode()):
        printed += os.read(supervisor.stdout.fileno(), 1 << 16)
    for _ in range(2):  # repeated: a node may not show the lines of an earlier log file
        assert os.read(supervisor.stdout.fileno(), 1 << 16) == f"{HOLDING}\n".encode()
    assert runs(supervisor)
    assert list(fetched(pod, logs=("stdout", "stderr"))) == ["stdout.log", "stderr.log"]
    assert end(supervisor)[0] == 3
    assert pod.termination_message()["logs"]["stdout"] == log_transfer.checksum(str(pod.directory / "stdout.log"))


def test_a_container_that_holds_its_logs_ends_in_time_and_when_it_is_deleted(pod: Pod) -> None:
    noise = ["sh", "-c", "head -c 100000 /dev/urandom; exit 3"]
    assert end(pod.supervise(*noise, hold_seconds=0.1))[0] == 3
    (pod.directory / "exit_code").unlink()
    supervisor = pod.supervise(*noise, hold_seconds=60)
    pod.wait_for("exit_code")
    time.sleep(0.3)
    supervisor.send_signal(signal.SIGTERM)
    assert end(supervisor)[0] == 3


NOISE = ["sh", "-c", "head -c 100000 /dev/urandom"]


def test_a_container_that_is_deleted_while_it_writes_the_outcome_does_not_hold_its_logs(pod: Pod) -> None:
    assert end(pod.supervise(*NOISE, hold_seconds=60, env={"DELETED": "1"}))[0] == 0


def test_logs_are_kept_until_the_other_side_has_confirmed_that_they_arrived(pod: Pod) -> None:
    supervisor = pod.supervise(*NOISE, collect=[], hold_seconds=60)
    pod.wait_for("exit_code")
    for confirms in (False, True):
        fetch = Fetch(pod, [], ["stdout", "stderr"])
        with fetch.archive() as archive:
            assert archive.getnames() == ["stdout.log", "stderr.log"]
        assert runs(supervisor)
        assert not (pod.directory / LOGS_SENT).exists()
        if confirms:
            assert fetch.confirm() == CONFIRMED
        assert end(fetch.process)[0] == (0 if confirms else 1)
    assert end(supervisor)[0] == 0


def test_logs_are_not_sent_before_the_workload_has_ended(pod: Pod) -> None:
    supervisor = pod.supervise("sh", "-c", f"touch begun; sleep 1; {NOISE[2]}", collect=[], hold_seconds=60)
    pod.wait_for("files/begun")
    assert end(Fetch(pod, [], ["stdout"]).process)[:2] == (1, WORKLOAD_RUNS)
    pod.wait_for("exit_code")
    assert runs(supervisor)
    assert len(fetched(pod, logs=("stdout",))["stdout.log"]) == 100_000
    assert end(supervisor)[0] == 0


def test_a_cancellation_does_not_end_the_wait_for_the_logs(pod: Pod) -> None:
    supervisor = pod.supervise(*NOISE, collect=[], hold_seconds=60)
    pod.wait_for("exit_code")
    time.sleep(0.5)
    assert end(pod.start("cancel")) == (0, b"cancelling\n", b"")
    assert runs(supervisor)
    fetched(pod, logs=("stdout",))
    assert end(supervisor)[0] == 0


def test_a_container_whose_output_has_no_reader_still_keeps_its_logs(pod: Pod) -> None:
    supervisor = pod.supervise(*NOISE, collect=[], hold_seconds=60)
    assert supervisor.stdout is not None
    supervisor.stdout.close()
    supervisor.stdout = None
    pod.wait_for("exit_code")
    assert runs(supervisor)
    fetched(pod, logs=("stdout",))
    assert end(supervisor)[0] == 0


def test_a_container_whose_output_is_not_read_ends_when_its_logs_have_been_fetched(pod: Pod) -> None:
    supervisor = pod.supervise(*NOISE, collect=[], hold_seconds=60)
    pod.wait_for("exit_code")  # the pipe of the output is full by then
    assert runs(supervisor)
    fetched(pod, logs=("stdout",))
    assert supervisor.wait(60) == 0


def test_space_for_the_note_that_logs_were_sent_is_reserved_before_the_workload_starts(pod: Pod) -> None:
    supervisor = pod.supervise("sh", "-c", f"touch begun; ls -a .. > listed; {NOISE[2]}", collect=[], hold_seconds=60)
    pod.wait_for("exit_code")
    assert ".logs_sent" in (pod.directory / "files/listed").read_text().split()
    fetched(pod, logs=("stdout",))
    assert end(supervisor)[0] == 0
    assert not (pod.directory / ".logs_sent").exists()


def test_only_files_that_match_collect_are_counted_as_left(pod: Pod) -> None:
    end(pod.supervise("sh", "-c", "touch a.csv b.txt c.txt", collect=["*.txt"]))
    assert pod.termination_message()["left"] == 2


@pytest.mark.parametrize(
    ("command", "order", "ended_by", "status"),
    [
        (["true"], {}, "exit", 0),
        (["sh", "-c", "kill -9 $$"], {}, "signal", 137),
        (["sh", "-c", "trap 'exit 0' TERM; sleep 60 & wait"], {"run_seconds": 0.3}, "timeout", 1),
        (["sleep", "60"], {"silence_seconds": 0.3}, "silence", 143),
        (["no-such-program"], {}, "not_started", 127),
    ],
)
def test_a_container_succeeds_only_with_its_workload(
    pod: Pod, command: list[str], order: dict[str, Any], ended_by: str, status: int
) -> None:
    assert end(pod.supervise(*command, **order))[0] == status
    assert pod.termination_message()["ended_by"] == ended_by


def test_the_sources_are_extracted_before_the_workload_starts(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("sent")
    with tarfile.open(tmp_path / "sources.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "script", "sub/script")
    _, out, _ = end(pod.supervise("sh", "-c", 'cat "$TOPGALLANT_SRC/sub/script"'))
    assert out == b"sent"


def test_secrets_in_variables_are_masked_in_the_output(pod: Pod) -> None:
    command = ["sh", "-c", 'echo "the token is $TOKEN"']
    _, out, _ = end(pod.supervise(*command, env={"TOKEN": "s3cret"}, secrets=["TOKEN", "NOT_SET"]))
    assert out == b"the token is ***\n"


def test_an_unread_log_does_not_block_the_workload_and_arrives_complete(pod: Pod) -> None:
    process = pod.supervise("sh", "-c", "seq 100000; touch done")
    pod.wait_for("files/done")
    whole = "".join(f"{number}\n" for number in range(1, 100001))
    assert end(process)[:2] == (0, whole.encode())
    assert pod.termination_message()["logs"]["stdout"][0] == len(whole)


def test_binary_output_is_printed_as_it_is(pod: Pod) -> None:
    _, out, _ = end(pod.supervise(sys.executable, "-c", "import os; os.write(1, bytes(range(256)) * 999)"))
    assert out == bytes(range(256)) * 999


def test_a_pod_that_is_ended_ends_its_workload(pod: Pod) -> None:
    process = pod.supervise("sh", "-c", "touch begun; sleep 60")
    pod.wait_for("files/begun")
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 143
    assert pod.termination_message()["ended_by"] == "cancelled"


def test_a_supervisor_that_cannot_write_its_directory_reports_this_and_leaves_no_outcome(
    pod: Pod, tmp_path: Path
) -> None:
    (pod.directory / ".exit_code").mkdir()
    status, _, error = end(pod.supervise("true"))
    assert (status, (tmp_path / "termination-log").exists()) == (1, False)
    assert f"the workload cannot be started in {pod.directory}: ".encode() in error


def test_a_cancellation_is_confirmed_and_ends_the_workload(pod: Pod) -> None:
    supervisor = pod.supervise("sh", "-c", "touch begun; sleep 60")
    pod.wait_for("files/begun")
    assert end(pod.start("cancel")) == (0, b"cancelling\n", b"")
    assert end(supervisor)[0] == 143
    assert pod.termination_message()["ended_by"] == "cancelled"


def test_a_cancellation_waits_for_a_workload_that_is_about_to_start(pod: Pod) -> None:
    canceller = pod.start("cancel")
    time.sleep(0.5)
    supervisor = pod.supervise("sleep", "60")
    assert end(canceller) == (0, b"cancelling\n", b"")
    assert end(supervisor)[0] == 143
    assert pod.termination_message()["ended_by"] == "cancelled"


def test_cancelling_without_a_workload_is_not_confirmed(pod: Pod) -> None:
    canceller = pod.start("cancel", TIMEOUT="0.3")
    assert end(canceller) == (1, b"", b"there is no workload\n")


def test_the_keeper_ends_if_no_files_are_left(pod: Pod) -> None:
    keeper = pod.keep("**")
    end(pod.supervise("true"))
    assert end(keeper)[0] == 0


def test_the_keeper_runs_until_the_workload_has_ended(pod: Pod) -> None:
    keeper = pod.keep("**")
    assert runs(keeper)
    supervisor = pod.supervise("sh", "-c", "touch begun; while [ ! -e end ]; do sleep 0.05; done; rm end begun")
    pod.wait_for("files/begun")
    assert runs(keeper)
    (pod.directory / "files/end").touch()
    end(supervisor)
    assert end(keeper)[0] == 0


@pytest.mark.parametrize("command", ["touch result", "head -c 100000 /dev/urandom"])
def test_files_and_logs_are_kept_until_the_pod_is_deleted(pod: Pod, command: str) -> None:
    keeper = pod.keep("**")
    supervisor = pod.supervise("sh", "-c", command, log_bytes=1 << 22)
    assert end(supervisor)[0] == 0
    assert runs(keeper)
    keeper.send_signal(signal.SIGTERM)
    assert end(keeper)[0] == 0


def test_files_that_are_not_fetched_are_kept_for_a_limited_time(pod: Pod) -> None:
    keeper = pod.keep("**", seconds=0.1)
    end(pod.supervise("touch", "result"))
    assert end(keeper)[0] == 0


def test_a_supervisor_that_is_killed_is_noticed_and_its_logs_are_kept(pod: Pod) -> None:
    keeper = pod.keep(seconds=1)
    supervisor = pod.supervise("sh", "-c", "touch begun; sleep 5")
    pod.wait_for("files/begun")
    supervisor.kill()
    assert runs(keeper)
    assert end(keeper)[0] == 0


class Fetch:
    """A client that requests the files and logs of an attempt piece by piece."""

    def __init__(self, pod: Pod, patterns: list[str], logs: list[str]) -> None:
        self.process = pod.start("send", json.dumps(patterns), json.dumps(logs))
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.ask, self.answer = self.process.stdin, self.process.stdout

    def piece(self) -> bytes:
        self.ask.write(b"\n")
        self.ask.flush()
        return self.answer.read(int(self.answer.read(8)))

    def confirm(self) -> bytes:
        """Confirm that the logs have arrived, and return the answer."""
        self.ask.write(b"\n")
        self.ask.flush()
        return self.answer.read(8)

    def archive(self, content: bytes = b"") -> tarfile.TarFile:
        while piece := self.piece():
            assert len(piece) <= 1 << 20
            content += piece
        return tarfile.open(fileobj=io.BytesIO(content))


def fetched(pod: Pod, *patterns: str, logs: tuple[str, ...] = ()) -> dict[str, bytes | str]:
    """Return the fetched files by their names: the contents of files, and the targets of links."""
    fetch = Fetch(pod, list(patterns), list(logs))
    with fetch.archive() as archive:
        if logs:
            assert fetch.confirm() == CONFIRMED
        found: dict[str, bytes | str] = {}
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            found[member.name] = stream.read() if stream is not None else member.linkname
        return found


def test_requested_files_are_sent_with_the_logs_that_exist(pod: Pod) -> None:
    large = os.urandom(3 << 20)
    for name, content in (("files/a", large), ("files/b", b"b"), ("samples.csv", b"s"), ("stdout.log", b"out")):
        (pod.directory / name).write_bytes(content)
    (pod.directory / "outcome.json").write_text("{}")  # it is not fetched: the termination message carries the outcome
    expected = {"files/a": large, "samples.csv": b"s", "stdout.log": b"out"}
    assert fetched(pod, "a", logs=("stdout", "stderr")) == expected


def test_each_piece_is_sent_only_on_request(pod: Pod) -> None:
    (pod.directory / "files/a").write_bytes(bytes(3 << 20))
    fetch = Fetch(pod, ["**"], [])
    assert len(fetch.piece()) == 1 << 20
    os.set_blocking(fetch.answer.fileno(), False)
    assert runs(fetch.process)
    assert not fetch.answer.read()
    assert end(fetch.process)[0] == 1  # its input is closed


def test_a_symbolic_link_stays_a_link_and_a_hard_link_becomes_a_file(pod: Pod) -> None:
    (pod.directory / "files/a").write_bytes(b"1")
    (pod.directory / "files/hard").hardlink_to(pod.directory / "files/a")
    (pod.directory / "files/soft").symlink_to("a")
    assert fetched(pod, "**") == {"files/a": b"1", "files/hard": b"1", "files/soft": "a"}


def test_a_pipe_is_left_out(pod: Pod) -> None:
    os.mkfifo(pod.directory / "files/fifo")
    (pod.directory / "files/a").write_bytes(b"1")
    assert fetched(pod, "**") == {"files/a": b"1"}


def test_an_unreadable_log_is_left_out_with_a_message(pod: Pod) -> None:
    (pod.directory / "files/a").write_bytes(b"1")
    fetch = Fetch(pod, ["**"], ["stdout"])  # there is no such log
    with fetch.archive() as archive:
        assert archive.getnames() == ["files/a"]
    assert fetch.confirm() == CONFIRMED
    assert end(fetch.process)[::2] == (0, b"stdout.log is left out: No such file or directory\n")


def test_a_file_that_shrinks_while_it_is_sent_does_not_affect_other_files(pod: Pod) -> None:
    (pod.directory / "files/a").write_bytes(bytes(3 << 20))
    (pod.directory / "files/b").write_bytes(b"b")
    fetch = Fetch(pod, ["**"], [])
    begun = fetch.piece()
    os.truncate(pod.directory / "files/a", 0)
    with fetch.archive(begun) as archive:
        assert archive.getnames() == ["files/a", "files/b"]
    assert b"files/a" in end(fetch.process)[2]


def test_without_files_the_archive_is_empty(pod: Pod) -> None:
    assert fetched(pod, "**") == {}
