"""A workflow with shards runs a matrix of jobs, and has one verdict, one report and one comment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import forked_commands
from tests.features.ci.fakes.github_actions import Job, Runner
from tests.features.ci.servers import github
from tests.features.ci.servers.github import events
from toolbox.testing import Workspace

CELLS = "abcdef"
PROJECT = {
    "projects/six/orchestration.py": '''
        """Runs six cells."""
        from toolbox.orchestration import matrix, run

        def prepare():
            run.run("true")

        def test():
            matrix.run()
    ''',
    # A cell fails if the file fail-NAME exists. It kills the process of the run if the file kill-NAME exists.
    "config/six.yaml": """
        ci_presets: {to_apply: null, names: null}
        ci:
          github: {command: ./toolbox, install: ["test -x toolbox"]}
          workflows:
            nightly: {schedule: "17 2 * * *", google: true, secret_files: {token: DATABASE}, shards: 3}
            on_demand: {comment: true, google: true, revision: revision}
            whole: {dispatch: true, shards: 1}
        revision: null
        root: ROOT
        secrets: {dir: {env_key: VAULT}}
        matrix:
          axes: {x: [a, b, c, d, e, f]}
          workload:
            sample_seconds: null
            command: |
              echo {@cell.x} >>{@root}/cells
              [ ! -e {@root}/kill-{@cell.x} ] || kill -9 "$(cat {@root}/run.pid)"
              [ ! -e {@root}/fail-{@cell.x} ]
    """,
    # A run that a cell kills is a program, because the death of a client of the forking server only interrupts a fork.
    "toolbox": """
        #!/bin/sh
        case "$1 $2" in "project run" | "ci run") echo $$ >run.pid; [ ! -e kill-b ] || exec {killable} "$@" ;; esac
        exec {program} "$@"
    """,
}


@pytest.fixture
def six(workspace: Workspace, toolbox_script: str) -> Workspace:
    """Return a project with workflow files for three shards."""
    config = PROJECT["config/six.yaml"].replace("ROOT", json.dumps(str(workspace.directory)))
    workspace.write({**PROJECT, "config/six.yaml": config})
    workspace.write({"toolbox": PROJECT["toolbox"].format(program=toolbox_script, killable=forked_commands.SCRIPT)})
    (workspace.directory / "toolbox").chmod(0o755)
    outcome = workspace.run("ci", "workflows", "six", "--shards=3")
    assert outcome.exit_code == 0, str(outcome)
    return workspace


@pytest.fixture
def runner(six: Workspace, tmp_path: Path) -> Iterator[Runner]:
    """Yield a runner with a pull request of a member."""
    with github.serving() as server:
        server.add_user("alice", "write")
        server.push("topic", {"model.py": "steps = 1"}, by="alice")
        server.open_pull_request("topic", by="alice")
        yield Runner(six.directory, tmp_path / "runner", server)


def workflow(six: Workspace, name: str) -> Path:
    return six.directory / ".github/workflows" / f"six-{name}.yml"


def comment(runner: Runner, text: str) -> dict[str, Any]:
    return dict(events.issue_comment(runner.server, runner.server.comment(1, "alice", text)).payload)


def comments(runner: Runner) -> list[str]:
    return [each.body for each in runner.server.comments(1) if each.author is runner.server.bot]


def results(jobs: dict[str, Job]) -> list[str]:
    return [job.result for name, job in jobs.items() if name != "run"]


def summaries(runner: Runner, jobs: dict[str, Job]) -> list[dict[str, Any]]:
    """Return the summaries of the merged runs, in their order."""
    artifact = runner.home / "uploaded" / jobs["merge"].outputs["artifact"]
    return [json.loads(file.read_text()) for file in sorted(artifact.glob("six/*/summary.json"))]


def verdicts(summary: dict[str, Any]) -> dict[str, str]:
    return {step["name"].removeprefix("x="): step["verdict"] for step in summary["steps"] if step["kind"] == "cell"}


def test_a_killed_shard_that_is_run_again_gives_one_comment_with_one_verdict(six: Workspace, runner: Runner) -> None:
    (six.directory / "kill-b").touch()
    event = comment(runner, "/test six\n")
    jobs = runner.run(workflow(six, "on_demand"), "issue_comment", event)
    assert results(jobs) == ["success", "success", "failure", "success", "failure", "success"]
    (summary,) = summaries(runner, jobs)
    assert (summary["verdict"], summary["cause"]) == ("error", "infrastructure")
    assert "shard 2/3 has not ended" in summary["message"]
    (text,) = comments(runner)
    assert "`six` did not pass" in text
    assert "error (infrastructure)" in text
    assert "shard 2/3 has not ended" in text
    assert "2 cells not run: x=b, x=e" in text

    (six.directory / "kill-b").unlink()
    (six.directory / "cells").unlink()
    again = runner.run(workflow(six, "on_demand"), "issue_comment", event, earlier=jobs, run_attempt=2)
    assert results(again) == ["success"] * 6, again["merge"].output
    assert sorted((six.directory / "cells").read_text().split()) == ["b", "e"]
    (summary,) = summaries(runner, again)
    assert (summary["verdict"], summary["planned_cells"]) == ("passed", 6)
    assert verdicts(summary) == dict.fromkeys(CELLS, "passed")
    (text,) = comments(runner)
    assert "`six` passed" in text
    assert "<h2>passed" in text
    assert "cells: 6 passed" in text
    head = runner.server.issue(1).pull
    assert head is not None
    assert [status.state for status in runner.server.statuses(head.head_sha)] == ["pending", "failure", "success"]


def test_a_failed_cell_fails_the_merged_run_and_not_the_other_shards(six: Workspace, runner: Runner) -> None:
    (six.directory / "fail-c").touch()
    jobs = runner.run(workflow(six, "nightly"), "schedule")
    assert results(jobs) == ["success", "success", "failure", "failure", "success"], jobs["merge"].output
    (summary,) = summaries(runner, jobs)
    assert verdicts(summary) == {**dict.fromkeys(CELLS, "passed"), "c": "failed"}
    assert json.loads(next(runner.home.glob("uploaded/4/six/*/run.json")).read_text())["baseline"] is True
    assert runner.summary.read_text().count("<h2>") == 1
    assert len([line for line in jobs["merge"].output.splitlines() if line.startswith("::error")]) == 1
    assert "::error" not in jobs["run"].output
    (issue,) = [issue for issue in runner.server.repository.issues.values() if issue.pull is None]
    assert "x=c" in str(issue.body)


def test_a_shard_without_a_new_artifact_does_not_pass_by_an_earlier_one(six: Workspace, runner: Runner) -> None:
    jobs = runner.run(workflow(six, "nightly"), "schedule")
    assert results(jobs) == ["success"] * 5, jobs["merge"].output
    runner.failing = ("google-github-actions/auth",)
    failed = {**jobs, "run": Job("failure"), "run (3)": Job("failure")}
    again = runner.run(workflow(six, "nightly"), "schedule", earlier=failed, run_attempt=2)
    (summary,) = summaries(runner, again)
    assert (summary["verdict"], again["merge"].result) == ("error", "failure")
    assert "the jobs of the shards ended with `failure`" in summary["message"]

    lost = {**jobs, "run": Job("failure"), "run (3)": Job("cancelled")}
    runner.forget("six-nightly-shard-3-1")
    again = runner.run(workflow(six, "nightly"), "schedule", earlier=lost, run_attempt=3)
    assert again["merge"].result == "failure"
    (summary,) = summaries(runner, again)
    assert "there is no run of shard 3/3" in summary["message"]
    assert "2 cells not run: x=c, x=f" in summary["message"]


def test_each_test_of_a_comment_is_merged_by_itself_and_selected_cells_are_divided(
    six: Workspace, runner: Runner
) -> None:
    (six.directory / "fail-a").touch()
    event = comment(runner, "/test six\n/cells x=[ad]\n/test six\n/cells x=d x=e x=f\n")
    jobs = runner.run(workflow(six, "on_demand"), "issue_comment", event)
    assert results(jobs) == ["success", "failure", "success", "success", "failure", "success"]
    found = [(summary["verdict"], verdicts(summary)) for summary in summaries(runner, jobs)]
    assert found == [
        ("failed", {"a": "failed", "d": "passed"}),
        ("passed", {"d": "passed", "e": "passed", "f": "passed"}),
    ]
    (text,) = comments(runner)
    assert text.count("<h2>") == 2


def test_the_first_line_records_the_flag_and_a_check_needs_it(six: Workspace) -> None:
    assert six.run("ci", "workflows", "six", "--shards=3", "--check").exit_code == 0
    outcome = six.run("ci", "workflows", "six", "--check")
    assert outcome.exit_code == 1
    assert "-# Generated by `./toolbox ci workflows six --shards=3`" in outcome.stdout
    jobs = yaml.safe_load(workflow(six, "whole").read_text())["jobs"]
    assert list(jobs) == ["run"]
    assert six.run("ci", "workflows", "six").exit_code == 0
    assert "strategy" not in workflow(six, "on_demand").read_text()
    assert "strategy" in workflow(six, "nightly").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [(("--shards=257",), "at most 256 jobs"), (("--shards=0",), "--shards"), (("--shards=2",), "there is no block")],
)
def test_a_wrong_number_of_shards_is_refused(six: Workspace, flags: tuple[str, ...], message: str) -> None:
    if "no block" in message:
        file = six.directory / "config/six.yaml"
        file.write_text(file.read_text().partition("matrix:")[0])
    before = workflow(six, "on_demand").read_text()
    outcome = six.run("ci", "workflows", "six", *flags)
    assert outcome.exit_code == 2, str(outcome)
    assert message in outcome.stderr
    assert workflow(six, "on_demand").read_text() == before
