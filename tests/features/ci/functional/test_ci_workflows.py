"""`ci workflows` writes workflow files; their scripts are executed here, with a test server of GitHub's API."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.features.ci.fakes.github_actions import Job, Runner
from tests.features.ci.servers import github
from tests.features.ci.servers.github import events
from tests.features.ci.servers.github.state import Issue
from tests.functional.conftest import SMALL
from toolbox.ground.system import places
from toolbox.testing import Workspace

PULL_REQUEST = 1
HOSTILE = "\"; touch pwned; $(touch pwned) `touch pwned` ' && touch pwned #\n; touch pwned\n::error::pwned\n"
BLOCK = """
    ci:
      overridable: [greeting, commands.test]
      commenters: {teams: [owner/performance], owners_file: OWNERS, members_token: MEMBERS}
      github: {command: ./toolbox, install: ["test -x toolbox"]}
      workflows:
        cpu: {pull_request: true, push: [main]}
        nightly: {schedule: "17 2 * * *", dispatch: true, google: true, secret_files: {token: DATABASE}}
        on_demand:
          {label: run it, comment: true, google: true, revision: revision, presets: [loud], secrets: {TOKEN: DATABASE},
           comment_presets: [failing]}
      reap: {google: true, older_than: 21600}
    revision: null
    secrets: {dir: {env_key: VAULT}}
"""
# Notes the calls that delete remote resources, and calls Topgallant.
TOOLBOX = """
    #!/bin/sh
    [ "$1" != resources ] || echo "$@" >>reaped
    exec {program} "$@"
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory, toolbox_script: str) -> Workspace:
    """Return the project `small` with workflow files, which tests must not change."""
    workspace = Workspace(tmp_path_factory.mktemp("generated") / "workspace", SMALL)
    file = workspace.directory / "config/small.yaml"
    before, _, after = file.read_text().partition("ci:\n  overridable: [greeting, commands.cleanup]\n")
    file.write_text(before + after + textwrap.dedent(BLOCK))
    workspace.write({"toolbox": TOOLBOX.format(program=toolbox_script)})
    (workspace.directory / "toolbox").chmod(0o755)
    outcome = workspace.run("ci", "workflows", "small")
    assert outcome.exit_code == 0, str(outcome)
    return workspace


@pytest.fixture
def project(generated: Workspace, workspace: Workspace) -> Workspace:
    """Return a copy of the project `small` with workflow files."""
    shutil.copytree(generated.directory, workspace.directory, dirs_exist_ok=True)
    return workspace


@contextmanager
def serving() -> Iterator[github.Server]:
    """Yield the API of GitHub, with the pull request 1 of a member."""
    with github.serving() as running:
        running.add_user("alice", "write")
        running.push("topic", {"model.py": "steps = 1"}, by="alice")
        assert running.open_pull_request("topic", by="alice") == PULL_REQUEST
        yield running


@pytest.fixture
def server() -> Iterator[github.Server]:
    with serving() as running:
        yield running


@pytest.fixture
def runner(project: Workspace, server: github.Server, tmp_path: Path) -> Runner:
    return make_runner(project, server, tmp_path / "runner")


def make_runner(project: Workspace, server: github.Server, home: Path) -> Runner:
    """Return a runner of GitHub Actions with a checkout of the project."""
    found = Runner(project.directory, home, server)
    server.add_app("members")
    found.secrets["MEMBERS"] = server.add_token("members[bot]", members="read")
    return found


