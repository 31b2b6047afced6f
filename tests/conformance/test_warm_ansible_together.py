"""Plays at the same time, and plays on several SSH hosts, behave in the same way with helper processes and without.

A project runs its plays in a parallel region in both ways, and both runs are compared (`warm_runs`). Plays and hosts
end in any order, so the lines of both runs are sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from tests.conformance import test_warm_ansible as on_this_machine
from tests.conformance.warm_runs import SWITCHES, Result, both_ways, expect_equal_files, expect_equal_output

pytestmark = pytest.mark.usefixtures("ansible_servers_as_programs")

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
      ansible.builtin.shell: "echo {{ together_plays_text }}; echo {{ inventory_hostname }} >&2; exit 3"
      changed_when: false
      ignore_errors: true
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


def test_plays_at_the_same_time_behave_in_the_same_way(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The project has fewer forks of Ansible than a play has hosts.

    The shell of this machine is asked for the environment of modules, because shells change `OPTIND`.
    """
    variables = {"ANSIBLE_FORKS": "2", "OPTIND": "2"}
    with both_ways(tmp_path_factory, "together", FILES, hosts=HOSTS, variables=variables, is_ordered=False) as results:
        expect_equal_files(results, least=31)
        expect_equal_output(results)
        assert [result.outcome.exit_code for result in results.values()] == [3, 3]
        expect_forks(results)


def expect_forks(results: Mapping[str, Result]) -> None:
    """Expect that the modules on this machine were executed in forks."""
    files = [results[name].workspace.home / "parents" for name in SWITCHES]
    ordinary, with_forks = (file.read_text(encoding="utf-8").splitlines() for file in files)
    assert len(ordinary) == len(with_forks) > 0
    assert all("/bin/sh" in parent for parent in ordinary)
    assert not any("/bin/sh" in parent for parent in with_forks)
