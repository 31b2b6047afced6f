"""Compares toolbox commands, whose plays are forks of a helper process, with other ways to run their roles.

Arguments: SSH hosts, on which the time of a task is measured too; by default, this machine over SSH. Mitogen is
downloaded from PyPI; its comparison is skipped if this fails, or if the installed ansible-core is too new for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from measure import compare, compare_times, cpu_seconds, seconds

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.servers import openssh  # importable because of `sys.path` above
from toolbox.ansible import warm
from toolbox.orchestration import run
from toolbox.testing import Workspace

ROUNDS = 9
EMPTY_LIMIT, TASK_LIMIT, FIRST_LIMIT = 0.5, 0.35, 1.05
# The number of tasks of each role.
ROLES = {"empty": 0, "few": 3, "many": 10}
TASK = "- name: Do nothing\n  ansible.builtin.command: {argv: ['true']}\n  changed_when: false\n"
COMMANDS = '''"""A group for a benchmark."""
from toolbox.api import role


class Bench:
    """A group for a benchmark."""
'''
COMMAND = '''
    @role
    def {name}(self) -> None:
        """Do nothing, in some tasks."""
'''
PLAY = "- hosts: localhost\n  connection: local\n  gather_facts: false\n  roles: [bench_{name}]\n"
# TOPSAIL runs each command as a new Python process.
RUNNER = """
import sys, ansible_runner
directory, play = sys.argv[1:]
ended = ansible_runner.run(private_data_dir=directory, playbook=play, quiet=True)
sys.exit(ended.rc)
"""
Function = Callable[[], object]


class Bench:
    """Functions that run a role of the benchmark, each in one way."""

    def __init__(self, root: Path) -> None:
        commands = COMMANDS + "".join(COMMAND.format(name=name) for name in ROLES)
        self._workspace = Workspace(root, {"commands/bench.py": commands})
        for name, tasks in ROLES.items():
            text = "---\n" + (tasks * TASK or "[]\n")
            self._workspace.write({f"roles/bench_{name}/tasks/main.yml": text, f"{name}.yaml": PLAY.format(name=name)})
        self._root = root

    def in_process(self, name: str, hosts: Sequence[str] = ()) -> Function:
        """Run a command from an orchestration."""
        flags: dict[str, Any] = {"hosts": list(hosts)} if hosts else {}
        return lambda: run.run_toolbox("bench", name, **flags)

    def without_helpers(self, name: str, hosts: Sequence[str] = ()) -> Function:
        """Run a command from an orchestration, with `ansible-playbook` and its modules as programs."""
        command = self.in_process(name, hosts)

        def function() -> None:
            with mock.patch.object(warm, "current", return_value=None):
                command()

        return function

    def by_hand(self, name: str, *, helpers: bool) -> Function:
        """Run the command line."""
        env = {"PYTHONDONTWRITEBYTECODE": "", warm.SWITCH: "1" if helpers else "0"}

        def function() -> None:
            outcome = self._workspace.run("bench", name, env=env)
            if outcome.exit_code != 0:
                sys.exit(str(outcome)[-2000:])

        return function

    def ansible_playbook(self, name: str, variables: Mapping[str, str] | None = None) -> Function:
        """Run `ansible-playbook`."""
        return self._program([str(Path(sys.executable).parent / "ansible-playbook"), f"{name}.yaml"], variables)

    def ansible_runner(self, name: str) -> Function:
        """Run a Python process that calls ansible-runner."""

        def function() -> None:
            with tempfile.TemporaryDirectory() as private:
                self._program([sys.executable, "-c", RUNNER, private, str(self._root / f"{name}.yaml")])()

        return function

    def _program(self, args: Sequence[str], variables: Mapping[str, str] | None = None) -> Function:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        env = {**os.environ, "PATH": path, "ANSIBLE_ROLES_PATH": str(self._root / "roles"), **(variables or {})}
        return lambda: subprocess.run(args, cwd=self._root, env=env, check=True, capture_output=True)


def time_of_a_task(way: Callable[[str], Function], first: str = "empty") -> Callable[[], float]:
    """Return a function that measures the time of each task after those of a role `first`, in seconds."""
    many, start = way("many"), way(first)
    return lambda: (seconds(many) - seconds(start)) / (ROLES["many"] - ROLES[first])


def compare_tasks(bench: Bench, hosts: Sequence[str]) -> bool:
    """Compare the time of a task with and without the helper processes.

    On a host, the first tasks of each play start the connection and the interpreter.
    """
    place, first = (" ".join(hosts), "few") if hosts else ("on this machine", "empty")
    if hosts:
        title = f"a role of {ROLES['many']} tasks, {place} / without helper processes"
        compare(title, bench.in_process("many", hosts), bench.without_helpers("many", hosts), rounds=ROUNDS)
    return compare_times(
        f"each further task, {place} / without helper processes",
        time_of_a_task(lambda name: bench.in_process(name, hosts), first),
        time_of_a_task(lambda name: bench.without_helpers(name, hosts), first),
        rounds=ROUNDS,
        limit=TASK_LIMIT,
    )


def compare_first_commands(bench: Bench, name: str) -> bool:
    """Compare the wall time and the processor time of a command that is the only one of its process."""
    first, floor = bench.by_hand(name, helpers=True), bench.by_hand(name, helpers=False)
    title = f"a command line with a role of {ROLES[name]} tasks / without helper processes"
    within = [
        compare(title, first, floor, rounds=2 * ROUNDS, limit=FIRST_LIMIT),
        compare_times(
            f"{title}, processor time",
            lambda: cpu_seconds(first),
            lambda: cpu_seconds(floor),
            rounds=ROUNDS,
            limit=FIRST_LIMIT,
        ),
    ]
    return all(within)


def compare_with_runner(bench: Bench) -> None:
    """Compare with a new Python process and ansible-runner for each command, which is the way of TOPSAIL."""
    for name in ("empty", "many"):
        title = f"a role of {ROLES[name]} tasks / a new Python process with ansible-runner"
        compare(title, bench.in_process(name), bench.ansible_runner(name), rounds=ROUNDS)


def compare_with_mitogen(bench: Bench, folder: Path) -> None:
    """Compare with the strategy plugin of Mitogen in `ansible-playbook`, or print why this is not possible."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        subprocess.run([*pip, "--target", str(folder), "mitogen"], check=True, capture_output=True)
        plugins = folder / "ansible_mitogen" / "plugins" / "strategy"
        variables = {"ANSIBLE_STRATEGY_PLUGINS": str(plugins), "ANSIBLE_STRATEGY": "mitogen_linear"}
        bench.ansible_playbook("few", variables)()
    except subprocess.CalledProcessError as error:
        print(f"Mitogen is skipped: {error.stderr.decode(errors='replace').strip()[-500:]}")
        return
    release = next(folder.glob("mitogen-*.dist-info")).stem
    for name in ("empty", "many"):
        title = f"a role of {ROLES[name]} tasks / ansible-playbook with {release}"
        compare(title, bench.in_process(name), bench.ansible_playbook(name, variables), rounds=ROUNDS)
    compare_times(
        f"each further task / with {release}",
        time_of_a_task(bench.in_process),
        time_of_a_task(lambda name: bench.ansible_playbook(name, variables)),
        rounds=ROUNDS,
        limit=None,
    )


