"""A log holds the output of a workload without secrets, up to its limit, and never raises an error."""

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolbox.ground.kit import safe_files
from toolbox.targets.agent import log_transfer
from toolbox.targets.agent.log_files import Log

TAIL = 1 << 16


def written(file: Path, *pieces: bytes, limit: int = 1 << 30, secrets: tuple[bytes, ...] = ()) -> bytes:
    """Write pieces to a log, and return the content of its file."""
    log = Log(str(file), limit, secrets)
    for piece in pieces:
        log.write(piece)
    log.close()
    content = file.read_bytes()
    file.unlink()
    return content


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "stdout.log"


def test_a_log_holds_the_output_unchanged(file: Path) -> None:
    assert written(file, b"one\n", b"", b"two \xff\x00", b"three") == b"one\ntwo \xff\x00three"


def test_a_log_is_private(file: Path) -> None:
    log = Log(str(file), 10, [])
    assert file.stat().st_mode & 0o777 == 0o600
    log.close()
    file.unlink()


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_secret_that_is_split_between_two_pieces_is_masked(file: Path, cut: int) -> None:
    text = b"a hunter22 b"
    assert written(file, text[:cut], text[cut:], secrets=(b"hunter22",)) == b"a *** b"


def test_the_beginning_of_a_secret_is_not_masked(file: Path) -> None:
    assert written(file, b"hunt", b"ing, hunter", secrets=(b"hunter22",)) == b"hunting, hunter"


def test_a_secret_that_begins_with_another_one_is_masked_whole(file: Path) -> None:
    """The longer secret is masked once, even if the first of two pieces ends with the shorter secret."""
    secrets = (b"hunter", b"hunter22")
    assert written(file, b"a hunter", b"22 b hunter", b" c", secrets=secrets) == b"a *** b *** c"
    assert written(file, b"a hunter", secrets=secrets) == b"a ***"


def test_only_text_that_may_become_a_secret_is_held_back(file: Path) -> None:
    log = Log(str(file), 100, [b"hunter22"])
    log.write(b"password: hunt")
    assert file.read_bytes() == b"password: "
    log.close()
    file.unlink()


LETTERS = st.text(alphabet="ab", min_size=2, max_size=5).map(str.encode)


@given(st.lists(LETTERS, min_size=1, max_size=3), st.lists(st.text(alphabet="abc", max_size=6).map(str.encode)))
@example([b"aab", b"ab"], [b"a", b"a", b"b"])
def test_no_secret_is_in_a_log_whatever_its_pieces(file: Path, secrets: list[bytes], pieces: list[bytes]) -> None:
    content = written(file, *pieces, secrets=tuple(secrets))
    assert not any(secret in content for secret in secrets)


@given(st.lists(LETTERS, min_size=1, max_size=3), st.text(alphabet="abc", max_size=20).map(str.encode))
def test_pieces_of_one_byte_are_masked_like_the_whole_text(file: Path, secrets: list[bytes], text: bytes) -> None:
    """The test skips secrets that overlap: the pieces decide which of them is masked."""
    if any(
        one != other and (one[0] in other[1:] or one in other) for one, other in itertools.product(secrets, secrets)
    ):
        return
    pieces = [text[n : n + 1] for n in range(len(text))]
    assert written(file, *pieces, secrets=tuple(secrets)) == written(file, text, secrets=tuple(secrets))


@pytest.mark.parametrize("count", [0, 1, TAIL - 1, TAIL, TAIL + 1, 3 * TAIL])
def test_the_end_of_the_output_beyond_the_limit_is_kept(file: Path, count: int) -> None:
    more = bytes(n % 251 for n in range(count))
    content = written(file, b"0123456789" + more[:7], more[7:], limit=10)
    note = f"\n[topgallant: {max(0, count - TAIL)} bytes are left out here: the log has reached its limit]\n".encode()
    assert content == b"0123456789" + (note + more[-TAIL:] if count else b"")


def test_all_bytes_and_dropped_bytes_are_counted(file: Path) -> None:
    log = Log(str(file), 4, [])
    log.write(b"123")
    log.write(b"456")
    log.close()
    file.unlink()
    assert (log.bytes, log.dropped, log.fault) == (6, 2, "")


def test_a_full_disk_is_recorded_as_a_fault_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_files, "open_regular", os.open)
    log = Log("/dev/full", 1 << 20, [])
    log.write(b"one")
    log.write(b"two")
    log.close()
    assert (log.bytes, log.fault) == (6, "No space left on device")


@pytest.mark.parametrize("limit", [4, 1 << 20])
def test_the_checksum_is_that_of_the_whole_file(file: Path, limit: int) -> None:
    log = Log(str(file), limit, [b"hunter22"], has_checksum=True)
    for piece in (b"one\n", b"hunt", b"er22\n", bytes(2 * TAIL)):
        log.write(piece)
    log.close()
    assert log.checksum == log_transfer.checksum(str(file))
    file.unlink()
