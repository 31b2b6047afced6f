"""The run of a small project has phases, a verdict, an exit code and files."""

import json
import re
import signal
import stat
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.ground.model.errors import ConfigurationError, InfrastructureError, UsageError
from toolbox.ground.model.events import RunStarted, StepFinished, StepKind
from toolbox.ground.system import environ, processes, signals
from toolbox.ground.system.redaction import Redactor
from toolbox.orchestration import project_run, session
from toolbox.orchestration.request import RunRequest
from toolbox.records.runs import steps
from toolbox.records.runs.run_state import RunState, State

from .conftest import Seen

CONFIG = """
size: 1
label: "size {@size}"
"""


class Project:
    """A small project in its own repository."""

    def __init__(self, root: Path, seen: Seen) -> None:
        self.root = root
        self.seen = seen
        self.write("", CONFIG)

    def write(self, orchestration: str, config: str = CONFIG) -> None:
        """Write the orchestration and the configuration of the project."""
        for name, text in (("projects/tiny/orchestration.py", orchestration), ("config/tiny.yaml", config)):
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text))

    def run(self, **request: Any) -> tuple[RunState, int]:
        """Run the project, and return the summary and the exit code."""
        run_request = RunRequest("tiny", artifact_dir=self.root / "artifacts", **request)
        return project_run.execute(run_request, [self.seen], Redactor())

    @property
    def phases(self) -> dict[str, str]:
        """The phases that have ended, in order, with their verdicts."""
        ends = self.seen.of(StepFinished)
        return {event.step: str(event.verdict) for event in ends if event.kind is StepKind.PHASE}

    @property
    def runs(self) -> list[Path]:
        """The run directories."""
        return sorted(self.root.glob("artifacts/tiny/*"))


@pytest.fixture
def project(repository: Path, seen: Seen) -> Project:
    return Project(repository, seen)


def test_the_phases_run_in_order_as_steps(project: Project) -> None:
    project.write(
        """
        from toolbox.orchestration import env
        def note(): (env.ARTIFACT_DIR / "ran").touch()
        post_cleanup = test = prepare = pre_cleanup = note
        """
    )
    summary, code = project.run()
    names = ["000__pre_cleanup", "001__prepare", "002__test", "003__post_cleanup"]
    assert project.phases == dict.fromkeys(names, "passed")
    assert all((summary.directory / name / "ran").exists() for name in names)
    assert code == 0


def test_phases_that_the_project_lacks_are_left_out(project: Project) -> None:
    project.write("def test(): ...")
    assert project.run()[1] == 0
    assert project.phases == {"000__test": "passed"}


def test_only_requested_phases_run(project: Project) -> None:
    project.write("def prepare(): ...\ndef test(): 1 / 0\ndef post_cleanup(): ...")
    assert project.run(phases=["post_cleanup", "prepare"])[1] == 0
    assert list(project.phases) == ["000__prepare", "001__post_cleanup"]


def test_a_run_without_phases_has_its_own_exit_code(project: Project) -> None:
    project.write("def helper(): ...")
    summary, code = project.run()
    assert code == 4
    assert summary.finished is not None
    assert (summary.finished.verdict, summary.finished.exit_code) == ("skipped", 4)
    assert summary.finished.message.startswith(
        "no phase ran: orchestration.py defines none of the functions pre_cleanup, "
    )


@pytest.mark.parametrize(
    ("statement", "verdict", "cause", "code"),
    [
        ("...", "passed", None, 0),
        ("raise CheckFailed('too slow')", "failed", "check", 1),
        ("run.run(['false'])", "failed", "product", 1),
        ("raise InfrastructureError('no route')", "error", "infrastructure", 3),
        ("raise ConfigurationError('no such field')", "error", "configuration", 3),
        ("1 / 0", "error", "internal", 3),
        ("raise Interrupted(2)", "cancelled", "interrupted", 130),
        ("raise Interrupted(15)", "cancelled", "interrupted", 143),
        ("raise Cancelled('the deadline')", "cancelled", "interrupted", 3),
    ],
)
def test_the_exit_code_follows_the_verdict(
    project: Project, statement: str, verdict: str, cause: str | None, code: int
) -> None:
    project.write(
        f"""
        from toolbox.ground.model.errors import *
        from toolbox.orchestration import run
        def test(): {statement}
        def post_cleanup(): ...
        """
    )
    summary, returned = project.run()
    end = summary.finished
    assert end is not None
    assert (end.verdict, end.cause, end.exit_code, returned) == (verdict, cause, code, code)
    assert project.phases == {"000__test": verdict, "001__post_cleanup": "passed"}


