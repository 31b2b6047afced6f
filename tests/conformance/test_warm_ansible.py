"""Roles behave in the same way whether forks of running processes execute Ansible and its modules, or new programs do.

A project runs the same roles in both ways, and both runs are compared (`warm_runs`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Final

import pytest
from ansible.module_utils.parsing import convert_bool

from tests.conformance.warm_runs import SWITCHES, Result, both_ways, expect_equal_files, expect_equal_output

pytestmark = pytest.mark.usefixtures("ansible_servers_as_programs")

COMMANDS: Final = '''
    """Commands whose roles have many kinds of tasks."""
    from toolbox.api import role


    class Equal:
        """Commands whose roles have many kinds of tasks."""

        @role
        def builtin(self) -> None:
            """Execute modules of Ansible."""

        @role
        def states(self) -> None:
            """Change the state of the module's process, end modules in unusual ways, and print unusual output."""

        @role
        def overriding(self) -> None:
            """Replace a part of Ansible."""

        @role
        def later(self) -> None:
            """See nothing of the plays before, and fail."""
'''
ORCHESTRATION: Final = '''
    """Runs all roles, the failing one last."""
    from toolbox.orchestration import run


    def test():
        for command in ("builtin", "states", "overriding", "later"):
            run.run_toolbox("equal", command)
