"""Each comparator accepts what it should, and gives evidence of what it does not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from toolbox.ground.extensions import loading
from toolbox.ground.extensions.protocols import COMPARATORS
from toolbox.ground.kit.server_answers import Generation, ServerError, Token
from toolbox.ground.model.model_answers import Mismatch


def compare(comparator: str, expected: Generation, actual: Generation, **fields: Any) -> Mismatch | None:
    return loading.parse(COMPARATORS, {"comparator": comparator, **fields}).compare(expected, actual)


def tokens(text: str, logprob: float | None = None, **changes: Token) -> Generation:
    """Return an answer with one token per word. `t2=Token(...)` replaces the second token."""
    words = [Token(word, index, logprob) for index, word in enumerate(text.split())]
    for name, token in changes.items():
        words[int(name[1:]) - 1] = token
    return Generation(text, tokens=tuple(words))


def test_an_equal_answer_is_exact() -> None:
    expected = Generation("a b", "MAX_TOKENS", None, 1, 2, 7, (Token("a"), Token(" b")))
    assert compare("exact", expected, expected) is None


def test_a_field_that_the_case_does_not_give_is_not_compared() -> None:
    assert compare("exact", Generation("a"), Generation("a", "MAX_TOKENS", "x", 1, 2, 3, (Token("a"),))) is None


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("stop_reason", "EOS_TOKEN", "stop_reason is 'EOS_TOKEN', expected 'MAX_TOKENS'"),
        ("stop_sequence", None, "stop_sequence is None, expected 'x'"),
        ("input_token_count", 9, "input_token_count is 9, expected 1"),
        ("generated_token_count", None, "generated_token_count is None, expected 2"),
        ("seed", 2**64 - 1, "seed is 18446744073709551615, expected 3"),
    ],
)
def test_each_field_that_differs_is_named(field: str, value: object, message: str) -> None:
    expected = Generation("a", "MAX_TOKENS", "x", 1, 2, 3)
    mismatch = compare("exact", expected, Generation(**{**vars(expected), field: value}))
    assert mismatch is not None
    assert mismatch.message == message


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (Token("a", 7, bytes=(97,), top=(Token("b", 8, bytes=(98,)),)), None),
        (Token("a", 9, bytes=(97,), top=(Token("b", 8, bytes=(98,)),)), "token 1 has id 9, expected 7"),
        (Token("a", 7, top=(Token("b", 8, bytes=(98,)),)), "token 1 has bytes None, expected [97]"),
        (Token("a", 7, bytes=(97,), top=(Token("b", 8, bytes=(99,)),)), "the top token 'b' of token 1 has another id"),
        (Token("a", 7, bytes=(97,), top=(Token("b", 9), Token("b", 8, bytes=(98,)))), None),
    ],
)
def test_ids_and_bytes_of_tokens_are_exact(token: Token, message: str | None) -> None:
    expected = Generation(tokens=(Token("a", 7, bytes=(97,), top=(Token("b", 8, bytes=(98,)),)),))
    mismatch = compare("exact", expected, Generation(tokens=(token,)))
    assert (mismatch is None) is (message is None)
    assert message is None or (mismatch is not None and mismatch.message.startswith(message))


def test_ids_that_a_server_lists_beside_the_tokens_are_compared() -> None:
    expected, other = Generation(token_ids=(1, 2)), Generation(token_ids=(1, 3))
    mismatch = compare("exact", expected, other)
    assert mismatch is not None
    assert mismatch.message == "token_ids differs at item 2: 3, expected 2"
    assert compare("token_ids", expected, other) is not None
    assert compare("token_ids", Generation(), expected, ids=[1, 2]) is None


def test_an_empty_part_of_a_message_compares_nothing() -> None:
    error = Generation(error=ServerError("X", ""))
    assert compare("error", error, error) is None
    assert compare("error", error, error, message="contains") is not None


def test_an_answer_without_logprobs_says_so() -> None:
    mismatch = compare("logprobs", tokens("a", -0.5), Generation("a"))
    assert mismatch is not None
    assert mismatch.message == "the answer has no tokens, and so no logprobs"


def test_the_evidence_is_the_first_divergence_with_both_contexts() -> None:
    top = (Token(" time", 5, -0.1), Token("day", 6, -2.5))
    expected = tokens("Once upon a time in a land", t4=Token("time", 3, -0.1, 1, top))
    actual = tokens("Once upon a day it was", t4=Token("day", 6, -0.2))
    mismatch = compare("exact", expected, actual)
    assert mismatch is not None
    assert mismatch.message.startswith(
        "the text differs at character 13: token 4 is 'day' (id 6, logprob -0.2), expected 'time' (id 3, logprob -0.1)"
    )
    assert mismatch.evidence[:5] == (
        "expected: Once upon a >>time in a land",
        "actual:   Once upon a >>day it was",
        "expected: 'Once' 'upon' 'a' >>'time'<< 'in' 'a' 'land'",
        "actual:   'Once' 'upon' 'a' >>'day'<< 'it' 'was'",
        "top tokens, expected (rank 1): ' time' (id 5, logprob -0.1), 'day' (id 6, logprob -2.5)",
    )


def test_without_expected_tokens_the_evidence_names_the_character_and_the_token_of_the_answer() -> None:
    actual = Generation("abXd", tokens=(Token("ab", 1), Token("Xd", 2)))
    mismatch = compare("exact", Generation("abcd"), actual)
    assert mismatch is not None
    assert mismatch.message == "the text differs at character 3: 'X', expected 'c'"
    assert mismatch.evidence[-1] == "the character is in token 2 of the answer: 'Xd' (id 2)"


@pytest.mark.parametrize(
    ("expected", "actual", "message"),
    [
        ("abc", "ab", "the text differs at character 3: the end, expected 'c'"),
        ("ab", "abc", "the text differs at character 3: 'c', expected the end"),
        ("ab", "", "the text differs at character 1: the end, expected 'a'"),
    ],
)
def test_a_text_that_ends_early_or_late_differs(expected: str, actual: str, message: str) -> None:
    mismatch = compare("exact", Generation(expected), Generation(actual))
    assert mismatch is not None
    assert mismatch.message == message


def test_hostile_text_is_escaped_and_truncated() -> None:
    mismatch = compare(
        "exact", Generation("a"), Generation("\x1b[31m\u202e" + "x" * 100_000, tokens=(Token("\x1b" * 500),))
    )
    assert mismatch is not None
    assert all(line.isprintable() and len(line) < 500 for line in (mismatch.message, *mismatch.evidence))


def test_ranks_and_the_texts_of_top_tokens_are_compared_in_any_order() -> None:
    top = (Token("b"), Token("a"))
    expected = Generation(tokens=(Token("a", rank=2, top=top),))
    assert compare("exact", expected, Generation(tokens=(Token("a", rank=2, top=top[::-1]),))) is None
    ranked = compare("exact", expected, Generation(tokens=(Token("a", rank=3, top=top),)))
    assert ranked is not None
    assert ranked.message == "token 1 has rank 3, expected 2"
    other = compare("exact", expected, Generation(tokens=(Token("a", rank=2, top=(Token("a"), Token("c"))),)))
    assert other is not None
    assert other.message == "the top tokens of token 1 lack ['b'] and have ['c']"


def test_a_missing_list_of_tokens_differs() -> None:
    mismatch = compare("exact", Generation(input_tokens=(Token("a"),)), Generation("a"))
    assert mismatch is not None
    assert mismatch.message == "the answer has no input tokens"


def test_a_prefix_is_enough_for_prefix() -> None:
    assert compare("prefix", Generation("Once"), Generation("Once upon")) is None
    assert compare("prefix", Generation("x"), Generation("Once upon"), text="Once") is None
    mismatch = compare("prefix", Generation("Onze"), Generation("Once upon"))
    assert mismatch is not None
    assert mismatch.message == "the text differs at character 3: 'c', expected 'z'"
    assert compare("prefix", Generation(), Generation("Once")) is not None


@pytest.mark.parametrize(
    ("pattern", "search", "matches"),
    [
        (r"\d+ apples", False, True),
        (r"\d+", False, False),
        (r"apples$", True, True),
        (r"pears", True, False),
    ],
)
def test_an_expression_matches_the_whole_text_or_a_part(pattern: str, search: bool, matches: bool) -> None:
    mismatch = compare("regex", Generation(), Generation("12 apples"), pattern=pattern, search=search)
    assert (mismatch is None) is matches


def test_an_expression_that_hangs_other_engines_ends() -> None:
    assert compare("regex", Generation(), Generation("a" * 100_000 + "b"), pattern="(a+)+$") is not None


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "(", "", "((a{1000}){1000}){1000}", "\ud800"])
def test_an_expression_that_re2_does_not_have_is_a_fault(pattern: str) -> None:
    with pytest.raises((ValueError, ValidationError)):
        loading.parse(COMPARATORS, {"comparator": "regex", "pattern": pattern})


def test_ids_are_compared() -> None:
    assert compare("token_ids", tokens("a b"), tokens("x y")) is None
    assert compare("token_ids", Generation(), tokens("a b"), ids=[0, 1]) is None
    mismatch = compare("token_ids", tokens("a b"), tokens("a b", t2=Token("b", 9)))
    assert mismatch is not None
    assert mismatch.message == "token 2 is 'b' (id 9), expected 'b' (id 1)"


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (Generation("a"), tokens("a")),
        (tokens("a"), Generation("a")),
        (tokens("a"), Generation("a", tokens=(Token("a"),))),
    ],
)
def test_unknown_ids_never_match(expected: Generation, actual: Generation) -> None:
    assert compare("token_ids", expected, actual) is not None


@pytest.mark.parametrize(
    ("given", "fields", "is_close"),
    [
        (-1.0, {}, True),
        (-1.0004, {}, True),
        (-1.001, {}, False),
        (-1.001, {"relative": 0.01}, True),
        (-1.001, {"absolute": 0.01}, True),
        (None, {}, False),
        (math.nan, {}, False),
    ],
)
def test_logprobs_are_close_within_the_tolerances(
    given: float | None, fields: dict[str, float], is_close: bool
) -> None:
    mismatch = compare("logprobs", tokens("a b", -1.0), tokens("a b", -1.0, t2=Token("b", 1, given)), **fields)
    assert (mismatch is None) is is_close
    assert mismatch is None or mismatch.evidence == ("before: 'a'",)


def test_a_logprob_that_must_not_exist_is_none_or_nan() -> None:
    expected = tokens("a", math.nan)
    assert compare("logprobs", expected, tokens("a", None)) is None
    assert compare("logprobs", expected, tokens("a", math.nan)) is None
    assert compare("logprobs", expected, tokens("a", -1.0)) is not None


def test_without_any_logprob_nothing_is_close() -> None:
    assert compare("logprobs", tokens("a"), tokens("a", -1.0)) is not None


def test_the_logprobs_of_top_tokens_are_compared() -> None:
    expected = tokens("a", t1=Token("a", 0, -1.0, top=(Token("a", 0, -1.0), Token("b", 1, -2.0))))
    near = tokens("a", t1=Token("a", 0, -1.0, top=(Token("b", 1, -2.0001), Token("a", 0, -1.0))))
    far = tokens("a", t1=Token("a", 0, -1.0, top=(Token("a", 0, -1.0), Token("b", 1, -2.1))))
    tie = tokens("a", t1=Token("a", 0, -1.0, top=(Token("a", 0, -1.0), Token("c", 2, -2.0))))
    gone = tokens("a", t1=Token("a", 0, -1.0, top=(Token("a", 0, -1.0), Token("c", 2, -1.5))))
    assert [compare("logprobs", expected, actual) is None for actual in (near, far, tie, gone)] == [
        True,
        False,
        True,
        False,
    ]


def near(text: str, *top: str) -> Token:
    return Token(text, top=tuple(Token(each, None, -float(rank)) for rank, each in enumerate(top)))


@pytest.mark.parametrize(
    ("expected", "actual", "is_close"),
    [
        (near("b", "b", "c"), near("c", "c", "b"), True),
        (near("b", "b", "c"), near("c", "c", "d", "b"), False),
        (near("b", "b", "d", "c"), near("c", "c", "b"), False),
        (near("b"), near("c", "c", "b"), False),
        (near("b", "b", "c"), near("c"), False),
    ],
)
def test_at_the_first_divergence_each_token_is_among_the_top_of_the_other(
    expected: Token, actual: Token, is_close: bool
) -> None:
    mismatch = compare("first_divergence", tokens("a b x y", t2=expected), tokens("a c z", t2=actual), top=2)
    assert (mismatch is None) is is_close
    assert mismatch is None or mismatch.message.startswith("token 2 is ")


def test_top_tokens_may_be_in_any_order() -> None:
    expected, actual = (
        near("b", "b", "c"),
        Token("c", top=(Token("x", None, -9.0), Token("c", None, -1.0), Token("b", None, -2.0))),
    )
    assert compare("first_divergence", tokens("a b", t2=expected), tokens("a c", t2=actual), top=2) is None


def test_an_answer_that_ends_early_is_not_close() -> None:
    mismatch = compare("first_divergence", tokens("a b"), tokens("a"))
    assert mismatch is not None
    assert mismatch.message == "token 2 is the end, expected 'b' (id 1): one answer ends there"


def test_without_tokens_only_an_equal_text_is_close() -> None:
    assert compare("first_divergence", Generation("a"), Generation("a")) is None
    assert compare("first_divergence", Generation("a"), tokens("b")) is not None


def test_similarity_is_the_share_of_the_longest_common_subsequence() -> None:
    assert compare("similarity", Generation("abcd"), Generation("abxd"), threshold=0.75) is None  # 2 * 3 / 8
    mismatch = compare("similarity", Generation("abcd"), Generation("abxd"), threshold=0.76)
    assert mismatch is not None
    assert mismatch.message == "the similarity to the expected text is 0.750, less than 0.76"
    assert compare("similarity", Generation(""), Generation("")) is None
    assert compare("similarity", Generation(), Generation("a")) is not None


ERROR = Generation(error=ServerError("INVALID_ARGUMENT", "max_new_tokens must be <= 169", 400))


@pytest.mark.parametrize(
    ("expected", "fields", "matches"),
    [
        (ServerError("INVALID_ARGUMENT", "max_new_tokens must be <= 169", 400), {}, True),
        (ServerError("INVALID_ARGUMENT"), {}, True),
        (ServerError(), {}, True),
        (ServerError("INTERNAL"), {}, False),
        (ServerError(status=422), {}, False),
        (ServerError(message="max_new_tokens"), {}, False),
        (ServerError(message="max_new_tokens"), {"message": "contains"}, True),
        (ServerError(message="min_new_tokens"), {"message": "contains"}, False),
        (ServerError(message="min_new_tokens"), {"message": "ignore"}, True),
    ],
)
def test_an_error_is_compared_field_by_field(expected: ServerError, fields: dict[str, str], matches: bool) -> None:
    assert (compare("error", Generation(error=expected), ERROR, **fields) is None) is matches


def test_a_text_is_not_the_expected_error_and_an_error_not_the_expected_text() -> None:
    mismatch = compare("error", ERROR, Generation("hello"))
    assert mismatch is not None
    assert mismatch.message.startswith("the server answers 'hello', expected the error INVALID_ARGUMENT: 400: ")
    assert compare("error", Generation("hello"), ERROR) is not None


def test_an_answer_without_a_text_is_empty() -> None:
    assert compare("exact", Generation(""), Generation()) is None
    assert compare("exact", Generation("a"), Generation()) is not None


def test_an_empty_prefix_is_a_fault() -> None:
    mismatch = compare("prefix", Generation(""), Generation("anything"))
    assert mismatch is not None
    assert mismatch.message == "the expected text is empty, so that every text begins with it"
    assert compare("prefix", Generation(""), Generation("")) is None
    with pytest.raises(ValueError, match="text"):
        compare("prefix", Generation("a"), Generation("b"), text="")


@pytest.mark.parametrize("unknown", [None, math.nan])
def test_a_top_token_without_a_logprob_is_the_least_probable_one(unknown: float | None) -> None:
    top = (Token("c", 3, unknown), Token("b", 2, -0.1), Token("d", 4, -0.2))
    expected, actual = tokens("a b", t2=Token("b", top=top)), tokens("a c", t2=Token("c", top=top[1:]))
    assert compare("first_divergence", expected, actual, top=1) is not None


def test_equal_tokens_with_another_text_are_not_close() -> None:
    expected, actual = tokens("a b"), replace(tokens("a b"), text="a")
    assert compare("first_divergence", expected, actual) is not None
