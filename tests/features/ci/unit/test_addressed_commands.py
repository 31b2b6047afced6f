"""Only the commands for a job remain of a comment that several jobs and programs read."""

from __future__ import annotations

import pytest

from toolbox.features.ci import addressed_commands, slash

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


def names(text: str, job: str = "nightly") -> list[str]:
    return [f"{line.name} {line.rest}" for line in addressed_commands.for_job(slash.lines(text), job)]


def test_commands_for_other_jobs_and_programs_are_left_out() -> None:
    kept = ["var greeting: common", "test nightly small", "var greeting:\n  a: 1\n\n  b: 2", "cells x=*"]
    assert names(COMMENT) == kept


@pytest.mark.parametrize("hidden", ["```\n/test nightly small\n```", "<!--\n/test nightly small\n-->"])
def test_a_hidden_command_after_one_of_another_job_is_not_for_the_job(hidden: str) -> None:
    assert names(f"/test unit\n{hidden}\n") == []


@pytest.mark.parametrize("line", ["/cell x", "/clusters metal", "/quarentine x y"])
def test_a_misspelled_command_remains_so_that_it_is_refused(line: str) -> None:
    assert names(f"/test nightly small\n{line}")[1] == line[1:]


PROW = """
approve lgtm hold cc uncc assign unassign retest retest-required test-all ok-to-test override label remove-label
kind area priority cherry-pick close reopen milestone retitle lifecycle meow payload jira verified pipeline help cancel
"""


@pytest.mark.parametrize("command", PROW.split())
def test_the_commands_of_prow_are_ignored(command: str) -> None:
    assert names(f"/test nightly small\n/{command} x") == ["test nightly small"]