'''
BUILTIN: Final = """
    - name: Register
      ansible.builtin.command: printf '%s\\n' a b
      register: printed
      changed_when: false
    - name: Use the result
      ansible.builtin.assert:
        that: printed.stdout_lines == ["a", "b"]
    - name: Ignore a program that is missing
      ansible.builtin.command: there-is-no-such-program
      ignore_errors: true
      changed_when: false
    - name: Delegate to a host that is not reachable
      ansible.builtin.ping:
      delegate_to: nowhere.invalid
      ignore_unreachable: true
      vars: {ansible_connection: ssh, ansible_port: 1, ansible_host: 127.0.0.1}
    - name: Add a host
      ansible.builtin.add_host: {name: other, ansible_connection: local, ansible_python_interpreter: "{{ python }}"}
      changed_when: false
      vars: {python: "{{ ansible_python_interpreter }}"}
    - name: Delegate to the other host
      ansible.builtin.command: echo on the other host
      delegate_to: other
      changed_when: false
    - name: Hide a failure
      ansible.builtin.command: sh -c 'echo hidden; exit 1'
      no_log: true
      ignore_errors: true
      changed_when: false
    - name: Check a command
      ansible.builtin.command: echo not executed
      check_mode: true
      changed_when: false
    - name: Become
      ansible.builtin.command: id --user --name
      become: true
      become_user: nobody
      ignore_errors: true
      changed_when: false
    - name: Execute asynchronously
      ansible.builtin.command: echo asynchronous
      async: 30
      poll: 1
      changed_when: false
      vars: {ansible_async_dir: "{{ lookup('env', 'HOME') }}/.ansible_async"}
    - name: Execute raw
      ansible.builtin.raw: echo "$0 raw"; exit 2
      ignore_errors: true
      changed_when: false
    - name: Execute a script
      ansible.builtin.script: script.sh one two
      changed_when: false
    - name: Execute another shell
      ansible.builtin.shell: echo "$BASH_VERSION" | wc --lines
      args: {executable: /bin/bash, chdir: "{{ artifact_extra_logs_dir }}", stdin: given}
      changed_when: false
    - name: Render
      ansible.builtin.template:
        src: page.j2
        dest: "{{ artifact_extra_logs_dir }}/src/page"
        mode: "0600"
    - name: Create a directory without a mode
      ansible.builtin.file: {path: "{{ artifact_extra_logs_dir }}/src/folder", state: directory}
    - name: Stat
      ansible.builtin.stat: {path: "{{ artifact_extra_logs_dir }}/src/page"}
    - name: Refuse an argument
      ansible.builtin.file: {path: /tmp, staet: file}
      ignore_errors: true
    - name: Gather facts
      ansible.builtin.setup: {gather_subset: ["!all", "!min", python]}
    - name: Set a fact
      ansible.builtin.set_fact: {remembered: from the first role}
"""
STATES: Final = """
    - name: Show the process
      process: {what: show}
    - name: Show the process with another environment
      process: {what: show}
      environment: {GREETING: hello}
    - name: Change the process
      process: {what: change}
    - name: Show the process after a change
      process: {what: show}
    - name: Fork
      process: {what: fork}
"""
LATER: Final = """
    - name: Expect no variables of another play
      ansible.builtin.assert: {that: remembered is undefined and ansible_python is undefined}
    - name: Expect no files of another role
      ansible.builtin.command: echo
      args: {expand_argument_vars: "yes"}
      changed_when: false
    - name: Show a process with this role's part of the module
      process: {what: show}
    - name: Look for the device
      ansible.builtin.command: sh -c 'echo "no such device" >&2; exit 4'
    - name: Never reached
      ansible.builtin.debug:
"""
ENDINGS: Final = """
    - name: End a module
      process: {what: "{{ item }}"}
      loop: [exit, os_exit, raise, warning, kill, interrupt, close]
      ignore_errors: true
    - name: Never end
      process: {what: wait}
      timeout: 1
      ignore_errors: true
    - name: Never end, with a name of a variable that is wrong
      process: {what: "{{ wrong }}"}
      ignore_errors: true
"""
BYTES: Final = 12_000_000
# The module makes the text itself, because `command` would need many seconds to read as much from a program.
MUCH: Final = """
    - name: Return much
      process: {what: much}
"""
OUTPUTS: Final = f"""
{MUCH}
    - name: Print bytes as a module
      process: {{what: binary}}
      ignore_errors: true
"""
OVERRIDING: Final = """
    - name: Use the role's own version of a part of Ansible
      ansible.builtin.command: echo
      args: {expand_argument_vars: "yes"}
      changed_when: false
      ignore_errors: true
    - name: Use the role's own action plugin
      command: echo
"""
PROCESS: Final = '''
    #!/usr/bin/python
    """A module that shows or changes the state of its process, or ends in an unusual way."""

    import os
    import resource
    import signal
    import sys
    import time

    from ansible.module_utils.basic import AnsibleModule
    from ansible.module_utils.process_parts import own


    def show():
        with open("/proc/self/status") as stream:
            status = dict(line.split(":", 1) for line in stream)
        fields = ("Umask", "SigBlk", "SigIgn", "Uid", "Gid", "Groups", "CapEff", "NoNewPrivs", "Seccomp", "Threads")
        return {
            "env": {name: value for name, value in os.environ.items() if name != "TOPGALLANT_ANSIBLE_WARM"},
            "cwd": os.getcwd(),
            "status": {name: status[name].strip() for name in fields},
            "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT_" in name],
            "handlers": {str(int(number)): str(signal.getsignal(number)) for number in signal.valid_signals()},
            "argv": sys.argv,
            "executable": sys.executable,
            "path": sys.path,
            "orig_path": [place for place in sys.path if not place.endswith(".zip")],
            "flags": str(sys.flags),
            "encodings": [sys.stdin.encoding, sys.stdout.encoding, sys.stderr.errors, sys.getfilesystemencoding()],
            "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
            "stdin": sys.stdin.read(),
            "nice": os.nice(0),
            "name": __name__,
            "main": sorted(vars(sys.modules["__main__"])),
            "own": own.NAME,
            "file": own.__file__,
            "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
            "threshold": sys.getrecursionlimit(),
        }


    def change():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        os.chdir("/")
        os.umask(0o777)
        os.environ["CHANGED"] = "yes"
        os.environ.pop("HOME", None)
        os.nice(1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.path.append("/changed")
        sys.setrecursionlimit(500)
        return {}


    def fork():
        """Leave a child behind, which holds the standard output open for a moment."""
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            os.close(write_end)
            os.read(read_end, 1)  # the end of the parent
            os._exit(0)
        return {"forked": True}


    def main():
        with open("/proc/%d/cmdline" % os.getppid()) as stream, open(os.environ["HOME"] + "/parents", "a") as parents:
            print(stream.read().replace(chr(0), " "), file=parents)
        module = AnsibleModule(argument_spec={"what": {"required": True}})
        what = module.params["what"]
        if what in ("show", "change", "fork"):
            module.exit_json(**globals()[what]())
        if what == "much":
            module.exit_json(text="x" * BYTES)
        if what == "exit":
            sys.exit("the end")
        if what == "os_exit":
            os.write(1, b"no JSON")
            os._exit(7)
        if what == "raise":
            raise RuntimeError("raised")
        if what == "warning":
            print("printed before")
            module.warn("careful")
            module.deprecate("old", version="9.9")
            print("more", file=sys.stderr)
            module.exit_json(changed=True)
        if what == "binary":
            sys.stdout.buffer.write(bytes(range(256)))
            sys.stderr.buffer.write(bytes(range(255, -1, -1)))
            sys.exit(3)
        signals = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT}
        if what in signals:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.kill(os.getpid(), signals[what])
            time.sleep(60)
        if what == "close":
            os.close(1)
            os.close(2)
        if what == "lost":
            sys.stderr.write("errors")
            sys.exit(255)
        if what == "wait":
            time.sleep(300)


    if __name__ == "__main__":
        main()
