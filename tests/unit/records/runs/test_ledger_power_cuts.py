"""After a power cut at any write, the ledger lists every resource that exists on the remote side."""

from pathlib import Path

import pytest

from tests.fakes import disk, disk_recorder
from toolbox.ground.model.resources import Resource
from toolbox.ground.system import filesystem
from toolbox.records.runs import ledger
from toolbox.records.runs.layout import RunDirectory


class Remote:
    """A remote side. Its resources are the lines `+NAME` and `-NAME` of a file that no power cut affects."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, line: str) -> None:
        with self._file.open("a") as stream:
            stream.write(f"{line}\n")

    @staticmethod
    def names(content: bytes) -> set[str]:
        """Return the names of the existing resources."""
        names: set[str] = set()
        for line in content.decode().splitlines():
            (names.add if line[0] == "+" else names.discard)(line[1:])
        return names


def use(run: Path, remote: Remote) -> None:
    """Create and delete some resources as a run does."""
    found = ledger.of_run(run, "p")
    for name in "abc":
        resource = Resource("node", name, {}, 60, "")
        found.plan(resource)
        remote.write(f"+{name}")
        found.mark_created(resource)
        if name != "b":
            remote.write(f"-{name}")
            found.mark_deleted(resource)
    found.mark_failed(Resource("node", "b", {}, 60, ""), "no answer")


def test_the_ledger_lists_what_exists_after_a_power_cut_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "disk" / "state"))
    run, log, outside = tmp_path / "disk" / "p" / "run-1", tmp_path / "log", tmp_path / "outside"
    run.mkdir(parents=True)
    outside.touch()
    stop = disk_recorder.install(str(tmp_path / "disk"), str(log), str(outside))
    try:
        for folder in (run.parent, run.parent.parent):
            filesystem.sync_directory(folder)  # the run directory is on the disk when the run begins
        use(run, Remote(outside))
    finally:
        stop()
    seen = set[tuple[str, ...]]()
    for number, state in enumerate(disk.states(log)):
        restored = tmp_path / str(number)
        state.write(restored)
        directory = restored / "p" / "run-1"
        contents = ledger.load(RunDirectory(directory).ledger)
        names = tuple(entry.resource.name for entry in contents.resources)
        assert Remote.names(state.outside) <= set(names), f"{state.kind}, after {state.call}"
        assert contents.damage == (), f"{state.kind}, after {state.call}"
        seen.add(names)
        if directory.exists():
            ledger.of_run(directory, "p").plan(Resource("node", "later", {}, 60, ""))
            after = ledger.load(RunDirectory(directory).ledger)
            assert [entry.resource.name for entry in after.resources] == [*names, "later"]
            assert after.damage == ()
    assert seen == {(), ("a",), ("b",), ("b", "c")}
