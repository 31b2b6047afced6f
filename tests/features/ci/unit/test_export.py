"""An export contains only files that may be published, and its index lists all runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from toolbox.config.contracts.ci import AllowedFiles
from toolbox.features.ci import export as exporting
from toolbox.features.ci.export import Exported
from toolbox.ground.model.errors import CheckFailed, UsageError
from toolbox.ground.system import redaction
from toolbox.records.exports import manifest
from toolbox.records.exports.storage import LocalStorage
from toolbox.records.runs import run_reader
from toolbox.records.runs.run_state import RunState, State

RUN = "20261123-050000-abcd"
TOKEN = "ghp_" + 36 * "a"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunState:
    """Return a finished run with a file that contains a secret, and with links."""
    directory = tmp_path / "artifacts" / "small" / RUN
    cell = directory / "000__test" / "files"
    cell.mkdir(parents=True)
    (directory / "summary.json").write_text("{}")
    (cell / "log").write_text("text")
    (cell / "core").write_bytes(b"\0S3cret-value")
    (cell / "credentials").symlink_to("/etc/passwd")
    (cell / "etc").symlink_to("/etc")
    state = RunState(RUN, "small", directory, State.FINISHED, secrets_left=frozenset({"000__test/files/core"}))
    monkeypatch.setattr(run_reader, "read", lambda place: replace(state, run=place.name, directory=place))
    return state


def export(
    directory: Path,
    output: Path,
    *,
    secrets: Sequence[str] = ("S3cret-value",),
    allow: Sequence[AllowedFiles] = (),
    keep: float | None = None,
) -> Exported:
    return exporting.export(directory, LocalStorage(output), secrets=secrets, allow=allow, keep=keep)


def names(folder: Path) -> set[str]:
    found = {str(file.relative_to(folder)) for file in folder.rglob("*") if not file.is_dir()}
    return found - {manifest.RECORD, manifest.FILES}


def page(output: Path) -> str:
    return (output / "index.html").read_text()


def test_files_with_known_secrets_and_links_are_left_out(run: RunState, tmp_path: Path) -> None:
    exported = export(run.directory, tmp_path / "out")
    directory = tmp_path / "out" / "small" / RUN
    assert exported.address == str(directory)
    assert names(directory) == {"summary.json", "000__test/files/log"}
    assert set(exported.withheld) == {f"000__test/files/{name}" for name in ("core", "credentials", "etc")}
    assert "3 files left out" in page(tmp_path / "out")


def test_only_the_records_of_a_killed_run_are_exported(
    run: RunState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_reader, "read", lambda _: replace(run, state=State.DEAD))
    exported = export(run.directory, tmp_path / "out")
    assert names(tmp_path / "out" / "small" / RUN) == {"summary.json"}
    assert not exported.is_complete
    assert "The run had not ended" in page(tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "kind"), [("S3cret-value", "a secret in use"), (TOKEN, "a token of GitHub")], ids=["value", "token"]
)
def test_a_secret_stops_the_export_before_anything_is_written(
    run: RunState, tmp_path: Path, content: str, kind: str
) -> None:
    for number in range(5):
        (run.directory / f"000__test/{number}.txt").write_text(f"one\ntwo {content}\n")
    with pytest.raises(CheckFailed) as caught:
        export(run.directory, tmp_path / "out")
    message = str(caught.value)
    assert "has secrets in 5 lines" in message
    assert f"000__test/0.txt:2: {kind}" in message
    assert "and 2 further lines" in message
    assert message.count("\n") < 5
    assert content not in message
    assert not (tmp_path / "out").exists()


def test_a_secret_in_the_name_of_a_file_stops_the_export(run: RunState, tmp_path: Path) -> None:
    (run.directory / "000__test/the S3cret-value.txt").write_text("text")
    with pytest.raises(CheckFailed, match="a secret in use in the name of a file") as caught:
        export(run.directory, tmp_path / "out")
    assert "the S3cret-value.txt" not in str(caught.value)


def test_a_secret_in_the_name_of_a_link_is_masked_in_the_record(run: RunState, tmp_path: Path) -> None:
    (run.directory / "000__test/S3cret-value").symlink_to("/etc/passwd")
    earlier = redaction.current()
    redaction.use(redaction.Redactor())
    try:
        redaction.current().add(["S3cret-value"])
        export(run.directory, tmp_path / "out")
    finally:
        redaction.use(earlier)
    record = (tmp_path / "out/small" / RUN / manifest.RECORD).read_text()
    assert "000__test/***" in record
    assert "S3cret-value" not in record + page(tmp_path / "out")


def test_an_allowed_file_is_exported_and_named_in_the_index(run: RunState, tmp_path: Path) -> None:
    (run.directory / "000__test/files/log").write_text(TOKEN)
    rule = AllowedFiles(files="*/files/log", reason="the tokens of the <test> server")
    export(run.directory, tmp_path / "out", allow=[rule])
    assert "the tokens of the &lt;test&gt; server" in page(tmp_path / "out")


def test_a_secret_in_use_cannot_be_allowed(run: RunState, tmp_path: Path) -> None:
    (run.directory / "000__test/files/log").write_text("S3cret-value")
    with pytest.raises(CheckFailed, match="a secret in use"):
        export(run.directory, tmp_path / "out", allow=[AllowedFiles(files="*", reason="all is well")])


def test_a_link_in_place_of_the_output_is_not_followed(run: RunState, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a symbolic link"):
        export(run.directory, tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_page_of_others_is_not_replaced(run: RunState, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/index.html").write_text("my page")
    with pytest.raises(UsageError, match="is not a page of Topgallant"):
        export(run.directory, tmp_path / "out")
    assert names(tmp_path / "out") == {"index.html"}


def test_expired_runs_leave_the_output_and_its_index(
    run: RunState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = datetime.now(UTC) - timedelta(days=31)
    monkeypatch.setattr(manifest, "now", lambda: old)
    export(run.directory, tmp_path / "out")
    monkeypatch.undo()
    monkeypatch.setattr(run_reader, "read", lambda place: replace(run, run=place.name))
    newer = run.directory.rename(run.directory.with_name("20261124-050000-abcd"))
    assert export(newer, tmp_path / "out", keep=32 * 86400).expired == []
    assert export(newer, tmp_path / "out", keep=30 * 86400).expired == [f"small/{RUN}"]
    assert RUN not in page(tmp_path / "out")
    assert newer.name in page(tmp_path / "out")


class MeetingStorage(LocalStorage):
    """A directory in which each first write of the index waits for the other export."""

    meet: Callable[[], object]

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        if name == "index.html":
            type(self).meet()
        LocalStorage.write(self, name, pieces)


@pytest.mark.parametrize("order", [0, 1])
def test_two_exports_at_the_same_time_are_both_in_the_index(run: RunState, tmp_path: Path, order: int) -> None:
    """Interrupt one export before its first write of the index, with a page that lacks the run of the other export."""
    other = run.directory.with_name("20261124-050000-abcd")
    other.mkdir()
    (other / "summary.json").write_text("{}")
    first, second = (run.directory, other) if order == 0 else (other, run.directory)
    interrupted = threading.Event()

    def meet() -> None:
        if not interrupted.is_set():
            interrupted.set()
            export(second, tmp_path / "out")

    MeetingStorage.meet = staticmethod(meet)
    exporting.export(first, MeetingStorage(tmp_path / "out"))
    assert interrupted.is_set()
    assert RUN in page(tmp_path / "out")
    assert other.name in page(tmp_path / "out")
