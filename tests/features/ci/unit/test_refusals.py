"""Refusals of comments are short, printable, and name the lines with faults."""

import pytest

from toolbox.features.ci import refusals
from toolbox.features.ci.refusals import Fault
from toolbox.ground.model.errors import UsageError


def test_one_fault_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^the comment: line 3: wrong$"):
        refusals.raise_for([Fault(3, "wrong"), Fault(3, "wrong")])


def test_faults_are_sorted_by_their_lines_and_each_has_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        refusals.raise_for([Fault(10, "later"), Fault(2, "two\nlines")])
    assert str(caught.value) == "the comment has 2 faults:\n  line 2: two lines\n  line 10: later"


def test_faults_in_many_lines_are_abbreviated() -> None:
    with pytest.raises(UsageError) as caught:
        refusals.raise_for(Fault(number, "wrong") for number in range(1, 21))
    assert str(caught.value).endswith("\n  and 17 more, in lines 4, 5, 6, 7, 8, 9, 10, 11, ...")


def test_no_fault_is_no_refusal() -> None:
    refusals.raise_for([])


def test_an_error_of_many_long_lines_becomes_short() -> None:
    with pytest.raises(UsageError) as caught, refusals.short():
        raise UsageError("\n".join(["x" * 1000, "\x1b[2J", "three", "four", "five", "six"]))
    lines = str(caught.value).split("\n")
    assert lines == ["x" * 297 + "...", "\\x1b[2J", "three", "four", "  and 2 more lines"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("loud", "`loud`"),
        ("l\u043eud", "`l\u043eud` (which contains U+043E)"),
        ("a\u200b\ud800", "`a\\u200b\\ud800` (which contains U+200B, U+D800)"),
        ("x" * 100, f"`{'x' * 57}...`"),
    ],
)
def test_a_name_is_quoted_with_the_characters_that_are_not_ascii(name: str, text: str) -> None:
    assert refusals.quoted(name) == text
