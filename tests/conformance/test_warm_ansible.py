"""Roles behave in the same way whether forks of running processes execute Ansible and its modules, or new programs do.

A project runs the same roles in both ways, and both runs are compared (`warm_runs`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from ansible.module_utils.parsing import convert_bool

from tests.conformance.warm_runs import SWITCHES, Result, both_ways, expect_equal_files, expect_equal_output

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
            """Change the state of the module's process."""

        @role
        def endings(self) -> None:
            """End modules in unusual ways."""

        @role
        def outputs(self) -> None:
            """Print unusual output."""

        @role
        def overriding(self) -> None:
            """Replace a part of Ansible."""

        @role
        def later(self) -> None:
            """See nothing of the plays before."""

        @role
        def failing(self) -> None:
            """Fail."""
'''
ORCHESTRATION: Final = '''
    """Runs all roles, the failing one last."""
    from toolbox.orchestration import run


    def test():
        for command in ("builtin", "states", "endings", "outputs", "overriding"):
            run.run_toolbox("equal", command)
        run.run_toolbox("equal", "later")
        run.run_toolbox("equal", "failing")
'''
BUILTIN: Final = """
    - name: Register
      ansible.builtin.command: printf '%s\\n' a b
      register: printed
      changed_when: false
    - name: Use the result
      ansible.builtin.assert:
        that: printed.stdout_lines == ["a", "b"]
    - name: Loop
      ansible.builtin.command: "sh -c 'exit {{ item }}'"
      loop: [0, 3, 0]
      changed_when: item == 0
      failed_when: false
    - name: Ignore
      ansible.builtin.command: sh -c 'echo out; echo err >&2; exit 4'
      ignore_errors: true
      changed_when: false
    - name: Ignore a program that is missing
      ansible.builtin.command: there-is-no-such-program
      ignore_errors: true
      changed_when: false
    - name: Delegate
      ansible.builtin.command: echo delegated
      delegate_to: localhost
      run_once: true
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
    - name: Handle a failure
      block:
        - name: Fail
          ansible.builtin.command: "false"
      rescue:
        - name: Rescue
          ansible.builtin.debug: {msg: rescued}
      always:
        - name: Always
          ansible.builtin.debug: {msg: always}
    - name: Hide
      ansible.builtin.command: echo hidden
      no_log: true
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
    - name: Check a file
      ansible.builtin.file: {path: "{{ artifact_extra_logs_dir }}/artifacts/never", state: touch, mode: "0600"}
      check_mode: true
    - name: Set the environment
      ansible.builtin.command: printenv GREETING
      environment: {GREETING: hello}
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
    - name: Retry
      ansible.builtin.command: sh -c 'echo x >>{{ artifact_extra_logs_dir }}/artifacts/tries; test -s missing'
      register: tried
      retries: 1
      delay: 0
      until: tried.rc == 0
      ignore_errors: true
      changed_when: false
    - name: Execute raw
      ansible.builtin.raw: echo "$0 raw"; exit 2
      ignore_errors: true
      changed_when: false
    - name: Execute a script
      ansible.builtin.script: script.sh one two
      changed_when: false
    - name: Execute a shell
      ansible.builtin.shell: echo "$PPID" | sed 's/[0-9]*/number/'; echo err >&2
      changed_when: false
    - name: Execute another shell
      ansible.builtin.shell: echo "$BASH_VERSION" | wc --lines
      args: {executable: /bin/bash, chdir: "{{ artifact_extra_logs_dir }}", stdin: given}
      changed_when: false
    - name: Copy
      ansible.builtin.copy:
        content: "content é {{ printed.stdout }}"
        dest: "{{ artifact_extra_logs_dir }}/src/copied"
        mode: "0640"
    - name: Copy a binary file
      ansible.builtin.copy: {src: binary, dest: "{{ artifact_extra_logs_dir }}/src/binary", mode: preserve}
    - name: Render
      ansible.builtin.template:
        src: page.j2
        dest: "{{ artifact_extra_logs_dir }}/src/page"
        mode: "0600"
    - name: Create a link
      ansible.builtin.file: {src: page, dest: "{{ artifact_extra_logs_dir }}/src/link", state: link}
    - name: Create a directory without a mode
      ansible.builtin.file: {path: "{{ artifact_extra_logs_dir }}/src/folder", state: directory}
    - name: Find
      ansible.builtin.find: {paths: "{{ artifact_extra_logs_dir }}/src", file_type: any}
      register: files
    - name: Stat
      ansible.builtin.stat: {path: "{{ artifact_extra_logs_dir }}/src/copied"}
    - name: Assert
      ansible.builtin.assert:
        that: files.files | length == 5
    - name: Refuse an argument
      ansible.builtin.file: {path: /tmp, staet: file}
      ignore_errors: true
    - name: Read a file
      ansible.builtin.slurp: {src: "{{ artifact_extra_logs_dir }}/src/page"}
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
"""
ENDINGS: Final = """
    - name: End a module
      process: {what: "{{ item }}"}
      loop: [exit, os_exit, raise, garbage, nothing, warning, kill, term, abort, interrupt, close]
      ignore_errors: true
    - name: Never end
      process: {what: wait}
      timeout: 1
      ignore_errors: true
    - name: Never end, with a name of a variable that is wrong
      process: {what: "{{ wrong }}"}
      ignore_errors: true
"""
MUCH: Final = """
    - name: Return much
      ansible.builtin.shell: "head --bytes=3M /dev/zero | tr '\\\\0' x; echo err >&2"
      changed_when: false
      no_log: true
      register: much
    - name: Expect all of it
      ansible.builtin.assert:
        that: much.stdout | length == 3 * 1024 * 1024
"""
OUTPUTS: Final = f"""
{MUCH}
    - name: Print bytes
      ansible.builtin.command: printf '\\000\\001\\377\\376 \\303\\251 \\033[31m'
      changed_when: false
      ignore_errors: true
    - name: Print bytes as a module
      process: {{what: binary}}
      ignore_errors: true
    - name: Show much
      ansible.builtin.shell: "head --bytes=200K /dev/zero | tr '\\\\0' x; echo err >&2"
      changed_when: false
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
FAILING: Final = """
    - name: Look for the device
      ansible.builtin.command: sh -c 'echo "no such device" >&2; exit 4'
    - name: Never reached
      ansible.builtin.debug:
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
        if what == "exit":
            sys.exit("the end")
        if what == "os_exit":
            os.write(1, b"written")
            os._exit(7)
        if what == "raise":
            raise RuntimeError("raised")
        if what == "garbage":
            sys.stdout.write("no JSON")
            sys.stderr.write("errors")
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
        signals = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "abort": signal.SIGABRT, "interrupt": signal.SIGINT}
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
'''
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
    "roles/equal_builtin/files/binary": "\x00\x01é\n",
    "roles/equal_states/tasks/main.yml": STATES,
    "roles/equal_endings/tasks/main.yml": ENDINGS,
    "roles/equal_outputs/tasks/main.yml": OUTPUTS,
    "roles/equal_overriding/tasks/main.yml": OVERRIDING,
    "roles/equal_overriding/action_plugins/command.py": ACTION,
    "roles/equal_overriding/module_utils/parsing/convert_bool.py": OVERRIDE,
    "roles/equal_overriding/module_utils/parsing/__init__.py": "",
    "roles/equal_later/tasks/main.yml": LATER,
    "roles/equal_failing/tasks/main.yml": FAILING,
    **{
        f"roles/equal_{role}/{path}": text
        for role in ("states", "endings", "outputs")
        for path, text in {
            "library/process.py": PROCESS,
            "module_utils/process_parts/__init__.py": "",
            "module_utils/process_parts/own.py": f"NAME = {role!r}\n",
        }.items()
    },
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Result]]:
    """Yield the runs of the project in both ways."""
    with both_ways(tmp_path_factory, "equal", FILES) as runs:
        yield runs


def test_the_files_of_both_runs_are_equal(results: Mapping[str, Result]) -> None:
    expect_equal_files(results, least=31)


def test_both_runs_print_and_return_the_same(results: Mapping[str, Result]) -> None:
    expect_equal_output(results)
    assert [result.outcome.exit_code for result in results.values()] == [1, 1]
    message = "task `Look for the device` failed on localhost: `sh -c 'echo \"no such device\" >&2; exit 4'` "
    for result in results.values():
        assert (result.workspace.summary()["verdict"], result.workspace.summary()["cause"]) == ("failed", "product")
        assert message in result.outcome.stdout


def test_modules_are_executed_in_forks_where_this_is_equivalent(results: Mapping[str, Result]) -> None:
    ordinary, with_forks = (results[name].parents() for name in SWITCHES)
    assert {"module_server" in parent for parent in ordinary} == {False}
    usual = [parent for parent in with_forks if "module_server" not in parent]
    assert {parent.split()[2] for parent in usual} == {"GREETING=hello"}
    assert len(with_forks) - len(usual) > 10