@dataclass(frozen=True)
class Executed:
    """The results of the events that a runner has executed one after the other.

    Args:
        jobs: the jobs of each event.
        uploaded: the only run directory that each event has uploaded.
        reaped: the calls of each event that delete remote resources.
        statuses: the contexts and states of the commit statuses, after each event.
    """

    runner: Runner
    jobs: dict[str, dict[str, Job]] = field(default_factory=dict)
    uploaded: dict[str, Path] = field(default_factory=dict)
    reaped: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def run(self, name: str, file: str, event: str, payload: dict[str, Any] | None = None, **facts: Any) -> None:
        """Run a workflow file for an event, and keep the results below a name."""
        folder, home = self.runner.directory, self.runner.home
        (folder / "reaped").unlink(missing_ok=True)
        before = set(home.glob("uploaded/*"))
        self.jobs[name] = self.runner.run(folder / f".github/workflows/small-{file}.yml", event, payload, **facts)
        for run in (run for new in set(home.glob("uploaded/*")) - before for run in new.glob("small/*")):
            assert name not in self.uploaded
            self.uploaded[name] = run
        self.reaped[name] = (folder / "reaped").read_text() if (folder / "reaped").exists() else ""
        found = self.runner.server.statuses(head(self.runner))
        self.statuses[name] = [(status.context, status.state) for status in found]

    def results(self, name: str) -> list[str]:
        return [job.result for job in self.jobs[name].values()]

    def output(self, name: str) -> str:
        return "".join(job.output for job in self.jobs[name].values())

    def is_baseline(self, name: str) -> bool:
        """Return whether a run is part of the baseline."""
        return bool(json.loads((self.uploaded[name] / "run.json").read_text())["baseline"])

    def configuration(self, name: str) -> Any:
        return yaml.safe_load((self.uploaded[name] / "config.yaml").read_text())


@pytest.fixture(scope="module")
def executed(generated: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executed]:
    """Execute each workflow file once for each of its events. The secret of `nightly` is hostile."""
    folder = tmp_path_factory.mktemp("executed")
    project = Workspace(folder / "workspace")
    shutil.copytree(generated.directory, project.directory, dirs_exist_ok=True)
    exact = 'test "$(stat -c %a "$VAULT")" = 700 && cp "$VAULT/token" "$HOME/copy"'
    change(project, test=[f'[ -z "${{VAULT-}}" ] || {{ {exact}; }}'])
    with serving() as server:
        runner = make_runner(project, server, folder / "runner")
        runner.secrets["DATABASE"] = HOSTILE
        server.issue(PULL_REQUEST).body = "Faster kernels.\n/skip post_cleanup"
        found = Executed(runner)
        found.run("push", "cpu", "push")
        found.run("schedule", "nightly", "schedule")
        found.run("label", "on_demand", "pull_request", labelled(runner))
        text = "Please:\n/test small\n/var greeting: <b>hi</b>\n"
        found.run("comment", "on_demand", "issue_comment", comment(runner, text))
        found.run("retest", "on_demand", "issue_comment", comment(runner, "/retest small"), run_id=78)
        found.run("reaper", "reap", "schedule")
        yield found


def workflow(project: Workspace, name: str) -> Path:
    return project.directory / ".github/workflows" / f"small-{name}.yml"


def change(project: Workspace, **values: Any) -> None:
    """Change fields of the configuration, such as the commands of the phase `test`."""
    file = project.directory / "config/small.yaml"
    content = yaml.safe_load(file.read_text())
    content["commands"].update(values)
    file.write_text(yaml.safe_dump(content))


def head(runner: Runner) -> str:
    """Return the latest commit of the pull request."""
    pull = runner.server.issue(PULL_REQUEST).pull
    assert pull is not None
    return pull.head_sha


def issues(runner: Runner) -> list[Issue]:
    """Return the issues of the repository without the pull request, the oldest first."""
    return [issue for issue in runner.server.repository.issues.values() if issue.pull is None]


def body(issue: Issue) -> str:
    assert issue.body is not None
    return issue.body


def comments(runner: Runner) -> list[str]:
    """Return the comments of workflows on the pull request."""
    server = runner.server
    return [comment.body for comment in server.comments(PULL_REQUEST) if comment.author is server.bot]


def states(runner: Runner) -> list[str]:
    """Return the commit statuses of the head of the pull request, the oldest first."""
    return [status.state for status in runner.server.statuses(head(runner))]


def comment(runner: Runner, text: str, by: str = "alice") -> dict[str, Any]:
    """Comment on the pull request, and return the event."""
    return dict(events.issue_comment(runner.server, runner.server.comment(PULL_REQUEST, by, text)).payload)


