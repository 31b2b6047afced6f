"""A run deletes its remote resources at its end, whatever ended the run."""

import json
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import things
from tests.fakes.ledger import MemoryLedger
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.events import (
    AttemptEnded,
    AttemptSubmitted,
    JournalEvent,
    Note,
    RunStarted,
    StepFinished,
    StepKind,
    StepStarted,
)
from toolbox.ground.model.resources import Resource
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system.redaction import Redactor
from toolbox.orchestration import leftovers, project_run, remote_resources
from toolbox.orchestration.leftovers import Search
from toolbox.orchestration.request import RunRequest
from toolbox.records.runs import ledger, steps
from toolbox.records.runs.journal import Journal
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.run_state import RunState
from toolbox.records.runs.steps import Step

from .conftest import Seen, forget_modules

BEGIN = f"""{things.MAKE}
from toolbox.ground.model.errors import CheckFailed, InfrastructureError, Interrupted
from toolbox.orchestration import run
"""


class Project:
    """A project whose phases create things in the folder `remote`."""

    def __init__(self, root: Path, seen: Seen) -> None:
        self.root = root
        self.seen = seen
        self.write({"resources/thing.py": things.KIND})

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def run(self, orchestration: str, config: str = "a: 1\n") -> tuple[RunState, int]:
        text = BEGIN + textwrap.dedent(orchestration)
        self.write({"projects/tiny/orchestration.py": text, "config/tiny.yaml": config})
        forget_modules()
        request = RunRequest("tiny", artifact_dir=self.root / "artifacts")
        return project_run.execute(request, [self.seen], Redactor())

    def resume(self, directory: Path, **options: Any) -> tuple[RunState, int]:
        forget_modules()
        return project_run.resume(directory, [self.seen], Redactor(), **options)

    @property
    def things(self) -> list[str]:
        return sorted(file.name for file in (self.root / "remote").glob("*"))


@pytest.fixture
def project(repository: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("TOPGALLANT_WORKSPACE", str(repository))
    monkeypatch.setenv("XDG_STATE_HOME", str(repository / "state"))
    monkeypatch.setattr(remote_resources, "_FIRST_PAUSE", 0.0)
    return Project(repository, seen)


def message(state: RunState) -> str:
    assert state.finished is not None
    return state.finished.message


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("...", 0),
        ("raise CheckFailed('too slow')", 1),
        ("raise InfrastructureError('no route')", 3),
        ("1 / 0", 3),
        ("raise Interrupted(2)", 130),
        ("raise Interrupted(14)", 124),
    ],
)
def test_every_end_of_a_run_deletes_its_resources(project: Project, statement: str, code: int) -> None:
    state, found = project.run(f"def prepare(): make('a')\ndef test():\n    make('b')\n    {statement}")
    assert (found, project.things, state.resources) == (code, [], ())
    assert ledger.runs() == []
    assert [event.verdict for event in project.seen.of(StepFinished) if event.name == "delete_resources"] == ["passed"]


def test_a_run_without_resources_has_no_step_for_them(project: Project) -> None:
    state, _ = project.run("def test(): ...")
    assert list(state.steps) == ["000__test"]
    assert not RunDirectory(state.directory).ledger.exists()


def test_resources_are_deleted_after_the_cleanup(project: Project) -> None:
    state, code = project.run(
        "def test(): make('a')\ndef post_cleanup(): assert Path('remote/a').exists()",
    )
    assert (code, list(state.steps)) == (0, ["000__test", "001__post_cleanup", "002__delete_resources"])


def test_a_deletion_that_fails_is_repeated(project: Project) -> None:
    assert project.run("def test(): make('slow')")[1] == 0
    assert project.things == ["slow.tried"]


def test_a_failed_deletion_makes_a_passing_run_an_error(project: Project) -> None:
    state, code = project.run("def test():\n    for name in ('a', *(f'stuck{n}' for n in range(9))): make(name)")
    assert state.finished is not None
    assert (code, state.finished.verdict, state.finished.cause) == (3, "error", "infrastructure")
    lines = message(state).splitlines()
    assert (
        lines[0] == "of 10 remote resources, 9 could not be deleted: try again with `./run_toolbox.py resources reap`"
    )
    file = project.root / "remote" / "stuck0"
    assert lines[1] == f"thing stuck0: {file} is stuck; by hand: rm {file}"
    assert len(lines) == 5
    assert [entry.resource.name for entry in state.remaining_resources] == [f"stuck{n}" for n in range(9)]
    assert all("is stuck" in entry.failure for entry in state.resources)
    summary = json.loads(RunDirectory(state.directory).summary.read_text())
    assert [each["name"] for each in summary["resources"]] == [f"stuck{n}" for n in range(9)]
    assert ledger.runs() == [state.directory]


