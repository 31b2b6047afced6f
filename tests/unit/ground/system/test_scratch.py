"""Private directories for secrets are removed with their step, or by the next process."""

import fcntl
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from toolbox.ground.system import scratch


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that replaces the memory file system of the machine."""
    monkeypatch.setattr(scratch, "_IN_MEMORY", tmp_path)
    return tmp_path


@pytest.fixture
def abandoned(memory: Path) -> Path:
    """Return a directory that a killed process has left."""
    path = memory / "topgallant-abandoned"
    path.mkdir()
    (path / "secrets.yaml").write_text("hunter2")
    return path


def test_the_directory_is_private_and_removed_with_its_content(memory: Path) -> None:
    with scratch.directory() as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        (path / "deep").mkdir()
        (path / "deep" / "secret").write_text("hunter2")
    assert list(memory.iterdir()) == []


def test_the_directory_is_removed_when_the_step_fails(memory: Path) -> None:
    with pytest.raises(KeyError), scratch.directory() as path:
        raise KeyError(path)
    assert list(memory.iterdir()) == []


def test_two_steps_have_two_directories(memory: Path) -> None:
    with scratch.directory() as one, scratch.directory() as other:
        assert one != other
        assert set(memory.iterdir()) == {one, other}


def test_the_directory_of_a_dead_process_is_removed(abandoned: Path) -> None:
    with scratch.directory():
        assert not abandoned.exists()


def test_the_directory_of_a_killed_process_is_removed_by_the_next_process(memory: Path) -> None:
    code = (
        "import os, pathlib\nfrom toolbox.ground.system import scratch\n"
        f"scratch._IN_MEMORY = pathlib.Path({str(memory)!r})\n"
        "with scratch.directory() as path: (path / 'secret').write_text('hunter2'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    (left,) = memory.iterdir()
    with scratch.directory():
        assert not left.exists()


def test_the_directory_of_a_living_process_stays(memory: Path) -> None:
    with scratch.directory() as first, scratch.directory() as second:
        assert first.exists()
        assert second.exists()
    assert list(memory.iterdir()) == []


def test_other_directories_stay(memory: Path) -> None:
    (memory / "other").mkdir()
    (memory / "topgallant-file").touch()
    (memory / "topgallant-link").symlink_to(memory / "other")
    with scratch.directory():
        assert {path.name for path in memory.iterdir()} >= {"other", "topgallant-file", "topgallant-link"}


def test_a_directory_that_was_removed_before_its_lock_is_recreated(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, taken = fcntl.flock, [True]

    def take_and_lock(descriptor: int, operation: int) -> None:
        if taken:
            taken.pop()
            (path,) = memory.iterdir()
            path.rmdir()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", take_and_lock)
    with scratch.directory() as path:
        assert path.is_dir()


def test_without_a_memory_file_system_the_temporary_directory_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_IN_MEMORY", tmp_path / "missing")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_LONGEST_PARENT", len(str(tmp_path)))
    with scratch.directory() as path:
        assert path.parent == tmp_path


def test_a_fork_that_ends_leaves_the_directory(tmp_path: Path) -> None:
    script = """
import os, sys
from toolbox.ground.system import scratch
with scratch.directory() as path:
    child = os.fork()
    if child == 0:
        sys.exit()
    os.waitpid(child, 0)
    print(path.exists())
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "True\n"


LONG = "d" * 100


def test_without_a_directory_in_memory_the_paths_are_short_enough_for_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / LONG
    long.mkdir()
    monkeypatch.setattr(scratch, "_IN_MEMORY", tmp_path / "missing")
    monkeypatch.setattr("tempfile.tempdir", str(long))
    monkeypatch.setattr(scratch, "_USUAL", tmp_path)
    with scratch.directory() as path:
        assert path.parent == tmp_path


def test_the_sockets_of_ssh_are_private_to_a_user_and_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_IN_MEMORY", tmp_path)
    monkeypatch.setenv("HOME", f"/home/{LONG}")
    first = scratch.ssh_sockets(create=True)
    assert first is not None
    assert (first.parent, first.stat().st_mode & 0o7777, scratch.ssh_sockets(create=True)) == (tmp_path, 0o700, first)
    assert len(first.name) < len("tg-ssh-1234567890-12345678") + 1
    monkeypatch.setenv("HOME", "/home/other")
    other = scratch.ssh_sockets(create=False)
    assert other not in {None, first}
    assert list(tmp_path.iterdir()) == [first]


@pytest.mark.parametrize("fault", ["open to others", "a link", "a file"])
def test_a_directory_for_sockets_that_another_user_may_have_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(scratch, "_IN_MEMORY", tmp_path)
    path = scratch.ssh_sockets(create=True)
    assert path is not None
    if fault == "open to others":
        path.chmod(0o755)
    else:
        path.rmdir()
        path.symlink_to(tmp_path) if fault == "a link" else path.touch(mode=0o600)
    assert scratch.ssh_sockets(create=True) is None