def labelled(runner: Runner, label: str = "run it") -> dict[str, Any]:
    """Set a label of the pull request, and return the event."""
    runner.server.add_label(PULL_REQUEST, label)
    return dict(events.pull_request(runner.server, PULL_REQUEST, "labeled", label=label).payload)


def run_comment(project: Workspace, runner: Runner, text: str, by: str = "alice") -> dict[str, Job]:
    return runner.run(workflow(project, "on_demand"), "issue_comment", comment(runner, text, by))


def nightly(project: Workspace, runner: Runner, **facts: Any) -> dict[str, Job]:
    return runner.run(workflow(project, "nightly"), "schedule", **facts)


def test_generating_again_changes_nothing(project: Workspace) -> None:
    outcome = project.run("ci", "workflows", "small")
    assert outcome.stdout == "the workflow files in .github/workflows are up to date\n"
    assert project.run("ci", "workflows", "small", "--check").exit_code == 0


@pytest.mark.parametrize("name", ["tpu_ci"])
def test_the_workflows_of_the_shipped_projects_can_be_generated(workspace: Workspace, name: str) -> None:
    command = ["ci", "workflows", name, f"--output={workspace.directory}/.github/workflows"]
    outcome = workspace.run(*command, cwd=places.builtin_root())
    assert outcome.exit_code == 0, str(outcome)
    assert workspace.run(*command, "--check", cwd=places.builtin_root()).exit_code == 0


def test_a_workspace_must_say_how_to_install_and_start_topgallant(project: Workspace) -> None:
    file = project.directory / "config/small.yaml"
    text = file.read_text()
    before = workflow(project, "nightly").read_text()
    for block, flags, missing in (
        ("{}", ["--check"], "`ci.github.install` and `ci.github.command`"),
        ("{install: [pip install topgallant]}", [], "`ci.github.command`"),
        ("{command: topgallant}", [], "`ci.github.install`"),
    ):
        file.write_text(text.replace('{command: ./toolbox, install: ["test -x toolbox"]}', block))
        outcome = project.run("ci", "workflows", "small", *flags)
        assert outcome.exit_code == 2, str(outcome)
        assert f"Set {missing}\n" in outcome.stderr
    assert workflow(project, "nightly").read_text() == before


def test_check_prints_the_differences_and_fails(project: Workspace) -> None:
    file = workflow(project, "cpu")
    file.write_text(file.read_text().replace("contents: read", "contents: write"))
    outcome = project.run("ci", "workflows", "small", "--check")
    assert outcome.exit_code == 1
    assert "-      contents: write\n+      contents: read\n" in outcome.stdout
    assert "contents: write" in file.read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("presets: [loudd]", "did you mean loud"),
        ("revision: revison", "`revision` names no field"),
        ("google: yes please", "config/small.yaml:"),
    ],
)
def test_a_wrong_block_is_reported_and_nothing_is_written(project: Workspace, change: str, message: str) -> None:
    file = project.directory / "config/small.yaml"
    file.write_text(file.read_text().replace("dispatch: true, google: true,", f"dispatch: true, {change},"))
    before = workflow(project, "nightly").read_text()
    outcome = project.run("ci", "workflows", "small")
    assert outcome.exit_code == 2, str(outcome)
    assert message in outcome.stderr
    assert workflow(project, "nightly").read_text() == before


def test_each_script_of_the_files_is_executed_by_an_event(executed: Executed) -> None:
    scripts, succeeded = set(), set()
    for file in (executed.runner.directory / ".github/workflows").iterdir():
        for name, job in yaml.safe_load(file.read_text())["jobs"].items():
            scripts |= {(file.stem, name, step["name"]) for step in job["steps"] if "run" in step}
    files = {"push": "cpu", "schedule": "nightly", "reaper": "reap"}
    for event, jobs in executed.jobs.items():
        for name, job in jobs.items():
            steps = [step for step, each in job.steps.items() if each.outcome == "success"]
            succeeded |= {(f"small-{files.get(event, 'on_demand')}", name, step) for step in steps}
    assert scripts - succeeded == set()


