"""JSON of a server is decoded with limits, and every type is checked."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.features.inference.client import json_values
from toolbox.features.inference.client.answer_format import FaultError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"<html>", "not JSON: .*<html>"),
        (b'"\xff"', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * 101 + b"1" + b"]" * 101, "nested too deeply"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "nested too deeply"),
        (b"1" * 5000, "not JSON"),
        (b'"\\ud800"', "half of a UTF-16 pair"),
    ],
)
def test_what_cannot_be_decoded_is_a_fault(content: bytes, message: str) -> None:
    with pytest.raises(FaultError, match=message):
        json_values.decoded(content)


def test_numbers_that_json_does_not_have_become_their_names() -> None:
    content = b"[NaN, Infinity, -Infinity, 1e999, -1e999, 1e9]"
    assert json_values.decoded(content) == ["NaN", "Infinity", "-Infinity", "Infinity", "-Infinity", 1e9]


def test_a_depth_below_the_limit_is_decoded() -> None:
    assert json_values.decoded(b"[" * 99 + b"1" + b"]" * 99)
    assert json_values.decoded(b"[[], {}, [[]]]") == [[], {}, [[]]]


def test_a_whole_utf_16_pair_is_a_character() -> None:
    assert json_values.decoded(b'"\\ud83d\\ude00"') == "\U0001f600"


def test_a_message_shows_the_wrong_value_in_short() -> None:
    with pytest.raises(FaultError, match=r"^choices of the answer is not a list: '\"xxx") as caught:
        json_values.sequence("x" * 10_000, "choices")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [True, -1, 1.5, "1", 2**63, 10**400, []])
def test_a_count_is_a_whole_number(value: object) -> None:
    with pytest.raises(FaultError):
        json_values.count(value, "count")


@pytest.mark.parametrize("value", [False, "1", [], 10**400])
def test_a_number_is_not_a_text(value: object) -> None:
    with pytest.raises(FaultError):
        json_values.finite_number(value, "logprob")


@pytest.mark.parametrize("value", [None, "NaN", "-Infinity"])
def test_a_logprob_without_a_finite_value_is_unknown(value: object) -> None:
    assert json_values.finite_number(value, "logprob") is None


@given(st.binary() | st.text().map(lambda text: json.dumps(text).encode()))
def test_no_bytes_lead_to_another_error(content: bytes) -> None:
    try:
        value = json_values.decoded(content)
    except FaultError:
        return
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
