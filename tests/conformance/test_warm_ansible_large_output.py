"""A module that returns 50 MB has the same log, events and result with helper processes and without.

The module makes the text itself: `command` needs half a minute to read as much from a program.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.warm_runs import both_ways, expect_equal_files, expect_equal_output

BYTES: Final = 50_000_000
FILES: Final = {
    "commands/large.py": '''
        """Commands with large results."""
        from toolbox.api import role


        class Large:
            """Commands with large results."""

            @role
            def output(self) -> None:
                """Return 50 MB."""
    ''',
    "roles/large_output/tasks/main.yml": """
        - name: Return 50 MB
          text:
    """,
    "roles/large_output/library/text.py": f"""
        #!/usr/bin/python
        from ansible.module_utils.basic import AnsibleModule

        AnsibleModule({{}}).exit_json(text="x" * {BYTES})
    """,
    "projects/large/orchestration.py": '''
        """Returns a large text on this machine and on a host."""
        from toolbox.orchestration import run


        def test():
            run.run_toolbox("large", "output")
            run.run_toolbox("large", "output", hosts=["machine"])
    ''',
    "config/large.yaml": "{}\n",
    "command_args/large.yaml.j2": "",
}


def test_a_large_result_is_the_same_both_ways(tmp_path_factory: pytest.TempPathFactory) -> None:
    with both_ways(tmp_path_factory, "large", FILES, hosts=["machine"]) as results:
        for result in results.values():
            assert result.outcome.exit_code == 0, str(result.outcome)
            logs = result.workspace.artifacts.rglob("_ansible.log")
            assert [log.stat().st_size > BYTES for log in logs] == [True, True]
        expect_equal_files(results, least=11)
        expect_equal_output(results)