def test_a_nightly_run_that_passes_reports_and_exports(executed: Executed) -> None:
    assert executed.results("schedule") == ["success", "success"], executed.output("schedule")
    assert "passed" in executed.runner.summary.read_text()
    assert (executed.uploaded["schedule"] / "junit.xml").exists()
    assert (executed.uploaded["schedule"] / "report.html").exists()
    assert executed.is_baseline("schedule") is True
    assert executed.reaped["schedule"] == "resources reap small\n"
    assert "has no open issue" in executed.jobs["schedule"]["issue"].output


def test_files_of_secrets_are_private_and_exact(executed: Executed) -> None:
    runner = executed.runner
    assert (runner.home / "copy").read_text() == HOSTILE
    assert not list(runner.directory.rglob("pwned*")) + list(runner.home.rglob("pwned*"))
    uploaded = [file for file in runner.home.glob("uploaded/**/*") if file.is_file()]
    assert not [file for file in uploaded if b"touch pwned" in file.read_bytes()]


def test_after_a_failure_all_is_cleaned_up_and_exported_and_an_issue_is_opened_and_closed(
    project: Workspace, runner: Runner
) -> None:
    change(project, test=["echo it broke >&2; exit 7"])
    job = nightly(project, runner)["run"]
    outcomes = {name: step.outcome for name, step in job.steps.items()}
    assert outcomes["Run the project"] == "failure"
    assert {"failure", *outcomes.values()} == {"failure", "success"}
    assert (project.directory / "reaped").read_text() == "resources reap small\n"
    (line,) = [line for line in job.steps["Report"].output.splitlines() if line.startswith("::error")]
    assert line.startswith("::error title=failed (product)%3A test::")
    assert list((runner.home / "uploaded/1").glob("small/*/junit.xml"))
    (issue,) = issues(runner)
    assert issue.title == "small: the workflow nightly fails"
    assert [label.name for label in issue.labels] == ["topgallant"]
    assert "https://github.com/owner/name/actions/runs/77" in body(issue)
    assert "it broke" in body(issue)
    assert "did not pass once" in body(issue)

    change(project, test=["true"])
    nightly(project, runner)
    (issue,) = issues(runner)
    assert issue.state == "closed"
    assert [comment.body for comment in runner.server.comments(issue.number)] == [
        f"The workflow `nightly` passed at {'5' * 40}: https://github.com/owner/name/actions/runs/77"
    ]


def test_a_run_that_never_started_has_an_issue_without_details(project: Workspace, runner: Runner) -> None:
    runner.failing = ("google-github-actions/auth",)
    jobs = nightly(project, runner)
    assert jobs["run"].steps["Run the project"].outcome == "skipped"
    assert jobs["issue"].result == "success", jobs["issue"].output
    (issue,) = issues(runner)
    assert "The latest run failed" in body(issue)


def test_a_run_that_cannot_be_read_does_not_prevent_the_issue(project: Workspace, runner: Runner) -> None:
    journal = "{}\n" * 3 + '{"event": "run_started", "x": [' + "[" * 100_000
    project.write({"artifacts/small/20261123-050000-abcd/journal.jsonl": journal})
    variables = {"GH_TOKEN": runner.server.add_token(issues="write"), "RESULT": "failure"}
    step = runner.execute('./toolbox ci issue small nightly --result="$RESULT"', variables)
    assert step.outcome == "success", step.output
    (issue,) = issues(runner)
    assert issue.state == "open"


def test_a_dispatch_of_another_branch_leaves_the_issue_alone(project: Workspace, runner: Runner) -> None:
    change(project, test=["exit 7"])
    jobs = runner.run(workflow(project, "nightly"), "workflow_dispatch", ref_name="topic", ref="refs/heads/topic")
    assert jobs["run"].result == "failure"
    assert jobs["issue"].result == "skipped"
    (request,) = runner.home.glob("uploaded/*/small/*/run.json")
    assert json.loads(request.read_text())["baseline"] is False


