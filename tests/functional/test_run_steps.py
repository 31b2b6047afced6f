"""The phases of a run are executed by separate command lines, also on different machines, with one state."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from toolbox.testing import Outcome, Workspace

ORCHESTRATION = '''
    """Writes what it does."""
    from pathlib import Path
    from toolbox.ground.model.errors import CheckFailed
    from toolbox.orchestration import config, env, run


    def log(word):
        with Path("log").open("a") as file:
            file.write(f"{word}\\n")


    def pre_cleanup():
        log("pre_cleanup")


    def prepare():
        log("prepare")
        if config.project.get_config("fails") == "prepare":
            raise RuntimeError("no room")
        config.project.set_config("image", "built-7")


    def test():
        log(f"test {config.project.get_config('image')}")
        run.run(config.project.get_config("command"))
        if config.project.get_config("fails") == "test":
            raise CheckFailed("too slow")


    def post_cleanup():
        log(f"post_cleanup {config.project.get_config('image')}")
'''
CONFIG = "image: none\nfails: nothing\ncommand: 'true'\n"


class Steps:
    """A run whose phases are executed by separate command lines."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace.write(
            {
                "projects/steps/orchestration.py": ORCHESTRATION,
                "config/steps.yaml": CONFIG,
                "command_args/steps.yaml.j2": "",
            }
        )

    def begin(self, phases: str, *flags: str) -> Outcome:
        return self.workspace.run("project", "run", "steps", f"--phases={phases}", "--keep_open", *flags)

    def step(self, phases: str | None = None, *flags: str, run: Path | None = None) -> Outcome:
        named = [f"--phases={phases}"] if phases is not None else []
        return self.workspace.run("project", "resume", str(run or self.run), *named, *flags)

    @property
    def run(self) -> Path:
        return self.workspace.run_directory()

    @property
    def log(self) -> list[str]:
        return (self.workspace.directory / "log").read_text().splitlines()

    @property
    def status(self) -> str:
        return " ".join(self.workspace.run("project", "status", str(self.run)).stdout.split())


@pytest.fixture
def steps(workspace: Workspace) -> Steps:
    return Steps(workspace)


def test_three_steps_are_one_run_with_one_verdict(steps: Steps) -> None:
    outcomes = [steps.begin("prepare"), steps.step("test"), steps.step("post_cleanup")]
    assert [outcome.exit_code for outcome in outcomes] == [0, 0, 0], "\n".join(map(str, outcomes))
    assert steps.log == ["prepare", "test built-7", "post_cleanup built-7"]
    summary = steps.workspace.summary()
    assert (summary["verdict"], summary["state"], summary["exit_code"]) == ("passed", "finished", 0)
    assert [step["step"] for step in summary["steps"] if "/" not in step["step"]] == [
        "000__prepare", "001__test", "002__post_cleanup",
    ]  # fmt: skip


def test_between_steps_the_run_has_not_ended_and_status_names_the_missing_phases(steps: Steps) -> None:
    steps.begin("prepare")
    assert "phases that have not run: test, post_cleanup" in steps.status
    assert f"continue it with `./run_toolbox.py project resume {steps.run} --phases=test`" in steps.status
    summary = steps.workspace.summary()
    assert (summary["verdict"], summary["state"]) == (None, "paused")
    assert summary["missing_phases"] == ["test", "post_cleanup"]
    steps.step("test")
    assert "phases that have not run: post_cleanup" in steps.status
    steps.step("post_cleanup")
    assert "phases that have not run" not in steps.status


def test_the_step_that_fails_has_the_exit_code_and_the_run_has_its_verdict(steps: Steps) -> None:
    outcomes = [steps.begin("prepare", "--overrides={fails: test}"), steps.step("test"), steps.step("post_cleanup")]
    assert [outcome.exit_code for outcome in outcomes] == [0, 1, 0], "\n".join(map(str, outcomes))
    summary = steps.workspace.summary()
    assert (summary["verdict"], summary["cause"], summary["exit_code"]) == ("failed", "check", 1)
    assert "too slow" in summary["message"]