def test_a_program_that_fails_in_prepare_is_an_infrastructure_error(project: Project) -> None:
    project.write("from toolbox.orchestration import run\ndef prepare(): run.run(['false'])\ndef test(): ...")
    summary, code = project.run()
    assert summary.finished is not None
    assert (summary.finished.cause, code) == ("infrastructure", 3)
    assert project.phases == {"000__prepare": "error"}


def test_a_swallowed_error_still_decides_the_verdict(project: Project) -> None:
    project.write(
        """
        from toolbox.orchestration import env
        from toolbox.ground.model.errors import CheckFailed
        def test():
            try:
                with env.NextArtifactDir("cell"): raise CheckFailed("too slow")
            except CheckFailed: pass
        """
    )
    assert project.run()[1] == 1


def test_a_cleanup_error_is_added_to_the_first_error(project: Project) -> None:
    project.write(
        """
        from toolbox.ground.model.errors import CheckFailed, InfrastructureError
        def test(): raise CheckFailed("too slow")
        def post_cleanup(): raise InfrastructureError("the namespace is stuck")
        """
    )
    summary, code = project.run()
    assert summary.finished is not None
    assert summary.finished.message == "too slow\nand then: the namespace is stuck"
    assert (code, summary.finished.verdict, summary.finished.cause) == (1, "failed", "check")
    assert [step.step for step in summary.failures] == ["000__test", "001__post_cleanup"]


def test_a_cleanup_error_alone_makes_the_run_an_error(project: Project) -> None:
    project.write("def test(): ...\ndef post_cleanup(): raise KeyError('gone')")
    summary, code = project.run()
    assert summary.finished is not None
    assert (code, summary.finished.message) == (3, "KeyError: 'gone'")


def test_a_signal_is_reported_before_other_errors(project: Project) -> None:
    project.write(
        """
        from toolbox.ground.model.errors import Interrupted, CheckFailed
        def test(): raise CheckFailed("too slow")
        def post_cleanup(): raise Interrupted(15)
        """
    )
    summary, code = project.run()
    assert summary.finished is not None
    assert code == 143
    assert summary.finished.message == "interrupted by SIGTERM\nand then: too slow"


def test_a_signal_that_arrived_between_the_phases_ends_the_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "first", lambda: int(signal.SIGINT))
    project.write("def test(): ...")
    assert project.run()[1] == 130


def test_a_process_that_a_phase_leaves_is_ended_and_reported(project: Project) -> None:
    project.write(
        """
        import subprocess
        from toolbox.orchestration import env
        from toolbox.ground.system import processes
        def test():
            subprocess.run("setsid sleep 60 >/dev/null 2>&1 &", shell=True, env=processes.environment(env.ARTIFACT_DIR))
        """
    )
    summary, code = project.run()
    assert code == 0
    assert processes.marked(summary.directory) == []
    assert "processes of the run that were still running, and were ended: 1" in project.seen.lines


