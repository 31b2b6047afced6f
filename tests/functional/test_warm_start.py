"""The helpers of Ansible are started when they are needed."""

from __future__ import annotations

from toolbox.testing import Workspace

FILES = {
    "commands/needs.py": '''
        """Commands that need helpers."""
        from toolbox.ansible.roles import role


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
    "config/needs.yaml": "{}\n",
    "command_args/needs.yaml.j2": "",
}


def test_a_command_without_tasks_starts_no_helper_for_modules(workspace: Workspace) -> None:
    outcome = workspace.write(FILES).run("project", "run", "needs")
    assert outcome.exit_code == 0, str(outcome)
    assert "at first: []" in outcome.stdout
    assert "nothing: ['playbook_server']" in outcome.stdout
    assert "module: ['playbook_server', 'module_server']" in outcome.stdout
