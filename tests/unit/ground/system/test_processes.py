"""Programs run until they end, or are ended with all their descendants."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from toolbox.ground.kit import process_tree
from toolbox.ground.model.errors import Cancelled
from toolbox.ground.system import cancellation, processes, signals
from toolbox.ground.system.processes import Channel, Completed, LineTooLong

LONGEST = 1 << 26
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True: time.sleep(60)
"""
# A child in its own session starts another child and exits; the other child is then an orphan.
FAMILY = r"""
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, f"orphan {os.getpid()}\n".encode())
        time.sleep(60)
    os._exit(0)
os.wait()
os.write(1, b"ready\n")
time.sleep(60)
"""
# The program forks every few milliseconds, and all processes ignore SIGTERM.
FORKING = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"up\\n")
for _ in range(400):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    time.sleep(0.003)
time.sleep(60)
"""


class Lines:
    """The lines that a program prints; a test can wait for one of them."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._news = threading.Condition()

    def __call__(self, line: str) -> None:
        with self._news:
            self.seen.append(line)
            self._news.notify_all()

    def wait_for(self, start: str) -> str:
        def found() -> str | None:
            return next((line for line in self.seen if line.startswith(start)), None)

        with self._news:
            line = self._news.wait_for(found, timeout=30)
        assert line is not None, f"{start!r} was expected in {self.seen}"
        return line


@pytest.fixture
def lines() -> Lines:
    return Lines()


Run = Callable[..., Completed]


@pytest.fixture
def run(tmp_path: Path, lines: Lines) -> Iterator[Run]:
    """Yield a function that runs a program in the step `tmp_path`; remaining processes end with the test."""

    def call(*args: str, **options: object) -> Completed:
        arguments: dict[str, object] = {"env": processes.environment(tmp_path), "on_line": lines, **options}
        return processes.run(args, **arguments)  # type: ignore[arg-type]

    yield call
    processes.end_marked(tmp_path, grace=0.1)


Start = Callable[..., Future[Completed]]


@pytest.fixture
def start(run: Run, tmp_path: Path) -> Iterator[Start]:
    """Yield a function that runs a program of the step in another thread, and returns a future."""
    with ThreadPoolExecutor() as runner:
        yield lambda *args, **options: runner.submit(run, *args, **options)
        processes.end_marked(tmp_path, grace=0.1)


def python(source: str) -> tuple[str, str, str]:
    return sys.executable, "-c", source


