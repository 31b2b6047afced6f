"""Plays and modules take the ordinary path where a helper cannot be used. For plays, there is one warning."""

from __future__ import annotations

import pytest

from toolbox.testing import Workspace

pytestmark = pytest.mark.usefixtures("ansible_servers_as_programs")

FILES = {
    "commands/parent.py": '''
        """Show how a module is executed."""
        from toolbox.api import role


        class Parent:
            """Show how a module is executed."""

            @role
            def show(self) -> None:
                """Show the command line of a module."""
    ''',
    "roles/parent_show/tasks/main.yml": r"""
        - name: Show
          ansible.builtin.shell: tr '\0' ' ' </proc/$PPID/cmdline
          changed_when: false
    """,
    "projects/parents/orchestration.py": '''
        """Executes two plays."""
        import os

        from toolbox.orchestration import config, run


        def test():
            run.run_toolbox("parent", "show")
            os.environ.update(config.project.get_config("variables"))
            run.run_toolbox("parent", "show")
    ''',
    "config/parents.yaml": "variables: {}\n",
    "command_args/parents.yaml.j2": "",
    # Python imports these modules when it starts.
    "ended/sitecustomize.py": """
        import sys

        if "module_server" in " ".join(sys.orig_argv):
            sys.exit("no server for modules")
    """,
    "changed/sitecustomize.py": """
        import sys

        if "playbook_server" in " ".join(sys.orig_argv):
            from ansible.cli import playbook

            del playbook.main
    """,
}
SERVER = "module_server.py"
WARNING = "Ansible starts slowly, as an ordinary program: "


def test_plays_take_the_ordinary_path_with_one_warning(workspace: Workspace) -> None:
    env = {"PYTHONPATH": str(workspace.directory / "changed")}
    outcome = workspace.write(FILES).run("project", "run", "parents", env=env)
    assert outcome.exit_code == 0, str(outcome)
    assert outcome.stdout.count("python") >= 2
    assert SERVER not in outcome.stdout
    assert str(outcome).count(WARNING) == 1, str(outcome)
    assert "ansible-core cannot be prepared: AttributeError" in outcome.stderr


def test_modules_take_the_ordinary_path_if_their_helper_ends_at_its_start(workspace: Workspace) -> None:
    env = {"PYTHONPATH": str(workspace.directory / "ended")}
    outcome = workspace.write(FILES).run("project", "run", "parents", env=env)
    assert outcome.exit_code == 0, str(outcome)
    assert outcome.stdout.count("python") >= 2
    assert SERVER not in str(outcome)


def test_a_setting_of_ansible_that_changed_takes_the_ordinary_path(workspace: Workspace) -> None:
    workspace.write({**FILES, "config/parents.yaml": "variables: {ANSIBLE_FORKS: '3'}\n"})
    outcome = workspace.run("project", "run", "parents")
    assert outcome.exit_code == 0, str(outcome)
    assert outcome.stdout.count(SERVER) == 1
    assert f"{WARNING}ANSIBLE_FORKS changed after Topgallant was started" in outcome.stderr


def test_each_play_warns_of_a_plugin_of_the_user_that_cannot_be_loaded(workspace: Workspace) -> None:
    workspace.write({**FILES, "plugins/broken.py": "import missing_here\n"})
    env = {"ANSIBLE_CONNECTION_PLUGINS": str(workspace.directory / "plugins")}
    outcome = workspace.run("project", "run", "parents", env=env)
    assert outcome.exit_code == 0, str(outcome)
    assert outcome.stdout.count(SERVER) == 2
    logs = [log.read_text() for log in workspace.directory.glob("artifacts/**/_ansible.log")]
    assert [log.count("cannot load: No module named 'missing_here'") for log in logs] == [1, 1]
