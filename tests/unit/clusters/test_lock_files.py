"""The lease of a machine, in a file on it."""

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from toolbox.clusters.leases import Claim, Record, Seen, now
from toolbox.clusters.lock_files import LockFile
from toolbox.clusters.taking import take
from toolbox.model.errors import StepError
from toolbox.model.verdicts import Cause

OURS = Claim("run-2", "bob@lab", "mine", "run-2", ttl=3600)

HOLDER = """
    import sys
    from pathlib import Path
    from toolbox.clusters.leases import Claim
    from toolbox.clusters.lock_files import LockFile
    from toolbox.clusters.taking import take
    lease = take([LockFile(Path(sys.argv[1]))], Claim("run-1", "ann@lab", "nightly", ttl=3600), wait=0, say=print)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path: Path) -> LockFile:
    return LockFile(tmp_path / "lock", "dgx")


def record(claim: Claim = OURS) -> Record:
    return Record(claim, now(), now())


def test_what_is_written_is_read_again(lock: LockFile) -> None:
    written = record()
    version = lock.write(written, "", 0)
    assert version
    assert lock.read(0) == Seen(written, version)


def test_nobody_holds_what_is_not_there_or_was_released(lock: LockFile) -> None:
    assert lock.read(0) == Seen(None, "")
    version = lock.write(record(), "", 0)
    assert version
    released = lock.write(None, version, 0)
    assert released
    assert lock.read(0) == Seen(None, released)


def test_who_has_not_seen_the_latest_does_not_write(lock: LockFile) -> None:
    lock.write(record(), "", 0)
    assert lock.write(record(), "", 0) is None


def test_all_who_share_the_machine_may_write_to_it(lock: LockFile, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        lock.write(record(), "", 0)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o666


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "{}", '{"holder": 1}', "\0", '{"ttl": "x"}'])
def test_what_is_no_record_is_nobodys(lock: LockFile, tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text)
    assert take([lock], OURS, wait=0, say=print).record.claim == OURS


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=rf"dgx: the lock file {tmp_path}/none/lock: No such file") as caught:
        LockFile(tmp_path / "none" / "lock", "dgx").read(0)
    assert caught.value.cause is Cause.CONFIGURATION


def test_a_holder_that_was_killed_holds_it_no_more(lock: LockFile, tmp_path: Path) -> None:
    args = [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path / "lock")]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StepError, match="held by ann@lab for 'nightly'"):
            take([lock], OURS, wait=0, say=print)
        holder.send_signal(signal.SIGKILL)
        began = time.monotonic()
        take([lock], OURS, wait=10, say=print)  # also before anybody has waited for the process
        assert time.monotonic() - began < 5


def test_a_process_of_another_machine_may_be_alive(lock: LockFile, tmp_path: Path) -> None:
    lock.write(record(Claim("run-1", "ann@lab", "nightly", ttl=3600)), "", 0)
    content = json.loads((tmp_path / "lock").read_text())
    content["process"] |= {"machine": "another", "pid": 1 << 22}
    (tmp_path / "lock").write_text(json.dumps(content))
    with pytest.raises(StepError, match="is not free"):
        take([lock], OURS, wait=0, say=print)


def test_another_process_with_the_same_id_is_not_the_holder(lock: LockFile, tmp_path: Path) -> None:
    lock.write(record(Claim("run-1", "ann@lab", "nightly", ttl=3600)), "", 0)
    content = json.loads((tmp_path / "lock").read_text())
    content["process"]["started"] = "1"
    (tmp_path / "lock").write_text(json.dumps(content))
    take([lock], OURS, wait=0, say=print)
