"""A command line in a fork is like one in a new interpreter, for what tests of command lines look at."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import forked_commands
from tests.forked_commands import Command
from toolbox import testing
from toolbox.ground.system import environ
from toolbox.testing import Running, Workspace

STATE = '''
    """Shows the state of its process."""
    import atexit, json, os, signal, sys, threading, time


    class State:
        """Shows the state of its process."""

        def show(self) -> None:
            """Print the state."""
            streams = [sys.stdin, sys.stdout, sys.stderr]
            state = {
                "argv": sys.argv, "path": sys.path[0], "env": dict(os.environ), "cwd": os.getcwd(),
                "umask": os.umask(0), "session": os.getsid(0) == os.getpid(), "signals": {
                    int(each): str(signal.getsignal(each)).partition(" at ")[0] for each in signal.valid_signals()
                },
                "files": sorted(os.listdir("/proc/self/fd")),
                "streams": [[each.encoding, each.errors, each.line_buffering, each.seekable()] for each in streams[1:]],
                "input": sys.stdin.read(),
            }
            print(json.dumps(state))

        def wait(self) -> None:
            """Print a line, and wait."""
            print("begun", flush=True)
            time.sleep(100)

        def end(self) -> None:
            """Print while the process ends."""
            atexit.register(print, "at the end", file=sys.stderr, end="")
            threading.Thread(target=lambda: time.sleep(0.2) or print("in a thread", end="")).start()
'''


# A task in each of the two servers shows its process, and the settings of Ansible that depend on it.
SERVED = {
    "commands/served.py": '''
        """Shows the processes of a role."""
        from toolbox.api import role


        class Served:
            """Shows the processes of a role."""

            @role
            def show(self) -> None:
                """Save the state of the play and of a module."""
    ''',
    "roles/served_show/tasks/main.yml": """
        - name: Show the play
          ansible.builtin.copy:
            content: "{{ lookup('served') | to_json }}"
            dest: "{{ artifact_extra_logs_dir }}/artifacts/play.json"
        - name: Show a module
          served:
            file: "{{ artifact_extra_logs_dir }}/artifacts/module.json"
    """,
    "roles/served_show/lookup_plugins/served.py": """
        import os
        from pathlib import Path
        from ansible import constants
        from ansible.plugins.lookup import LookupBase

        def show(value):
            return sorted(map(str, value)) if isinstance(value, frozenset) else str(value)

        class LookupModule(LookupBase):
            def run(self, terms, variables=None, **kwargs):
                settings = {name: show(getattr(constants, name)) for name in dir(constants) if name.isupper()}
                play = Path("/proc", str(os.getppid()), "cmdline").read_text()
                return [{"program": play, "settings": settings, "env": dict(os.environ)}]
    """,
    "roles/served_show/library/served.py": """
        #!/usr/bin/python
        import json, os, sys
        from pathlib import Path
        from ansible.module_utils.basic import AnsibleModule

        module = AnsibleModule({"file": {"type": "path"}})
        server = Path("/proc", str(os.getppid()), "cmdline").read_text()
        loaded = sorted(name for name in sys.modules if name.startswith("ansible"))
        state = {"program": server, "env": dict(os.environ), "loaded": loaded}
        Path(module.params["file"]).write_text(json.dumps(state))
        module.exit_json(changed=True)
    """,
}


@pytest.fixture
def state(workspace: Workspace) -> Workspace:
    """Return a workspace with commands that show the state of their process."""
    return workspace.write({"commands/state.py": STATE})


def test_a_fork_has_the_state_of_a_new_process(state: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    forked = state.run("state", "show", env={"GREETING": "é"})
    monkeypatch.setattr(testing, "_start", forked_commands.start_program)
    started = state.run("state", "show", env={"GREETING": "é"})
    assert forked.json == started.json
    assert (forked.exit_code, forked.stderr) == (started.exit_code, started.stderr)


def test_a_fork_waits_for_its_threads_and_calls_what_is_to_be_called_at_its_end(state: Workspace) -> None:
    outcome = state.run("state", "end")
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, "in a thread", "at the end"), str(outcome)


def test_forks_know_nothing_of_one_another(state: Workspace) -> None:
    first = state.run("state", "show", env={"ONLY_FIRST": "1"})
    assert "ONLY_FIRST" in first.json["env"]
    assert "ONLY_FIRST" not in state.run("state", "show").json["env"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_fork(state: Workspace, number: signal.Signals) -> None:
    with state.start("state", "wait") as running:
        running.wait_for("begun")
        running.send(number)
        assert running.wait().exit_code == {signal.SIGTERM: 143, signal.SIGKILL: -9}[number]


def test_a_fork_that_takes_too_long_is_killed(state: Workspace) -> None:
    with state.start("state", "wait") as running:
        running.wait_for("begun")
        with pytest.raises(TimeoutError, match="begun"):
            running.wait(0)
    with pytest.raises(ProcessLookupError):
        os.kill(running.pid, 0)


def test_a_signal_to_a_fork_that_has_just_ended_is_ignored(state: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with state.start("state", "end") as running:
        while Path(f"/proc/{running.pid}").exists():
            time.sleep(0.01)
        monkeypatch.setattr(Command, "poll", lambda _: None)  # it ends after this was asked
        running.send(signal.SIGTERM)
    assert running.wait().exit_code == 0


def test_other_variables_of_python_need_a_new_interpreter(state: Workspace) -> None:
    state.write({"early/sitecustomize.py": "import os\nos.environ['EARLY'] = '1'\n"})
    outcome = state.run("state", "show", env={"PYTHONPATH": str(state.directory / "early")})
    assert outcome.json["env"]["EARLY"] == "1"


def test_another_program_is_started(tmp_path: Path) -> None:
    with Running([sys.executable, "-c", "print(1)"], tmp_path, dict(os.environ)) as running:
        assert json.loads(running.wait().stdout) == 1


def served(workspace: Workspace, artifacts: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the role, and return the state of its play and of a module, without what differs in each run."""
    outcome = workspace.run("served", "show", env={"ARTIFACT_DIR": str(artifacts), "GREETING": "é"})
    assert outcome.exit_code == 0, str(outcome)
    assert "slowly" not in outcome.stderr
    texts = [next(artifacts.rglob(f"{name}.json")).read_text() for name in ("play", "module")]
    unique = re.compile(r"/topgallant-\w+|/ansible-local-\w+|/artifacts/[0-9a-f-]{36}")
    play, module = (json.loads(unique.sub("UNIQUE", text).replace(str(artifacts), "ARTIFACTS")) for text in texts)
    return play, module


