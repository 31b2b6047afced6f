"""The lease of a machine is stored in a lock file."""

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolbox.ground.model.errors import StepError
from toolbox.ground.model.verdicts import Cause
from toolbox.records.leases import lock_files
from toolbox.records.leases.leases import Claim, Record, StoredRecord, now
from toolbox.records.leases.lock_files import LockFile
from toolbox.records.leases.taking import take

OTHERS = Claim("run-1", "ann@lab", "nightly", ttl=3600, has_heartbeat=False)
OURS = Claim("run-2", "bob@lab", "mine", "run-2", ttl=3600)

HOLDER = """
    import sys
    from pathlib import Path
    from toolbox.records.leases.leases import Claim
    from toolbox.records.leases.lock_files import LockFile
    from toolbox.records.leases.taking import take
    lease = take([LockFile(Path(sys.argv[1]))], Claim("run-1", "ann@lab", "nightly", ttl=3600), wait=0, report=print)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path: Path) -> LockFile:
    return LockFile(tmp_path / "lock", "dgx")


def record(claim: Claim = OURS) -> Record:
    return Record(claim, now(), now())


def test_a_written_record_is_read_back(lock: LockFile) -> None:
    written = record()
    version = lock.write(written, "", 0)
    assert version
    assert lock.read(0) == StoredRecord(written, version)


def test_a_missing_or_released_lock_is_free(lock: LockFile) -> None:
    assert lock.read(0) == StoredRecord(None, "")
    version = lock.write(record(), "", 0)
    assert version
    released = lock.write(None, version, 0)
    assert released
    assert lock.read(0) == StoredRecord(None, released)


def test_a_write_with_an_old_version_changes_nothing(lock: LockFile) -> None:
    lock.write(record(), "", 0)
    assert lock.write(record(), "", 0) is None


@pytest.mark.parametrize(("directory", "file"), [(0o1777, 0o666), (0o2770, 0o660), (0o755, 0o644), (0o700, 0o600)])
def test_users_who_may_write_to_the_directory_may_write_to_the_lock(
    lock: LockFile, tmp_path: Path, directory: int, file: int
) -> None:
    tmp_path.chmod(directory)
    before = os.umask(0o077)
    try:
        lock.write(record(), "", 0)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == file


def put_link(lock: Path, victim: Path) -> None:
    lock.symlink_to(victim)


def put_dangling_link(lock: Path, victim: Path) -> None:
    lock.symlink_to(victim.parent / "new")


def put_hard_link(lock: Path, victim: Path) -> None:
    lock.hardlink_to(victim)


def put_pipe(lock: Path, victim: Path) -> None:  # noqa: ARG001  # same signature as the others
    os.mkfifo(lock)


def put_directory(lock: Path, victim: Path) -> None:  # noqa: ARG001  # same signature as the others
    lock.mkdir()


@pytest.mark.parametrize("put", [put_link, put_dangling_link, put_hard_link, put_pipe, put_directory])
def test_nothing_but_a_regular_file_is_locked_or_written(
    lock: LockFile, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    victim.chmod(0o600)
    put(tmp_path / "lock", victim)
    with pytest.raises(StepError, match="dgx: the lock file ") as caught:
        lock.write(record(), "", 0)
    assert caught.value.cause is Cause.CONFIGURATION
    assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == ("untouched", 0o600)
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_used_only_in_a_directory_for_all_users(lock: LockFile, tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.touch()
    os.chown(file, 12345, 12345)
    with pytest.raises(StepError, match="it belongs to another user"):
        lock.read(0)
    tmp_path.chmod(0o1777)
    assert lock.read(0) == StoredRecord(None, "")


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "{}", '{"holder": 1}', "\0", '{"ttl": "x"}'])
def test_a_damaged_file_is_a_free_lease(lock: LockFile, tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text)
    assert take([lock], OURS, wait=0, report=print).record.claim == OURS


@pytest.mark.parametrize(
    "forged",
    [
        {"acquired": "2026-01-01T00:00:00"},
        {"renewed": "2026-01-01T00:00:00"},
        {"ttl": 10**30},
        {"acquired": "0001-01-01T00:00:00+14:00"},
        {"renewed": "9999-12-31T23:59:59+00:00"},
        {"holder": ["x"]},
        {"purpose": None},
        {"forced": [1]},
        {"beats": "yes"},
        {"process": {**lock_files._process(os.getpid()), "pid": 10**30}},
    ],
    ids=lambda forged: str(next(iter(forged.items())))[:30],
)
def test_a_forged_record_is_a_free_lease(lock: LockFile, tmp_path: Path, forged: dict[str, Any]) -> None:
    lock.write(record(OTHERS), "", 0)
    file = tmp_path / "lock"
    file.write_text(json.dumps({**json.loads(file.read_text()), **forged}))
    assert take([lock], OURS, wait=0, report=print).record.claim == OURS


def test_a_record_that_is_nested_too_deeply_is_a_free_lease(lock: LockFile, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("[" * 20_000)
    assert lock.read(0).record is None


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        StepError, match=rf"dgx: the lock file {tmp_path}/none/lock cannot be used: No such file"
    ) as caught:
        LockFile(tmp_path / "none" / "lock", "dgx").read(0)
    assert caught.value.cause is Cause.CONFIGURATION


def test_a_killed_holder_loses_the_lease(lock: LockFile, tmp_path: Path) -> None:
    args = [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path / "lock")]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StepError, match="held by ann@lab for 'nightly'"):
            take([lock], OURS, wait=0, report=print)
        holder.send_signal(signal.SIGKILL)
        began = time.monotonic()
        take(
            [lock], OURS, wait=10, report=print
        )  # the killed process is still a zombie: the test has not waited for it
        assert time.monotonic() - began < 5


def test_a_process_of_another_machine_may_be_alive(lock: LockFile, tmp_path: Path) -> None:
    lock.write(record(Claim("run-1", "ann@lab", "nightly", ttl=3600)), "", 0)
    content = json.loads((tmp_path / "lock").read_text())
    content["process"] |= {"machine": "another", "pid": 1 << 22}
    (tmp_path / "lock").write_text(json.dumps(content))
    with pytest.raises(StepError, match="is not free"):
        take([lock], OURS, wait=0, report=print)


def test_another_process_with_the_same_id_is_not_the_holder(lock: LockFile, tmp_path: Path) -> None:
    lock.write(record(Claim("run-1", "ann@lab", "nightly", ttl=3600)), "", 0)
    content = json.loads((tmp_path / "lock").read_text())
    content["process"]["started"] = "1"
    (tmp_path / "lock").write_text(json.dumps(content))
    take([lock], OURS, wait=0, report=print)
