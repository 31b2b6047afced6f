"""A results store that is broken or unreachable leads to a clear message, and the run can be imported later."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.functional.grid import Grid
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from tests.servers import small_disks

WORKING = "working.sqlite"


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """Yield an empty directory on a file system that is mounted read-only, so that not even root can write to it."""
    with small_disks.mounted(tmp_path / "read_only", 1 << 22) as place:
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        yield place


def run_on(grid: Grid, store: str) -> str:
    """Run the project with a faulty store, and return what it prints on standard error."""
    grid.configure(blocks={"results": {"database": store}})
    outcome = grid.run()
    assert outcome.exit_code == 0, str(outcome)
    assert grid.workspace.summary()["verdict"] == "passed"
    assert "the run is not in the store" in outcome.stderr
    assert f"results import {grid.directory}`" in outcome.stderr
    return outcome.stderr


def imported(grid: Grid, store: str) -> None:
    """Check that the run can be imported into a working store."""
    outcome = grid.workspace.run("results", "import", str(grid.directory), f"--database={store}")
    assert outcome.exit_code == 0, str(outcome)
    assert "recorded, 3 cells" in outcome.stdout


def newer(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
    connection.close()


def unknown(file: Path) -> None:
    newer(file)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")
    connection.close()


def corrupt(file: Path) -> None:
    file.write_bytes(b"SQLite format 3\x00" + b"\xff" * 8192)


def no_database(file: Path) -> None:
    file.write_text("this is a letter")


def directory(file: Path) -> None:
    file.mkdir()


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "newer": (newer, "or by one before 0.2.0: its tables have version 9999"),
    "unknown": (unknown, "or by one before 0.2.0: its tables have version 0000"),
    "corrupt": (corrupt, "results import RUN_DIR...` creates it again"),
    "no database": (no_database, "file is not a database: move the file away"),
    "a directory": (directory, "unable to open database file"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_store_is_a_warning_and_the_run_can_be_imported_later(grid: Grid, fault: str) -> None:
    make, message = FAULTS[fault]
    file = grid.root / "results.sqlite"
    make(file)
    assert message in run_on(grid, str(file))
    listed = grid.workspace.run("results", "list", f"--database={file}")
    assert (listed.exit_code, listed.stdout) == (3, "")
    assert message in listed.stderr
    assert len(listed.stderr.splitlines()) <= 5
    imported(grid, WORKING)


def test_an_unreachable_server_is_reported_without_its_password(grid: Grid) -> None:
    message = run_on(grid, "postgresql://ci:hunter2@127.0.0.1:1/results")
    assert "Connection refused" in message
    assert "hunter2" not in message
    imported(grid, WORKING)


def test_a_read_only_directory_for_the_store_is_reported(grid: Grid, read_only: Path) -> None:
    message = run_on(grid, str(read_only / "results.sqlite"))
    assert "Read-only file system" in message
    imported(grid, WORKING)


def test_a_read_only_store_can_be_read(grid: Grid, read_only: Path) -> None:
    subprocess.run(["mount", "-o", "remount,rw", str(read_only)], check=True)
    store = read_only / "results.sqlite"
    grid.configure(blocks={"results": {"database": str(store)}}).run()
    subprocess.run(["mount", "-o", "remount,ro", str(read_only)], check=True)
    outcome = grid.workspace.run("results", "list", f"--database={store}", "--format=csv")
    assert outcome.exit_code == 0, str(outcome)
    assert grid.directory.name in outcome.stdout


@pytest.mark.parametrize(
    ("wal", "code", "message"),
    [(b"", 0, ""), (b"\0" * 4152, 3, "results.sqlite-wal remains; open the store once as a user who may")],
)
def test_a_leftover_write_ahead_log_is_ignored_or_named(
    grid: Grid, read_only: Path, wal: bytes, code: int, message: str
) -> None:
    subprocess.run(["mount", "-o", "remount,rw", str(read_only)], check=True)
    store = read_only / "results.sqlite"
    grid.configure(blocks={"results": {"database": str(store)}}).run()
    store.with_name("results.sqlite-wal").write_bytes(wal)
    subprocess.run(["mount", "-o", "remount,ro", str(read_only)], check=True)
    outcome = grid.workspace.run("results", "list", f"--database={store}", "--format=csv")
    assert (outcome.exit_code, message in outcome.stderr) == (code, True), str(outcome)


@pytest.mark.parametrize("variables", [{"HOME": ""}, {"HOME": "", "XDG_STATE_HOME": "relative"}])
def test_a_run_of_a_user_without_a_home_is_recorded_later(grid: Grid, variables: dict[str, str]) -> None:
    outcome = grid.workspace.run("project", "run", "grid", env=variables)
    assert outcome.exit_code == 0, str(outcome)
    assert "the run is not in the store: this user has no home directory: set $HOME" in outcome.stderr
    listed = grid.workspace.run("results", "list", env=variables)
    assert (listed.exit_code, listed.stdout) == (2, ""), str(listed)
    assert "this user has no home directory" in listed.stderr
    imported(grid, WORKING)


def test_a_project_can_disable_recording(grid: Grid) -> None:
    grid.configure(blocks={"results": {"record": False}})
    assert grid.run().stderr == ""
    assert not list(grid.workspace.home.rglob("results.sqlite"))


def test_a_run_is_recorded_when_it_ends(grid: Grid) -> None:
    assert grid.mark("fail-b").run().exit_code == 1
    found = grid.workspace.run("results", "show", "latest", "--format=csv").stdout
    assert "x=b,failed,,product" in found
    assert (next(iter(grid.workspace.home.rglob("results.sqlite"))).stat().st_mode & 0o777) == 0o600


def test_a_run_that_was_resumed_is_recorded_once(grid: Grid) -> None:
    grid.mark("fail-b").run()
    grid.unmark("fail-b")
    assert grid.resume("--failed").exit_code == 0
    listed = grid.workspace.run("results", "list", "--format=csv").stdout.splitlines()
    assert len(listed) == 2
    assert ",passed," in listed[1]


def test_the_url_of_a_store_may_be_a_secret(grid: Grid) -> None:
    (grid.root / "vault").mkdir()
    (grid.root / "vault/store").write_text("postgresql://ci:hunter2@127.0.0.1:1/results")
    blocks = {
        "secrets": {"dir": {"name": "vault", "env_key": "VAULT"}, "store": "store"},
        "results": {"database": "*$@secrets.store"},
    }
    grid.configure(blocks=blocks)
    outcome = grid.workspace.run("project", "run", "grid", env={"VAULT": str(grid.root / "vault")})
    assert outcome.exit_code == 0, str(outcome)
    assert "the run is not in the store" in outcome.stderr
    texts = [file.read_bytes() for file in grid.directory.rglob("*") if file.is_file()]
    assert not any(b"hunter2" in text for text in [*texts, str(outcome).encode()])
