"""The scripts of docs/forges.md, from the event of a comment to the final comment, with test servers of the forges."""

from __future__ import annotations

import datetime as dt
import html
import json
import os
import re
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from tests import forked_commands
from tests.features.ci.servers import github, gitlab
from tests.features.ci.servers.github import events
from tests.functional.conftest import SMALL
from toolbox.ground.system import places
from toolbox.testing import Workspace

PAGE = (places.builtin_root() / "docs/forges.md").read_text(encoding="utf-8")
PROJECT = "training_e2e"  # the name in the documentation; the workspace replaces the project that Topgallant ships
JOB = "pull-ci-owner-name-main-nightly"
_STARTED = dt.datetime(2026, 11, 23, 6, tzinfo=dt.UTC) - dt.datetime(2010, 11, 4, 1, 42, 54, 657_000, tzinfo=dt.UTC)
BUILD = str(int(_STARTED.total_seconds() * 1000) << 22)  # a snowflake, as the ids of Prow are
BLOCK = """
    ci:
      overridable: [greeting]
      jobs: {nightly: {presets: [loud]}}
      commenters: {teams: [owner/performance], owners_file: OWNERS}
      workflows:
        on_comment: {comment: true, revision: revision, comment_presets: [failing], timeout: 600}
    revision: null
"""

PROGRAM = '#!/bin/sh\nexec {program} "$@"\n'


