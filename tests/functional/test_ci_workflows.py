"""`ci workflows` writes workflow files; their scripts are executed here, with a `gh` that keeps its state in a file."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.github_actions import REPOSITORY, Job, Runner
from tests.functional.conftest import SMALL
from toolbox.system import places
from toolbox.testing import Workspace

HEAD = "a" * 40
HOSTILE = "\"; touch pwned; $(touch pwned) `touch pwned` ' && touch pwned #\n; touch pwned\n::error::pwned\n"
BLOCK = """
    ci:
      overridable: [greeting, commands.test]
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
    exec {python} {program} "$@"
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Return the project `small` with workflow files, which tests must not change."""
    workspace = Workspace(tmp_path_factory.mktemp("generated") / "workspace", SMALL)
    file = workspace.directory / "config/small.yaml"
    before, _, after = file.read_text().partition("ci:\n  overridable: [greeting, commands.cleanup]\n")
    file.write_text(before + after + textwrap.dedent(BLOCK))
    program = places.builtin_root() / "run_toolbox.py"
    workspace.write({"toolbox": TOOLBOX.format(python=shlex.quote(sys.executable), program=shlex.quote(str(program)))})
    (workspace.directory / "toolbox").chmod(0o755)
    outcome = workspace.run("ci", "workflows", "small")
    assert outcome.exit_code == 0, str(outcome)
    return workspace


@pytest.fixture
def project(generated: Workspace, workspace: Workspace) -> Workspace:
    """Return a copy of the project `small` with workflow files."""
    shutil.copytree(generated.directory, workspace.directory, dirs_exist_ok=True)
    return workspace


@pytest.fixture
def runner(project: Workspace, tmp_path: Path) -> Runner:
    """Return a runner of GitHub Actions with a checkout of the project."""
    return Runner(project.directory, tmp_path / "runner")


def workflow(project: Workspace, name: str) -> Path:
    return project.directory / ".github/workflows" / f"small-{name}.yml"


def change(project: Workspace, **values: Any) -> None:
    """Change fields of the configuration, such as the commands of the phase `test`."""
    file = project.directory / "config/small.yaml"
    content = yaml.safe_load(file.read_text())
    content["commands"].update(values)
    file.write_text(yaml.safe_dump(content))


def github(runner: Runner) -> dict[str, Any]:
    """Return the state of the repository on GitHub."""
    state: dict[str, Any] = json.loads((runner.home / "gh.json").read_text())
    return state


def set_github(runner: Runner, **facts: Any) -> None:
    """Set the state of a repository with one open pull request, by default from a branch of this repository."""
    pull_request = {"state": "open", "head": {"ref": "topic", "sha": HEAD, "repo": {"full_name": REPOSITORY}}}
    activity = [{"ref": "refs/heads/topic", "after": HEAD, "timestamp": "2026-11-23T04:00:00Z"}]
    state = {"pulls": {"7": pull_request}, "permissions": {"alice": "write"}, "activity": activity, **facts}
    (runner.home / "gh.json").write_text(json.dumps(state))


def comment(text: str, **facts: Any) -> dict[str, Any]:
    """Return the event of a comment by a member on the pull request 7."""
    author = {"user": {"login": "alice"}, "author_association": "MEMBER"}
    content = {"body": text, "created_at": "2026-11-23T05:00:00Z", **author, **facts}
    return {"action": "created", "issue": {"number": 7, "pull_request": {"url": "x"}}, "comment": content}


def labelled(label: str = "run it", repository: str = REPOSITORY) -> dict[str, Any]:
    head = {"sha": HEAD, "ref": HOSTILE, "repo": {"full_name": repository}}
    content = {"number": 7, "head": head, "base": {"sha": "b" * 40}, "title": HOSTILE}
    return {"action": "labeled", "label": {"name": label}, "pull_request": content}


def is_baseline(runner: Runner) -> bool:
    """Return whether the only run is part of the baseline."""
    (request,) = runner.home.glob("uploaded/*/small/*/run.json")
    return bool(json.loads(request.read_text())["baseline"])


def nightly(project: Workspace, runner: Runner, **facts: Any) -> dict[str, Job]:
    return runner.run(workflow(project, "nightly"), "schedule", **facts)


def test_generating_again_changes_nothing(project: Workspace) -> None:
    outcome = project.run("ci", "workflows", "small")
    assert outcome.stdout == "the workflow files in .github/workflows are up to date\n"
    assert project.run("ci", "workflows", "small", "--check").exit_code == 0


@pytest.mark.parametrize("name", ["tpu_ci"])
def test_the_workflows_of_the_shipped_projects_can_be_generated(workspace: Workspace, name: str) -> None:
    outcome = workspace.run("ci", "workflows", name)
    assert outcome.exit_code == 0, str(outcome)
    files = sorted((workspace.directory / ".github/workflows").iterdir())
    checker = Path(sys.executable).with_name("check-jsonschema")
    command = [str(checker), "--builtin-schema", "vendor.github-workflows", *map(str, files)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert workspace.run("ci", "workflows", name, "--check").exit_code == 0


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


def test_a_nightly_run_that_passes_reports_and_exports(project: Workspace, runner: Runner) -> None:
    jobs = nightly(project, runner)
    assert [job.result for job in jobs.values()] == ["success", "success"], jobs["run"].output
    assert not [
        file for file in runner.home.glob("uploaded/**/*") if file.is_file() and b"secret-of" in file.read_bytes()
    ]
    assert "passed" in runner.summary.read_text()
    (uploaded,) = (runner.home / "uploaded/1").glob("small/*")
    assert (uploaded / "junit.xml").exists()
    assert (uploaded / "report.html").exists()
    assert is_baseline(runner) is True
    assert (project.directory / "reaped").read_text() == "resources reap small\n"
    assert "has no open issue" in jobs["issue"].output


def test_files_of_secrets_are_private_and_exact(project: Workspace, runner: Runner) -> None:
    runner.secrets["DATABASE"] = HOSTILE
    change(project, test=['test "$(stat -c %a "$VAULT")" = 700', 'cp "$VAULT/token" "$HOME/copy"'])
    job = nightly(project, runner)["run"]
    assert job.result == "success", job.output
    assert (runner.home / "copy").read_text() == HOSTILE
    assert not list(project.directory.rglob("pwned*")) + list(runner.home.rglob("pwned*"))


def test_a_nightly_failure_opens_an_issue_which_is_updated_and_closed(project: Workspace, runner: Runner) -> None:
    change(project, test=["echo it broke >&2; exit 7"])
    assert nightly(project, runner)["run"].result == "failure"
    (issue,) = github(runner)["issues"]
    assert issue["title"] == "small: the workflow nightly fails"
    assert issue["labels"] == [{"name": "topgallant"}]
    assert "https://github.com/owner/name/actions/runs/77" in issue["body"]
    assert "it broke" in issue["body"]
    assert "did not pass once" in issue["body"]

    jobs = nightly(project, runner)
    assert jobs["issue"].result == "success", jobs["issue"].output
    (issue,) = github(runner)["issues"]
    assert "did not pass 2 times in a row" in issue["body"]
    assert issue["state"] == "open"

    change(project, test=["true"])
    nightly(project, runner)
    (issue,) = github(runner)["issues"]
    assert issue["state"] == "closed"
    assert issue["comments"] == [
        f"The workflow `nightly` passed at {'5' * 40}: https://github.com/owner/name/actions/runs/77"
    ]

    change(project, test=["false"])
    nightly(project, runner)
    assert [issue["state"] for issue in github(runner)["issues"]] == ["closed", "open"]


def test_after_a_failure_everything_is_cleaned_up_reported_and_exported(project: Workspace, runner: Runner) -> None:
    change(project, test=["exit 7"])
    job = nightly(project, runner)["run"]
    outcomes = {name: step.outcome for name, step in job.steps.items()}
    assert outcomes["Run the project"] == "failure"
    assert {"failure", *outcomes.values()} == {"failure", "success"}
    assert (project.directory / "reaped").read_text() == "resources reap small\n"
    (line,) = [line for line in job.steps["Report"].output.splitlines() if line.startswith("::error")]
    assert line.startswith("::error title=failed (product)%3A test::")
    assert list((runner.home / "uploaded/1").glob("small/*/junit.xml"))


def test_a_run_that_never_started_has_an_issue_without_details(project: Workspace, runner: Runner) -> None:
    runner.failing = ("google-github-actions/auth",)
    jobs = nightly(project, runner)
    assert jobs["run"].steps["Run the project"].outcome == "skipped"
    assert jobs["issue"].result == "success", jobs["issue"].output
    (issue,) = github(runner)["issues"]
    assert "The latest run failed" in issue["body"]


def test_a_run_that_cannot_be_read_does_not_prevent_the_issue(project: Workspace, runner: Runner) -> None:
    journal = "{}\n" * 3 + '{"event": "run_started", "x": [' + "[" * 100_000
    project.write({"artifacts/small/20261123-050000-abcd/journal.jsonl": journal})
    variables = {"GH_TOKEN": "token-of-the-job", "RESULT": "failure"}
    step = runner.execute('./toolbox ci issue small nightly --result="$RESULT"', variables)
    assert step.outcome == "success", step.output
    (issue,) = github(runner)["issues"]
    assert issue["state"] == "open"


def test_a_dispatch_of_another_branch_leaves_the_issue_alone(project: Workspace, runner: Runner) -> None:
    change(project, test=["exit 7"])
    jobs = runner.run(workflow(project, "nightly"), "workflow_dispatch", ref_name="topic", ref="refs/heads/topic")
    assert jobs["run"].result == "failure"
    assert jobs["issue"].result == "skipped"
    assert is_baseline(runner) is False


def test_each_script_of_the_files_is_executed_by_an_event(project: Workspace, runner: Runner) -> None:
    set_github(runner)
    scripts = set()
    for file in (project.directory / ".github/workflows").iterdir():
        for name, job in yaml.safe_load(file.read_text())["jobs"].items():
            scripts |= {(file.stem, name, step["name"]) for step in job["steps"] if "run" in step}
    for name, event, payload in (
        ("cpu", "push", None),
        ("nightly", "schedule", None),
        ("on_demand", "pull_request", labelled()),
        ("on_demand", "issue_comment", comment("/test small")),
        ("reap", "schedule", None),
    ):
        for job, done in runner.run(workflow(project, name), event, payload).items():
            scripts -= {(f"small-{name}", job, step) for step in done.ran if done.result == "success"}
    assert scripts == set()


def test_the_reaper_deletes_old_resources_and_keeps_an_issue_open(project: Workspace, runner: Runner) -> None:
    jobs = runner.run(workflow(project, "reap"), "schedule")
    assert [job.result for job in jobs.values()] == ["success", "success"], jobs["reap"].output
    assert (project.directory / "reaped").read_text() == "resources reap small --older_than=21600s\n"


def test_a_comment_runs_the_pinned_revision_and_sets_the_status(project: Workspace, runner: Runner) -> None:
    set_github(runner)
    event = comment("Please:\n/test small\n/var greeting: hi\n")
    jobs = runner.run(workflow(project, "on_demand"), "issue_comment", event)
    assert [job.result for job in jobs.values()] == ["success"] * 3, "".join(job.output for job in jobs.values())
    assert jobs["gate"].outputs == {"revision": HEAD}
    assert [(item["revision"], item["state"]) for item in github(runner)["statuses"]] == [
        (HEAD, "pending"),
        (HEAD, "success"),
    ]
    (run,) = (runner.home / "uploaded/1").glob("small/*")
    configuration = yaml.safe_load((run / "config.yaml").read_text())
    assert (configuration["revision"], configuration["greeting"]) == (HEAD, "hi")
    assert json.loads((run / "run.json").read_text())["presets"] == ["loud"]


def test_a_comment_whose_run_fails_sets_the_status_of_a_failure(project: Workspace, runner: Runner) -> None:
    set_github(runner)
    runner.run(workflow(project, "on_demand"), "issue_comment", comment("/test small failing"))
    assert [item["state"] for item in github(runner)["statuses"]] == ["pending", "failure"]


@pytest.mark.parametrize(
    "event",
    [
        comment("/test small", author_association="CONTRIBUTOR"),
        comment("/test small", author_association="NONE"),
        {**comment("/test small"), "issue": {"number": 7}},
        comment("this tests small things"),
    ],
    ids=["a contributor", "a stranger", "an issue", "no command"],
)
def test_other_comments_start_nothing(project: Workspace, runner: Runner, event: dict[str, Any]) -> None:
    set_github(runner)
    jobs = runner.run(workflow(project, "on_demand"), "issue_comment", event)
    assert [job.result for job in jobs.values()] == ["skipped"] * 3
    assert "requests" not in github(runner)


@pytest.mark.parametrize(
    ("text", "facts", "message"),
    [
        ("/test small", {"permissions": {}}, "alice may not start runs"),
        ("/test small", {"activity": []}, "may have changed since the comment"),
        ("/test small both", {}, "may not choose the preset 'both': only failing is allowed"),
        ("/test small\n/var tag: x", {}, "may not change `tag`"),
        ("/test small", {"pulls": {}}, "Not Found"),
    ],
    ids=["no write access", "pushed later", "preset", "field", "no such pull request"],
)
def test_a_refused_comment_runs_nothing(
    project: Workspace, runner: Runner, text: str, facts: dict[str, Any], message: str
) -> None:
    set_github(runner, **facts)
    jobs = runner.run(workflow(project, "on_demand"), "issue_comment", comment(text))
    assert [job.result for job in jobs.values()] == ["failure", "skipped", "skipped"]
    assert message in jobs["gate"].output
    assert "statuses" not in github(runner)


def test_a_comment_for_another_project_runs_nothing(project: Workspace, runner: Runner) -> None:
    set_github(runner)
    jobs = runner.run(workflow(project, "on_demand"), "issue_comment", comment("/test small2"))
    assert [job.result for job in jobs.values()] == ["success", "skipped", "skipped"]


def test_a_label_runs_the_head_of_the_event(project: Workspace, runner: Runner) -> None:
    jobs = runner.run(workflow(project, "on_demand"), "pull_request", labelled())
    assert [job.result for job in jobs.values()] == ["skipped", "success", "skipped"], jobs["run"].output
    (run,) = (runner.home / "uploaded/1").glob("small/*")
    assert yaml.safe_load((run / "config.yaml").read_text())["revision"] == HEAD
    assert is_baseline(runner) is False


@pytest.mark.parametrize("event", [labelled("another"), labelled(repository="mallory/name")], ids=["label", "fork"])
def test_other_labels_and_forks_run_nothing(project: Workspace, runner: Runner, event: dict[str, Any]) -> None:
    jobs = runner.run(workflow(project, "on_demand"), "pull_request", event)
    assert [job.result for job in jobs.values()] == ["skipped"] * 3


@pytest.mark.parametrize(
    "text",
    [f"/test small\n{HOSTILE}", f"/test small\n/var greeting: {json.dumps(HOSTILE)}\n", f"/test small {HOSTILE}"],
)
def test_hostile_comments_execute_nothing(project: Workspace, runner: Runner, text: str) -> None:
    set_github(runner)
    jobs = runner.run(workflow(project, "on_demand"), "issue_comment", comment(text))
    output = "".join(job.output for job in jobs.values())
    assert not list(project.directory.rglob("pwned*")) + list(runner.home.rglob("pwned*"))
    assert "\n::error::pwned" not in output


def test_every_script_ignores_commands_in_its_variables(project: Workspace, runner: Runner) -> None:
    """Executes each script with hostile values in all variables that it reads. All programs on the PATH do nothing."""
    (runner.home / "bin/gh").write_text("#!/bin/sh\nexit 0\n")
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
    event = labelled(repository="mallory/name")
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
