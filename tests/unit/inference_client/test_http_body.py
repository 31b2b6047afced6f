"""The parser of HTTP/1.1 reads what h11 reads, whatever the pieces are, and refuses what is ambiguous."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.inference_client.http_body import HttpError, ResponseParser

Found = tuple[int, list[tuple[bytes, bytes]], bytes, bool]


def parsed(pieces: Sequence[bytes], *, ends: bool = False) -> ResponseParser | Found:
    """Return the status, the headers, the body, and whether the connection can be used again."""
    parser = ResponseParser()
    body = b"".join([parser.feed(piece) for piece in pieces])
    if ends:
        parser.feed_end()
    if not parser.is_complete or parser.head is None:
        return parser
    headers = [(name.lower(), value) for name, value in parser.head.headers]
    headers = [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in headers]
    return parser.head.status, headers, body, parser.head.keeps_connection and not parser.has_rest and not ends


def parsed_by_h11(content: bytes, *, ends: bool = False) -> Found:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(content)
    if ends:
        connection.receive_data(b"")
    body = b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        assert event is not h11.NEED_DATA
        if isinstance(event, h11.Response):
            response = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
    keeps = connection.their_state is h11.DONE and not connection.trailing_data[0] and not ends
    return response.status_code, list(response.headers), body, keeps


def chunked(pieces: Sequence[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, bool]:
    """Return a response, and whether its end is the end of the connection."""
    pieces = draw(st.lists(st.binary(max_size=40), max_size=5))
    status = draw(st.sampled_from([b"200 OK", b"200 ", b"404 Not Found", b"500 \xe9", b"204 No Content"]))
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.0"]))
    framing = draw(st.sampled_from(["chunked", "length", "end"]))
    extra = draw(
        st.sampled_from([b"", b"Connection: close\r\n", b"X:a, b\r\nx: \t c \r\n", b"Connection: x, Close\r\n"])
    )
    interim = draw(
        st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"])
    )
    body = b"".join(pieces)
    header = b""
    if status.startswith(b"204"):
        framing, body = "length", b""
    elif framing == "chunked":
        header, body = b"Transfer-Encoding: Chunked\r\n", chunked(pieces)
    elif framing == "length":
        header = b"Content-Length: %d\r\n" % len(body)
    return interim + b"HTTP/" + version + b" " + status + b"\r\n" + header + extra + b"\r\n" + body, framing == "end"


@given(responses(), st.lists(st.integers(0, 300), max_size=6))
def test_a_response_is_what_h11_reads(response: tuple[bytes, bool], cuts: list[int]) -> None:
    content, ends = response
    places = sorted({min(cut, len(content)) for cut in [0, *cuts, len(content)]})
    pieces = [content[begin:end] for begin, end in itertools.pairwise(places)]
    assert parsed(pieces, ends=ends) == parsed_by_h11(content, ends=ends)


@given(responses(), st.data())
def test_a_response_that_is_cut_off_is_an_error(response: tuple[bytes, bool], data: st.DataObject) -> None:
    content, ends = response
    if not ends:
        with pytest.raises(HttpError):
            parsed([content[: data.draw(st.integers(0, len(content) - 1))]], ends=True)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_response_or_an_error(content: bytes) -> None:
    for beginning in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        with contextlib.suppress(HttpError):
            parsed([beginning + content], ends=True)


def test_chunks_may_have_extensions_and_trailers() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    found = parsed([head + b'3;a="b"\r\nabc\r\n0\r\nExpires: x\r\n\r\n'])
    assert found == (200, [(b"transfer-encoding", b"chunked")], b"abc", True)


def test_bytes_after_a_response_prevent_the_next_request() -> None:
    found = parsed([b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab"])
    assert found == (200, [(b"content-length", b"1")], b"a", False)


def test_a_header_of_spaces_takes_no_time() -> None:
    value = b"a" + b" " * 60_000 + b"a"
    found = parsed([b"HTTP/1.1 204 X\r\nX: " + value + b"\r\n\r\n"])
    assert found == (204, [(b"x", value)], b"", True)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "content",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"<html>",
        b"HTTP/1.1 99 OK\r\n\r\n",
        b"HTTP/1.1 200\r\nX : a\r\n\r\n",
        b"HTTP/1.1 200\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 200\r\nX: a\nY: b\r\n\r\n",
        b"HTTP/1.1 200\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200\r\nContent-Length: +1\r\n\r\n",
        b"HTTP/1.1 200\r\nContent-Length: \r\n\r\n",
        b"HTTP/1.1 200\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"g\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"1" * 16 + b"\r\n",
        CHUNKED + b"1\r\nab\r\n",
        CHUNKED + b"1;" + b"a" * 5000,
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 20_000,
    ],
    ids=lambda content: repr(content[-30:]),
)
def test_an_ambiguous_response_is_refused(content: bytes) -> None:
    with pytest.raises(HttpError):
        parsed([content])