def test_the_files_of_a_run(project: Project) -> None:
    project.write("def test(): ...")
    summary, _ = project.run(presets=[], overrides={"size": 7}, note={"comment.txt": "/test tiny"})
    names = {"run.json", "config.yaml", "presets_applied", "journal.jsonl", "summary.json", "comment.txt", "000__test"}
    assert {path.name for path in summary.directory.iterdir()} == {*names, ".numbers"}
    assert re.fullmatch(r"\d{8}-\d{6}-[a-z0-9]{4}", summary.directory.name)
    assert summary.directory == project.runs[0]
    run_request = json.loads((summary.directory / "run.json").read_text())
    assert (run_request["project"], run_request["overrides"], run_request["phases"]) == ("tiny", {"size": 7}, None)
    assert {"python", "ansible-core", "ansible-runner"} <= run_request["versions"].keys()
    assert yaml.safe_load((summary.directory / "config.yaml").read_text()) == {"size": 7, "label": "size 7"}
    assert json.loads((summary.directory / "summary.json").read_text())["verdict"] == "passed"
    assert (summary.directory / "comment.txt").read_text() == "/test tiny"


def test_the_files_of_a_run_are_private(project: Project) -> None:
    project.write("def test(): ...")
    summary, _ = project.run()
    paths = [summary.directory, *summary.directory.rglob("*")]
    assert not [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_every_change_of_a_preset_is_listed_with_its_location(project: Project) -> None:
    project.write(
        "def test(): ...",
        """
        size: 1
        names: {a.b: x}
        ci_presets:
          to_apply: [big]
          big: {size: 100}
          named: {extends: [big], 'names["a.b"]': "two\\nlines"}
        """,
    )
    summary, _ = project.run(presets=["named"], overrides={"size": 3})
    lines = (summary.directory / "presets_applied").read_text().splitlines()
    assert [line.partition("  (")[0] for line in lines] == [
        "preset big: size --> 100",
        "preset big: size --> 100",
        'preset named: names["a.b"] --> ' + repr("two\nlines"),
        "--overrides: size --> 3",
    ]
    assert [line.rpartition("/")[2] for line in lines[:3]] == ["tiny.yaml:6)", "tiny.yaml:6)", "tiny.yaml:7)"]
    assert summary.presets == ("named",)


SECRET = """
secrets: {dir: {env_key: TINY_SECRETS}, token: token-file, env: [TINY_PASSWORD]}
token: "*$@secrets.token"
header: "Bearer {@token}"
"""


def test_secrets_are_written_as_references_only(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token-file").write_text("it's hunter2\n")
    monkeypatch.setenv("TINY_SECRETS", str(tmp_path))
    monkeypatch.setenv("TINY_PASSWORD", "s3same")
    project.write(
        """
        from toolbox.orchestration import config, run
        from toolbox.ground.model.errors import CheckFailed
        def test():
            run.run(["echo", config.project.get_config("token").reveal()])
            run.run("echo $TINY_PASSWORD >&2")
            raise CheckFailed(config.project.get_config("header").reveal())
        """,
        SECRET,
    )
    summary, code = project.run(note={"comment": "s3same"})
    written = yaml.safe_load((summary.directory / "config.yaml").read_text())
    assert (written["token"], written["header"]) == ("*$@secrets.token", "Bearer {@token}")
    texts = [path.read_text() for path in summary.directory.rglob("*") if path.is_file()]
    texts_and_events = [*texts, *map(repr, project.seen.events), repr(summary)]
    assert not [text for text in texts_and_events if "hunter2" in text or "s3same" in text]
    assert code == 1
    assert "Bearer ***" in (summary.directory / "000__test/FAILURE").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"presets": ["big"]}, "unknown preset `big`"),
        ({"overrides": {"sise": 1}}, "sise"),
        ({"override_files": [Path("missing.yaml")]}, "missing.yaml"),
        ({"phases": ["tset"]}, "did you mean test"),
    ],
)
def test_a_wrong_request_starts_nothing_and_leaves_no_directory(
    project: Project, change: dict[str, Any], message: str
) -> None:
    project.write("def test(): ...")
    with pytest.raises(UsageError, match=message):
        project.run(**change)
    assert (project.runs, project.seen.events) == ([], [])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("a: '@b'\nb: '@a'", "the references form a loop"),
        ("a: '@missing'", "dangling reference"),
        ("- a list", "must be a mapping"),
        ("a: [1", "broken YAML"),
        (SECRET, "TINY_SECRETS"),
        ("secrets: {env: 5}", "secrets"),
    ],
)
def test_a_wrong_configuration_starts_nothing(project: Project, config: str, message: str) -> None:
    project.write("def test(): ...", config)
    with pytest.raises(ConfigurationError, match=message):
        project.run()
    assert (project.runs, project.seen.events) == ([], [])