def test_captured_output_is_returned_and_other_output_is_passed_on_as_lines(run: Run, lines: Lines) -> None:
    done = run("bash", "-c", "echo out; echo err >&2; exit 3", capture_stdout=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", None)
    assert lines.seen == ["err"]


def test_each_stream_can_have_its_own_line_handler(run: Run, lines: Lines) -> None:
    errors: list[str] = []
    run("bash", "-c", "echo out; echo err >&2", on_error_line=errors.append)
    assert (lines.seen, errors) == (["out"], ["err"])


def test_invalid_utf8_in_the_output_is_replaced(run: Run, lines: Lines) -> None:
    done = run("printf", r"caf\303\251 \377\376!\n", capture_stdout=True)
    assert done.stdout == "café \ufffd\ufffd!\n"
    run("printf", r"\200\n")
    assert lines.seen == ["\ufffd"]


@pytest.mark.parametrize("text", ["no end of line", "", "a\n\nb", "a\r\nb\r\n"])
def test_output_is_complete_whatever_its_line_ends(run: Run, lines: Lines, text: str) -> None:
    assert run("printf", "%s", text, capture_stdout=True).stdout == text
    run("printf", "%s", text)
    assert lines.seen == [line.rstrip("\r") for line in text.removesuffix("\n").split("\n") if text]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_full_pipe_does_not_stop_the_program(run: Run, stream: str) -> None:
    done = run(
        *python(f"import sys; sys.{stream}.write('x' * 3_000_000); print('done', file=sys.stderr)"),
        capture_stdout=True,
        capture_stderr=True,
    )
    assert len(done.stdout or "") + len(done.stderr or "") == 3_000_005
    assert (done.stderr or "").endswith("done\n")


def test_the_exit_status_after_a_signal_is_its_negative_number(run: Run) -> None:
    assert run("bash", "-c", "kill -USR1 $$").returncode == -10


def test_the_main_thread_defers_signals_while_it_waits_with_a_lock(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wait, are_deferred = subprocess.Popen.wait, []

    def observed(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        are_deferred.append(signals._state.is_deferred)
        return wait(self, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", observed)
    run("sleep", "0.2")
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    run("sleep", "0.2")
    assert are_deferred
    assert all(are_deferred)


def test_standard_input_is_empty_by_default(run: Run, tmp_path: Path) -> None:
    assert run("cat", capture_stdout=True).stdout == ""
    (tmp_path / "input").write_bytes(b"from a file")
    with (tmp_path / "input").open("rb") as stream:
        assert run("cat", stdin=stream, capture_stdout=True).stdout == "from a file"


def test_a_process_carries_its_step_and_variables(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "1")
    env = processes.environment(tmp_path, {"GIVEN": "2", "ARTIFACT_DIR": "/elsewhere"})
    printed = run("env", env=env, capture_stdout=True).stdout or ""
    wanted = {"INHERITED=1", "GIVEN=2", f"ARTIFACT_DIR={tmp_path}", f"TOPGALLANT_STEP={tmp_path}"}
    assert wanted <= set(printed.splitlines())


@pytest.mark.parametrize("program", ["there-is-no-such-program", "/", "./not-executable"])
def test_a_program_that_cannot_be_started_is_an_os_error(run: Run, tmp_path: Path, program: str) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    with pytest.raises(OSError, match=program.removeprefix(".")):
        run(program, cwd=tmp_path)


def test_a_program_has_a_session_of_its_own(run: Run) -> None:
    done = run(*python("import os; print(os.getsid(0) == os.getpid())"), capture_stdout=True)
    assert done.stdout == "True\n"


def test_a_cancelled_scope_ends_the_program_and_raises(run: Run, lines: Lines, tmp_path: Path) -> None:
    with cancellation.opened() as scope, ThreadPoolExecutor(1) as canceller:

        def cancel() -> None:
            lines.wait_for("up")
            scope.cancel("enough")

        ended = canceller.submit(cancel)
        with pytest.raises(Cancelled, match="enough"):
            run("bash", "-c", "echo up; sleep 60")
        ended.result()
    assert processes.marked(tmp_path) == []


def test_nothing_starts_in_a_cancelled_scope(run: Run, tmp_path: Path) -> None:
    with cancellation.opened() as scope:
        scope.cancel("too late")
        with pytest.raises(Cancelled, match="too late"):
            run("touch", str(tmp_path / "started"))
    assert not (tmp_path / "started").exists()


def test_an_interrupted_wait_ends_the_program(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(BaseException):
        pass

    def interrupted(_process: subprocess.Popen[bytes]) -> None:
        raise Stop

    monkeypatch.setattr(processes, "_await", interrupted)
    with pytest.raises(Stop):
        run("sleep", "60")
    assert processes.marked(tmp_path) == []


def test_a_background_process_does_not_block_the_caller(run: Run, tmp_path: Path) -> None:
    run("bash", "-c", "sleep 60 & echo started")
    assert len(processes.marked(tmp_path)) == 1
    processes.end_marked(tmp_path)


def test_an_orphan_in_another_session_is_ended_too(start: Start, lines: Lines, tmp_path: Path) -> None:
    running = start(*python(FAMILY))
    lines.wait_for("ready")
    orphan = psutil.Process(int(lines.wait_for("orphan").split()[1]))
    assert orphan.pid in processes.marked(tmp_path)
    assert processes.end_marked(tmp_path) == 2
    assert running.result(timeout=30).returncode == -15
    assert not is_alive(orphan)


def test_a_program_that_ignores_sigterm_is_killed_after_the_grace(start: Start, lines: Lines, tmp_path: Path) -> None:
    running = start(*python(STUBBORN))
    lines.wait_for("deaf")
    assert processes.end_marked(tmp_path, grace=0.2) == 1
    assert running.result(timeout=30).returncode == -9


def test_a_program_may_clean_up_at_sigterm(start: Start, lines: Lines, tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/cleaned; exit 7' TERM; echo up; while :; do sleep 0.05; done"
    running = start("bash", "-c", script)
    lines.wait_for("up")
    processes.end_marked(tmp_path)
    assert running.result(timeout=30).returncode == 7
    assert (tmp_path / "cleaned").exists()


def test_steps_inside_a_directory_end_with_it_and_steps_beside_it_do_not(
    start: Start, lines: Lines, tmp_path: Path
) -> None:
    inside, beside = tmp_path / "000__a" / "000__b", tmp_path / "000__ab"
    ended = start("bash", "-c", "echo in; exec sleep 60", env=processes.environment(inside))
    left = start("bash", "-c", "echo by; exec sleep 60", env=processes.environment(beside))
    lines.wait_for("in")
    lines.wait_for("by")
    assert processes.end_marked(tmp_path / "000__a") == 1
    assert ended.result(timeout=30).returncode == -15
    assert len(processes.marked(beside)) == 1
    processes.end_marked(beside)
    left.result(timeout=30)


def test_this_process_never_ends_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "process_iter", lambda: [psutil.Process()])
    monkeypatch.setattr(psutil.Process, "environ", lambda _: {process_tree.MARK: str(tmp_path)})
    assert processes.end_marked(tmp_path, grace=0) == 0


def test_ending_a_process_that_has_ended_is_not_an_error(tmp_path: Path) -> None:
    with psutil.Popen(["true"]) as gone:
        gone.wait()
    processes.end_tree(gone.pid, str(tmp_path), grace=0)


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_no_pipe_is_left_open(run: Run) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    run("true")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_error_of_the_line_handler_ends_the_program_and_is_raised(run: Run, tmp_path: Path) -> None:
    def refuse(line: str) -> None:
        raise BrokenPipeError(line)

    with pytest.raises(BrokenPipeError, match="hello"):
        run("bash", "-c", "echo hello; exec sleep 60", on_line=refuse)
    assert processes.marked(tmp_path) == []


def test_a_process_that_another_thread_ended_has_its_exit_status(start: Start, lines: Lines, tmp_path: Path) -> None:
    """If the thread that ends a program called `waitpid`, the waiting thread would get the status 0."""
    running = start("bash", "-c", "echo up; exec 1>&- 2>&-; sleep 60")
    lines.wait_for("up")
    processes.end_marked(tmp_path)
    assert running.result(timeout=30).returncode == -15


def test_output_can_be_passed_on_in_pieces(start: Start, lines: Lines, tmp_path: Path) -> None:
    """Some output of Ansible has no line end, and a character may arrive in two halves."""
    wait = f"until test -e {tmp_path}/go; do sleep 0.01; done"
    script = f"printf 'no end'; {wait}; printf '\\303'; sleep 0.1; printf '\\251\\n'"
    running = start("bash", "-c", script, whole_lines=False)
    lines.wait_for("no end")
    (tmp_path / "go").touch()
    assert running.result(timeout=30).returncode == 0
    assert "".join(lines.seen) == "no end\u00e9\n"


def test_cancelled_is_raised_after_all_processes_have_ended(
    run: Run, lines: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program ends at once; its child in another session ends only when it is killed."""
    monkeypatch.setattr(processes.end_tree, "__kwdefaults__", {"grace": 0.3})
    child = f"trap '' TERM; exec >&- 2>&-; touch {tmp_path}/deaf; while :; do sleep 0.05; done"
    script = f"""setsid bash -c "{child}" & until test -e {tmp_path}/deaf; do sleep 0.01; done; echo up; sleep 60"""
    with cancellation.opened() as scope, ThreadPoolExecutor(1) as canceller:

        def cancel() -> None:
            lines.wait_for("up")
            scope.cancel("enough")

        canceller.submit(cancel)
        with pytest.raises(Cancelled):
            run("bash", "-c", script)
        assert processes.marked(tmp_path) == []


def test_an_output_may_go_to_a_file(run: Run, lines: Lines, tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as stream:
        done = run("bash", "-c", r"printf '\377\0 no end'; echo err >&2", stdout=stream)
    assert (tmp_path / "output").read_bytes() == b"\xff\0 no end"
    assert (done.returncode, done.stdout, lines.seen) == (0, None, ["err"])


def test_processes_of_a_kept_directory_are_not_ended(start: Start, lines: Lines, tmp_path: Path) -> None:
    kept, ended = tmp_path / "kept", tmp_path / "kept-not"
    going = start("bash", "-c", "echo up; exec sleep 60", env=processes.environment(kept / "below"))
    lines.wait_for("up")
    gone = start("bash", "-c", "echo too; exec sleep 60", env=processes.environment(ended))
    lines.wait_for("too")
    assert processes.end_marked(tmp_path, keep=[kept]) == 1
    assert gone.result(timeout=30).returncode == -15
    assert len(processes.marked(kept)) == 1
    processes.end_marked(kept)
    going.result(timeout=30)


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Callable[..., Channel]]:
    """Yield a function that opens a channel to a program."""
    channels: list[Channel] = []

    def open_channel(*args: str) -> Channel:
        channels.append(Channel(args, processes.environment(tmp_path)))
        return channels[-1]

    yield open_channel
    for one in channels:
        one.close()
        assert one._process.stdout is not None
        one._process.stdout.close()


Open = Callable[..., Channel]


def test_a_channel_has_input_and_output_and_ends_with_its_input(channel: Open) -> None:
    cat = channel("cat")
    lines = cat.lines(LONGEST)
    for content in (b"one\n", b"\xff two\n"):
        cat.write(content)
        assert next(lines) == content
    cat.write(b"no end")
    assert cat.close() == 0
    assert list(lines) == [b"no end"]


def test_a_channel_that_does_not_end_is_killed(channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.2)
    assert channel("sleep", "60").close() == -9


def test_a_channel_keeps_its_last_errors(channel: Open) -> None:
    failed = channel("bash", "-c", "seq 30 >&2; exit 7")
    assert list(failed.lines(LONGEST)) == []
    assert failed.errors == "\n".join(map(str, range(11, 31)))
    assert failed.close() == failed.close() == 7


def test_a_channel_accepts_more_data_than_a_pipe_holds(channel: Open) -> None:
    count = channel("wc", "-c")
    count.write(b"x" * 3_000_000)
    count.close()
    assert list(count.lines(LONGEST)) == [b"3000000\n"]


def test_writes_of_two_threads_to_a_channel_are_not_mixed(channel: Open) -> None:
    count = channel("bash", "-c", "sort | uniq -c | awk '{ print $1, length($2) }'")
    with ThreadPoolExecutor() as threads:
        list(threads.map(count.write, [b"x" * 100_000 + b"\n", b"y" * 100_000 + b"\n"] * 20))
    count.close()
    assert list(count.lines(LONGEST)) == [b"20 100000\n"] * 2


def test_writing_to_a_channel_whose_program_has_ended_is_an_error(channel: Open) -> None:
    gone = channel("true")
    assert list(gone.lines(LONGEST)) == []
    with pytest.raises(OSError, match="Broken pipe"):
        gone.write(b"x" * 100_000)


def test_writing_to_a_closed_channel_is_an_error(channel: Open) -> None:
    closed = channel("cat")
    closed.close()
    with pytest.raises(OSError, match="the channel was closed"):
        closed.write(b"x")


def test_a_channel_to_a_missing_program_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no-such-program"):
        Channel(["no-such-program"], processes.environment(tmp_path))


def test_a_channel_carries_the_mark_of_its_step(channel: Open, tmp_path: Path) -> None:
    cat = channel("cat")
    cat.write(b"up\n")
    assert next(cat.lines(LONGEST)) == b"up\n"
    assert len(processes.marked(tmp_path)) == 1


def test_a_line_that_is_too_long_ends_the_reading(channel: Open) -> None:
    one = channel(sys.executable, "-c", "print('a' * 10); print('b' * 11)")
    lines = one.lines(11)
    assert next(lines) == b"a" * 10 + b"\n"
    with pytest.raises(LineTooLong, match="a line has more than 11 bytes"):
        next(lines)


def test_an_error_without_an_end_of_line_is_not_held_in_memory(channel: Open) -> None:
    one = channel(sys.executable, "-c", "import sys; sys.stderr.write('e' * 1_000_000)")
    assert list(one.lines(LONGEST)) == []
    assert 0 < len(one.errors) < 100_000


def test_a_line_of_megabytes_is_split_between_characters(tmp_path: Path) -> None:
    lines: list[str] = []
    script = "import sys; sys.stdout.buffer.write(('a' + 'é' * 1_500_000 + '\\nend').encode())"
    processes.run([sys.executable, "-c", script], env=processes.environment(tmp_path), on_line=lines.append)
    assert len(lines) > 2
    assert "".join(lines) == "a" + "é" * 1_500_000 + "end"


def test_processes_that_are_forked_during_the_search_are_ended_too(start: Start, lines: Lines, tmp_path: Path) -> None:
    start(sys.executable, "-c", FORKING)
    lines.wait_for("up")
    processes.end_marked(tmp_path, grace=0.3)
    assert processes.marked(tmp_path) == []


def test_a_fork_of_this_process_does_not_keep_its_servers_and_channels(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from toolbox.ground.system import processes

program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
with open(os.devnull, "wb") as nothing:
    server = processes.start_server(program, dict(os.environ), Path.cwd(), nothing, keep=0)
channel = processes.Channel(program, dict(os.environ))
child = os.fork()
if child == 0:
    signal.pause()
processes.stop_server(server)
print(server.returncode, channel.close())
os.kill(child, signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "0 0\n"  # those that do not end by themselves are killed
