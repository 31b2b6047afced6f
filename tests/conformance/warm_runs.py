"""Compares the runs of a project with helper processes of Ansible and without.

The files and the output of both runs are compared without what differs between any two runs: times, process ids, random
names and counts of time.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import pytest

from tests.servers import openssh
from toolbox.ansible import warm
from toolbox.testing import Outcome, Workspace

# The keys of values that differ between any two runs.
INCIDENTAL: Final = {
    "pid", "created", "start", "end", "delta", "duration", "atime", "mtime", "ctime", "inode", "_original_basename",
    "version", "ansible_job_id", "results_file", "counter", "start_line", "end_line",
    "stderr_lines",  # the lines of `stderr`, which is compared
}  # fmt: skip
_HEX: Final = "[0-9a-f]"
# The same in texts: the second text replaces what matches.
REPLACED: Final = {
    r"\b\d{8}-\d{6}-[a-z0-9]{4}\b": "RUN",
    rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}": "UUID",
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?": "TIME",
    r"\d+:\d\d:\d\d\.\d+": "DURATION",
    r"(\b\d+ min )?\b\d+(\.\d+)? m?s\b": "DURATION",
    r"/(dev/shm|tmp)/topgallant[\w.-]+": "PRIVATE",
    r"/dev/shm/tg-ssh-[\w-]+|/tmp/tg-\w+": "SOCKETS",
    # What ssh says at the end of the task that logs in, and when two plays log in at the same moment.
    r"ControlSocket \S+ already exists, disabling multiplexing(\\r\\n|\r\n)": "",
    r"(Shared c|C)onnection to \S+ closed\.": "CLOSED",
    r'"stderr_lines": \[[^\]]*\]': '"stderr_lines": []',
    r"ansible-(tmp|local)-?[\w.-]+": "TEMPORARY",
    r"payload_\w{8}": "payload_RANDOM",
    r'("(inode|atime|mtime|ctime|pid|version)": )"?[\d.]+"?': r"\1NUMBER",
    r'("_original_basename": )"[\w.]+"': r"\1RANDOM",
    r'time="[\d.]+"': "DURATION",
    r"\bj\d+\.\d+\b": "JOB",
    r"\b127\.0\.0\.1 \d+ ": "127.0.0.1 CLIENT ",
}
LONG: Final = 10_000_000  # a longer text is compared as it is, because the search for all patterns would take minutes
UNCERTAIN: Final = {"runner_on_async_poll"}  # a busy machine needs more polls
WAITING: Final = "waiting for the login to "  # printed only where a login takes long
DERIVED: Final = ("report.html", ".numbers")  # made from the journal
SWITCHES: Final = {"cold": "0", "warm": "1"}


@dataclass(frozen=True)
class Result:
    """A run of the project.

    Args:
        server: the SSH server of the hosts.
        is_ordered: whether the order of the lines in the files and in the output is the same in any two runs.
    """

    workspace: Workspace
    outcome: Outcome
    server: openssh.Server | None = None
    is_ordered: bool = True

    def comparable(self, value: Any) -> Any:
        """Return a value without what differs between any two runs and any two servers."""
        if isinstance(value, Mapping):
            return {key: self.comparable(item) for key, item in value.items() if key not in INCIDENTAL}
        if isinstance(value, list):
            return [self.comparable(item) for item in value]
        if isinstance(value, float):
            return "FLOAT"
        if isinstance(value, str) and len(value) < LONG:
            value = value.replace(str(self.workspace.directory), "WORKSPACE")
            if self.server is not None:
                value = value.replace(str(self.server.directory), "SERVER").replace(str(self.server.port), "PORT")
            for pattern, replacement in REPLACED.items():
                value = re.sub(pattern, replacement, value)
        return value

    def files(self) -> dict[str, Any]:
        """Return the modes and the comparable contents of the files of the run, by their paths."""
        run = self.workspace.run_directory()
        paths = {str(path.relative_to(run)): path for path in sorted(run.rglob("*"))}
        return {self.comparable(name): self._file(path) for name, path in paths.items() if not name.startswith(DERIVED)}

    def printed(self, stream: str) -> list[str]:
        """Return the comparable lines that the command line has printed to `stdout` or `stderr`."""
        text = re.sub(" +", " ", getattr(self.outcome, stream))
        lines: list[str] = self.comparable([line for line in text.splitlines() if WAITING not in line])
        if self.is_ordered:
            return lines
        # The last of several parallel steps has no prefix.
        return sorted(re.sub(r"^ *(\[\w+\] )?", "", line) for line in lines)

    def _file(self, path: Path) -> Any:
        mode = oct(path.lstat().st_mode)
        if path.is_symlink() or path.is_dir():
            return [mode, self.comparable(str(path.readlink()) if path.is_symlink() else "")]
        text = path.read_text(encoding="utf-8", errors="backslashreplace")
        content: Any = text.splitlines()
        if path.suffix == ".jsonl":
            # Two threads read the standard output and the errors of Ansible. The errors are `verbose` events.
            events = [event for line in text.splitlines() if (event := json.loads(line))["event"] not in UNCERTAIN]
            content = sorted(events, key=lambda event: event["event"] == "verbose")
        elif path.suffix == ".json":
            content = json.loads(text)
        content = self.comparable(content)
        if path.suffix == ".log":
            content = sorted(line for line in content if not line.startswith("ASYNC POLL"))
        elif isinstance(content, list) and not self.is_ordered:
            for event in content:
                if isinstance(event, dict):
                    event.pop("stdout", None)  # it may begin with a message about an earlier event, which is in the log
            # A part of the log has the numbers of its lines.
            content = [re.sub(r"^ +\d+  ", "", line) if isinstance(line, str) else line for line in content]
            content.sort(key=json.dumps)
        return [mode, content]

    def parents(self) -> list[str]:
        """Return the command lines of the parent processes of the modules `process`."""
        home = self.workspace.home if self.server is None else self.server.directory
        return (home / "parents").read_text(encoding="utf-8").splitlines()


def differences(first: Any, second: Any, where: str = "") -> Iterator[str]:
    """Yield a line for each difference of two values of JSON."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in {**first, **second}:
            yield from differences(first.get(key, "nothing"), second.get(key, "nothing"), f"{where} {key}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, f"{where} {index}")
    elif first != second:
        pairs = zip_longest(str(first), str(second))
        start = max(next(index for index, (one, other) in enumerate(pairs) if one != other) - 40, 0)
        yield f"{where}: {str(first)[start : start + 160]!r} and {str(second)[start : start + 160]!r}"


def expect_equal_files(results: Mapping[str, Result], *, least: int) -> None:
    """Expect that the files of both runs are equal.

    Args:
        least: how many files each run must have.
    """
    ordinary, with_forks = (results[name].files() for name in SWITCHES)
    assert len(ordinary) >= least
    found = list(differences(ordinary, with_forks))
    assert not found, "\n".join(found)


def expect_equal_output(results: Mapping[str, Result], *, without: str = "\n") -> None:
    """Expect that both command lines print the same.

    Args:
        without: ignore the lines with this text that only the ordinary way prints.
    """
    for name in ("stdout", "stderr"):
        ordinary, with_forks = (results[way].printed(name) for way in SWITCHES)
        lines = difflib.ndiff([line for line in ordinary if without not in line], with_forks)
        found = [line for line in lines if line[0] != " "]
        assert not found, "\n".join(found)


@contextmanager
def both_ways(
    factory: pytest.TempPathFactory,
    project: str,
    files: Mapping[str, str],
    *,
    hosts: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    is_ordered: bool = True,
) -> Iterator[dict[str, Result]]:
    """Run a project in both ways at the same time, and yield the runs.

    Args:
        hosts: names of SSH hosts. All of them are the same server, and each run has a server of its own.
        variables: more environment variables for the command lines.
        is_ordered: see `Result`.
    """
    with ExitStack() as stack:
        running = {}
        for name, switch in SWITCHES.items():
            workspace, server = Workspace(factory.mktemp(name) / "workspace", files), None
            homes, env = [workspace.home], {**(variables or {}), warm.SWITCH: switch}
            if hosts:
                server = stack.enter_context(openssh.serving(factory.mktemp("server")))
                homes.append(server.directory)
                env |= server.environment()
                with server.known_hosts.with_suffix(".bin").joinpath("config").open("a") as config:
                    config.write(f"Host {' '.join(hosts)}\n  HostName {openssh.ADDRESS}\n  Port {server.port}\n")
            for home in homes:
                (home / ".ansible/tmp").mkdir(parents=True, mode=0o700)  # Ansible warns if it creates the folder
            running[name] = workspace, server, stack.enter_context(workspace.start("project", "run", project, env=env))
        yield {
            name: Result(workspace, process.wait(300), server, is_ordered)
            for name, (workspace, server, process) in running.items()
        }