def documented(name: str) -> str:
    """Return the text of the code block below a line of the page."""
    match = re.search(rf"^{re.escape(name)}\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None, f"docs/forges.md has no block below {name}"
    return match[1]


def scripts() -> dict[str, str]:
    """Return the script of each CI system, as the documentation has it."""
    (gitlab_job,) = yaml.safe_load(documented("`.gitlab-ci.yml`")).values()
    (prow_job,) = yaml.safe_load(documented("In the configuration of ci-operator:"))["tests"]
    (jenkins,) = re.findall(r"^ *sh '(.*)'$", documented("`Jenkinsfile`"), re.MULTILINE)
    return {"gitlab": "\n".join(gitlab_job["script"]), "jenkins": jenkins, "prow": prow_job["commands"]}


@pytest.fixture
def project(workspace: Workspace, toolbox_script: str) -> Workspace:
    """Return a workspace with a small project and a program `run_toolbox.py`."""
    workspace.write({name.replace("small", PROJECT): text for name, text in SMALL.items()})
    file = workspace.directory / f"config/{PROJECT}.yaml"
    before, _, after = file.read_text().partition("ci:\n  overridable: [greeting, commands.cleanup]\n")
    file.write_text(before + after + textwrap.dedent(BLOCK))
    workspace.write({"run_toolbox.py": PROGRAM.format(program=toolbox_script)})
    (workspace.directory / "run_toolbox.py").chmod(0o755)
    return workspace


@dataclass(frozen=True)
class Done:
    """A script that was executed."""

    exit_code: int
    output: str


class Site(Protocol):
    """A CI system with a pull request of the member alice. Comments start its job."""

    def comment(self, text: str, by: str = "alice") -> None:
        """Write the comment that will start the job."""

    def run(self, project: Workspace, comment: str = ..., **variables: str) -> Done:
        """Run the documented script in a job that the last comment started."""

    def bodies(self) -> list[str]:
        """Return the comments that the bot wrote, the oldest first."""

    def states(self) -> list[str]:
        """Return the statuses of the head of the pull request, the oldest first."""

    def head(self) -> str:
        """Return the head of the pull request."""

    def push(self, branch: str = "topic", **files: str) -> None:
        """Push to a branch."""

    def edit(self) -> None:
        """Change the last comment."""

    def add_team(self, team: str, login: str) -> None:
        """Add a team with one member."""

    def add_stranger(self, login: str) -> None:
        """Add an account without rights."""


def execute(script: str, project: Workspace, variables: Mapping[str, str]) -> Done:
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=project.directory,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(project.home),
            "XDG_STATE_HOME": str(project.home / "state"),
            "TOPGALLANT_NO_VENV": "1",
            **forked_commands.start_variables(),
            **variables,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return Done(done.returncode, done.stdout)


@dataclass
class _GitHubSite:
    server: github.Server
    directory: Path
    last: int = 0
    bot: str = "test-bot"

    def comment(self, text: str, by: str = "alice") -> None:
        self.last = self.server.comment(1, by, text)

    def bodies(self) -> list[str]:
        return [each.body for each in self.server.comments(1) if each.author.login == self.bot]

    def states(self) -> list[str]:
        return [status.state for status in self.server.statuses(self.head())]

    def head(self) -> str:
        pull = self.server.issue(1).pull
        assert pull is not None
        return pull.head_sha

    def push(self, branch: str = "topic", **files: str) -> None:
        self.server.push(branch, files or {"model.py": "steps = 2"}, by="alice")

    def edit(self) -> None:
        self.server.edit_comment(self.last, f"/test nightly {PROJECT} failing")

    def add_team(self, team: str, login: str) -> None:
        self.server.add_team(team.rpartition("/")[2], login)

    def add_stranger(self, login: str) -> None:
        self.server.add_user(login)

    def common(self) -> dict[str, str]:
        return {"GH_TOKEN": self.server.add_token(self.bot), "GITHUB_API_URL": self.server.url}


@dataclass
class JenkinsSite(_GitHubSite):
    """Jenkins, with a webhook of GitHub."""

    last_event: str = field(default="", init=False)

    def comment(self, text: str, by: str = "alice") -> None:
        super().comment(text, by)
        self.last_event = json.dumps(events.issue_comment(self.server, self.last).payload)

    def run(self, project: Workspace, comment: str = "", **variables: str) -> Done:
        file = self.directory / "event.json"
        file.write_text(self.last_event)
        return execute(
            scripts()["jenkins"],
            project,
            {
                **self.common(),
                "JENKINS_URL": "https://jenkins.example.com/",
                "BUILD_TAG": "jenkins-folder/models-12",
                "BUILD_URL": "https://jenkins.example.com/job/models%20(all)/12/",
                "GITHUB_REPOSITORY": "owner/name",
                "TOPGALLANT_EVENT_FORGE": "github",
                **({"COMMENT": comment} if comment else {"TOPGALLANT_EVENT_PATH": str(file)}),
                **variables,
            },
        )


@dataclass
class ProwSite(_GitHubSite):
    """Prow, which tests pull requests of GitHub."""

    def comment(self, text: str, by: str = "alice") -> None:
        super().comment(text.replace(f"/test {PROJECT}", f"/test nightly {PROJECT}"), by)
        self.pinned = self.head()

    def run(self, project: Workspace, comment: str = "", **variables: str) -> Done:
        del comment
        pull = {"number": 1, "author": "alice", "sha": self.pinned}
        refs = {"org": "owner", "repo": "name", "base_ref": "main", "pulls": [pull]}
        spec = {"type": "presubmit", "job": JOB, "buildid": BUILD, "prowjobid": "x", "refs": refs}
        (self.directory / "token").write_text(self.server.add_token(self.bot))
        script = scripts()["prow"].replace("/var/run/topgallant", str(self.directory))
        environment = {"JOB_SPEC": json.dumps(spec), "GITHUB_API_URL": self.server.url}
        return execute(script, project, {**environment, "ARTIFACT_DIR": str(project.artifacts), **variables})


@dataclass
class GitLabSite:
    """GitLab CI."""

    server: gitlab.Server
    directory: Path
    last: Any = None
    last_event: str = ""

    def comment(self, text: str, by: str = "alice") -> None:
        self.last = self.server.comment(1, by, text)
        self.last_event = json.dumps(self.server.note_event(1, self.last))

    def run(self, project: Workspace, comment: str = "", **variables: str) -> Done:
        del comment
        file = self.directory / "payload"
        file.write_text(self.last_event)
        number = self.server.start_pipeline()
        return execute(
            scripts()["gitlab"],
            project,
            {
                "GITLAB_CI": "true",
                "CI_PIPELINE_SOURCE": "trigger",
                "TRIGGER_PAYLOAD": str(file),
                "CI_API_V4_URL": self.server.url,
                "CI_PROJECT_ID": str(self.server.project),
                "CI_PIPELINE_ID": str(number),
                "CI_PIPELINE_URL": f"https://gitlab.example.com/group/name/-/pipelines/{number}",
                "GITLAB_TOKEN": self.server.add_token("project_7_bot", gitlab.DEVELOPER),
                **variables,
            },
        )

    def bodies(self) -> list[str]:
        return [note.body for note in self.server.notes(1) if note.author.username == "project_7_bot"]

    def states(self) -> list[str]:
        return [status.state for status in self.server.statuses(self.head())]

    def head(self) -> str:
        return self.server.head(1)

    def push(self, branch: str = "topic", **files: str) -> None:
        self.server.push(branch, files or {"model.py": "steps = 2"}, by="alice")

    def edit(self) -> None:
        self.server.edit(self.last, f"/test {PROJECT} both")

    def add_team(self, team: str, login: str) -> None:
        self.server.add_group(team, login)

    def add_stranger(self, login: str) -> None:
        self.server.add_user(login)


@pytest.fixture
def github_server() -> Iterator[github.Server]:
    """Yield the API of GitHub, with a pull request of a member, and a bot that may write."""
    with github.serving() as server:
        for login in ("alice", "test-bot"):
            server.add_user(login, "write")
        server.push("topic", {"model.py": "steps = 1"}, by="alice")
        server.open_pull_request("topic", by="alice")
        yield server


@pytest.fixture
def gitlab_server() -> Iterator[gitlab.Server]:
    """Yield the API of GitLab, with a merge request of a member."""
    with gitlab.serving() as server:
        server.add_user("alice", gitlab.DEVELOPER)
        server.push("topic", {"model.py": "steps = 1"}, by="alice")
        server.open_merge_request("topic", by="alice")
        yield server


@pytest.fixture(params=["gitlab", "jenkins", "prow"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """Return each CI system."""
    directory = tmp_path / "site"
    directory.mkdir()
    if request.param == "gitlab":
        return GitLabSite(request.getfixturevalue("gitlab_server"), directory)
    server = request.getfixturevalue("github_server")
    return JenkinsSite(server, directory) if request.param == "jenkins" else ProwSite(server, directory)


def configuration(project: Workspace) -> Any:
    return yaml.safe_load((project.run_directory() / "config.yaml").read_text())


def test_a_comment_runs_the_pinned_revision_and_the_report_comes_back(project: Workspace, site: Site) -> None:
    """A member of an allowed team writes the comment."""
    site.add_stranger("tina")
    site.add_team("owner/performance", "tina")
    site.comment(f"Please:\n/test {PROJECT}\n/var greeting: hi\n", by="tina")
    done = site.run(project)
    assert done.exit_code == 0, done.output
    assert (configuration(project)["revision"], configuration(project)["greeting"]) == (site.head(), "hi")
    (text,) = site.bodies()
    assert f"`{PROJECT}` passed ([workflow `on_comment`](https://" in text
    assert project.run_directory().name in text
    assert site.states()[-1] == "success"


def test_a_failed_run_is_reported_and_retest_repeats_what_failed(project: Workspace, site: Site) -> None:
    """An approver of the base branch writes the comment."""
    site.add_stranger("olga")
    site.push("main", OWNERS="approvers: [leads]\n", OWNERS_ALIASES="aliases: {leads: [Olga]}\n")
    site.comment(f"/test {PROJECT} failing\n/test {PROJECT}\n", by="olga")
    done = site.run(project)
    assert done.exit_code == 1, done.output
    assert f"`{PROJECT}` did not pass" in site.bodies()[0]
    assert site.states()[-1] in ("failure", "failed")
    if isinstance(site, ProwSite):
        return  # Prow does not start the job for /retest
    site.comment("/retest")
    done = site.run(project, CI_PIPELINE_ID="5", BUILD_TAG="jenkins-13")
    assert done.exit_code == 1, done.output
    assert "/retest training_e2e (what did not pass in " in done.output
    assert len(project.runs()) == 3
    assert configuration_presets(project) == [["failing"], [], ["failing"]]


def configuration_presets(project: Workspace) -> list[list[str]]:
    return [json.loads((run / "run.json").read_text())["presets"] for run in project.runs()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda site: site.push(), "may have changed since the comment"),
        (lambda site: site.edit(), "the comment was edited"),
    ],
    ids=["pushed later", "edited"],
)
def test_a_pull_request_or_comment_that_changed_is_refused_with_an_answer(
    project: Workspace, site: Site, change: Callable[[Site], None], message: str
) -> None:
    site.comment(f"/test {PROJECT}")
    change(site)
    done = site.run(project)
    assert done.exit_code == 2, done.output
    assert not project.runs()
    assert not site.states()
    if isinstance(site, ProwSite) and "the comment was" in message:
        message = "no comment on a pull request started this job"  # Prow gives no event to the job
        assert not site.bodies()
    else:
        assert message in html.unescape(site.bodies()[-1])
    assert message in done.output


@pytest.mark.parametrize("text", [f"/test {PROJECT}", f"/test {PROJECT} nonsense"])
def test_a_stranger_starts_nothing_and_gets_no_answer(project: Workspace, site: Site, text: str) -> None:
    site.add_stranger("mallory")
    site.comment(text, by="mallory")
    done = site.run(project)
    assert done.exit_code == 4, done.output
    assert "mallory' may not start runs" in done.output
    assert not site.bodies()
    assert not project.runs()


def test_an_owners_file_of_the_pull_request_counts_for_nothing(project: Workspace, site: Site) -> None:
    site.add_stranger("mallory")
    site.push("topic", OWNERS="approvers: [mallory]\n")
    site.comment(f"/test {PROJECT}", by="mallory")
    assert site.run(project).exit_code == 4
    assert not project.runs()


def test_a_wrong_comment_is_refused_with_an_answer(project: Workspace, site: Site) -> None:
    site.comment(f"/test {PROJECT} both\n/var tag: x\n")
    done = site.run(project)
    assert done.exit_code == 2, done.output
    assert "only failing is allowed" in html.unescape(site.bodies()[0])
    assert "may not change `tag`" in html.unescape(site.bodies()[0])
    assert not project.runs()


def test_help_lists_the_commands_and_what_is_allowed(
    project: Workspace, gitlab_server: gitlab.Server, tmp_path: Path
) -> None:
    site = GitLabSite(gitlab_server, tmp_path)
    site.comment("/help")
    done = site.run(project)
    assert done.exit_code == 0, done.output
    (text,) = site.bodies()
    assert "/var PATH: VALUE" in text
    assert "presets that a comment may choose: failing" in text
    assert "jobs: nightly" in text


def test_chat_on_a_merge_request_runs_nothing(project: Workspace, gitlab_server: gitlab.Server, tmp_path: Path) -> None:
    site = GitLabSite(gitlab_server, tmp_path)
    site.comment("Looks good to me. Did you test training_e2e?")
    assert site.run(project).exit_code == 4
    assert not gitlab_server.requests()


def test_a_comment_cancels_the_pipelines_of_the_merge_request(
    project: Workspace, gitlab_server: gitlab.Server, tmp_path: Path
) -> None:
    site = GitLabSite(gitlab_server, tmp_path)
    site.comment(f"/test {PROJECT}")
    running = gitlab_server.start_pipeline()
    assert site.run(project, CI_PIPELINE_ID=str(running)).exit_code == 0
    site.comment("/cancel")
    done = site.run(project)
    assert done.exit_code == 0, done.output
    assert gitlab_server.state.pipelines[running] == "canceled"
    assert f"[{running}](https://gitlab.example.com/group/name/-/pipelines/{running})" in site.bodies()[-1]


def test_a_merge_request_of_a_fork_is_refused(project: Workspace, gitlab_server: gitlab.Server, tmp_path: Path) -> None:
    site = GitLabSite(gitlab_server, tmp_path)
    gitlab_server.state.merge_requests[1].source_project = 8
    site.comment(f"/test {PROJECT}")
    done = site.run(project)
    assert done.exit_code == 2
    assert "comes from a fork" in site.bodies()[0]


def test_an_event_with_a_forged_author_is_refused(
    project: Workspace, github_server: github.Server, tmp_path: Path
) -> None:
    site = JenkinsSite(github_server, tmp_path)
    site.add_stranger("mallory")
    site.comment(f"/test {PROJECT}", by="mallory")
    site.last_event = site.last_event.replace("mallory", "alice")
    done = site.run(project)
    assert done.exit_code == 2
    assert "the comment was edited" in done.output
    assert not project.runs()


def test_a_person_starts_a_job_of_jenkins_by_hand(
    project: Workspace, github_server: github.Server, tmp_path: Path
) -> None:
    site = JenkinsSite(github_server, tmp_path)
    done = site.run(project, comment=f"/test {PROJECT} failing")
    assert done.exit_code == 1, done.output
    (file,) = (project.artifacts / "comments").iterdir()
    assert f"`{PROJECT}` did not pass" in file.read_text()
    assert not github_server.requests()


def test_the_commands_of_other_jobs_and_of_prow_are_ignored(
    project: Workspace, github_server: github.Server, tmp_path: Path
) -> None:
    site = ProwSite(github_server, tmp_path)
    site.comment(f"/lgtm\n/test {PROJECT}\n/var greeting: hi\n/test unit\n/var greeting: other\n/hold\n")
    github_server.comment(1, "alice", "/test unit\n/var greeting: later\n")
    done = site.run(project)
    assert done.exit_code == 0, done.output
    assert configuration(project)["greeting"] == "hi"
    assert configuration_presets(project) == [["loud"]]
    link = f"https://prow.ci.openshift.org/view/gs/test-platform-results/pr-logs/pull/owner_name/1/{JOB}/{BUILD}"
    assert f"]({link})" in site.bodies()[0]


def test_prow_tests_forks_and_skips_the_comments_of_strangers(
    project: Workspace, github_server: github.Server, tmp_path: Path
) -> None:
    site = ProwSite(github_server, tmp_path)
    fork = github_server.fork("alice")
    github_server.push("theirs", {"model.py": "x"}, by="alice", repository=fork)
    pull = github_server.issue(1).pull
    assert pull is not None
    source = github_server.state.repositories[fork.lower()]
    pull.head, pull.head_branch, pull.head_sha = source, "theirs", source.branches["theirs"]
    site.add_stranger("mallory")
    site.comment(f"/test {PROJECT}")
    github_server.comment(1, "mallory", f"/test nightly {PROJECT} failing")
    done = site.run(project)
    assert done.exit_code == 0, done.output
    assert configuration(project)["revision"] == site.head()


def test_a_revision_that_prow_pinned_too_early_is_refused(
    project: Workspace, github_server: github.Server, tmp_path: Path
) -> None:
    site = ProwSite(github_server, tmp_path)
    site.comment(f"/test {PROJECT}")
    site.pinned = "a" * 40
    done = site.run(project)
    assert done.exit_code == 2
    assert "the comment is about" in done.output


def test_a_terminal_rehearses_a_comment_without_a_forge(project: Workspace) -> None:
    text = f"--text=/test {PROJECT} failing"
    outcome = project.run("ci", "run", f"--project={PROJECT}", "--workflow=on_comment", text)
    assert outcome.exit_code == 1, str(outcome)
    (file,) = (project.artifacts / "comments").iterdir()
    assert f"`{PROJECT}` did not pass" in file.read_text()
    assert str(file) in outcome.stderr


def test_a_comment_cannot_change_the_pinned_revision(project: Workspace) -> None:
    file = project.directory / f"config/{PROJECT}.yaml"
    file.write_text(file.read_text().replace("overridable: [greeting]", "overridable: [greeting, revision]"))
    flags = [f"--project={PROJECT}", "--workflow=on_comment", f"--revision={'a' * 40}"]
    outcome = project.run("ci", "run", *flags, f"--text=/test {PROJECT}\n/var revision: {'b' * 40}")
    assert outcome.exit_code == 2, str(outcome)
    assert "a comment may never change `revision`" in outcome.stderr
    assert project.run("ci", "run", *flags, f"--text=/test {PROJECT}").exit_code == 0
    assert configuration(project)["revision"] == "a" * 40


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "or --project and --workflow in a job of a CI system"),
        (["--project=training_e2e"], "or --project and --workflow in a job of a CI system"),
        (["--text=/test training_e2e", "--revision=x"], "need --project and --workflow"),
        (["--project=training_e2e", "--workflow=on_comment"], "no comment on a pull request started this job"),
        (["--project=training_e2e", "--workflow=on_coment", "--text=/test training_e2e"], "did you mean on_comment?"),
        (["--project=training_e2e", "--workflow=on_coment"], "did you mean on_comment?"),
        (
            ["--project=training_e2e", "--workflow=on_comment", "--revision=main", "--text=/help"],
            "is not a full commit",
        ),
        (["--project=training_e2e", "--workflow=on_comment", "--presets=loud"], "--presets cannot be used"),
    ],
)
def test_a_wrong_combination_of_flags_is_refused(project: Workspace, flags: list[str], message: str) -> None:
    outcome = project.run("ci", "run", *flags)
    assert outcome.exit_code == 2, str(outcome)
    assert message in outcome.stderr
    assert not project.runs()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["pin", "training_e2e", "on_coment"], "did you mean on_comment?"),
        (["pin", "training_e2e", "on_comment"], "ci run --project=training_e2e --workflow=on_comment --text="),
        (["comment", "training_e2e", "on_comment", "--result=success", "--revision=x"], "use\n  ci run --project="),
    ],
)
def test_a_command_of_a_job_says_in_a_terminal_what_to_use(project: Workspace, flags: list[str], message: str) -> None:
    outcome = project.run("ci", *flags)
    assert outcome.exit_code == 2, str(outcome)
    assert message in outcome.stderr


