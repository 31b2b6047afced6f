from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.agent import frames
from toolbox.agent.frames import Piece

STREAMS = st.sampled_from(["stdout", "stderr"])
OFFSETS = st.integers(0, 1 << 60)
# Of bytes of every kind, and of those that mean something here.
CONTENTS = st.binary() | st.lists(st.sampled_from([b"\\", b"\n", b"\r", b"x0a", b"out 3 ", "é".encode(), b"a"])).map(
    b"".join
)
LINE_OF_A_CONTAINER = 16 << 10


@given(STREAMS, OFFSETS, CONTENTS)
def test_what_was_printed_comes_back_each_piece_at_its_place(stream: str, offset: int, content: bytes) -> None:
    pieces = [frames.decode(line) for line in frames.encode(stream, offset, content).split(b"\n")[:-1]]
    found = b""
    for piece in pieces:
        assert piece is not None
        assert (piece.stream, piece.offset) == (stream, offset + len(found))
        found += piece.content
    assert found == content


@given(st.integers(0, 20_000), st.sampled_from([b"a", b"\xff", b"\\", "é".encode(), b"\x1b"]), OFFSETS)
def test_a_line_of_any_length_is_lines_that_a_container_may_print(length: int, of: bytes, offset: int) -> None:
    lines = frames.encode("stdout", offset, of * length).splitlines(keepends=True)
    assert all(len(line) < LINE_OF_A_CONTAINER for line in lines)


@given(CONTENTS)
def test_what_is_said_is_text_that_does_nothing_to_a_terminal(content: bytes) -> None:
    said = frames.encode("stderr", 0, content).decode()
    assert all(character.isprintable() or character in "\n\t" for character in said)


@given(st.binary())
def test_whatever_somebody_else_prints_is_read_or_is_none_of_ours(line: bytes) -> None:
    piece = frames.decode(line)
    assert piece is None or piece.stream in {"stdout", "stderr"}


def test_what_can_be_read_stays_as_it_is() -> None:
    said = frames.encode("stdout", 0, "step 1\n損失 4.2\n\ttab \\ \x1b[31m\n".encode())
    assert said.decode() == "out 0 step 1\nout 7 損失 4.2\nout 18 \ttab \\\\ \\x1b[31m\n"


def test_a_line_that_is_cut_is_not_cut_within_a_letter() -> None:
    said = frames.encode("stdout", 0, "損失".encode() * 3000).decode()
    assert said.count("損") == said.count("失") == 3000


def test_a_line_without_an_end_says_so_and_goes_on_at_its_place() -> None:
    said = frames.encode("stdout", 0, b"password: ") + frames.encode("stdout", 10, b"ok\n")
    assert said == b"out 0 password: \\\nout 10 ok\n"


def test_nothing_is_no_line() -> None:
    assert frames.encode("stdout", 5, b"") == b""


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"out",
        b"out 1",
        b"out -1 a",
        b"log 1 a",
        b"out %s a" % (b"9" * 5000),
        b"Traceback (most recent call last):",
    ],
)
def test_what_is_none_of_ours_is_told(line: bytes) -> None:
    assert frames.decode(line) is None


def test_backslashes_at_an_end_are_told_from_an_end_that_was_not_printed() -> None:
    for content in (b"\\", b"\\\n", b"\\\\", b"\\\\\n", b"\\n\n"):
        assert frames.decode(frames.encode("stdout", 3, content)[:-1]) == Piece("stdout", 3, content)
