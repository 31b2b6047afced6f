"""The helper processes rely on internals of ansible-core, which other versions may have changed.

The test uses the ansible-core that Python finds first, which its command lines inherit by `$PYTHONPATH`. `make
test-ansible` runs the test, and a test over SSH, with each older version.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from toolbox.testing import Workspace

pytestmark = pytest.mark.usefixtures("ansible_servers_as_programs")

PROJECT = {
    "projects/twice/orchestration.py": '''
        """Runs a command twice."""
        from toolbox.orchestration import run

        def test():
            run.run_toolbox("probe", "look")
            run.run_toolbox("probe", "look")
    ''',
    "config/twice.yaml": "{}",
    "commands/probe.py": '''
        """Look at the processes of Ansible."""
        from toolbox.api import role

        class Probe:
            """Look at the processes of Ansible."""

            @role
            def look(self):
                """Record what a play and a module find in their processes."""
    ''',
    "roles/probe_look/tasks/main.yml": """
        - name: Look at the process of a module
          probe_module:
          register: module
        - name: Look at the process of the play
          ansible.builtin.copy:
            content: "{{ lookup('probe_play') | combine({'uses_copy': module.uses_copy}) | to_json }}"
            dest: "{{ artifact_extra_logs_dir }}/artifacts/found.json"
            mode: "0600"
    """,
    "roles/probe_look/library/probe_module.py": """
        import sys
        from ansible.module_utils.basic import AnsibleModule

        # The server's finder tells whether the copy of the server is equal to the payload.
        AnsibleModule({}).exit_json(uses_copy=any(getattr(finder, "_is_equal", False) for finder in sys.meta_path))
    """,
    "roles/probe_look/lookup_plugins/probe_play.py": """
        import os
        from pathlib import Path

        from ansible import constants
        from ansible.plugins.loader import connection_loader
        from ansible.plugins.lookup import LookupBase
        from ansible.release import __version__

        class LookupModule(LookupBase):
            def run(self, terms, variables=None, **kwargs):
                play = Path("/proc", str(os.getppid()))
                return [{
                    "version": __version__,
                    "command_line": (play / "cmdline").read_text(),
                    "temporary": constants.DEFAULT_LOCAL_TMP,
                    "options": {
                        plugin: constants.config.get_configuration_definitions("connection", plugin)
                        for plugin in ("local", "ssh")
                        if connection_loader.get(plugin, class_only=True)
                    },
                }]
    """,
}


def found(folder: Path, *argv: str, **variables: str) -> list[dict[str, Any]]:
    """Return what each play of a command line finds."""
    workspace = Workspace(folder, PROJECT)
    outcome = workspace.run(*argv, env=variables)
    assert outcome.exit_code == 0, str(outcome)
    assert "Ansible starts slowly" not in outcome.stderr, str(outcome)
    return [json.loads(file.read_text()) for file in sorted(workspace.artifacts.rglob("found.json"))]


def without_notes(value: Any) -> Any:
    """Return the options of plugins without the notes for readers of the documentation."""
    if isinstance(value, list):
        return [without_notes(item) for item in value]
    if isinstance(value, dict):
        return {key: without_notes(item) for key, item in value.items() if key != "version_added_collection"}
    return value


def test_plays_and_modules_are_forks_that_know_the_installed_ansible(tmp_path: Path) -> None:
    (ordinary,) = found(tmp_path / "ordinary", "probe", "look", TOPGALLANT_ANSIBLE_WARM="0")
    first, second = found(tmp_path / "forked", "project", "run", "twice")
    assert "ansible-playbook" in ordinary["command_line"]
    for play in (first, second):
        assert "playbook_server" in play["command_line"]
        assert play["version"] == ordinary["version"] == version("ansible-core")
        assert without_notes(play["options"]) == without_notes(ordinary["options"]), (
            "each connection plugin has the options of the plugin that it replaces"
        )
        assert not Path(play["temporary"]).exists()
    assert Path(first["temporary"]).parent != Path(second["temporary"]).parent, "each play has its own directory"
    assert second["uses_copy"], "module_utils is imported by the server, and not again"