def test_a_failed_deletion_is_added_to_the_first_error(project: Project) -> None:
    state, code = project.run("def test():\n    make('stuck')\n    raise CheckFailed('too slow')")
    assert state.finished is not None
    assert (code, state.finished.verdict, state.finished.cause) == (1, "failed", "check")
    assert message(state).startswith("too slow\nand then: of 1 remote resource, 1 could not be deleted")


def test_a_resource_of_another_owner_is_not_deleted(project: Project) -> None:
    state, code = project.run("def test(): make('a', labels={'topgallant-run': 'another'})")
    assert (code, project.things) == (3, ["a"])
    assert "belongs to another owner" in message(state)


@pytest.mark.parametrize("kind", ["unknown", "broken"])
def test_a_kind_that_cannot_be_loaded_is_reported(project: Project, kind: str) -> None:
    project.write({"resources/broken.py": "1 / 0\n"})
    statement = f"session.step().recorder.ledger.plan(Resource('{kind}', 'n', {{}}, 60, 'c'))"
    state, code = project.run(f"def test(): {statement}")
    assert code == 3
    assert ("unknown kind `unknown`" if kind == "unknown" else "broken.py is broken") in message(state)


def test_a_kept_resource_stays_once_it_is_complete(project: Project) -> None:
    state, code = project.run("def test():\n    make('a', keep=True)\n    make('b', keep=True, complete=False)")
    assert (code, project.things) == (0, ["a"])
    assert [(entry.resource.name, entry.state) for entry in state.remaining_resources] == [("a", "kept")]


def test_a_resource_is_deleted_even_if_the_step_cannot_be_recorded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(self: Journal, event: JournalEvent, *, sync: bool = True) -> None:
        if isinstance(event, StepStarted) and event.name == "delete_resources":
            raise OSError(28, "No space left on device")
        append(self, event, sync=sync)

    append = Journal.append
    monkeypatch.setattr(Journal, "append", record)
    _, code = project.run("def test(): make('a')")
    assert (code, project.things) == (3, [])


def test_a_run_that_cannot_be_written_does_not_keep_the_resources_of_other_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs = [project.run(f"def test(): make('stuck{number}')")[0].directory for number in range(2)]
    for file in (project.root / "remote").iterdir():
        file.unlink()

    def append(self: Journal, event: JournalEvent, *, sync: bool = True) -> None:
        if isinstance(event, StepStarted) and self._file.is_relative_to(runs[0]):
            raise OSError(28, "No space left on device")
        original(self, event, sync=sync)

    original = Journal.append
    monkeypatch.setattr(Journal, "append", append)
    found = Search()
    found.add_ledgers()
    reaped = leftovers.reap(found.leftovers, None, Redactor())
    assert [each.outcome for each in reaped] == ["deleted", "deleted"]
    assert "[Errno 28] No space left on device" in caplog.text
    assert ledger.runs() == []


def test_a_resumed_run_repeats_steps_whose_resources_were_deleted(project: Project) -> None:
    orchestration = """
        def prepare(): make("a")
        def test():
            assert Path("remote/a").exists()
            if not Path("go").exists(): raise Interrupted(2)
    """
    state, code = project.run(orchestration)
    assert (code, project.things) == (130, [])
    (project.root / "go").touch()
    state, code = project.resume(state.directory)
    assert (code, project.things, state.resources) == (0, [], ())
    assert (project.root / "created").read_text() == "a\na\n"


def test_a_resumed_run_tries_a_failed_deletion_again(project: Project) -> None:
    state, code = project.run("def test():\n    make('stuck')\n    raise CheckFailed('too slow')")
    (project.root / "remote" / "stuck").unlink()
    state, code = project.resume(state.directory)
    assert (code, state.resources) == (1, ())


def test_a_damaged_ledger_is_not_ignored_silently(project: Project) -> None:
    state, _ = project.run("def test():\n    if not Path('go').exists(): make('stuck')")
    (project.root / "go").touch()
    file = RunDirectory(state.directory).ledger
    file.write_text(f"{{}}\n{file.read_text()}")
    with pytest.raises(UsageError, match=r"(?s)ledger\.jsonl:1: .*--damaged=ignore"):
        project.resume(state.directory)
    (project.root / "remote" / "stuck").unlink()
    assert project.resume(state.directory, ignore_damage=True)[1] == 0


