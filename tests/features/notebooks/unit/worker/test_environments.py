"""Environments are made once, used together, made again when they are damaged, and removed when they are not used."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.features.notebooks.fakes.interpreter import FakeInterpreter
from toolbox.features.notebooks.worker import environments
from toolbox.features.notebooks.worker.environment_log import EnvironmentLog
from toolbox.features.notebooks.worker.environments import COMPLETE, Environment, EnvironmentStore
from toolbox.features.notebooks.worker.execution_place import PlaceError
from toolbox.features.notebooks.worker.file_locks import FileLock
from toolbox.features.notebooks.worker.notebook_results import Fault


@pytest.fixture(autouse=True)
def _without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sync", lambda: None)  # the whole machine would wait


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> EnvironmentStore:
    return EnvironmentStore(
        tmp_path / "environments", EnvironmentLog(tmp_path / "environment.log", lambda _: None), 600
    )


@pytest.fixture(name="interpreter")
def _interpreter(tmp_path: Path) -> FakeInterpreter:
    return FakeInterpreter(tmp_path)


def used(store: EnvironmentStore, interpreter: FakeInterpreter, *requirements: str) -> Environment:
    with store.prepared(requirements, interpreter.path) as environment:
        return environment


def forked(work: Callable[[], object]) -> int:
    """Do the work in a process of its own, which ends with status 0 if the work did, and return its ID."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def test_an_environment_is_made_once(store: EnvironmentStore, interpreter: FakeInterpreter) -> None:
    first, second = used(store, interpreter, "a", "b"), used(store, interpreter, "b", "a")
    assert first.path == second.path
    assert first.seconds is not None
    assert second.seconds is None
    assert interpreter.made == [first.digest]


def test_other_requirements_have_another_environment(store: EnvironmentStore, interpreter: FakeInterpreter) -> None:
    assert used(store, interpreter, "a").path != used(store, interpreter, "b").path


def test_temporary_files_of_pip_are_in_the_environment_and_are_removed(tmp_path: Path, store: EnvironmentStore) -> None:
    interpreter = FakeInterpreter(tmp_path, pip='touch "$TMPDIR/build"; ls "$TMPDIR/../tmp"')
    environment = used(store, interpreter)
    assert "build" in store.log.tail
    assert not (environment.path / "tmp").exists()


def test_files_of_an_environment_are_private(store: EnvironmentStore, interpreter: FakeInterpreter) -> None:
    path = used(store, interpreter, "--index-url https://user:secret@host/simple").path
    assert (path / "requirements.txt").stat().st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o700
    assert "secret" not in (path / COMPLETE).read_text()


def remove_python(path: Path) -> None:
    (path / "bin/python").unlink()


def remove_marker(path: Path) -> None:
    (path / COMPLETE).unlink()


def empty_marker(path: Path) -> None:
    (path / COMPLETE).write_bytes(b"")


def install_another(path: Path) -> None:
    (path / "lib/python3.11/site-packages/other-1.dist-info").mkdir()


@pytest.mark.parametrize("damage", [remove_python, remove_marker, empty_marker, install_another])
def test_a_damaged_or_changed_environment_is_made_again(
    store: EnvironmentStore, interpreter: FakeInterpreter, damage: Callable[[Path], None]
) -> None:
    damage(used(store, interpreter).path)
    assert used(store, interpreter).packages == ["ipykernel-1"]
    assert len(interpreter.made) == 2


def test_a_failed_installation_leaves_nothing(tmp_path: Path, store: EnvironmentStore) -> None:
    interpreter = FakeInterpreter(tmp_path, pip="echo ERROR: No matching distribution found for a; exit 1")
    with pytest.raises(PlaceError, match="No matching distribution found for a") as caught:
        used(store, interpreter, "a")
    assert caught.value.fault is Fault.ENVIRONMENT
    assert not [path for path in store.directory.iterdir() if path.is_dir()]


def test_a_signal_that_ends_pip_is_named(tmp_path: Path, store: EnvironmentStore) -> None:
    interpreter = FakeInterpreter(tmp_path, pip="echo Collecting a; kill -9 $$")
    with pytest.raises(PlaceError, match="the signal 9 ended the installation; its last output is `Collecting a`"):
        used(store, interpreter)
    assert not [path for path in store.directory.iterdir() if path.is_dir()]


@pytest.mark.parametrize("program", ["ensurepip", "pip"])
def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path, store: EnvironmentStore, program: str) -> None:
    interpreter = FakeInterpreter(tmp_path, **{program: "echo 'OSError: [Errno 28] No space left on device'; exit 1"})
    with pytest.raises(OSError, match="No space") as caught:
        used(store, interpreter)
    assert caught.value.errno == errno.ENOSPC


def test_a_missing_interpreter_is_named(store: EnvironmentStore) -> None:
    with pytest.raises(PlaceError, match="the Python /nowhere/python of the runtime cannot be started"):
        store.acquire((), "/nowhere/python")


def test_invalid_requirements_start_nothing(store: EnvironmentStore, interpreter: FakeInterpreter) -> None:
    with pytest.raises(PlaceError, match="the option -r is not allowed"):
        used(store, interpreter, "-r other.txt")
    assert not interpreter.made


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, interpreter: FakeInterpreter) -> None:
    (tmp_path / "file").touch()
    store = EnvironmentStore(tmp_path / "file/environments", EnvironmentLog(tmp_path / "log", lambda _: None), 600)
    with pytest.raises(PlaceError, match="cannot be used for environments: Not a directory; set `environments`"):
        used(store, interpreter)