def test_the_reaper_deletes_old_resources_and_keeps_an_issue_open(executed: Executed) -> None:
    assert executed.results("reaper") == ["success", "success"], executed.output("reaper")
    assert executed.reaped["reaper"] == "resources reap small --older_than=21600s\n"


def test_a_comment_runs_the_pinned_revision_and_the_report_comes_back(executed: Executed) -> None:
    assert executed.results("comment") == ["success"] * 3, executed.output("comment")
    revision = head(executed.runner)
    assert executed.jobs["comment"]["gate"].outputs == {"revision": revision, "retest": ""}
    configuration = executed.configuration("comment")
    assert (configuration["revision"], configuration["greeting"]) == (revision, "<b>hi</b>")
    assert json.loads((executed.uploaded["comment"] / "run.json").read_text())["presets"] == ["loud"]
    text = comments(executed.runner)[0]
    assert "`small` passed ([workflow `on_demand`](https://github.com/owner/name/actions/runs/77))" in text
    assert executed.uploaded["comment"].name in text


def test_the_comment_shows_the_plan_before_anything_runs(executed: Executed) -> None:
    created = executed.runner.server.requests("POST", "comments")[0].body["body"]
    assert "`small` will run" in created
    assert "greeting: &lt;b&gt;hi&lt;/b&gt;" in created


def test_a_run_with_other_values_never_fulfils_the_required_status(executed: Executed) -> None:
    new = executed.statuses["comment"][len(executed.statuses["label"]) :]
    assert new == [("small on_demand (partial)", "pending"), ("small on_demand (partial)", "success")]
    assert "fields with other values: greeting" in comments(executed.runner)[0]


def test_retest_of_a_run_that_passed_is_refused(executed: Executed) -> None:
    assert executed.results("retest") == ["failure", "skipped", "skipped"]
    assert "nothing to repeat" in comments(executed.runner)[-1]


def test_a_label_runs_the_head_of_the_event(executed: Executed) -> None:
    assert executed.results("label") == ["skipped", "success", "skipped"], executed.output("label")
    assert executed.configuration("label")["revision"] == head(executed.runner)
    assert executed.is_baseline("label") is False


def test_several_tests_of_a_comment_have_their_reports(project: Workspace, runner: Runner) -> None:
    jobs = run_comment(project, runner, "/test small failing\n/test small\n")
    assert [job.result for job in jobs.values()] == ["success", "failure", "success"], jobs["run"].output
    assert len(list((runner.home / "uploaded/1").glob("small/*"))) == 2
    assert states(runner) == ["pending", "failure"]
    (text,) = comments(runner)
    assert "`small` did not pass" in text
    assert "<h2>failed (product)" in text
    assert "<h2>passed" in text


def test_the_description_of_a_pull_request_is_read_only_if_the_configuration_says_so(
    project: Workspace, runner: Runner, executed: Executed
) -> None:
    assert "phases left out" not in comments(executed.runner)[0]  # this configuration does not say so
    file = project.directory / "config/small.yaml"
    content = yaml.safe_load(file.read_text())
    content["ci"]["read_description"] = True
    file.write_text(yaml.safe_dump(content))
    runner.server.issue(PULL_REQUEST).body = "Faster kernels.\n/var greeting: hello\n/skip post_cleanup"
    jobs = run_comment(project, runner, "/test small\n")
    assert [job.result for job in jobs.values()] == ["success"] * 3, "".join(job.output for job in jobs.values())
    (run,) = (runner.home / "uploaded/1").glob("small/*")
    assert yaml.safe_load((run / "config.yaml").read_text())["greeting"] == "hello"
    names = {status.context for status in runner.server.statuses(head(runner))}
    assert names == {"small on_demand (partial)"}
    (text,) = comments(runner)
    assert "<pre>phases left out: post_cleanup&#10;fields with other values: greeting</pre>" in text


