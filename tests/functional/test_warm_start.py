"""The helpers of Ansible are started when they are needed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from ansible.module_utils import basic

from toolbox.ground.system import places
from toolbox.testing import Workspace

pytestmark = pytest.mark.usefixtures("ansible_servers_as_programs")

FILES = {
    "commands/needs.py": '''
        """Commands that need helpers."""
        from toolbox.api import role


        class Needs:
            """Commands that need helpers."""

            @role
            def nothing(self) -> None:
                """Execute no task."""

            @role
            def module(self) -> None:
                """Execute a module."""
    ''',
    "roles/needs_nothing/tasks/main.yml": "---\n[]\n",
    "roles/needs_module/tasks/main.yml": "- ansible.builtin.ping:\n",
    "projects/needs/orchestration.py": '''
        """Prints the helpers before and after each command."""
        import psutil

        from toolbox.orchestration import run


        def test():
            show("at first")
            for command in ("nothing", "module"):
                run.run_toolbox("needs", command)
                show(command)


        def show(moment):
            words = " ".join(word for child in psutil.Process().children() for word in child.cmdline())
            print(f"{moment}: {[name for name in ('playbook_server', 'module_server') if name in words]}")
    ''',
    # Python imports this module when it starts.
    "slow/sitecustomize.py": """
        import os
        import sys

        if "playbook_server" in " ".join(sys.orig_argv):
            with open(os.environ["BEGUN"], "w") as stream:
                stream.write(os.environ["ANSIBLE_LOCAL_TEMP"])
            sys.stdin.read()  # until the command line ends the helper
    """,
    "config/needs.yaml": "{}\n",
    "command_args/needs.yaml.j2": "",
}


def test_a_command_without_tasks_starts_no_helper_for_modules(workspace: Workspace) -> None:
    outcome = workspace.write(FILES).run("project", "run", "needs")
    assert outcome.exit_code == 0, str(outcome)
    assert "at first: []" in outcome.stdout
    assert "nothing: ['playbook_server']" in outcome.stdout
    assert "module: ['playbook_server', 'module_server']" in outcome.stdout


def test_the_helpers_start_from_a_checkout_that_is_not_installed(workspace: Workspace, tmp_path: Path) -> None:
    """An environment with all packages that Topgallant needs, but without Topgallant."""
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = tmp_path.glob("venv/lib/python*/site-packages")
    folders = [folder for folder in sys.path if Path(folder).name.endswith("-packages")]
    (packages / "others.pth").write_text("\n".join(folders))  # Python ignores the .pth files in these folders
    python, checkout = tmp_path / "venv/bin/python", places.builtin_root()
    assert subprocess.run([python, "-c", "import toolbox"], cwd=tmp_path, check=False, capture_output=True).returncode
    outcome = subprocess.run(
        [python, checkout / "run_toolbox.py", "project", "run", "needs"],
        cwd=workspace.write(FILES).directory,
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # `ansible-playbook` is there
            "HOME": str(workspace.home),
            "TOPGALLANT_NO_VENV": "1",
        },
        check=False,
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 0, outcome
    assert "warning: " not in outcome.stderr
    assert "module: ['playbook_server', 'module_server']" in outcome.stdout


def test_a_helper_that_is_interrupted_at_its_start_leaves_no_directory(workspace: Workspace) -> None:
    begun = workspace.write(FILES).directory / "begun"
    os.mkfifo(begun)
    env = {"PYTHONPATH": str(workspace.directory / "slow"), "BEGUN": str(begun)}
    with workspace.start("needs", "nothing", env=env) as running:
        directory = Path(begun.read_text())
        running.send(signal.SIGINT)
        assert running.wait(60).exit_code == 128 + signal.SIGINT
    assert not [path for path in (directory, *list(directory.parents)[:2]) if path.exists()]


CHANGES = {
    "commands/probe.py": '''
        """Use what others have made."""
        from toolbox.api import role


        class Probe:
            """Use what others have made."""

            @role
            def first(self) -> None:
                """Use a filter of the user."""

            @role
            def replaced(self) -> None:
                """Execute a module with a part of its own."""

            @role
            def second(self) -> None:
                """Use a plugin that was made after the first command."""
    ''',
    "roles/probe_first/tasks/main.yml": """
        - ansible.builtin.assert:
            that: "'x' | shout == 'X'"
    """,
    "roles/probe_replaced/tasks/main.yml": "- ansible.builtin.ping:\n",
    "roles/probe_second/tasks/main.yml": """
        - late_action:
        - look:
          register: looked
        - ansible.builtin.assert:
            that: looked.timeout is none
    """,
    "roles/probe_second/library/look.py": """
        import socket
        from ansible.module_utils.basic import AnsibleModule
        AnsibleModule({}).exit_json(timeout=socket.getdefaulttimeout())
    """,
    "projects/changes/orchestration.py": '''
        """Changes what a play finds, between two commands."""
        from pathlib import Path

        from toolbox.orchestration import run

        LATE = """
        from ansible.plugins.action import ActionBase
        class ActionModule(ActionBase):
            def run(self, tmp=None, task_vars=None):
                return {"changed": False}
        """


        def test():
            run.run_toolbox("probe", "first")
            Path("actions/late_action.py").write_text(LATE)
            run.run_toolbox("probe", "replaced")
            run.run_toolbox("probe", "second")
    ''',
    "config/changes.yaml": "{}\n",
    "actions/other.py": "",
    "filters/shout.py": """
        class FilterModule:
            def filters(self):
                return {"shout": str.upper}
    """,
    "own.cfg": "[defaults]\nfilter_plugins = filters\naction_plugins = actions\n",
    # Python imports this module when it starts.
    "prints/sitecustomize.py": """
        import sys
        if "ansible" in " ".join(sys.orig_argv):
            print("a message at the start", file=sys.stderr)
    """,
}


@pytest.mark.parametrize("warm", ["1", "0"])
def test_a_play_finds_what_is_there_and_not_what_was_there(workspace: Workspace, warm: str) -> None:
    env = {"ANSIBLE_CONFIG": "own.cfg", "TOPGALLANT_ANSIBLE_WARM": warm}
    part = workspace.write(CHANGES).directory / "roles/probe_replaced/module_utils/basic.py"
    part.parent.mkdir()
    part.write_text(f"{Path(basic.__file__).read_text()}\nimport socket\nsocket.setdefaulttimeout(7)\n")
    outcome = workspace.run("project", "run", "changes", env=env)
    assert outcome.exit_code == 0, str(outcome)
    assert "warning: " not in outcome.stderr
    events = sorted(workspace.run_directory().glob("*/*/_ansible.events.jsonl"))
    ids = [set(re.findall(r'"play_uuid": *"([^"]+)"', file.read_text())) for file in events]
    assert len(set.union(*ids)) == sum(map(len, ids)) == 3


def test_messages_at_the_start_of_ansible_belong_to_each_play(workspace: Workspace) -> None:
    env = {"PYTHONPATH": str(workspace.directory / "prints"), "ANSIBLE_CONFIG": "own.cfg"}
    outcome = workspace.write(CHANGES).run("probe", "first", env=env)
    assert outcome.exit_code == 0, str(outcome)
    assert outcome.stderr.count("warning: Ansible starts slowly") == 1
    assert "it prints messages when it is imported" in outcome.stderr
