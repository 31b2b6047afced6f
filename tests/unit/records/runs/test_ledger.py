"""The ledger survives crashes, and lists the open resources in every process."""

import contextlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.servers import small_disks
from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.model.resources import LATE, Resource
from toolbox.records.runs import ledger
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.ledger import Ledger

NODE = Resource("node", "projects/p/nodes/n", {"zone": "a", "deep": [1, {"x": None}]}, 3600, "delete n")
OTHER = Resource("node", "projects/p/nodes/m", {}, 60, "delete m", keep=True)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a state directory of its own, and return it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "topgallant" / "ledgers"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the directory of a run."""
    directory = tmp_path / "artifacts" / "p" / "run-1"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture(params=["run", "user"])
def opened(request: pytest.FixtureRequest, run: Path) -> Ledger:
    """Return the ledger of a run, and the ledger of a user."""
    return ledger.of_run(run, "p") if request.param == "run" else ledger.of_user()


def names(found: Ledger) -> list[str]:
    return [each.resource.name for each in found.open_resources()]


def test_nothing_is_open_and_no_file_is_made_at_first(opened: Ledger) -> None:
    assert opened.open_resources() == ()
    assert not opened.file.exists()


def test_a_planned_resource_is_read_as_it_was_written(opened: Ledger) -> None:
    opened.plan(NODE)
    (entry,) = opened.open_resources()
    assert (entry.resource, entry.owner, entry.is_created, entry.failure) == (NODE, opened.owner, False, "")
    assert (entry.expires - entry.planned).total_seconds() == 3600


def test_a_second_request_for_an_open_resource_is_a_new_request(opened: Ledger) -> None:
    opened.plan(NODE)
    (first,) = opened.open_resources()
    opened.mark_created(NODE)
    opened.mark_failed(NODE, "no answer")
    opened.plan(replace(NODE, deletion={"another": "deletion"}))
    for contents in (opened, ledger.of_run(opened.file.parent, "p") if opened.owner.run else ledger.of_user()):
        (second,) = contents.open_resources()
        assert first.planned < second.planned
        assert second == replace(first, planned=second.planned, expires=second.planned + timedelta(seconds=NODE.ttl))


def test_a_resource_whose_request_may_still_be_carried_out_stays_open(opened: Ledger) -> None:
    opened.plan(NODE)
    opened.mark_failed(NODE, "no answer")
    opened.mark_absent(NODE)
    (entry,) = ledger.load(opened.file).resources
    assert (entry.failure, entry.is_absent, entry.awaited_until - entry.planned) == ("", True, LATE)
    assert (
        entry.state == f"does not exist, but its request may still be carried out until {entry.awaited_until:%H:%M} UTC"
    )


def test_a_resource_that_was_created_and_does_not_exist_is_not_awaited(opened: Ledger) -> None:
    opened.plan(NODE)
    opened.mark_absent(NODE)
    opened.mark_created(NODE)
    assert not opened.open_resources()[0].is_absent
    opened.mark_absent(NODE)
    assert names(opened) == []


def test_a_request_is_awaited_only_for_a_time(opened: Ledger) -> None:
    opened.plan(NODE)
    lines = opened.file.read_bytes().splitlines(keepends=True)
    event = {"event": "absent", "kind": NODE.kind, "name": NODE.name}
    for minutes, count in ((59, 1), (60, 0)):
        time = opened.open_resources()[0].planned + timedelta(minutes=minutes)
        record = json.dumps({"time": time.isoformat(), **event}).encode() + b"\n"
        opened.file.write_bytes(b"".join([*lines, record]))
        assert len(ledger.load(opened.file).resources) == count


def test_each_event_of_a_resource_is_recorded(opened: Ledger) -> None:
    for resource in (NODE, OTHER):
        opened.plan(resource)
    opened.mark_created(OTHER)
    opened.mark_failed(NODE, "no answer")
    first, second = opened.open_resources()
    assert (first.failure, first.is_created, first.is_kept) == ("no answer", False, False)
    assert (second.failure, second.is_created, second.is_kept) == ("", True, True)
    opened.mark_deleted(NODE)
    assert names(opened) == [OTHER.name]


def test_a_deleted_resource_can_be_planned_again(run: Path) -> None:
    opened = ledger.of_run(run, "p")
    for _ in range(2):
        opened.plan(NODE)
        opened.mark_created(NODE)
        opened.mark_deleted(NODE)
    assert names(opened) == []
    assert len(opened.file.read_text().splitlines()) == 6


def test_a_mark_on_a_resource_that_is_not_open_writes_nothing(opened: Ledger) -> None:
    opened.plan(OTHER)
    before = opened.file.read_text()
    for mark in (
        opened.mark_created,
        opened.mark_deleted,
        opened.mark_absent,
        lambda node: opened.mark_failed(node, "why"),
    ):
        mark(NODE)
    assert opened.file.read_text() == before


def test_the_file_is_private(opened: Ledger) -> None:
    opened.plan(NODE)
    assert opened.file.stat().st_mode & 0o777 == 0o600


def test_another_process_sees_the_entries(opened: Ledger, run: Path) -> None:
    opened.plan(NODE)
    assert names(ledger.of_run(run, "p") if opened.owner.run else ledger.of_user()) == [NODE.name]


def test_two_objects_for_one_file_keep_the_entries_of_each_other(run: Path) -> None:
    first, second = ledger.of_run(run, "p"), ledger.of_run(run, "p")
    first.plan(NODE)
    second.plan(OTHER)
    first.mark_deleted(NODE)
    second.mark_created(OTHER)
    assert [(entry.resource, entry.is_created) for entry in first.open_resources()] == [(OTHER, True)]


def test_a_resumed_run_keeps_its_owner(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.of_run(run, "p").plan(NODE)
    owner = ledger.of_run(run, "p").owner
    monkeypatch.setattr("socket.gethostname", lambda: "another-host")
    assert ledger.of_run(run, "p").owner == owner
    assert ledger.of_user().owner.host == "another-host"


def test_threads_and_processes_write_whole_lines() -> None:
    def write(number: int) -> None:
        mine = ledger.of_user()  # as another process has it
        for index in range(10):
            node = Resource("node", f"{number}-{index}", {}, 60, "")
            mine.plan(node)
            mine.mark_created(node)

    with ThreadPoolExecutor() as threads:
        list(threads.map(write, range(6)))
    found = ledger.load(ledger.of_user().file)
    assert (len(found.resources), found.damage) == (60, ())
    assert all(entry.is_created for entry in found.resources)


@pytest.mark.parametrize("length", [1, 40, -2, -1])
def test_a_torn_last_line_is_cut_off(run: Path, length: int) -> None:
    first = ledger.of_run(run, "p")
    first.plan(NODE)
    first.plan(OTHER)
    content = first.file.read_bytes()
    whole, torn = content.splitlines(keepends=True)
    first.file.write_bytes(whole + torn[:length])
    resumed = ledger.of_run(run, "p")
    assert names(resumed) == [NODE.name]
    resumed.plan(OTHER)
    assert names(resumed) == [NODE.name, OTHER.name]
    assert ledger.load(resumed.file).damage == ()


def test_a_last_line_that_was_not_written_to_the_disk_is_torn(run: Path) -> None:
    first = ledger.of_run(run, "p")
    first.plan(NODE)
    with first.file.open("ab") as stream:
        stream.write(bytes(100) + b"\n")
    resumed = ledger.of_run(run, "p")
    resumed.plan(OTHER)
    assert names(resumed) == [NODE.name, OTHER.name]
    assert ledger.load(resumed.file).damage == ()


GOOD = {"time": "2026-01-01T00:00:00+00:00", "event": "created", "kind": "k", "name": "n"}

PLANNED = GOOD | {"event": "planned", "deletion": {}, "ttl": 1, "command": "", "keep": False}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "Invalid JSON"),
        ("[]", "must be"),
        ("\\ud800", "Invalid JSON"),
        ("[" * 100_000, "Invalid JSON"),
        (json.dumps(GOOD | {"event": "exploded"}), "Input tag 'exploded'"),
        (json.dumps(GOOD | {"time": "soon"}), "time: must be a valid datetime"),
        (json.dumps(GOOD | {"time": "2026-01-01T00:00:00"}), "time: must have timezone info"),
        (json.dumps(GOOD | {"name": 3}), "name: must be a valid string"),
        (json.dumps(GOOD | {"name": "n" * 3000}), "name: must have at most"),
        (json.dumps(GOOD | {"event": "planned"}), "deletion: Field required"),
        (json.dumps(PLANNED | {"owner": {"run": "../..", "project": "", "user": "", "host": ""}}), "owner.run: "),
    ],
)
def test_damage_is_reported_with_its_file_and_line(run: Path, line: str, reason: str) -> None:
    opened = ledger.of_run(run, "p")
    opened.plan(NODE)
    with opened.file.open("a") as stream:
        stream.write(f"{line}\n")
    ledger.of_run(run, "p").plan(OTHER)
    found = ledger.load(opened.file)
    assert [each.resource for each in found.resources] == [NODE, OTHER]
    (damage,) = found.damage
    assert str(damage).startswith("ledger.jsonl:2: ")
    assert reason in str(damage)
    assert len(str(damage)) < 300


def test_a_resource_is_not_planned_without_a_record(opened: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.plan(OTHER)
    before = opened.file.read_bytes()
    real = os.write
    full = pytest.raises(InfrastructureError, match=r"(?s)No space left.*projects/p/nodes/n was not created")
    with monkeypatch.context() as patch, full:
        patch.setattr(os, "write", lambda descriptor, content: real(descriptor, content[:20]))  # the disk is full
        opened.plan(NODE)
    assert names(opened) == [OTHER.name]
    assert opened.file.read_bytes().startswith(before)
    opened.mark_deleted(OTHER)
    assert names(opened) == []


def fill(disk: Path) -> Path:
    """Fill a disk with a file, and return the file."""
    file = disk / "filler"
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass
    return file


def test_a_full_disk_loses_no_entry(tmp_path: Path) -> None:
    with small_disks.mounted(tmp_path / "disk", 1 << 16) as disk:
        opened = ledger.of_run(disk, "p")
        opened.plan(NODE)
        filler = fill(disk)
        with pytest.raises(InfrastructureError, match="No space left"):
            opened.plan(replace(OTHER, command="x" * 8000))
        opened.mark_failed(NODE, "no answer " * 500)
        assert names(opened) == names(ledger.of_run(disk, "p")) == [NODE.name]
        filler.unlink()
        opened.plan(OTHER)
        opened.mark_deleted(NODE)
        assert names(ledger.of_run(disk, "p")) == [OTHER.name]
        assert ledger.load(opened.file).damage == ()


def test_a_run_with_a_full_state_directory_can_delete_its_resources(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disks.mounted(tmp_path / "disk", 1 << 14) as disk:
        monkeypatch.setenv("XDG_STATE_HOME", str(disk))
        fill(disk)
        opened = ledger.of_run(run, "p")
        opened.plan(NODE)
        (entry,) = opened.open_resources()
        assert entry.is_sealed
        assert "the resources of this run must be deleted by hand" in caplog.text
        opened.mark_deleted(NODE)
        assert names(opened) == []


def test_a_run_with_a_damaged_key_can_delete_its_resources(
    run: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state.mkdir(parents=True)
    key = state.parent / "ledger.key"
    key.write_bytes(b"short")
    opened = ledger.of_run(run, "p")
    opened.plan(NODE)
    (entry,) = opened.open_resources()
    assert entry.is_sealed
    assert f"{key} is damaged: remove it" in caplog.text


def test_a_deletion_that_cannot_be_recorded_leaves_the_entry(
    opened: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened.plan(NODE)
    monkeypatch.setattr(os, "write", lambda *_: 0)
    opened.mark_deleted(NODE)
    assert names(opened) == [NODE.name]
    assert "the ledger does not show that projects/p/nodes/n is deleted" in caplog.text


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda file: file.symlink_to("/dev/zero")])
def test_a_ledger_that_is_not_a_file_is_an_error(run: Path, make: Callable[[Path], None]) -> None:
    make(RunDirectory(run).ledger)
    with pytest.raises(InfrastructureError, match=r"ledger\.jsonl cannot be read"):
        ledger.of_run(run, "p")


def test_secrets_are_masked_in_texts_for_people(run: Path) -> None:
    opened = ledger.of_run(run, "p", lambda text: text.replace("hush", "***"))
    opened.plan(Resource("node", "hush-name", {}, 60, "delete --token=hush"))
    opened.mark_failed(opened.open_resources()[0].resource, "hush was refused")
    (entry,) = opened.open_resources()
    assert (entry.resource.command, entry.failure) == ("delete --token=***", "*** was refused")


def test_a_long_message_is_truncated(opened: Ledger) -> None:
    opened.plan(NODE)
    opened.mark_failed(NODE, "x" * 1_000_000)
    assert len(opened.open_resources()[0].failure) == 2000


def test_a_run_can_be_found_while_a_resource_is_open(run: Path) -> None:
    opened = ledger.of_run(run, "p")
    assert ledger.runs() == []
    opened.plan(NODE)
    opened.plan(OTHER)
    assert ledger.runs() == [run]
    opened.mark_deleted(NODE)
    assert ledger.runs() == [run]
    opened.mark_deleted(OTHER)
    assert ledger.runs() == []


@pytest.mark.parametrize("name", [b"\xff", b"new\nline", "ü".encode()])
def test_a_run_in_a_directory_of_any_name_can_be_found(tmp_path: Path, name: bytes) -> None:
    run = tmp_path / os.fsdecode(name) / "run-1"
    run.mkdir(parents=True)
    ledger.of_run(run, "p").plan(NODE)
    assert ledger.runs() == [run]


def test_a_run_whose_ledger_is_damaged_can_still_be_found(run: Path) -> None:
    opened = ledger.of_run(run, "p")
    opened.plan(NODE)
    with opened.file.open("a") as stream:
        stream.write("nonsense\n")
    opened.mark_deleted(NODE)
    assert ledger.runs() == [run]


def test_a_resumed_run_can_be_found_again(run: Path, state: Path) -> None:
    ledger.of_run(run, "p").plan(NODE)
    for pointer in state.iterdir():
        pointer.unlink()
    ledger.of_run(run, "p").plan(OTHER)
    assert ledger.runs() == [run]


def test_a_pointer_of_another_user_is_ignored(run: Path, state: Path) -> None:
    ledger.of_run(run, "p").plan(NODE)
    (pointer,) = state.iterdir()
    pointer.chmod(0o622)
    assert ledger.runs() == []


def test_a_run_without_a_state_directory_can_plan(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "")
    opened = ledger.of_run(run, "p")
    opened.plan(NODE)
    assert names(opened) == [NODE.name]
    assert "set $HOME to a directory" in caplog.text


def test_a_command_without_a_state_directory_cannot_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "")
    with pytest.raises(InfrastructureError, match="no home directory"):
        ledger.of_user().plan(NODE)


def test_the_ledger_of_a_user_does_not_grow_for_ever() -> None:
    opened = ledger.of_user()
    opened.plan(NODE)
    opened.mark_deleted(NODE)
    assert opened.file.read_bytes() == b""
    opened.plan(OTHER)
    assert names(ledger.of_user()) == [OTHER.name]


def test_an_entry_that_this_user_wrote_is_sealed(opened: Ledger) -> None:
    opened.plan(NODE)
    opened.mark_created(NODE)
    (entry,) = opened.open_resources()
    assert entry.is_sealed


def test_a_changed_entry_is_not_sealed_and_its_command_is_not_shown(opened: Ledger) -> None:
    opened.plan(NODE)
    opened.file.write_text(opened.file.read_text().replace("delete n", "rm -rf ~"))
    (entry,) = opened.open_resources()
    assert not entry.is_sealed
    assert "rm -rf" not in str(entry)


def test_an_entry_of_another_machine_is_not_sealed(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.of_run(run, "p").plan(NODE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another-state"))
    opened = ledger.of_run(run, "p")
    opened.plan(OTHER)
    assert [entry.is_sealed for entry in opened.open_resources()] == [False, True]


def test_a_run_replaces_a_foreign_entry_of_the_same_name(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.of_run(run, "p").plan(NODE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another-state"))
    opened = ledger.of_run(run, "p")
    opened.plan(NODE)
    assert [(entry.resource, entry.is_sealed) for entry in opened.open_resources()] == [(NODE, True)]
    assert ledger.runs() == [run]


def test_a_run_with_foreign_entries_only_is_not_reaped(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.of_run(run, "p").plan(NODE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another-state"))
    ledger.of_run(run, "p")
    assert ledger.runs() == []


def test_the_owner_of_a_foreign_entry_does_not_name_other_directories(run: Path) -> None:
    opened = ledger.of_run(run, "p")
    opened.plan(NODE)
    opened.file.write_text(opened.file.read_text().replace('"run-1"', '"../../.."'))
    assert ledger.of_run(run, "p").owner.run == "run-1"


def test_processes_that_begin_together_use_one_key() -> None:
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda number: ledger.of_user().plan(Resource("node", str(number), {}, 60, "")), range(8)))
    assert all(entry.is_sealed for entry in ledger.of_user().open_resources())