def test_the_journal_begins_with_run_started_and_ends_with_run_finished(project: Project) -> None:
    project.write("def test(): ...")
    summary, _ = project.run()
    assert isinstance(project.seen.events[0], RunStarted)
    assert project.seen.events[-1] == summary.finished
    assert summary.state is State.FINISHED
    assert not session.is_open()


def test_each_run_has_its_own_directory(project: Project) -> None:
    project.write("def test(): ...")
    assert project.run()[0].directory != project.run()[0].directory
    assert len(project.runs) == 2


@pytest.mark.parametrize(("variable", "place"), [("elsewhere", "elsewhere/tiny"), (None, "artifacts/tiny")])
def test_the_environment_sets_the_directory_of_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch, variable: str | None, place: str
) -> None:
    monkeypatch.delenv(environ.ARTIFACT_DIR, raising=False)
    if variable:
        monkeypatch.setenv(environ.ARTIFACT_DIR, variable)
    project.write("def test(): ...")
    summary, _ = project_run.execute(RunRequest("tiny"), [], Redactor())
    assert summary.directory.parent == project.root / place


def test_a_user_id_without_a_name_is_not_an_error(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under a user id that has no entry in the user database."""

    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 1000680000")

    monkeypatch.setattr("getpass.getuser", unknown)
    project.write("def test(): ...")
    summary, code = project.run()
    assert code == 0
    assert json.loads((summary.directory / "run.json").read_text())["user"] is None


def test_a_thread_that_the_project_starts_belongs_to_the_phase(project: Project) -> None:
    project.write(
        """
        import threading
        from toolbox.ground.model.errors import StepError
        from toolbox.orchestration import env, run
        def work():
            try:
                with env.NextArtifactDir("mine"): run.run(["false"])
            except StepError: pass
        def prepare(): ...
        def test():
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        """
    )
    summary, code = project.run()
    mine = summary.steps["001__test/000__mine"]
    assert (code, mine.verdict, mine.cause) == (1, "failed", "product")
    assert (summary.directory / "001__test/000__mine/run.log").is_file()


def test_the_cleanup_runs_even_if_its_step_cannot_be_recorded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = steps.opened

    def on_a_full_disk(name: str, **options: Any) -> Any:
        if name == "post_cleanup":
            raise InfrastructureError("no space left on device")
        return opened(name, **options)

    monkeypatch.setattr(steps, "opened", on_a_full_disk)
    project.write(
        """
        from pathlib import Path
        def test(): ...
        def post_cleanup(): Path("cleaned").write_text("once")
        """
    )
    summary, code = project.run()
    assert (project.root / "cleaned").read_text() == "once"
    assert summary.finished is not None
    assert (code, summary.finished.verdict, summary.finished.cause) == (3, "error", "infrastructure")
    assert summary.finished.message == "no space left on device"


def test_errors_of_a_cleanup_without_a_step_are_added(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_full_disk(name: str, **_options: Any) -> Any:
        raise InfrastructureError(f"no space for {name}")

    monkeypatch.setattr(steps, "opened", on_a_full_disk)
    project.write("def test(): ...\ndef post_cleanup(): raise KeyError('gone')")
    summary, code = project.run()
    assert summary.finished is not None
    message = ["no space for test", "and then: KeyError: 'gone'"]
    assert (code, summary.finished.message.splitlines()) == (3, message)


def test_a_failing_cleanup_is_called_once(project: Project) -> None:
    project.write(
        """
        def post_cleanup():
            with open("cleaned", "a") as file: file.write("once")
            1 / 0
        """
    )
    assert project.run()[1] == 3
    assert (project.root / "cleaned").read_text() == "once"
