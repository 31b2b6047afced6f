"""Descriptions of models are compared by the fields that are expected."""

from __future__ import annotations

from typing import Any

import pytest

from toolbox.features.inference import model_descriptions

LIMITS = {"maxSequenceLength": 200, "maxNewTokens": 169}
LISTED = {"object": "list", "data": [{"id": "a", "created": 7, "meta": {"n": 1, "k": [1]}}, {"id": "b"}]}


def messages(protocol: str, expected: dict[str, Any], response: Any) -> list[str]:
    return [each.message for each in model_descriptions.mismatches(protocol, expected, response)]


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({}, []),
        ({"max_new_tokens": 169}, []),
        ({"model_kind": "DECODER_ONLY"}, []),  # protobuf does not send the first value of an enumeration
        ({"max_new_tokens": 170}, ["max_new_tokens is 169, expected 170"]),
        ({"model_kind": "ENCODER_DECODER"}, ["model_kind is 'DECODER_ONLY', expected 'ENCODER_DECODER'"]),
    ],
)
def test_expected_limits_are_compared(expected: dict[str, Any], found: list[str]) -> None:
    assert messages("model_info", expected, LIMITS) == found


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({}, []),
        ({"data": []}, []),
        ({"data": [{"id": "b"}, {"id": "a", "meta": {"n": 1}}]}, []),
        ({"object": "x"}, ["object is 'list', expected 'x'"]),
        ({"data": [{"id": "a", "meta": {"n": 2}}]}, ["model 'a': meta.n is 1, expected 2"]),
        ({"data": [{"id": "b", "created": 7}]}, ["model 'b': created is missing, expected 7"]),
        ({"data": [{"id": "a", "meta": {"n": True}}]}, ["model 'a': meta.n is 1, expected true"]),
        ({"data": [{"id": "a", "meta": {"m": None}}]}, ["model 'a': meta.m is missing, expected null"]),
        ({"data": [{"id": "\x1b"}]}, ["the server does not list the model '\\x1b', but 'a', 'b'"]),
    ],
)
def test_expected_models_are_compared_by_their_names(expected: dict[str, Any], found: list[str]) -> None:
    assert messages("models", expected, LISTED) == found


@pytest.mark.parametrize(
    ("protocol", "response"), [("models", None), ("models", {"data": [{}]}), ("model_info", {"maxNewTokens": "x"})]
)
def test_a_response_of_another_form_is_a_mismatch(protocol: str, response: Any) -> None:
    (message,) = messages(protocol, {}, response)
    assert message.startswith("the response is not valid: ")


def test_fields_that_change_with_each_start_are_not_recorded() -> None:
    assert model_descriptions.recorded("models", LISTED) == {"data": [{"id": "a"}, {"id": "b"}]}


def test_limits_are_recorded_with_their_defaults() -> None:
    assert model_descriptions.recorded("model_info", {"maxNewTokens": 1}) == {
        "model_kind": "DECODER_ONLY",
        "max_sequence_length": 0,
        "max_new_tokens": 1,
    }
