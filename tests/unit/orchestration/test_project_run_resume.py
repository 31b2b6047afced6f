"""A run can be resumed after any interruption: finished work is not repeated, and the verdict is the same."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolbox.ground.model.errors import ConfigurationError, UsageError
from toolbox.ground.model.events import (
    AttemptSubmitted,
    ConfigurationChanged,
    Event,
    JournalEvent,
    MatrixPlanned,
    RunFinished,
    StepFinished,
    StepKind,
    StepStarted,
)
from toolbox.ground.system import processes
from toolbox.ground.system.redaction import Redactor
from toolbox.orchestration import project_run
from toolbox.orchestration.request import RunRequest
from toolbox.records.runs import journal, run_reader
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState

from .conftest import Seen, forget_modules

BEGIN = """
from pathlib import Path
from toolbox.ground.model.errors import CheckFailed
from toolbox.orchestration import config, env, matrix, run
def log(word):
    with Path("log").open("a") as file: file.write(f"{word}\\n")
"""


class Project:
    """A project in its own repository, one run of it, and the file `log` to which its phases write."""

    def __init__(self, root: Path, seen: Seen) -> None:
        self.root = root
        self.seen = seen
        self.directory = root
        self.write("def test(): ...", "a: 1\n")

    def write(self, orchestration: str, config: str = "") -> None:
        """Write the orchestration of the project, and its configuration if one is given."""
        texts = {"projects/tiny/orchestration.py": BEGIN + textwrap.dedent(orchestration)}
        texts |= {"config/tiny.yaml": textwrap.dedent(config)} if config else {}
        for name, text in texts.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def run(self, **request: Any) -> int:
        """Run the project, and return the exit code."""
        forget_modules()
        requested = RunRequest("tiny", artifact_dir=self.root / "artifacts", **request)
        found, code = project_run.execute(requested, [], Redactor())
        self.directory = found.directory
        return code

    def resume(self, **how: Any) -> int:
        """Delete the file `log`, resume the run, and return the exit code."""
        forget_modules()
        (self.root / "log").unlink(missing_ok=True)
        self.seen.events.clear()
        return project_run.resume(self.directory, [self.seen], Redactor(), **how)[1]

    @property
    def log(self) -> list[str]:
        """The words in the file `log`."""
        file = self.root / "log"
        return file.read_text().split() if file.exists() else []

    def cut(self, kind: type[Event], **fields: str) -> None:
        """Truncate the journal before the first event of a kind with these fields, as if the run had been killed."""
        file = RunDirectory(self.directory).journal
        lines = file.read_text().splitlines(keepends=True)
        wanted = {"event": kind.__name__, **fields}
        records = [json.loads(line) for line in lines]
        place = next(index for index, record in enumerate(records) if wanted.items() <= record.items())
        file.write_text("".join(lines[:place]))


@pytest.fixture
def project(repository: Path, seen: Seen) -> Project:
    return Project(repository, seen)


PHASES = """
def prepare(): log("prepare")
def test():
    log("test")
    if not Path("good").exists(): raise CheckFailed("too slow")
def post_cleanup(): log("cleanup")
"""

# The phases


def test_passed_phases_are_replayed_and_the_interrupted_phase_runs(project: Project) -> None:
    project.write(PHASES)
    project.run()
    project.cut(StepFinished, name="test")
    assert project.resume() == 1
    assert project.log == ["test", "cleanup"]
    assert "the step passed before the run was resumed" in project.seen.lines


PROBE = """
'Probes.'
from pathlib import Path
from toolbox.api import role

class Probe:
    @role("probe_nothing")
    def look(self):
        'Look.'
        with Path("log").open("a") as file: file.write("body\\n")