def test_a_run_can_be_cleaned_up_after_prepare_has_failed(steps: Steps) -> None:
    assert steps.begin("prepare", "--overrides={fails: prepare}").exit_code == 3
    refused = steps.step("test")
    assert refused.exit_code == 2
    assert "the phase test needs prepare, which has not passed: first use " in refused.stderr
    assert steps.step("post_cleanup").exit_code == 0
    assert steps.log == ["prepare", "post_cleanup none"]
    assert "no room" in steps.workspace.summary()["message"]


def test_a_phase_that_had_an_error_can_be_repeated(steps: Steps) -> None:
    orchestration = steps.workspace.directory / "projects/steps/orchestration.py"
    condition = 'if config.project.get_config("fails") == "test"'
    text = orchestration.read_text().replace(condition, 'if not Path("good").exists()')
    orchestration.write_text(text.replace("raise CheckFailed", "raise RuntimeError"))
    steps.begin("prepare")
    assert steps.step("test").exit_code == 3
    (steps.workspace.directory / "good").touch()
    assert steps.step("test").exit_code == 0
    assert steps.step("post_cleanup").exit_code == 0
    assert steps.log == ["prepare", "test built-7", "test built-7", "post_cleanup built-7"]
    assert steps.workspace.summary()["verdict"] == "passed"


def test_after_test_was_killed_post_cleanup_ends_the_run(steps: Steps) -> None:
    steps.begin("prepare", "--overrides={command: 'echo begun; sleep 60'}")
    with steps.workspace.start("project", "resume", str(steps.run), "--phases=test") as running:
        running.wait_for("begun")
        running.send(signal.SIGKILL)
        running.wait()
    assert "is dead" in steps.status
    assert "phases that have not run: post_cleanup" in steps.status
    outcome = steps.step("post_cleanup")
    assert outcome.exit_code == 0, str(outcome)
    assert steps.log[-1] == "post_cleanup built-7"
    summary = steps.workspace.summary()
    assert (summary["verdict"], summary["message"]) == ("error", "the phase test did not end: its process was killed")


def test_without_phases_the_rest_of_the_run_is_executed(steps: Steps) -> None:
    steps.begin("prepare")
    assert steps.step().exit_code == 0
    assert steps.log == ["prepare", "test built-7", "post_cleanup built-7"]
    assert steps.workspace.summary()["verdict"] == "passed"


def test_a_run_that_was_never_tested_has_not_passed(steps: Steps) -> None:
    steps.begin("prepare")
    assert steps.step("post_cleanup").exit_code == 0
    summary = steps.workspace.summary()
    assert (summary["verdict"], summary["message"]) == ("skipped", "the phase test has not run")


@pytest.mark.parametrize(
    ("earlier", "phases", "message"),
    [
        (["prepare"], "prepare", "the phase prepare has already run"),
        (["prepare", "test"], "test", "the phase test has already run"),
        (["prepare"], "pre_cleanup", "the phase pre_cleanup must run before prepare, which has begun"),
        (["pre_cleanup"], "test", "the phase test needs prepare, which has not run: first use `"),
        (["prepare", "post_cleanup"], "test", "has ended (skipped): start a new run"),
        (["prepare", "test", "post_cleanup"], "post_cleanup", "has ended (passed): start a new run"),
        (["prepare"], "tset", "unknown phase `tset`: did you mean test"),
    ],
)
def test_phases_in_another_order_are_refused(steps: Steps, earlier: list[str], phases: str, message: str) -> None:
    steps.begin(earlier[0])
    for phase in earlier[1:]:
        steps.step(phase)
    before = (steps.run / "journal.jsonl").read_bytes()
    outcome = steps.step(phases)
    assert outcome.exit_code == 2, str(outcome)
    assert message in outcome.stderr
    assert len(outcome.stderr.splitlines()) <= 5
    assert (steps.run / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--keep_open"], "--keep_open needs --phases"),
        (
            ["--keep_open", "--phases=test"],
            "the phase test needs prepare, which has not run: first use --phases=prepare",
        ),
        (["--keep_open", "--phases=prepare,post_cleanup"], "the run ends with the phase post_cleanup"),
    ],
)
def test_a_run_that_cannot_begin_in_this_way_is_refused(steps: Steps, flags: list[str], message: str) -> None:
    outcome = steps.workspace.run("project", "run", "steps", *flags)
    assert outcome.exit_code == 2, str(outcome)
    assert message in outcome.stderr
    assert steps.workspace.runs() == []