@contextmanager
def ssh_hosts() -> Iterator[Sequence[str]]:
    """Yield the SSH hosts for the measurements. If no server can be started, print the reason and yield none."""
    if hosts := sys.argv[1:]:
        yield hosts
        return
    with tempfile.TemporaryDirectory() as name:
        try:
            with openssh.Server(Path(name)) as server, mock.patch.dict(os.environ, server.environment()):
                yield [server.host]
        except openssh.ServerError as error:
            print(f"ssh is skipped: {error}")
            yield []


def main() -> int:
    """Measure, and return 1 if a limit is exceeded."""
    with tempfile.TemporaryDirectory() as name, ssh_hosts() as hosts:
        root = Path(name)
        bench = Bench(root)
        os.chdir(root)
        with warm.opened():
            command, floor = bench.in_process("empty"), bench.ansible_playbook("empty")
            title = "a command with an empty role / ansible-playbook with the role"
            within = [
                compare(title, command, floor, rounds=ROUNDS, limit=EMPTY_LIMIT),
                *(compare_tasks(bench, selected) for selected in ([], *([host] for host in hosts))),
                *(compare_first_commands(bench, name) for name in ("empty", "few")),
            ]
            compare_with_runner(bench)
            compare_with_mitogen(bench, root / "mitogen")
        os.chdir("/")
    return 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main())
