"""Only the commands for a job remain of a comment that several jobs and programs read."""

from __future__ import annotations

import pytest

from toolbox.ci import addressed_commands

COMMENT = """/lgtm
/var greeting: common
/test unit
/var greeting: other
  continued
/test nightly small
/var greeting:
  a: 1

  b: 2
/hold
/cells x=*
text
"""
EXPECTED = """
/var greeting: common



/test nightly small
/var greeting:
  a: 1

  b: 2

/cells x=*
text"""


def test_commands_for_other_jobs_and_programs_become_empty_lines() -> None:
    assert addressed_commands.for_job(COMMENT, "nightly") == EXPECTED


@pytest.mark.parametrize("line", ["/cell x", "/clusters metal", "/quarentine x y"])
def test_a_misspelled_command_remains_so_that_it_is_refused(line: str) -> None:
    assert addressed_commands.for_job(f"/test nightly small\n{line}", "nightly").endswith(line)


PROW = """
approve lgtm hold cc uncc assign unassign retest retest-required test-all ok-to-test override label remove-label
kind area priority cherry-pick close reopen milestone retitle lifecycle meow payload jira verified pipeline help cancel
"""


@pytest.mark.parametrize("command", PROW.split())
def test_the_commands_of_prow_are_ignored(command: str) -> None:
    kept = addressed_commands.for_job(f"/test nightly small\n/{command} x", "nightly")
    assert kept == "/test nightly small\n"