def test_a_run_that_does_not_begin_is_answered_and_its_plan_needs_no_secrets(
    project: Workspace, runner: Runner
) -> None:
    runner.failing = ("google-github-actions/auth",)  # the run does not begin
    file = project.directory / "config/small.yaml"
    file.write_text(file.read_text() + 'key: "*$@secrets.token"\n')
    file.write_text(file.read_text().replace("env_key: VAULT}}", "env_key: VAULT}, token: token}"))
    jobs = run_comment(project, runner, "/test small\n")
    assert jobs["gate"].result == "success", jobs["gate"].output
    assert jobs["report"].result == "success", jobs["report"].output
    created, changed = (*runner.server.requests("POST", "comments"), *runner.server.requests("PATCH", "comments"))
    assert "`small` will run" in created.body["body"]
    assert "`small` did not pass" in changed.body["body"]
    assert len(comments(runner)) == 1


def test_other_comments_start_nothing(project: Workspace, runner: Runner) -> None:
    issue = runner.server.open_issue("alice")
    event = events.issue_comment(runner.server, runner.server.comment(issue, "alice", "/test small"))
    for payload in (dict(event.payload), comment(runner, "this tests small things")):
        jobs = runner.run(workflow(project, "on_demand"), "issue_comment", payload)
        assert [job.result for job in jobs.values()] == ["skipped"] * 3
    assert not runner.server.requests()


def _push_later(runner: Runner) -> None:
    runner.server.push("topic", {"model.py": "steal()"}, by="alice")


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        ("/test small", _push_later, "may have changed since the comment"),
        ("/test small\n/var tag: x", None, "may not change `tag`"),
    ],
    ids=["pushed later", "field"],
)
def test_a_refused_comment_runs_nothing_and_gets_an_answer(
    project: Workspace, runner: Runner, text: str, change: Callable[[Runner], None] | None, message: str
) -> None:
    event = comment(runner, text)
    if change is not None:
        change(runner)
    jobs = runner.run(workflow(project, "on_demand"), "issue_comment", event)
    assert [job.result for job in jobs.values()] == ["failure", "skipped", "skipped"]
    assert message in jobs["gate"].output
    assert states(runner) == []
    (answer,) = comments(runner)
    assert "`small` does not run" in answer
    assert message in html.unescape(answer)


@pytest.mark.parametrize(("text", "role"), [("/test small", "read"), ("/cancel", None)])
def test_a_person_without_write_access_starts_and_cancels_nothing_and_gets_no_answer(
    project: Workspace, runner: Runner, text: str, role: str | None
) -> None:
    runner.server.add_user("mallory", role)
    jobs = run_comment(project, runner, text, by="mallory")
    assert [job.result for job in jobs.values()] == ["success", "skipped", "skipped"]
    assert "mallory' may not start runs" in jobs["gate"].output
    assert not runner.server.requests("POST")


def test_a_member_of_an_allowed_team_starts_a_run(project: Workspace, runner: Runner) -> None:
    runner.failing = ("google-github-actions/auth",)  # the run does not begin
    runner.server.add_user("tina", "read")
    runner.server.add_team("performance", "tina")
    jobs = run_comment(project, runner, "/test small", by="tina")
    assert (jobs["gate"].result, jobs["run"].result) == ("success", "failure"), jobs["gate"].output
    (request,) = runner.server.requests("GET", "/memberships/tina")
    assert request.login == "members[bot]"


def test_a_token_that_cannot_read_the_members_refuses_the_comment(project: Workspace, runner: Runner) -> None:
    runner.server.add_user("tina", "read")
    runner.server.add_team("performance", "tina")
    runner.secrets["MEMBERS"] = runner.server.add_token("members[bot]")
    jobs = run_comment(project, runner, "/test small", by="tina")
    assert [job.result for job in jobs.values()] == ["failure", "skipped", "skipped"]
    assert "GitHub refused GET /orgs/owner/teams/performance/memberships/tina" in jobs["gate"].output


def test_an_approver_in_the_owners_file_starts_a_run(project: Workspace, runner: Runner) -> None:
    runner.failing = ("google-github-actions/auth",)  # the run does not begin
    runner.server.add_user("olga", "read")
    runner.server.push("main", {"OWNERS": "reviewers: [Olga]\n"}, by="alice")
    jobs = run_comment(project, runner, "/test small", by="olga")
    assert (jobs["gate"].result, jobs["run"].result) == ("success", "failure"), jobs["gate"].output