'''.replace("BYTES", str(BYTES))
OVERRIDE: Final = f"""{inspect.getsource(convert_bool)}

def boolean(value, strict=True):
    raise TypeError("the role's own version of {convert_bool.__name__}")
"""
ACTION: Final = """
    from ansible.plugins.action import ActionBase


    class ActionModule(ActionBase):
        def run(self, tmp=None, task_vars=None):
            return {"changed": False, "msg": "the role's own action plugin"}
"""
FILES: Final = {
    "commands/equal.py": COMMANDS,
    "projects/equal/orchestration.py": ORCHESTRATION,
    "config/equal.yaml": "{}\n",
    "command_args/equal.yaml.j2": "",
    "roles/equal_builtin/tasks/main.yml": BUILTIN,
    "roles/equal_builtin/templates/page.j2": "{{ ansible_check_mode }} {{ role_name }} é\n",
    "roles/equal_builtin/files/script.sh": '#!/bin/sh\necho "$@"; exit 0\n',
    "roles/equal_states/tasks/main.yml": STATES + ENDINGS + OUTPUTS,
    "roles/equal_overriding/tasks/main.yml": OVERRIDING,
    "roles/equal_overriding/action_plugins/command.py": ACTION,
    "roles/equal_overriding/module_utils/parsing/convert_bool.py": OVERRIDE,
    "roles/equal_overriding/module_utils/parsing/__init__.py": "",
    "roles/equal_later/tasks/main.yml": LATER,
    **{
        f"roles/equal_{role}/{path}": text
        for role in ("states", "later")
        for path, text in {
            "library/process.py": PROCESS,
            "module_utils/process_parts/__init__.py": "",
            "module_utils/process_parts/own.py": f"NAME = {role!r}\n",
        }.items()
    },
}


def test_roles_behave_in_the_same_way(tmp_path_factory: pytest.TempPathFactory) -> None:
    with both_ways(tmp_path_factory, "equal", FILES) as results:
        expect_equal_files(results, least=19)
        expect_equal_output(results)
        assert [result.outcome.exit_code for result in results.values()] == [1, 1]
        message = "task `Look for the device` failed on localhost: `sh -c 'echo \"no such device\" >&2; exit 4'` "
        for result in results.values():
            expect_large_log(result)
            assert (result.workspace.summary()["verdict"], result.workspace.summary()["cause"]) == ("failed", "product")
            assert message in result.outcome.stdout
        expect_forks(results)


def expect_large_log(result: Result) -> None:
    """Expect that the log of one play has the large result."""
    logs = result.workspace.artifacts.rglob("_ansible.log")
    assert [log.stat().st_size > BYTES for log in logs].count(True) == 1


def expect_forks(results: Mapping[str, Result]) -> None:
    """Expect that modules were executed in forks where this is equivalent."""
    ordinary, with_forks = (results[name].parents() for name in SWITCHES)
    assert {"module_server" in parent for parent in ordinary} == {False}
    usual = [parent for parent in with_forks if "module_server" not in parent]
    assert {parent.split()[2] for parent in usual} == {"GREETING=hello"}
    assert len(with_forks) - len(usual) > 10
