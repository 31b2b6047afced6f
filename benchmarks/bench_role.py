"""Compares the time of a toolbox command with an empty role with the time of `ansible-playbook` with the same role."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import compare

from toolbox.orchestration import run

_COMMAND = '''"""A group for a benchmark."""
from toolbox.ansible.roles import role


class Bench:
    """A group for a benchmark."""

    @role
    def empty(self) -> None:
        """Do nothing."""
'''
_PLAY = "- hosts: localhost\n  connection: local\n  gather_facts: false\n  roles: [bench_empty]\n"


def main() -> int:
    """Measure, and return 1 if the limit is exceeded."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for path, text in {
            "projects/.keep": "",
            "commands/bench.py": _COMMAND,
            "roles/bench_empty/tasks/main.yml": "[]\n",
            "play.yaml": _PLAY,
        }.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        os.chdir(root)
        program = Path(sys.executable).parent / "ansible-playbook"
        variables = {**os.environ, "ANSIBLE_ROLES_PATH": str(root / "roles")}

        def bare() -> None:
            subprocess.run([program, "play.yaml"], env=variables, check=True, capture_output=True)

        title = "a toolbox command with an empty role / ansible-playbook with the role"
        within = compare(title, lambda: run.run_toolbox("bench", "empty"), bare, rounds=9, limit=1.25)
        os.chdir("/")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