def test_help_is_answered_on_the_pull_request(project: Workspace, runner: Runner) -> None:
    jobs = run_comment(project, runner, "/help")
    assert [job.result for job in jobs.values()] == ["success", "skipped", "skipped"], jobs["gate"].output
    (text,) = comments(runner)
    assert "/retest [PROJECT]" in text
    assert "fields that /var may change: greeting, commands.test" in text


def test_retest_repeats_what_failed_in_the_newest_run(project: Workspace, runner: Runner) -> None:
    text = "/test small failing\n/var greeting: --> hi\n/only test\n/test small\n"
    runner.run(workflow(project, "on_demand"), "issue_comment", comment(runner, text), run_id=76)
    runner.run(workflow(project, "on_demand"), "issue_comment", comment(runner, "/help"), run_id=78)
    runner.server.push("topic", {"model.py": "steps = 2"}, by="alice")
    jobs = runner.run(workflow(project, "on_demand"), "issue_comment", comment(runner, "/retest"), run_id=79)
    assert [job.result for job in jobs.values()] == ["success", "failure", "success"], jobs["gate"].output
    (run,) = (runner.home / "uploaded/2").glob("small/*")
    request = json.loads((run / "run.json").read_text())
    assert (request["presets"], request["phases"]) == (["loud", "failing"], ["test"])
    settings = yaml.safe_load((run / "config.yaml").read_text())
    assert (settings["greeting"], settings["revision"]) == ("--> hi", head(runner))


def test_retest_of_a_run_that_has_not_ended_is_refused(project: Workspace, runner: Runner) -> None:
    runner.failing = ("actions/download-artifact",)
    gate = yaml.safe_load(workflow(project, "on_demand").read_text())
    del gate["jobs"]["run"], gate["jobs"]["report"]
    started = project.directory / ".github/workflows/started.yml"
    started.write_text(yaml.safe_dump(gate))
    runner.run(started, "issue_comment", comment(runner, "/test small"), run_id=76)
    jobs = run_comment(project, runner, "/retest")
    assert jobs["gate"].result == "failure"
    assert "has not ended, or left no results" in comments(runner)[-1]


def test_a_forged_record_repeats_nothing_that_a_comment_may_not_do(project: Workspace, runner: Runner) -> None:
    record = (
        '[{"run": "r", "project": "small", "presets": ["loud", "both"], "overrides": "tag: x\\n", '
        '"phases": null, "cells": null}]'
    )
    text = f"<!-- topgallant-run: small/on_demand/76 -->\n<!-- topgallant-retest: {record} -->\n"
    for author, refusal in (("alice", "there is no earlier run"), ("github-actions[bot]", "may not choose the preset")):
        runner.server.comment(PULL_REQUEST, author, text)
        jobs = run_comment(project, runner, "/retest")
        assert [job.result for job in jobs.values()] == ["failure", "skipped", "skipped"]
        assert refusal in jobs["gate"].output


def test_a_pull_request_of_a_fork_is_refused(project: Workspace, runner: Runner) -> None:
    fork = runner.server.fork("alice")
    runner.server.push("evil", {"model.py": "steal()"}, by="alice", repository=fork)
    number = runner.server.open_pull_request("evil", by="alice", repository=fork)
    event = events.issue_comment(runner.server, runner.server.comment(number, "alice", "/test small"))
    jobs = runner.run(workflow(project, "on_demand"), "issue_comment", dict(event.payload))
    assert [job.result for job in jobs.values()] == ["failure", "skipped", "skipped"]
    assert "comes from a fork" in jobs["gate"].output


def test_a_command_in_a_code_block_is_ignored(project: Workspace, runner: Runner) -> None:
    jobs = run_comment(project, runner, "To stop a run:\n```\n/cancel\n```\n```\n/test small\n```\n")
    assert [job.result for job in jobs.values()] == ["success", "skipped", "skipped"]
    assert not runner.server.requests("POST")


