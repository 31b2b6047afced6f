"""Runs one workload, detached from the process that requested it, and writes a record of how it ended.

The supervisor is a process in its own session (`supervisor_process`), so it survives the end of the server, of the
connection and of the orchestrator. It enforces the time limits, and ends the whole process tree of the workload. In a
pod, it is the program of the container.

`toolbox.ground.kit.attempt_files` lists the files in the directory of the attempt.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
from typing import Any, Callable, Dict, List, Mapping, Sequence

from toolbox.ground.kit import masking, process_tree, safe_files
from toolbox.ground.kit.attempt_files import (
    EXIT_CODE,
    GPU_SAMPLES,
    OUTCOME,
    RESULTS,
    SAMPLES,
    SOURCES,
    STARTED,
    STREAMS,
    log_name,
)
from toolbox.ground.kit.exit_codes import SIGNALLED
from toolbox.ground.kit.own_cgroups import OomCounter
from toolbox.targets.agent import cgroups, durable, machine, startup_files
from toolbox.targets.agent.echo import Echo
from toolbox.targets.agent.log_files import Log
from toolbox.targets.agent.sampler import Sampler

# This space is reserved before the workload starts, so that the outcome can be written even if the disk is full.
_RESERVED_BYTES = 4096
# A longer message could exceed the reserved space, or the termination message of a container. Up to 6 bytes are written
# for a character.
_MESSAGE_BYTES = 500
_CHUNK_BYTES = 1 << 16
_POLL_SECONDS = 0.05
_DRAIN_SECONDS = 2.0
_ECHO_SECONDS = 10.0
_STUCK_SECONDS = 30.0
# The connection of the agent. With these variables, a bash without a terminal reads startup files, in which the option
# `nounset` causes errors on Debian.
_SSH_VARIABLES = ("SSH_CLIENT", "SSH2_CLIENT", "SSH_CONNECTION")
_IGNORED_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGINT,
    signal.SIGQUIT,  # a shell starts programs in the background with SIGINT and SIGQUIT ignored
    signal.SIGHUP,
    signal.SIGCHLD,
    signal.SIGXFSZ,
)


class Supervisor:
    """Runs one workload to its end.

    Args:
        directory: the directory of the attempt, which exists and contains `files/`.
        order: what to run: `command`, `env`, `cwd`, `secrets`, `run_seconds`, `silence_seconds`,
            `grace_seconds`, `log_bytes`, `sample_seconds`. `run_seconds` and `silence_seconds` are None for no limit,
            and `sample_seconds` is None for no sampling.
        echoes: copy the logs to other streams; empty if the logs are only written to the directory. With echoes, the
            checksums of the logs are computed.

    Attributes:
        late_signals: each SIGTERM that arrived after the end of the workload.
    """

    def __init__(self, directory: str, order: Mapping[str, Any], echoes: Sequence[Echo] = ()) -> None:
        self._directory = directory
        self._order = order
        self._echoes = echoes
        self.late_signals: List[int] = []
        self._main_pid = 0
        self._startup_files = startup_files.digests()
        self._cgroup = ""
        self._status: int | None = None
        self._ended_by = ""
        self._message = ""
        self._leftovers = 0
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._drain_until: float | None = None
        self._began = self._last_output_at = time.monotonic()
        self._is_cancelled = False
        self._logs: Dict[str, Log] = {}
        self._open: Dict[int, str] = {}  # the streams that the workload has not closed, by their descriptors
        self._sampler: Sampler | None = None
        self._poll = select.poll()
        self._wakeup_pipe: tuple[int, ...] = ()
        self._earlier_seconds = _cpu_seconds()

    def run(self, report: Callable[[str], None]) -> None:
        """Run the workload to its end.

        Args:
            report: called once, with an empty string, or with the reason why the supervisor cannot write in the
                directory.
        """
        try:
            self._prepare()
        except OSError as error:
            report(f"the workload cannot be started in {self._directory}: {error}")
        else:
            self._run(report)
        finally:
            signal.set_wakeup_fd(-1)
            for descriptor in (*self._wakeup_pipe, *self._open):
                os.close(descriptor)

    def _run(self, report: Callable[[str], None]) -> None:
        began = time.time()
        self._message = self._start()
        report("")
        if self._message:
            self._ended_by = "not_started"
        while not self._is_over():
            self._wait()
            self._reap()
            self._enforce_limits()
        signal.signal(signal.SIGTERM, lambda number, _frame: self.late_signals.append(number))
        self._finish(began)

    def checksums(self) -> Dict[str, List[int]]:
        """Return the size and the CRC-32 of what was written to each log."""
        return {stream: log.checksum for stream, log in self._logs.items()}

    def _prepare(self) -> None:
        # A signal that has a handler writes a byte into this pipe, which ends the wait of `select.poll`.
        self._wakeup_pipe = self._wakeup, write = os.pipe()
        for end in self._wakeup_pipe:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        # The workload must not ignore a signal that this process ignores. `exec` restores the defaults of signals that
        # have handlers, but not of ignored signals.
        for number in _IGNORED_SIGNALS:
            signal.signal(number, _ignore)
        signal.signal(signal.SIGTERM, self._handle_sigterm)
        process_tree.adopt_orphans()
        for name in (OUTCOME, EXIT_CODE):
            safe_files.reserve(self._path(f".{name}"), _RESERVED_BYTES)
        self._cgroup = cgroups.create(self._directory)
        self._oom_counter = OomCounter(self._cgroup)
        started = {"pid": os.getpid(), "time": time.time(), "boot": machine.boot()}
        safe_files.replace(self._path(STARTED), json.dumps(started).encode())

    def _handle_sigterm(self, _number: int, _frame: Any) -> None:
        self._is_cancelled = True

    def _start(self) -> str:
        """Start the workload, and return why it cannot be started; empty on success."""
        secrets = masking.patterns(self._order["secrets"])
        writers = []
        for stream in STREAMS:
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            file, limit = self._path(log_name(stream)), self._order["log_bytes"]
            self._logs[stream] = Log(file, limit, secrets, has_checksum=bool(self._echoes))
            self._open[reader] = stream
            self._poll.register(reader, select.POLLIN | select.POLLHUP)
            writers.append(writer)
        self._poll.register(self._wakeup, select.POLLIN)
        fault = self._spawn(writers)
        for writer in writers:
            os.close(writer)
        if self._order["sample_seconds"]:
            self._sampler = Sampler(self._directory, self._order["sample_seconds"])
        return fault

    def _spawn(self, writers: Sequence[int]) -> str:
        """Start the workload in a session and a cgroup of its own, and return why it cannot be started.

        `os.posix_spawn` does not copy the memory of this process, as a fork does. A process inherits the working
        directory and the cgroup of its parent, so this process uses those of the workload for a moment.
        """
        program, variables = self._order["command"][0], self._variables()
        cwd = os.path.join(self._directory, os.path.expanduser(self._order["cwd"] or RESULTS))
        own_directory = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        is_inside = False
        try:
            try:
                os.chdir(cwd)
            except OSError as error:
                return f"its working directory {cwd} cannot be entered: {error.strerror}"
            is_inside = bool(self._cgroup) and cgroups.enter(self._cgroup)
            self._main_pid = _start_program(_programs(program, variables), self._order["command"], variables, writers)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            return f"`{program}` cannot be started: {reason}"
        finally:
            if is_inside and not cgroups.leave(self._cgroup):
                self._cgroup = ""  # killing the group would kill this process
            os.fchdir(own_directory)
            os.close(own_directory)
        return ""

    def _variables(self) -> Dict[str, str]:
        """Return the environment variables of the workload."""
        return {
            **{name: value for name, value in os.environ.items() if name not in _SSH_VARIABLES},
            "ARTIFACT_DIR": self._path(RESULTS),
            "TOPGALLANT_SRC": self._path(SOURCES),
            **self._order["env"],
            process_tree.MARK: self._directory,
        }

    def _wait(self) -> None:
        for descriptor, _ in self._poll.poll(max(0, self._seconds_to_wait() * 1000)):
            if descriptor == self._wakeup:
                os.read(descriptor, 512)
            elif descriptor in self._open:
                self._read(descriptor)
        for echo in self._echoes:
            self._pump(echo)

    def _pump(self, echo: Echo) -> None:
        was_behind = echo.is_behind
        echo.pump()
        if echo.is_behind and not was_behind:
            self._poll.register(echo.descriptor, select.POLLOUT)
        elif was_behind and not echo.is_behind:
            self._poll.unregister(echo.descriptor)

    def _read(self, descriptor: int) -> None:
        try:
            content = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if content:
            self._last_output_at = time.monotonic()
            self._logs[self._open[descriptor]].write(content)
        else:
            self._poll.unregister(descriptor)
            os.close(descriptor)
            del self._open[descriptor]

    def _seconds_to_wait(self) -> float:
        now = time.monotonic()
        times = [now + 3600, self._drain_until, self._give_up_at, self._sampler and self._sampler.due]
        if self._kill_at is not None:
            times.append(self._kill_at if now < self._kill_at else now + _POLL_SECONDS)
        elif not self._ended_by:
            times += self._deadlines()
        return min(time for time in times if time) - now

    def _deadlines(self) -> tuple[float | None, float | None]:
        """Return when the workload will exceed its time limit and its limit for silence; None for no limit."""
        run, silence = self._order["run_seconds"], self._order["silence_seconds"]
        return (
            None if run is None else self._began + float(run),
            None if silence is None else self._last_output_at + float(silence),
        )

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._note_end_of_tree()
                return
            if pid == 0:
                break
            if self._sampler is not None and pid == self._sampler.gpu_reader:
                self._sampler.gpu_reader = 0  # another process may have this process id from now on
            if pid == self._main_pid:
                self._status = status
                # The process that sent SIGTERM to this supervisor may also have killed the workload.
                by_signal = "cancelled" if self._is_cancelled else "signal"
                self._ended_by = self._ended_by or (by_signal if os.WIFSIGNALED(status) else "exit")
        if self._status is not None and self._drain_until is None:
            leftovers = self._members()
            if leftovers and self._kill_at is None:
                self._leftovers = len(leftovers)
                self._terminate(leftovers)
            elif not leftovers:
                self._close_sampler()  # this ends the GPU reader, so that `os.waitpid` finds no more children

    def _note_end_of_tree(self) -> None:
        self._status = self._status if self._status is not None else 127 << 8
        if self._drain_until is None:
            self._drain_until = time.monotonic() + _DRAIN_SECONDS

    def _enforce_limits(self) -> None:
        if self._is_cancelled:
            self._end("cancelled", "")
        now = time.monotonic()
        run_deadline, silence_deadline = self._deadlines()
        if not self._ended_by and run_deadline is not None and now >= run_deadline:
            self._end("timeout", f"it ran longer than {self._order['run_seconds']:g} s")
        if not self._ended_by and silence_deadline is not None and now >= silence_deadline:
            self._end("silence", f"it printed nothing for {self._order['silence_seconds']:g} s")
        if self._kill_at is not None and now >= self._kill_at and self._drain_until is None:
            self._send(signal.SIGKILL, self._members())
        if self._sampler is not None and now >= self._sampler.due:
            self._sampler.sample()

    def _end(self, ended_by: str, message: str) -> None:
        """End the workload, unless it has ended by itself. Only the reason of the first call is recorded."""
        if self._ended_by:
            return
        members = self._members()  # the search takes milliseconds, in which the workload may end
        if os.waitid(os.P_PID, self._main_pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return  # its own exit code counts, which `_reap` reads next
        self._ended_by, self._message = ended_by, message
        self._terminate(members)

    def _terminate(self, members: Sequence[int]) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + float(self._order["grace_seconds"])
            self._give_up_at = self._kill_at + _STUCK_SECONDS
            self._send(signal.SIGTERM, members)

    def _send(self, signal_number: int, members: Sequence[int]) -> None:
        """Send a signal to processes of the workload. The caller repeats SIGKILL, because processes may fork."""
        for pid in members:
            process_tree.send(pid, signal_number)
            if signal_number == signal.SIGTERM:
                process_tree.send(pid, signal.SIGCONT)  # a stopped process handles the signal only after SIGCONT
        if signal_number == signal.SIGKILL and self._cgroup:
            cgroups.send_kill(self._cgroup)

    def _members(self) -> list[int]:
        gpu_reader = self._sampler.gpu_reader if self._sampler is not None else 0
        return [pid for pid in process_tree.descendants(os.getpid()) if pid != gpu_reader]

    def _close_sampler(self) -> None:
        if self._sampler is not None:
            sampler, self._sampler = self._sampler, None
            sampler.close()

    def _is_over(self) -> bool:
        now = time.monotonic()
        if self._give_up_at is not None and now >= self._give_up_at:
            fault = f"some of its processes could not be killed: {self._members()}"
            self._message = f"{self._message}; {fault}" if self._message else fault
            return True
        if self._drain_until is None:
            return False
        # All descendants have ended. Wait at most until `_drain_until` for the end of the output: another process may
        # keep the output open.
        return now >= self._drain_until or not self._open

    def _finish(self, began: float) -> None:
        seconds = time.monotonic() - self._began
        self._close_sampler()
        logs = self._logs
        for log in logs.values():
            log.close()
        _drain(self._echoes)
        # There is no status of a workload that could not be killed: record SIGKILL, which was sent.
        status = self._status if self._status is not None else int(signal.SIGKILL)
        by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        exit_code = SIGNALLED + by_signal if by_signal else os.WEXITSTATUS(status)
        outcome = {
            "ended_by": self._ended_by,
            "exit_code": exit_code,
            "signal": by_signal,
            "message": _truncated(self._message),
            "started": began,
            "seconds": round(seconds, 3),
            "cpu_seconds": round(_cpu_seconds() - self._earlier_seconds, 3),
            "leftovers": self._leftovers,
            "oom_kills": self._oom_counter.count(),
            "log_bytes": {name: log.bytes for name, log in logs.items()},
            "log_dropped": {name: log.dropped for name, log in logs.items() if log.dropped},
            "log_fault": next((log.fault for log in logs.values() if log.fault), ""),
            "host": machine.host(),
            "accelerators": machine.accelerators(),
            "changed_startup_files": startup_files.changed_since(self._startup_files),
        }
        # Sync the files before the outcome is written, so that a power cut cannot lose files of an ended attempt.
        for name in (SAMPLES, GPU_SAMPLES, *(log_name(stream) for stream in STREAMS if logs[stream].bytes)):
            durable.sync(self._path(name))
        durable.sync_tree(self._path(RESULTS))
        self._write_reserved(OUTCOME, json.dumps(outcome))
        self._write_reserved(EXIT_CODE, f"{exit_code}\n")
        durable.sync(self._directory)
        if self._cgroup:
            cgroups.remove(self._cgroup)

    def _write_reserved(self, name: str, text: str) -> None:
        """Write a file into its reserved space, and rename it, so that the file is either complete or missing."""
        safe_files.make_directory(self._directory)
        safe_files.overwrite(self._path(f".{name}"), text.encode())
        safe_files.rename(self._path(f".{name}"), self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)


def _ignore(_number: int, _frame: Any) -> None:
    """Handle a signal by doing nothing."""


def _programs(program: str, variables: Mapping[str, str]) -> List[str]:
    """Return the files that a program may be, in the order of `$PATH`, without most of those that do not exist."""
    if os.path.dirname(program):
        return [program]
    files = [os.path.join(folder, program) for folder in os.get_exec_path(variables)]
    # A relative folder is relative to the working directory of the workload.
    return [file for file in files if not os.path.isabs(file) or os.path.lexists(file)] or files[-1:]


def _start_program(
    programs: Sequence[str], command: Sequence[str], variables: Mapping[str, str], writers: Sequence[int]
) -> int:
    """Start the first of the files that can be executed, as `os.execvpe` finds it, and return its process id.

    Args:
        writers: the descriptors for standard output and standard error.

    Raises:
        OSError: no file can be executed. An error of an existing file is preferred.
    """
    actions = [(os.POSIX_SPAWN_DUP2, writer, target) for target, writer in enumerate(writers, start=1)]
    errors = []
    for program in programs:
        try:
            return _spawn_in_session(program, list(command), variables, actions)
        except OSError as error:  # noqa: PERF203  # another file with this name may be executable
            errors.append(error)
    is_missing = (FileNotFoundError, NotADirectoryError)
    raise next((error for error in errors if not isinstance(error, is_missing)), errors[-1])


def _spawn_in_session(program: str, command: List[str], variables: Mapping[str, str], actions: List[Any]) -> int:
    try:
        return os.posix_spawn(program, command, variables, file_actions=actions, setsid=True)
    except NotImplementedError:  # the C library is older than glibc 2.26
        return os.posix_spawn(program, command, variables, file_actions=actions, setpgroup=0)


def _cpu_seconds() -> float:
    """Return the processor time of the children of this process that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _truncated(message: str) -> str:
    """Return the beginning of a message that has at most `_MESSAGE_BYTES` as JSON."""
    message = message[:_MESSAGE_BYTES]
    while len(json.dumps(message)) > _MESSAGE_BYTES:
        message = message[:-1]
    return message


def _drain(echoes: Sequence[Echo]) -> None:
    """Copy the remaining output to the streams of the echoes, for `_ECHO_SECONDS` at most."""
    deadline = time.monotonic() + _ECHO_SECONDS
    while behind := [echo for echo in echoes if _is_behind(echo)]:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select((), [echo.descriptor for echo in behind], (), left)[1]:
            return


def _is_behind(echo: Echo) -> bool:
    """Copy new output, and return whether more is left."""
    echo.pump()
    return echo.is_behind