def test_a_forge_that_fails_after_the_run_does_not_change_the_verdict(
    project: Workspace, gitlab_server: gitlab.Server, tmp_path: Path
) -> None:
    site = GitLabSite(gitlab_server, tmp_path)
    site.comment(f"/test {PROJECT}")
    gitlab_server.faults.add("PUT", "*/notes/*", github.Fault(403, {"message": "403 Forbidden"}), times=None)
    done = site.run(project)
    assert done.exit_code == 0, done.output
    assert "the result could not be shown on the pull request: GitLab refused PUT" in done.output


def test_a_run_that_cannot_start_is_answered_with_the_reason(
    project: Workspace, gitlab_server: gitlab.Server, tmp_path: Path
) -> None:
    site = GitLabSite(gitlab_server, tmp_path)
    file = project.directory / f"config/{PROJECT}.yaml"
    file.write_text(file.read_text() + 'secrets: {dir: {env_key: VAULT}, token: token}\nkey: "*$@secrets.token"\n')
    site.comment(f"/test {PROJECT}")
    done = site.run(project)
    assert done.exit_code == 2, done.output
    assert "VAULT" in site.bodies()[0]
    assert site.states() == ["failed"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        ('{"action": "created", "comment": {"id": "7"}, "issue": {}}', "comment.id: "),
        (" " * (9 << 20), "has more than 8 MiB"),
    ],
    ids=["missing", "wrong types", "huge"],
)
def test_a_bad_event_file_is_refused(
    project: Workspace, github_server: github.Server, tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "event.json"
    if content is not None:
        file.write_text(content)
    variables = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "issue_comment",
        "GITHUB_EVENT_PATH": str(file),
        "GITHUB_REPOSITORY": "owner/name",
        "GITHUB_API_URL": github_server.url,
        "GH_TOKEN": github_server.add_token(),
    }
    for command in (["pin", PROJECT, "on_comment"], ["run", f"--project={PROJECT}", "--workflow=on_comment"]):
        outcome = project.run("ci", *command, env=variables)
        assert outcome.exit_code == 2, str(outcome)
        assert message in outcome.stderr
        assert len(outcome.stderr.splitlines()) <= 5
    assert not github_server.requests()
    assert not list(project.directory.rglob("pwned"))
