"""Plays at the same time, and plays on several SSH hosts, behave in the same way with helper processes and without.

A project runs its plays in a parallel region in both ways, and both runs are compared (`warm_runs`). Plays and hosts
end in any order, so the lines of both runs are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from tests.conformance import test_warm_ansible as on_this_machine
from tests.conformance.warm_runs import SWITCHES, Result, both_ways, expect_equal_files, expect_equal_output

HOSTS: Final = ("one", "two", "three")
COMMANDS: Final = '''
    """Commands whose roles are executed at the same time."""
    from toolbox.api import role


    class Together:
        """Commands whose roles are executed at the same time."""

        @role
        def plays(self, text: str) -> None:
            """
            Execute modules, some of which fail.

            Args:
                text: what the modules print.
            """
'''
ORCHESTRATION: Final = f'''
    """Runs the role several times at the same time, on this machine and on the hosts."""
    from toolbox.orchestration import run


    def test():
        with run.Parallel("together", exit_on_exception=False) as parallel:
            for name in ("first", "second"):
                parallel.task(name, run.run_toolbox, "together", "plays", text=name)
            for name, hosts in (("third", {HOSTS!r}), ("fourth", ("one", "nowhere"))):
                parallel.task(name, run.run_toolbox, "together", "plays", text=name, hosts=hosts)
'''
TASKS: Final = """
    - name: Show the process
      process: {what: show}
    - name: Change the process
      process: {what: change}
    - name: Print the text of this play
      ansible.builtin.shell: "echo {{ together_plays_text }}; echo {{ inventory_hostname }} >&2; exit {{ item }}"
      loop: [0, 3]
      changed_when: false
      ignore_errors: true
    - name: Return much
      ansible.builtin.shell: "yes '{{ together_plays_text }} {{ inventory_hostname }}' | head --bytes=30K"
      changed_when: false
    - name: Execute once
      ansible.builtin.command: echo once
      delegate_to: localhost
      run_once: true
      changed_when: false
    - name: End a module on one host
      process: {what: kill}
      when: inventory_hostname == "two"
    - name: Never end on one host
      process: {what: wait}
      timeout: 1
      ignore_errors: true
      when: inventory_hostname == "three"
    - name: Continue on the other hosts
      process: {what: show}
"""
FILES: Final = {
    "commands/together.py": COMMANDS,
    "projects/together/orchestration.py": ORCHESTRATION,
    "config/together.yaml": "{}\n",
    "command_args/together.yaml.j2": "",
    "roles/together_plays/tasks/main.yml": TASKS,
    "roles/together_plays/library/process.py": on_this_machine.PROCESS,
    "roles/together_plays/module_utils/process_parts/__init__.py": "",
    "roles/together_plays/module_utils/process_parts/own.py": "NAME = 'together'\n",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Result]]:
    """Yield the runs of the project in both ways, with fewer forks of Ansible than a play has hosts.

    The shell of this machine is asked for the environment of modules, because shells change `OPTIND`.
    """
    variables = {"ANSIBLE_FORKS": "2", "OPTIND": "2"}
    with both_ways(tmp_path_factory, "together", FILES, hosts=HOSTS, variables=variables, is_ordered=False) as runs:
        yield runs


def test_the_files_of_both_runs_are_equal(results: Mapping[str, Result]) -> None:
    expect_equal_files(results, least=31)


def test_both_runs_print_and_return_the_same(results: Mapping[str, Result]) -> None:
    expect_equal_output(results)
    assert [result.outcome.exit_code for result in results.values()] == [3, 3]


def test_modules_on_this_machine_are_executed_in_forks(results: Mapping[str, Result]) -> None:
    files = [results[name].workspace.home / "parents" for name in SWITCHES]
    ordinary, with_forks = (file.read_text(encoding="utf-8").splitlines() for file in files)
    assert len(ordinary) == len(with_forks) > 0
    assert all("/bin/sh" in parent for parent in ordinary)
    assert not any("/bin/sh" in parent for parent in with_forks)
