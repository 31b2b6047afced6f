"""The supervisor runs one workload and records its outcome; `tests/conformance` tests all backends alike."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import Script
from toolbox.targets.agent import machine

RUN = """
import json, os, sys
from toolbox.targets.agent import supervisor
from toolbox.ground.kit import process_tree
from toolbox.targets.agent.supervisor import Supervisor
order = {"command": ["true"], "env": {}, "cwd": None, "secrets": [], "run_seconds": None, "silence_seconds": None,
         "grace_seconds": 0.1, "log_bytes": 1 << 20, "sample_seconds": None, **json.loads(sys.argv[1])}
os.makedirs("attempt/files", exist_ok=True)
messages = []
"""
END = """
Supervisor(os.path.abspath("attempt"), order).run(messages.append)
print(json.dumps(messages))
"""


def run(script: Script, before: str = "", **order: Any) -> list[str]:
    """Run a workload, and return the messages of the supervisor about its start."""
    messages: list[str] = json.loads(script(RUN + before + END, json.dumps(order)))
    return messages


def outcome(tmp_path: Path) -> dict[str, Any]:
    """Return the recorded outcome."""
    kept: dict[str, Any] = json.loads((tmp_path / "attempt/outcome.json").read_text())
    return kept


def test_an_outcome_has_all_fields(script: Script, tmp_path: Path) -> None:
    began = time.time()
    assert run(script, command=["sh", "-c", "echo one; echo two >&2; sleep 0.2; exit 3"]) == [""]
    kept = outcome(tmp_path)
    assert began - 1 < kept.pop("started") < time.time()
    assert 0.2 <= kept.pop("seconds") < 30
    assert 0 <= kept.pop("cpu_seconds") < 30
    assert kept == {
        "ended_by": "exit",
        "exit_code": 3,
        "signal": None,
        "message": "",
        "leftovers": 0,
        "oom_kills": 0,
        "log_bytes": {"stdout": 4, "stderr": 4},
        "log_dropped": {},
        "log_fault": "",
        "host": platform.node(),
        "accelerators": machine.accelerators(),
        "changed_startup_files": "",
    }


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("echo 'exit 1' >> ~/.bashrc", "~/.bashrc"),
        ("echo 'exit 1' >> ~/dotfiles", "~/.profile"),
        ("rm ~/.bashrc; mkdir ~/.ssh; echo true > ~/.ssh/rc", "~/.bashrc, ~/.ssh/rc"),
        ("mkfifo ~/.zshenv", "~/.zshenv"),
        ("cat ~/.bashrc; touch ~/.bashrc; echo > ~/other", ""),
    ],
)
def test_startup_files_that_changed_while_the_workload_ran_are_recorded(
    script: Script, tmp_path: Path, change: str, names: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in (".bashrc", "dotfiles"):
        (home / name).write_text("true\n")
    (home / ".profile").symlink_to("dotfiles")
    run(script, f"os.environ['HOME'] = {str(home)!r}\n", command=["sh", "-c", change])
    assert outcome(tmp_path)["changed_startup_files"] == names


def test_no_reserved_file_is_left(script: Script, tmp_path: Path) -> None:
    run(script)
    names = {path.name for path in (tmp_path / "attempt").iterdir()}
    assert names == {"exit_code", "files", "outcome.json", "started", "stderr.log", "stdout.log"}


def test_a_supervisor_that_cannot_write_reports_why_and_starts_nothing(script: Script, tmp_path: Path) -> None:
    (message,) = run(script, 'os.mkdir("attempt/.exit_code")\n', command=["touch", str(tmp_path / "ran")])
    assert message.startswith(f"the workload cannot be started in {tmp_path}/attempt: ")
    assert "Is a directory" in message
    assert not (tmp_path / "ran").exists()


def test_a_long_message_fits_into_the_reserved_space(script: Script, tmp_path: Path) -> None:
    run(script, cwd="/é" + "é" * 5000)
    kept = outcome(tmp_path)
    assert kept["message"].startswith("its working directory /éé")
    assert (tmp_path / "attempt/outcome.json").stat().st_size < 4096


NO_SIGNALS = "process_tree.send = supervisor.cgroups.send_kill = lambda *_: None\nsupervisor._STUCK_SECONDS = 0.2\n"


def test_a_workload_that_cannot_be_killed_has_not_succeeded(script: Script, tmp_path: Path) -> None:
    """A process that waits for a broken disk ignores signals; in this test, no signals are sent."""
    run(script, NO_SIGNALS, command=["sleep", "60"], run_seconds=0.1)
    kept = outcome(tmp_path)
    assert (kept["ended_by"], kept["exit_code"]) == ("timeout", 137)
    assert "some of its processes could not be killed: [" in kept["message"]


def test_processes_that_cannot_be_killed_are_reported_after_a_successful_exit(script: Script, tmp_path: Path) -> None:
    run(script, NO_SIGNALS, command=["sh", "-c", "sleep 5 &"])
    kept = outcome(tmp_path)
    assert (kept["ended_by"], kept["exit_code"]) == ("exit", 0)
    assert kept["message"].startswith("some of its processes could not be killed: [")


@pytest.mark.parametrize("limit", ["cancelled", "run_seconds", "silence_seconds"])
def test_a_workload_that_ends_before_the_signal_has_ended_by_itself(script: Script, tmp_path: Path, limit: str) -> None:
    """Its result would be thrown away otherwise: a resumed run repeats a cancelled attempt."""
    before = """