def test_workers_that_need_the_same_environment_wait_for_one(tmp_path: Path, store: EnvironmentStore) -> None:
    os.mkfifo(tmp_path / "go")
    interpreter = FakeInterpreter(tmp_path, pip=f"cat {tmp_path}/go")
    workers = [forked(lambda: used(store, interpreter)) for _ in range(3)]
    (tmp_path / "go").write_text("go")  # opens when pip of the first worker reads
    assert [os.waitpid(worker, 0)[1] for worker in workers] == [0, 0, 0]
    assert len(interpreter.made) == 1


@pytest.mark.parametrize("exclusive", [True, False])
def test_waiting_for_another_worker_has_a_limit(
    tmp_path: Path, store: EnvironmentStore, interpreter: FakeInterpreter, exclusive: bool
) -> None:
    environment = used(store, interpreter)
    lock = FileLock(store.directory / f"{environment.digest}.lock")
    lock.acquire(exclusive=exclusive)
    remove_marker(environment.path)
    late = EnvironmentStore(store.directory, store.log, timeout=0.0)
    message = r"not ready within 0 s \(`environment_timeout`\): another worker still uses or makes it"
    with pytest.raises(PlaceError, match=message) as caught:
        late.acquire((), interpreter.path)
    assert caught.value.fault is Fault.TIMEOUT
    lock.release()
    assert "waiting for another worker" in (tmp_path / "environment.log").read_text()
    assert used(store, interpreter).seconds is not None


def test_an_installation_that_exceeds_the_limit_leaves_nothing(tmp_path: Path, store: EnvironmentStore) -> None:
    slow = FakeInterpreter(tmp_path, pip="echo Building wheel; sleep 600")
    late = EnvironmentStore(store.directory, store.log, timeout=0.0)
    with pytest.raises(PlaceError, match="the installation was ended") as caught:
        late.acquire((), slow.path)
    assert caught.value.fault is Fault.TIMEOUT
    assert not [path for path in store.directory.iterdir() if path.is_dir()]


def test_a_worker_that_is_killed_leaves_no_environment_in_use(tmp_path: Path, store: EnvironmentStore) -> None:
    for name in ("started", "never"):
        os.mkfifo(tmp_path / name)
    slow = FakeInterpreter(tmp_path, pip=f"echo > {tmp_path}/started; cat {tmp_path}/never")
    pid = forked(lambda: used(store, slow))
    (tmp_path / "started").read_text()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    interpreter = FakeInterpreter(tmp_path)
    (lock,) = store.directory.glob("*.lock")
    assert not FileLock(lock).acquire(exclusive=True)  # the pip of the killed worker holds the lock
    with (tmp_path / "never").open("w"):
        pass  # pip ends
    assert used(store, interpreter).packages == ["ipykernel-1"]
    assert len(interpreter.made) == 2


def test_a_user_without_a_home_directory_has_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def expanduser(path: Path) -> Path:
        raise RuntimeError(f"Could not determine home directory: {path}")

    monkeypatch.setattr(Path, "expanduser", expanduser)
    monkeypatch.chdir(tmp_path)
    assert environments.directory("~/.cache/environments") == tmp_path / ".environments"


def age(environment: Environment, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(environment.path / COMPLETE, (then, then))


def test_environments_that_were_not_used_are_removed(store: EnvironmentStore, interpreter: FakeInterpreter) -> None:
    old, new = used(store, interpreter, "old"), used(store, interpreter, "new")
    age(old, 31)
    age(new, 29)
    store.prune(30)
    assert not old.path.exists()
    assert not store.directory.joinpath(f"{old.digest}.lock").exists()
    assert new.path.exists()


def test_other_directories_are_never_removed(store: EnvironmentStore, interpreter: FakeInterpreter) -> None:
    used(store, interpreter)
    for name in ("cpus", "data", "0123"):
        (store.directory / name).mkdir()
        os.utime(store.directory / name, (0, 0))
    store.prune(30)
    assert {path.name for path in store.directory.iterdir()} > {"cpus", "data", "0123"}


def test_an_incomplete_environment_is_removed(store: EnvironmentStore, interpreter: FakeInterpreter) -> None:
    environment = used(store, interpreter)
    remove_marker(environment.path)
    os.utime(environment.path, (0, 0))
    store.prune(30)
    assert not environment.path.exists()


def test_a_use_keeps_an_environment(store: EnvironmentStore, interpreter: FakeInterpreter) -> None:
    environment = used(store, interpreter)
    age(environment, 31)
    used(store, interpreter)
    store.prune(30)
    assert environment.path.exists()


def test_an_environment_in_use_is_not_removed(store: EnvironmentStore, interpreter: FakeInterpreter) -> None:
    with store.prepared((), interpreter.path) as environment:
        age(environment, 31)
        store.prune(30)
        assert environment.path.exists()


def test_credentials_in_the_output_of_pip_are_not_logged(tmp_path: Path, store: EnvironmentStore) -> None:
    interpreter = FakeInterpreter(tmp_path, pip="echo Looking in indexes: https://user:secret@host/simple")
    used(store, interpreter)
    log = (tmp_path / "environment.log").read_text()
    assert "https://****@host/simple" in log
    assert "secret" not in log


def test_the_log_is_limited_but_errors_at_its_end_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolbox.features.notebooks.worker.environment_log._LIMIT", 1000)
    log = EnvironmentLog(tmp_path / "log", lambda _: None)
    log.write(b"line\n" * 10_000 + b"ERROR: last")
    log.end()
    assert (tmp_path / "log").stat().st_size < 1100
    assert log.tail[-1] == "ERROR: last"


def test_options_that_install_elsewhere_do_not_reach_pip() -> None:
    variables = environments._variables({"PIP_TARGET": "/x", "PYTHONPATH": "/y", "PIP_INDEX_URL": "https://h"})
    assert "PIP_TARGET" not in variables
    assert "PYTHONPATH" not in variables
    assert variables["PIP_INDEX_URL"] == "https://h"
