"""The API key is masked in texts, and in streams however their pieces divide it."""

from __future__ import annotations

import random

import pytest

from toolbox.features.inference.client.key_mask import KeyMask

QUOTED = 'a"b'


def streamed(key: str | None, pieces: list[bytes]) -> bytes:
    stream = KeyMask(key).stream()
    return b"".join(map(stream.feed, pieces)) + stream.flush()


def test_a_key_is_masked_in_a_text_plain_and_as_json() -> None:
    assert KeyMask(QUOTED)(r'a"b a\"b b') == "*** *** b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a secr...", "a ***..."),
        ("'a secre'... \"secr\"...", "'a ***'... \"***\"..."),
        (r'{"fault": "\"a secr\"..."}', r'{"fault": "\"a ***\"..."}'),
        ("these...", "these..."),
        ("secr", "secr"),
    ],
)
def test_the_beginning_of_a_key_is_masked_where_a_text_was_cut(text: str, expected: str) -> None:
    assert KeyMask("secret")(text) == expected


def test_without_a_key_nothing_changes() -> None:
    assert KeyMask(None)("a") == "a"
    assert streamed(None, [b"a", b"b"]) == b"ab"


@pytest.mark.parametrize("key", ["sk-1", "aa", "abab", "aab", QUOTED, "*-*", "x"])
def test_the_pieces_of_a_stream_make_no_difference(key: str) -> None:
    draw = random.Random(key)
    for _ in range(500):
        text = "".join(draw.choice([key, QUOTED, r"a\"b", *"absk-1*x\n"]) for _ in range(12))
        cuts = sorted(draw.choices(range(len(text) + 1), k=draw.randrange(8)))
        pieces = [text[begin:end].encode() for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert streamed(key, pieces) == KeyMask(key)(text).encode()


def test_only_what_may_become_the_key_is_held_back() -> None:
    stream = KeyMask("secret").stream()
    assert stream.feed(b"a line\n") == b"a line\n"
    assert stream.feed(b"the sec") == b"the "
    assert stream.feed(b"ond") == b"second"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["sec", "ret"], True),
        ([{"a": {"b": ["se"]}}, {"a": {"b": ["cr", "et"]}}], True),
        ([{"index": 0, "a": "sec"}, {"index": 1, "a": "x"}, {"index": 0, "a": "ret"}], True),
        ([{"sec": -1.0}, {"ret": -2.0}], True),
        ([{"index": 0, "a": "sec"}, {"index": 1, "a": "ret"}], False),
        ({"a": "sec", "b": "ret"}, False),
        (["secret", "a secret"], False),
        (["sec", 1, None, True, "cret"], False),
    ],
)
def test_a_key_in_parts_is_found_in_texts_of_one_place(value: object, expected: bool) -> None:
    assert KeyMask("secret").is_in_parts(value) is expected
    assert not KeyMask(None).is_in_parts(value)