"""


def test_a_passed_toolbox_command_is_not_repeated(project: Project) -> None:
    for name, text in {"commands/probe.py": PROBE, "roles/probe_nothing/tasks/main.yml": "[]\n"}.items():
        (project.root / name).parent.mkdir(parents=True)
        (project.root / name).write_text(text)
    project.write("def test():\n    run.run_toolbox('probe', 'look')\n    log('test')")
    assert project.run() == 0
    assert project.log == ["body", "test"]
    project.cut(StepFinished, name="test")
    assert project.resume() == 0
    assert project.log == ["test"]


def test_preparation_is_repeated_after_a_cleanup(project: Project) -> None:
    project.write(PHASES)
    project.run()
    project.cut(StepFinished, name="post_cleanup")
    assert project.resume() == 1
    assert project.log == ["prepare", "test", "cleanup"]


def test_a_resumed_run_ends_with_the_same_verdict(project: Project) -> None:
    project.write(PHASES)
    (project.root / "good").touch()
    project.run()
    project.cut(StepStarted, name="test")
    assert project.resume() == 0
    found = run_reader.read(project.directory)
    assert {step.name: str(step.verdict) for step in found.steps.values()} == {
        "prepare": "passed", "test": "passed", "post_cleanup": "passed",
    }  # fmt: skip


@pytest.mark.parametrize(("failed", "log", "code"), [(False, [], 1), (True, ["prepare", "test", "cleanup"], 0)])
def test_failed_work_is_repeated_only_with_failed(project: Project, failed: bool, log: list[str], code: int) -> None:
    project.write(PHASES)
    assert project.run() == 1
    (project.root / "good").touch()
    assert project.resume(failed=failed) == code
    assert project.log == log


def test_a_run_that_ended_in_an_error_can_be_resumed(project: Project) -> None:
    project.write("def test():\n    log('test')\n    if not Path('good').exists(): raise OSError('no route')")
    assert project.run() == 3
    (project.root / "good").touch()
    assert project.resume() == 0
    assert project.log == ["test"]


def test_a_resumed_run_keeps_its_phases(project: Project) -> None:
    project.write(PHASES)
    project.run(phases=["test"])
    project.cut(StepFinished, name="test")
    project.resume()
    assert project.log == ["test"]


def test_a_resumed_run_uses_the_corrected_orchestration(project: Project) -> None:
    project.write("def test(): 1 / 0")
    assert project.run() == 3
    project.write("def test(): log('mended')")
    assert (project.resume(), project.log) == (0, ["mended"])


# Steps inside phases


GROUPS = """
def test():
    with env.NextArtifactDir("deploy") as here:
        log(f"deploy-{len(list(here.glob('seen-*')))}")
        (here / f"seen-{len(list(here.iterdir()))}").touch()
        with env.NextArtifactDir("deep"): log("deep")
    with run.Parallel("both", exit_on_exception=False) as parallel:
        parallel.task("good", log, "good")
        parallel.task("bad", work, "bad")
def work(word):
    log(word)
    if not Path("good").exists(): raise CheckFailed("too slow")
"""


def test_directories_are_reused_and_passed_tasks_are_not_repeated(project: Project) -> None:
    project.write(GROUPS)
    assert project.run() == 1
    project.cut(StepFinished, name="test")
    (project.root / "good").touch()
    assert project.resume() == 0
    assert project.log == ["deploy-1", "deep", "bad"]
    inside = sorted(path.name for path in (project.directory / "000__test").glob("0*"))
    assert inside == ["000__deploy", "001__both"]
    assert sorted(path.name for path in (project.directory / "000__test/001__both").glob("0*")) == [
        "000__good", "001__bad",
    ]  # fmt: skip


def test_two_directories_with_the_same_name_are_both_reused(project: Project) -> None:
    project.write(
        """
        def test():
            for word in ("one", "two"):
                with env.NextArtifactDir("same") as here:
                    log(f"{word}-{len(list(here.glob(word)))}")
                    (here / word).touch()
        """
    )
    project.run()
    project.cut(StepFinished, name="test")
    assert (project.resume(), project.log) == (0, ["one-1", "two-1"])


# The configuration


def test_a_changed_configuration_is_refused(project: Project) -> None:
    project.write(PHASES, "a: {b: 1}\nc: 2\n")
    project.run(overrides={"c": 3})
    project.cut(StepFinished, name="test")
    kept = {file: file.read_bytes() for file in project.directory.rglob("*") if file.is_file()}
    project.write(PHASES, "a: {b: 2}\nc: 2\n")
    with pytest.raises(ConfigurationError, match=r"\n  a\.b was 1, is 2$"):
        project.resume()
    assert (project.log, project.seen.events) == ([], [])
    assert {file: file.read_bytes() for file in kept} == kept


SETTING = """
def prepare():
    log("prepare")
    config.project.set_config("a", config.project.get_config("a") + 1)
