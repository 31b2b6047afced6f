"""Roles behave in the same way on SSH hosts whether forks of a running interpreter execute the modules, or programs do.

The same role is executed in both ways, each on a server of its own, and the files of both runs are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from tests.conformance import test_warm_ansible as on_this_machine
from tests.conformance.warm_runs import SWITCHES, Result, both_ways, expect_equal_files, expect_equal_output

pytestmark = pytest.mark.usefixtures("ansible_servers_as_programs")

TASKS: Final = f"""
{on_this_machine.STATES}
{on_this_machine.ENDINGS}
{on_this_machine.MUCH}
    - name: End with the status of ssh
      process: {{what: lost}}
      ignore_unreachable: true
      register: lost
    - name: Expect that the host is unreachable
      ansible.builtin.assert:
        that: lost is unreachable
    - name: Print bytes as a module
      process: {{what: binary}}
      ignore_errors: true
    - name: Execute on this machine
      ansible.builtin.command: echo on this machine
      delegate_to: localhost
      run_once: true
      changed_when: false
    - name: Copy
      ansible.builtin.copy:
        content: copied
        dest: "{{{{ artifact_extra_logs_dir }}}}/src/copied"
        mode: "0640"
    - name: Set a variable for each session
      ansible.builtin.lineinfile: {{path: ~/.bashrc, line: export GREETING=hello, create: true, mode: "0600"}}
    - name: Expect the variable
      ansible.builtin.command: printenv GREETING
      changed_when: false
    - name: Reset the connection
      ansible.builtin.meta: reset_connection
    - name: Show the process after the reset
      process: {{what: show}}
      loop: [first, second]
"""
LEFT_OVER: Final = "processes of the run that were still running, and were ended"
FILES: Final = {
    "commands/equal.py": on_this_machine.COMMANDS,
    "roles/equal_states/tasks/main.yml": TASKS,
    "roles/equal_states/library/process.py": on_this_machine.PROCESS,
    "roles/equal_states/module_utils/process_parts/__init__.py": "",
    "roles/equal_states/module_utils/process_parts/own.py": "NAME = 'states'\n",
    "projects/equal/orchestration.py": '''
        """Runs the role on a host."""
        from toolbox.orchestration import run


        def test():
            run.run_toolbox("equal", "states", hosts=["machine"])
    ''',
    "config/equal.yaml": "{}\n",
    "command_args/equal.yaml.j2": "",
}


def test_roles_behave_in_the_same_way_on_hosts(tmp_path_factory: pytest.TempPathFactory) -> None:
    with both_ways(tmp_path_factory, "equal", FILES, hosts=["machine"]) as results:
        expect_equal_files(results, least=11)
        # Ansible does not end a module at the time limit of its task.
        expect_equal_output(results, without=LEFT_OVER)
        assert [result.outcome.exit_code for result in results.values()] == [0, 0]
        for result in results.values():
            on_this_machine.expect_large_log(result)
        expect_forks(results)


def expect_forks(results: Mapping[str, Result]) -> None:
    """Expect that modules were executed in forks where this is equivalent."""
    ordinary, with_forks = (results[name].parents() for name in SWITCHES)
    assert {"/bin/sh" in parent for parent in ordinary} == {True}
    usual = [parent for parent in with_forks if "/bin/sh" in parent]
    assert ["GREETING=hello" in parent for parent in usual] == [True, False], (
        "`environment`, and the first after a reset"
    )
    assert len(with_forks) - len(usual) > 10