def test_phases_of_a_run_in_one_piece_are_refused(steps: Steps) -> None:
    assert steps.workspace.run("project", "run", "steps").exit_code == 0
    outcome = steps.step("test")
    assert outcome.exit_code == 2
    assert "--phases continues only a run that `project run --keep_open` began" in outcome.stderr


def test_a_changed_configuration_is_refused(steps: Steps) -> None:
    steps.begin("prepare")
    steps.workspace.write({"config/steps.yaml": CONFIG.replace("nothing", "other")})
    outcome = steps.step("test")
    assert outcome.exit_code == 2, str(outcome)
    assert "the configuration has changed since the run " in outcome.stderr


def git(directory: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@lab"]
    subprocess.run(["git", "-C", str(directory), *identity, *words], check=True, capture_output=True)


def test_another_revision_of_the_project_is_refused(steps: Steps) -> None:
    directory = steps.workspace.directory
    git(directory, "init")
    git(directory, "add", "projects", "config")
    git(directory, "commit", "-m", "one")
    steps.begin("prepare")
    orchestration = directory / "projects/steps/orchestration.py"
    orchestration.write_text(orchestration.read_text() + "\n# changed\n")
    git(directory, "commit", "-am", "two")
    outcome = steps.step("test")
    assert outcome.exit_code == 2, str(outcome)
    assert "of the project, but here is " in outcome.stderr
    git(directory, "checkout", "HEAD~1")
    assert steps.step("test").exit_code == 0


def test_steps_may_run_on_different_machines_with_a_copy_of_the_directory(steps: Steps, tmp_path: Path) -> None:
    steps.begin("prepare")
    name, other = steps.run.name, Steps(Workspace(tmp_path / "other"))
    copy = tmp_path / "artifact" / name
    shutil.copytree(steps.run, copy)
    shutil.rmtree(steps.workspace.directory)
    outcome = other.step("test", run=copy)
    assert outcome.exit_code == 0, str(outcome)
    third = tmp_path / "again" / name
    shutil.move(copy, third)
    outcome = other.step("post_cleanup", run=third)
    assert outcome.exit_code == 0, str(outcome)
    assert other.log == ["test built-7", "post_cleanup built-7"]
    assert json.loads((third / "summary.json").read_text())["verdict"] == "passed"


def test_a_secret_that_a_phase_puts_into_the_configuration_is_refused_in_the_next_step(steps: Steps) -> None:
    orchestration = steps.workspace.directory / "projects/steps/orchestration.py"
    orchestration.write_text(
        orchestration.read_text().replace('"built-7"', '"Bearer " + config.project.get_config("token").reveal()')
    )
    steps.workspace.write(
        {
            "held/token": "s3cr3t-token",
            "config/steps.yaml": f"{CONFIG}secrets: {{dir: {{env_key: VAULT}}, t: token}}\ntoken: '*$@secrets.t'\n",
        }
    )
    env = {"VAULT": str(steps.workspace.directory / "held")}
    begun = steps.workspace.run("project", "run", "steps", "--phases=prepare", "--keep_open", env=env)
    assert begun.exit_code == 0, str(begun)
    outcome = steps.workspace.run("project", "resume", str(steps.run), "--phases=test", env=env)
    assert outcome.exit_code == 2, str(outcome)
    assert "the phase prepare put a secret into `image`" in outcome.stderr


def test_pre_cleanup_runs_first(steps: Steps) -> None:
    assert steps.workspace.run("project", "run", "steps").exit_code == 0
    assert steps.log == ["pre_cleanup", "prepare", "test built-7", "post_cleanup built-7"]