def test_a_comment_cancels_the_runs_of_the_pull_request(project: Workspace, runner: Runner) -> None:
    runner.failing = ("google-github-actions/auth",)
    running = runner.server.start_workflow("small-on_demand", "issue_comment", "alice")
    for number, text in ((running, "/test small"), (78, "/cancel\n")):
        jobs = runner.run(workflow(project, "on_demand"), "issue_comment", comment(runner, text), run_id=number)
    assert [job.result for job in jobs.values()] == ["success", "skipped", "skipped"], jobs["gate"].output
    (request,) = runner.server.requests("POST", "/cancel")
    assert request.path.endswith(f"/actions/runs/{running}/cancel")
    assert f"Cancelled: [{running}](https://github.com/owner/name/actions/runs/{running})" in comments(runner)[-1]


def test_a_comment_for_another_project_runs_nothing(project: Workspace, runner: Runner) -> None:
    jobs = run_comment(project, runner, "/test small2")
    assert jobs["run"].result == "skipped"
    assert states(runner) == []


def from_fork(event: dict[str, Any]) -> dict[str, Any]:
    event["pull_request"]["head"]["repo"]["full_name"] = "mallory/name"
    return event


def test_other_labels_and_forks_run_nothing(project: Workspace, runner: Runner) -> None:
    for event in (labelled(runner, "another"), from_fork(labelled(runner))):
        jobs = runner.run(workflow(project, "on_demand"), "pull_request", event)
        assert [job.result for job in jobs.values()] == ["skipped"] * 3


@pytest.mark.parametrize(
    "text",
    [f"/test small\n/var greeting: {json.dumps(HOSTILE)}\n{HOSTILE}", f"/test small {HOSTILE}"],
)
def test_hostile_comments_execute_nothing(project: Workspace, runner: Runner, text: str) -> None:
    jobs = run_comment(project, runner, text)
    output = "".join(job.output for job in jobs.values())
    assert not list(project.directory.rglob("pwned*")) + list(runner.home.rglob("pwned*"))
    assert "\n::error::pwned" not in output


def test_every_script_ignores_commands_in_its_variables(project: Workspace, runner: Runner) -> None:
    """Executes each script with hostile values in all variables that it reads. All programs on the PATH do nothing."""
    (project.directory / "toolbox").write_text("#!/bin/sh\nexit 0\n")
    scripts = 0
    for file in sorted((project.directory / ".github/workflows").iterdir()):
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            for step in job["steps"]:
                if "run" in step and "env" in step:
                    scripts += 1
                    runner.execute(step["run"], dict.fromkeys(step["env"], HOSTILE))
    assert scripts >= 8
    assert not list(project.directory.rglob("pwned*")) + list(runner.home.rglob("pwned*"))


def test_a_pull_request_of_a_fork_is_tested_without_secrets(project: Workspace, runner: Runner) -> None:
    event = from_fork(labelled(runner))
    jobs = runner.run(workflow(project, "cpu"), "pull_request", event, token="")
    assert jobs["run"].result == "success", jobs["run"].output
    text = workflow(project, "cpu").read_text()
    assert "secrets." not in text
    assert "github.token" not in text
    assert "id-token" not in text


def test_the_export_leaves_out_links_and_can_be_repeated(small: Workspace, tmp_path: Path) -> None:
    assert small.run("project", "run", "small").exit_code == 0
    run = small.run_directory()
    (run / "link").symlink_to("/etc/passwd")
    (run / "folder").symlink_to("/etc")
    outcome = small.run("ci", "export", str(tmp_path / "out"))
    assert outcome.exit_code == 0, str(outcome)
    assert "not exported: link" in outcome.stderr
    copy = tmp_path / "out" / "small" / run.name
    differences = subprocess.run(["diff", "-r", run, copy], capture_output=True, text=True, check=False).stdout
    assert differences.count("Only in") == 5, differences  # two links, .numbers, and two files about the export
    files = {file: file.stat().st_mtime_ns for file in copy.rglob("*")}
    assert small.run("ci", "export", str(tmp_path / "out")).exit_code == 0
    assert {file: file.stat().st_mtime_ns for file in copy.rglob("*")} == files
