"""A comment shows how far its run is, if no code under test runs beside the token."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.features.ci.servers import github
from tests.features.ci.servers.github import events
from tests.functional.grid import Grid
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from toolbox.testing import Outcome

# Cells of this backend really run here, so that the test can see what they get.
BACKEND = '''
    """A machine that is not this one."""
    from toolbox.targets.backends.local import Target as LocalTarget


    class Target(LocalTarget):
        """Another machine."""
'''
WORKLOAD = {
    "command": 'echo "token: ${GH_TOKEN-}${GITHUB_TOKEN-}"; [ ! -e {@root}/fail-{@cell.x} ]',
    "sample_seconds": None,
}
WORKFLOWS = {"on_demand": {"comment": True, "progress": True, "revision": "revision"}}


@pytest.fixture
def server() -> Iterator[github.Server]:
    with github.serving() as running:
        running.add_user("alice", "write")
        running.push("topic", {"model.py": "x"}, by="alice")
        running.open_pull_request("topic", by="alice")
        yield running


def configure(grid: Grid, backend: str = "elsewhere") -> Grid:
    grid.workspace.write({"backends/elsewhere.py": BACKEND})
    blocks: dict[str, Any] = {
        "targets": {"far": {"backend": backend}},
        "revision": None,
        "ci": {"github": {"install": ["true"], "command": "toolbox"}, "workflows": WORKFLOWS},
        "results": {"record": False},
    }
    return grid.configure("abcd", blocks=blocks, workload=WORKLOAD, target="far", jobs=1)


def run(grid: Grid, server: github.Server, *, token: str | None = None) -> Outcome:
    event = events.issue_comment(server, server.comment(1, "alice", "/test grid"))
    file = grid.root / "event.json"
    file.write_text(json.dumps(event.payload))
    variables = {
        "GH_TOKEN": token or server.add_token(pull_requests="write"),
        "GITHUB_ACTIONS": "true",
        "GITHUB_API_URL": server.url,
        "GITHUB_EVENT_NAME": "issue_comment",
        "GITHUB_EVENT_PATH": str(file),
        "GITHUB_REPOSITORY": "owner/name",
        "GITHUB_RUN_ID": "77",
    }
    flags = ["--project=grid", "--workflow=on_demand", f"--revision={server.repository.branches['topic']}"]
    return grid.workspace.run("ci", "run", *flags, env=variables)


def test_the_comment_shows_the_first_milestone_at_once_and_the_cells_do_not_get_the_token(
    grid: Grid, server: github.Server
) -> None:
    token = server.add_token(pull_requests="write")
    outcome = run(configure(grid).mark("fail-b"), server, token=token)
    assert outcome.exit_code == 1, str(outcome)
    logs = [file.read_text() for file in grid.directory.glob("*/*/attempt-1/stdout.log")]
    assert logs == ["token: \n"] * 4
    assert grid.workspace.holding(token) == []
    _, comment = server.comments(1)
    text = html.unescape(comment.body or "")
    assert text.startswith("<!-- topgallant-run: grid/on_demand/77 -->\n<!-- topgallant-retest")
    assert "**Topgallant**: `grid` is running" in text
    assert f"the run {grid.directory.name} has started" in text
    assert len(server.requests("POST", "comments")) + len(server.requests("PATCH", "comments")) == 1  # one in 30 s


def test_cells_on_this_machine_prevent_the_progress_and_not_the_run(grid: Grid, server: github.Server) -> None:
    outcome = run(configure(grid, backend="local"), server)
    assert outcome.exit_code == 0, str(outcome)
    assert "the progress is not shown: cells run on this machine (target `far`), and could read" in outcome.stderr
    assert not server.requests()
    assert grid.directory.joinpath("journal.jsonl").exists()


def test_a_forge_with_faults_does_not_change_the_run(grid: Grid, server: github.Server) -> None:
    server.faults.add("*", "*", github.server_error(500), times=None)
    outcome = run(configure(grid), server)
    assert outcome.exit_code == 0, str(outcome)
    assert "Traceback" not in outcome.stderr


def test_a_workflow_with_progress_gives_its_token_only_to_the_step_that_runs_a_comment(grid: Grid) -> None:
    configure(grid)
    outcome = grid.workspace.run("ci", "workflows", "grid")
    assert outcome.exit_code == 0, str(outcome)
    job = yaml.safe_load((grid.root / ".github/workflows/grid-on_demand.yml").read_text())["jobs"]["run"]
    assert job["permissions"] == {"contents": "read", "pull-requests": "write"}
    with_token = [step for step in job["steps"] if "GH_TOKEN" in step.get("env", {})]
    assert [step["name"] for step in with_token] == ["Run what the comment requests"]


def test_a_workflow_whose_cells_run_on_the_runner_cannot_show_its_progress(grid: Grid) -> None:
    configure(grid, backend="local")
    outcome = grid.workspace.run("ci", "workflows", "grid")
    assert outcome.exit_code == 2, str(outcome)
    assert (
        "ci.workflows.on_demand: `progress` needs cells that run on other machines, but cells run on this machine "
        "(target `far`)"
    ) in outcome.stderr
    assert not (grid.root / ".github").exists()


def test_a_workflow_with_shards_cannot_show_its_progress(grid: Grid) -> None:
    outcome = configure(grid).workspace.run("ci", "workflows", "grid", "--shards=2")
    assert outcome.exit_code == 2, str(outcome)
    assert "ci.workflows.on_demand: `progress` shows the run of one job: set `shards: 1`" in outcome.stderr
