"""`toolbox.testing`, by which teams test their projects, gives clear messages and leaves no processes."""

from __future__ import annotations

import json

import psutil
import pytest

from toolbox.testing import Outcome, Workspace

# Without a last command, the shell would become `sleep`, and a program that is just starting has no environment.
ENDLESS = f"--overrides={json.dumps({'commands.test': ['echo beg$(true)un; sleep 300; true']})}"


def test_an_outcome_is_readable_as_a_message() -> None:
    outcome = Outcome(("topgallant", "echo", "a b"), 2, "said\n", "error: no\n")
    assert str(outcome) == "$ topgallant echo 'a b'\nsaid\nerror: no\n[exit code 2]"


def test_write_removes_common_indentation(workspace: Workspace) -> None:
    workspace.write({"a/b.yaml": "\n    x:\n      y: é\n"})
    assert (workspace.directory / "a/b.yaml").read_text(encoding="utf-8") == "x:\n  y: é\n"


def test_a_command_line_that_exceeds_its_timeout_is_killed_and_shown(small: Workspace) -> None:
    with small.start("project", "run", "small", ENDLESS) as running:
        running.wait_for("begun")
        with pytest.raises(TimeoutError, match=r"still running after 0\.01 s:(.|\n)*begun"):
            running.wait(0.01)
    assert marked(small) == []


def test_leaving_the_block_kills_the_process(small: Workspace) -> None:
    with small.start("project", "run", "small", ENDLESS) as running:
        running.wait_for("begun")
        assert marked(small) != []
    assert marked(small) == []
    assert not psutil.pid_exists(running.pid)


def marked(workspace: Workspace) -> list[int]:
    """Return the ids of the processes whose variable HOME is the home directory of the workspace."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(workspace.home):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_a_missing_line_is_an_assertion_with_the_output(small: Workspace) -> None:
    with (
        small.start("project", "list") as running,
        pytest.raises(AssertionError, match=r"'no such text' was expected(.|\n)*training_e2e"),
    ):
        running.wait_for("no such text")


def test_a_late_line_is_a_timeout(small: Workspace) -> None:
    with small.start("project", "run", "small", ENDLESS) as running:
        running.wait_for("begun")
        with pytest.raises(TimeoutError, match="no 'no such text' within"):
            running.wait_for("no such text", timeout=0.01)


def test_more_or_fewer_than_one_run_is_an_assertion(small: Workspace) -> None:
    with pytest.raises(AssertionError, match="one run was expected, but there are 0"):
        small.run_directory()


def test_the_environment_of_the_tester_is_not_passed_on(small: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ARTIFACT_DIR", "TOPGALLANT_FROM_CONFIG_FILE", "TOPGALLANT_STEP", "ANSIBLE_CONFIG"):
        monkeypatch.setenv(name, "/nonexistent")
    seen = {"commands.test": ['env >"$ARTIFACT_DIR/seen"']}
    assert small.run("project", "run", "small", f"--overrides={json.dumps(seen)}").exit_code == 0
    variables = (small.run_directory() / "001__test/seen").read_text().splitlines()
    assert [line for line in variables if "/nonexistent" in line] == []
    assert f"HOME={small.home}" in variables