def members(self):
    if not self._ended_by and self._status is None:  # the search before the first signal
        os.waitid(os.P_PID, self._main_pid, os.WEXITED | os.WNOWAIT)
    return search(self)

search, Supervisor._members = Supervisor._members, members
"""
    before += f"""
def spawn(self, writers):
    fault = start(self, writers)
    if {limit == "cancelled"}:
        os.kill(os.getpid(), 15)
    return fault

start, Supervisor._spawn = Supervisor._spawn, spawn
"""
    limits = {} if limit == "cancelled" else {limit: 0.1}
    run(script, before, command=["sh", "-c", "sleep 0.3; exit 7"], **limits)
    kept = outcome(tmp_path)
    assert (kept["ended_by"], kept["exit_code"], kept["signal"]) == ("exit", 7, None)


def test_an_ended_gpu_reader_gets_no_signal(script: Script, tmp_path: Path) -> None:
    """Another process may have its pid by then."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 6\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    before = f"os.environ['PATH'] = '{tmp_path}:' + os.environ['PATH']\n"
    before += "process_tree.send = lambda *all: messages.append(all)\n"
    assert run(script, before, command=["sleep", "0.3"], sample_seconds=0.1) == [""]
    assert (tmp_path / "attempt/gpu_samples.csv").exists()


def test_a_workload_that_leaves_the_group_and_the_session_of_its_supervisor_is_ended(
    script: Script, tmp_path: Path
) -> None:
    run(script, command=["setsid", "--fork", "sleep", "60"])
    assert (outcome(tmp_path)["exit_code"], outcome(tmp_path)["leftovers"]) == (0, 1)


def test_variables_of_the_order_override_those_of_the_agent_but_not_the_mark(script: Script, tmp_path: Path) -> None:
    given = {"HOME": "/given", "TOPGALLANT_STEP": "/forged"}
    run(script, command=["sh", "-c", 'echo "$HOME $TOPGALLANT_STEP"'], env=given)
    assert (tmp_path / "attempt/stdout.log").read_text() == f"/given {tmp_path}/attempt\n"


def test_a_bash_of_a_workload_does_not_find_that_ssh_started_the_agent(script: Script, tmp_path: Path) -> None:
    before = "os.environ.update(SSH_CLIENT='10.0.0.1 22 22', SSH_CONNECTION='10.0.0.1 22 10.0.0.2 22', SHLVL='0')\n"
    run(script, before, command=["bash", "-o", "nounset", "-c", 'echo "${SSH_CLIENT-unset} ${SSH_CONNECTION-unset}"'])
    assert (tmp_path / "attempt/stdout.log").read_text() == "unset unset\n"
    assert (tmp_path / "attempt/stderr.log").read_text() == ""


def test_the_program_is_searched_in_the_path_of_its_own_variables(script: Script, tmp_path: Path) -> None:
    (tmp_path / "own-program").write_text("#!/bin/sh\necho found\n")
    (tmp_path / "own-program").chmod(0o755)
    run(script, command=["own-program"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (tmp_path / "attempt/stdout.log").read_text() == "found\n"


def test_a_workload_with_invalid_arguments_does_not_start(script: Script, tmp_path: Path) -> None:
    run(script, command=["true", "a\0b"])
    assert outcome(tmp_path)["ended_by"] == "not_started"
    assert outcome(tmp_path)["message"] == "`true` cannot be started: embedded null byte"