def test(): log(f"a={config.project.get_config('a')}")
"""


def written(project: Project) -> Any:
    """Return the configuration file that child processes read."""
    return yaml.safe_load((project.directory / "config.yaml").read_text())


def test_a_phase_that_changed_the_configuration_changes_it_again(project: Project) -> None:
    project.write(SETTING, "a: 1\n")
    project.run()
    project.cut(StepFinished, name="test")
    assert project.resume() == 0
    assert (project.log, written(project)) == (["prepare", "a=2"], {"a": 2})


def test_a_run_with_set_config_can_be_resumed_repeatedly(project: Project) -> None:
    project.write(SETTING, "a: 1\n")
    project.run()
    for _ in range(3):
        project.cut(StepFinished, name="test")
        assert project.resume() == 0
    assert project.log == ["prepare", "a=2"]


def test_resuming_a_finished_run_changes_no_files(project: Project) -> None:
    project.write(SETTING, "a: 1\n")
    project.run()
    for _ in range(2):
        assert project.resume() == 0
        assert written(project) == {"a": 2}


@pytest.mark.parametrize("at", [StepStarted, StepFinished])
def test_a_run_killed_during_set_config_can_be_resumed(project: Project, at: type[Event]) -> None:
    """The change is in the journal before it is in the file, and a resumed run begins with the old file."""
    project.write(SETTING, "a: 1\n")
    project.run()
    project.cut(at, name="prepare" if at is StepFinished else "test")
    (project.directory / "config.yaml").write_text("a: 1\n")
    assert project.resume() == 0
    assert project.log == ["prepare", "a=2"]


def test_a_secret_in_the_configuration_does_not_count_as_a_change(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.root / "token").write_text("hunter2")
    monkeypatch.setenv("TINY_SECRETS", str(project.root))
    secrets = "secrets: {dir: {env_key: TINY_SECRETS}, file: token}\ntoken: '*$@secrets.file'\nshown: x\n"
    project.write("def test(): config.project.set_config('shown', 'hunter2')", secrets)
    project.run()
    project.cut(StepFinished, name="test")
    assert project.resume() == 0
    assert written(project)["shown"] == "***"


@pytest.mark.parametrize("secret", ["test", "prepare", "tiny", "level", "002", "overrides"])
def test_a_secret_that_is_also_a_name_does_not_repeat_finished_work(
    project: Project, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("TINY_PASSWORD", secret)
    project.write(
        """
        def prepare():
            log("prepare")
            with env.NextArtifactDir("test data"): pass
        def test():
            log(f"level={config.project.get_config('test.level')}")
        """,
        "secrets: {env: [TINY_PASSWORD]}\ntest: {level: 1}\n",
    )
    project.run(overrides={"test.level": 5})
    project.cut(StepFinished, name="test")
    assert project.resume() == 0
    assert project.log == ["level=5"]
    assert [step.name for step in run_reader.read(project.directory).steps.values() if not step.depth] == [
        "prepare",
        "test",
    ]


# Runs that cannot be resumed


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_directory_that_is_not_a_run_is_refused(project: Project, name: str) -> None:
    (project.root / "empty").mkdir()
    project.directory = project.root / name
    with pytest.raises(UsageError, match="is not the directory of a run"):
        project.resume()
    assert list((project.root / "empty").iterdir()) == []


def test_a_removed_project_is_named(project: Project) -> None:
    project.run()
    shutil.rmtree(project.root / "projects/tiny")
    with pytest.raises(UsageError, match="unknown project `tiny`"):
        project.resume()


# Processes that are still running


def test_orphaned_processes_are_ended_except_workloads_of_cells(project: Project) -> None:
    project.write(MATRIX_PHASES, matrix_of(project.root))
    project.run()
    cell = next((project.directory / "001__test").glob("000__*"))
    project.cut(StepFinished, name="post_cleanup")
    marks = [project.directory / "000__prepare", cell / "attempt-1"]
    left = [subprocess.Popen(["sleep", "60"], env=processes.environment(mark)) for mark in marks]
    try:
        project_run._end_orphans(run_reader.read(project.directory), project.directory)
        assert [process.poll() is not None for process in left] == [True, False]
    finally:
        for process in left:
            process.kill()
            process.wait()


# A matrix that was killed at any point


MATRIX_PHASES = """
def prepare(): ...
def test(): matrix.run()
def post_cleanup(): ...
"""


def matrix_of(root: Path) -> str:
    """Return a matrix of three cells, one of which fails; each cell writes its name to the file `log`."""
    return f"""
        matrix:
          axes: {{x: [a, b, c]}}
          workload: {{command: "echo {{@cell.x}} >>{root}/log; [ {{@cell.x}} != b ]"}}
    """


def test_finished_cells_are_not_repeated(project: Project) -> None:
    project.write(MATRIX_PHASES, matrix_of(project.root))
    assert project.run() == 1
    assert project.log == ["a", "b", "c"]
    project.cut(StepStarted, name="x=b")
    assert (project.resume(), Counter(project.log)) == (1, Counter("bc"))
    assert [event.done for event in project.seen.of(MatrixPlanned)] == [1]


def test_with_failed_only_failed_cells_are_repeated(project: Project) -> None:
    project.write(MATRIX_PHASES, matrix_of(project.root))
    project.run()
    assert (project.resume(failed=True), project.log) == (1, ["b"])
    assert (project.resume(), project.log) == (1, [])


def test_a_resumed_run_may_change_jobs(project: Project) -> None:
    project.write(MATRIX_PHASES, matrix_of(project.root))
    project.run()
    project.resume(failed=True, jobs=3)
    assert [event.jobs for event in project.seen.of(MatrixPlanned)] == [3]


@dataclass(frozen=True)
class Recorded:
    """A finished run of a small matrix in its own repository, and the content of its journal."""

    root: Path
    directory: Path
    content: bytes

    def torn(self, place: Path, cut: int) -> Path:
        """Return a copy of the run whose journal ends after `cut` bytes."""
        directory = place / self.directory.name
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self.directory, directory)
        RunDirectory(directory).journal.write_bytes(self.content[:cut])
        return directory

    @property
    def ends(self) -> list[int]:
        """The offset at which each event of the journal ends."""
        return [index + 1 for index, byte in enumerate(self.content) if byte == ord("\n")]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    root = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr(sys, "path", [*sys.path])
        project = Project(root, Seen())
        project.write(MATRIX_PHASES, matrix_of(root))
        assert project.run() == 1
        yield Recorded(root, project.directory, RunDirectory(project.directory).journal.read_bytes())
    forget_modules()


def test_a_journal_that_is_truncated_anywhere_can_be_read(recorded: Recorded, tmp_path: Path) -> None:
    first = recorded.ends[0] - 1  # a line without a line end is complete too
    RunDirectory(tmp_path).journal.write_bytes(recorded.content)
    size = len(recorded.content)
    near = {end + offset for end in recorded.ends for offset in (-2, -1, 0, 1)}
    for cut in sorted({size, *near, *range(0, size, 11)} - {size + 1}, reverse=True):
        os.truncate(RunDirectory(tmp_path).journal, cut)
        past = run_reader.fold(journal.read(tmp_path))
        assert len(past.cells) <= 3
        if cut >= first:
            found = run_reader.read(tmp_path)
            assert (found.finished is not None) is (cut >= len(recorded.content) - 1)
        else:
            with pytest.raises(UsageError, match="is not the directory of a run"):
                run_reader.read(tmp_path)


Resume = Callable[[int], None]


@pytest.fixture(scope="module")
def resume(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Resume:
    """Return a function that resumes the run with a truncated journal, and checks the result."""
    place = tmp_path_factory.mktemp("torn")

    def call(cut: int) -> None:
        forget_modules()
        directory = recorded.torn(place, cut)
        kept = [entry.event for entry in journal.read(directory)]
        (recorded.root / "log").write_text("")
        if not kept:
            with pytest.raises(UsageError, match="is not the directory of a run"):
                project_run.resume(directory, [], Redactor())
            return
        found, code = project_run.resume(directory, [], Redactor())
        hold(found, code, kept, (recorded.root / "log").read_text().split())

    return call


def hold(found: RunState, code: int, kept: list[JournalEvent], executed: list[str]) -> None:
    """Check the result of a resumed run.

    Args:
        found: the state of the run at its end.
        code: its exit code.
        kept: the events that its journal had before.
        executed: the cells whose workloads were executed by the resumed run.
    """
    verdicts = {step.name: str(step.verdict) for step in found.cells}
    assert (code, verdicts) == (1, {"x=a": "passed", "x=b": "failed", "x=c": "passed"})
    submitted = {event.step[-1] for event in kept if isinstance(event, AttemptSubmitted)}
    assert not submitted & set(executed), "a workload that may have been executed was executed again"
    assert len(executed) == len(set(executed))
    assert {str(step.verdict) for step in found.steps.values() if step.kind is StepKind.PHASE} == {"passed", "failed"}
    ends = [entry.event for entry in journal.read(found.directory) if isinstance(entry.event, RunFinished)]
    assert len(ends) == 1


def test_a_run_killed_between_any_two_events_can_be_resumed(recorded: Recorded, resume: Resume) -> None:
    for end in [0, *recorded.ends]:
        resume(end)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_run_with_a_torn_last_event_can_be_resumed(recorded: Recorded, resume: Resume, data: st.DataObject) -> None:
    resume(data.draw(st.integers(0, len(recorded.content))))


def test_set_config_is_recorded_with_its_location(project: Project) -> None:
    project.write(SETTING, "a: 1\n")
    project.run()
    changes = [
        entry.event for entry in journal.read(project.directory) if isinstance(entry.event, ConfigurationChanged)
    ]
    assert [(change.path, change.value) for change in changes] == [("a", "2")]
