"""Server-sent events are parsed as the HTML standard says, and limited in size."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.features.inference.client.event_stream import Event, EventStreamError, EventStreamParser


def parsed(*pieces: bytes, most_bytes: int = 1000) -> list[Event]:
    parser = EventStreamParser(most_bytes)
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_line_may_end_in_three_ways(end: bytes) -> None:
    assert parsed(b"data: one" + end + end + b"data: two" + end + end) == [Event("one"), Event("two")]


def test_several_lines_of_data_become_one_text() -> None:
    # The example of the standard.
    assert parsed(b"data: YHOO\ndata: +2\ndata: 10\n\n") == [Event("YHOO\n+2\n10")]


def test_one_space_after_the_colon_is_removed() -> None:
    assert parsed(b"data:a\n\ndata: b\n\ndata:  c\n\n") == [Event("a"), Event("b"), Event(" c")]


def test_an_event_without_data_is_no_event() -> None:
    assert parsed(b"event: ping\n\n: comment\n\nid: 1\nretry: 10\n\n") == []


def test_a_field_without_a_colon_has_an_empty_value() -> None:
    assert parsed(b"data\n\ndata\ndata\n\n") == [Event(""), Event("\n")]


def test_the_type_applies_to_one_event() -> None:
    assert parsed(b"event: error\ndata: x\n\ndata: y\n\n") == [Event("x", "error"), Event("y")]


def test_a_field_error_is_an_event_of_this_type() -> None:
    assert parsed(b"error: x\n\ndata: y\n\n") == [Event("x", "error"), Event("y")]


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"data: a\n: b\nid: 1\nretry: 2\nevent: c\n\n", ""), (b"Error 500\nx: y\n", "Error 500"), (b"a" * 900, "")],
)
def test_the_first_foreign_line_is_kept(content: bytes, line: str) -> None:
    parser = EventStreamParser(1000)
    assert list(parser.feed(content)) in ([], [Event("a", "c")])
    assert parser.foreign_line == line


def test_an_event_at_the_end_without_an_empty_line_is_discarded() -> None:
    assert parsed(b"data: whole\n\ndata: half\n") == [Event("whole")]


def test_a_byte_order_mark_is_ignored_only_at_the_beginning() -> None:
    mark = b"\xef\xbb\xbf"
    assert parsed(mark + b"data: x\n\n" + mark + b"data: y\n\n") == [Event("x")]


def test_a_line_that_is_not_utf_8_is_an_error() -> None:
    with pytest.raises(EventStreamError, match="not UTF-8"):
        parsed(b"data: \xff\n\n")


@pytest.mark.parametrize("content", [b"x" * 200, b"data: x\n" * 20, b":" + b"x" * 200])
def test_an_event_that_is_too_large_is_an_error(content: bytes) -> None:
    with pytest.raises(EventStreamError, match="larger than 100 bytes"):
        parsed(*[content[place : place + 7] for place in range(0, len(content), 7)], most_bytes=100)


def test_many_small_events_are_not_too_large() -> None:
    assert len(parsed(b"data: x\n\n" * 100, most_bytes=100)) == 100


@given(
    st.lists(st.sampled_from([b"data: a", b"\n", b"\r", b"\r\n", "data:\u2028é".encode(), b"event: e", b":c"])),
    st.lists(st.integers(0, 60)),
)
def test_the_sizes_of_the_pieces_do_not_matter(content: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(content)
    places = [0, *sorted(cuts), len(whole)]
    pieces = [whole[start:end] for start, end in itertools.pairwise(places)]
    assert parsed(*pieces) == parsed(whole)