def test_an_owner_that_waits_for_attempts_is_deleted_with_its_created_cluster(project: Project) -> None:
    waiting, cluster = things.thing(project.root / "a", kubeconfig="/k"), things.thing(project.root / "b")
    top = top_with([waiting, replace(cluster, kind="cluster", deletion={"kubeconfig": "/k"})], project.root)
    entries = [entry for entry in top.recorder.ledger.open_resources() if entry.resource.kind == "cluster"]
    project.write({"resources/cluster.py": things.KIND.replace("file: str", "file: str = '/nonexistent/b'")})
    assert remote_resources.delete(top.recorder.ledger, entries) == []
    assert top.recorder.ledger.open_resources() == []


def top_with(entries: list[Resource], root: Path) -> Step:
    """Return the top step of a run whose ledger has these entries."""
    found = MemoryLedger()
    for resource in entries:
        found.plan(resource)
    return Step(root, Recorder(root, Redactor(), ledger=found), "top")


def test_nothing_is_deleted_on_a_cluster_whose_lease_was_lost(project: Project) -> None:
    here, lost = (things.thing(project.root / name, server=name) for name in ("here", "lost"))
    top = top_with([here, lost], project.root)
    with steps.entered(top):
        remote_resources.delete_at_end(top, lost_servers={"lost"})
    assert [entry.resource.name for entry in top.recorder.ledger.open_resources()] == ["lost"]


def test_a_resource_that_a_late_request_creates_is_deleted(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_resources, "_WAIT_SECONDS", 2.0)
    (project.root / "remote").mkdir()
    top = top_with([things.thing(project.root / "remote" / "late")], project.root)
    with steps.entered(top):
        remote_resources.delete_at_end(top)
    assert (project.things, top.recorder.ledger.open_resources()) == (["late.tried"], [])


def test_a_request_with_an_unknown_outcome_is_awaited_until_the_run_is_resumed(
    project: Project, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_resources, "_WAIT_SECONDS", 0.0)
    file = project.root / "remote" / "late"
    file.parent.mkdir()
    statement = f"session.step().recorder.ledger.plan(Resource('thing', 'late', {{'file': '{file}'}}, 3600, 'rm'))"
    state, code = project.run(f"def test(): {statement}")
    (entry,) = state.remaining_resources
    assert (code, entry.is_absent, entry.failure, ledger.runs()) == (0, True, "", [state.directory])
    notes = [note.text for note in seen.of(Note)]
    assert notes == [f"thing late {entry.state}: {remote_resources.reap_later(entry)}"]
    assert project.things == ["late", "late.tried"]
    state, code = project.resume(state.directory)
    assert (code, project.things, state.resources, ledger.runs()) == (0, ["late.tried"], (), [])


def test_a_description_of_wrong_types_does_not_prevent_other_deletions(project: Project) -> None:
    good, bad = project.root / "good", project.root / "bad"
    top = top_with([things.thing(bad, kubeconfig=["x"], server={"x": 1}), things.thing(good)], project.root)
    with steps.entered(top), pytest.raises(remote_resources.DeletionFailed, match="thing bad: "):
        remote_resources.delete_at_end(top)
    assert [entry.resource.name for entry in top.recorder.ledger.open_resources()] == ["bad"]


@pytest.mark.parametrize("is_open", [False, True])
def test_the_owner_of_open_attempts_waits_for_a_resumed_run(project: Project, is_open: bool) -> None:
    kind = f"from typing import ClassVar\n{things.KIND}\n    waits_for_attempts: ClassVar[bool] = True\n"
    project.write({"resources/thing.py": kind})
    with Journal(project.root) as journal:
        journal.append(RunStarted("r", "p", str(project.root), ()))
        journal.append(StepStarted("000__x", "x", StepKind.CELL))
        journal.append(AttemptSubmitted("000__x", 1, "far", "name"))
        if not is_open:
            journal.append(AttemptEnded("000__x", 1, "far", Verdict.PASSED, None, "", 1.0))
    top = top_with([things.thing(project.root / "a")], project.root)
    with steps.entered(top):
        remote_resources.delete_at_end(top)
    assert len(top.recorder.ledger.open_resources()) == is_open


def test_a_resumed_run_does_not_execute_the_ledger_of_another_user(project: Project) -> None:
    state, _ = project.run("def prepare():\n    if not Path('remote').exists(): make('stuck')\ndef test(): ...")
    file = RunDirectory(state.directory).ledger
    victim = project.root / "victim"
    victim.write_text((project.root / "remote" / "stuck").read_text())
    file.write_text(file.read_text().replace(str(project.root / "remote" / "stuck"), str(victim)))
    resumed, code = project.resume(state.directory)
    assert (code, victim.exists()) == (3, True)
    assert "was written by another user or on another machine" in resumed.resources[0].failure
