"""A module that returns 50 MB has the same log, events and result with helper processes and without.

The module makes the text itself: `command` needs half a minute to read as much from a program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from tests.conformance.warm_runs import Result, both_ways, expect_equal_files, expect_equal_output

BYTES: Final = 50_000_000
FILES: Final = {
    "commands/large.py": '''
        """Commands with large results."""
        from toolbox.ansible.roles import role


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


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Result]]:
    """Yield the runs of the project in both ways."""
    with both_ways(tmp_path_factory, "large", FILES, hosts=["machine"]) as runs:
        yield runs


def test_the_files_of_both_runs_are_equal(results: Mapping[str, Result]) -> None:
    for result in results.values():
        logs = list(result.workspace.artifacts.rglob("_ansible.log"))
        assert [log.stat().st_size > BYTES for log in logs] == [True, True]
    expect_equal_files(results, least=11)


def test_both_runs_print_and_return_the_same(results: Mapping[str, Result]) -> None:
    expect_equal_output(results)
    assert [result.outcome.exit_code for result in results.values()] == [0, 0]