@pytest.mark.skipif(environ.get(forked_commands.SWITCH) == "0", reason="all command lines are started as programs")
def test_the_servers_of_ansible_are_forks_that_are_like_programs(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(SERVED)
    forked = served(workspace, tmp_path / "forked")
    monkeypatch.setattr(testing, "_start", forked_commands.start_program)
    started = served(workspace, tmp_path / "started")
    if "PYTHONPATH" in started[0]["env"]:
        pytest.skip("in a checkout that is not installed, the servers have variables that need a program")
    for fork, program, name in zip(forked, started, ("playbook_server", "module_server"), strict=True):
        assert "forked_commands" in fork.pop("program")
        assert name in program.pop("program")
    assert forked == started


def script(state: Workspace, command: str, **variables: str) -> dict[str, Any]:
    """Execute a command of a shell script, and return the state that the command prints."""
    env = {"PATH": os.defpath, "HOME": str(state.home), **forked_commands.start_variables(), **variables}
    args = ["sh", "-c", f"{command}\nexit $?"]
    done = subprocess.run(
        args, cwd=state.directory, env=env, input="text", stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.skipif(environ.get(forked_commands.SWITCH) == "0", reason="all command lines are started as programs")
def test_a_fork_for_a_script_has_the_state_of_a_new_process(state: Workspace, toolbox_script: str) -> None:
    commands = [f"umask 027; {program} state show" for program in (toolbox_script, forked_commands.SCRIPT)]
    forked, started = (script(state, command, GREETING="é\n\udcff") for command in commands)
    assert (forked.pop("session"), started.pop("session")) == (True, False)
    assert forked == started
    assert (forked["input"], forked["umask"]) == ("text", 0o027)


def test_a_script_with_other_variables_of_python_starts_a_new_interpreter(
    state: Workspace, toolbox_script: str
) -> None:
    state.write({"early/sitecustomize.py": "import os\nos.environ['EARLY'] = '1'\n"})
    printed = script(state, f"PYTHONPATH={state.directory}/early {toolbox_script} state show")
    assert printed["env"]["EARLY"] == "1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_program_of_a_script_ends_its_fork(
    state: Workspace, toolbox_script: str, number: signal.Signals
) -> None:
    env = {**os.environ, **forked_commands.start_variables()}
    with Running(["sh", "-c", f"exec {toolbox_script} state wait"], state.directory, env) as running:
        running.wait_for("begun")
        running.send(number)
        assert f"interrupted by {number.name}" in running.wait().stderr


def test_a_script_sees_that_a_signal_killed_its_fork(state: Workspace, toolbox_script: str) -> None:
    state.write({"commands/state.py": STATE.replace("time.sleep(100)", "os.kill(os.getpid(), signal.SIGKILL)")})
    env = {**os.environ, **forked_commands.start_variables()}
    with Running(["sh", "-c", f"exec {toolbox_script} state wait"], state.directory, env) as running:
        assert running.wait().exit_code == -signal.SIGKILL
