"""Any text is parsed, or refused politely, in linear time; a comment that is written from a request gives it back."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolbox.config.references import is_reference
from toolbox.features.ci import refusals, slash
from toolbox.features.ci.slash import CommentRequest, Quarantine, RetestRequest
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import UsageError

PROJECTS: Final = ("alpha", "beta", "gamma delta")
TOKENS: Final = (
    *(f"\n/{name} " for name in slash.COMMANDS),
    *(
        "\n",
        "\r\n",
        "\t",
        "  ",
        "/",
        ":",
        ": ",
        "- ",
        "|",
        ">",
        "!!bool ",
        "!x",
        "&a ",
        "*a",
        "{",
        "}",
        "[",
        "]",
        "<<: ",
    ),
    *(
        "'",
        '"',
        "\\",
        "`",
        "```\n",
        "~~~\n",
        "\n> ",
        "0x",
        "9",
        "1:",
        "?",
        "=",
        "%",
        "@",
        "{@a}",
        "\0",
        "\ud800",
        "\u200b",
    ),
    *("\x85", "\u2028", "\x1b[2J", "\u202e", "alpha", "beta", "a.b: 1", "2026-99-99", "null", "\u043e", "x" * 100),
)
COMMENTS: Final = st.lists(st.sampled_from(TOKENS) | st.text(max_size=8), max_size=60).map("".join)
WORDS: Final = st.text(st.characters(categories=("L", "N", "P", "S")) | st.just(" "), min_size=1, max_size=12).filter(
    lambda text: text.isprintable()
)
PLAIN: Final = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12).filter(
    lambda text: not is_reference(text)
)
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=5,
)
PATTERNS: Final = st.text("abxyz012=,*?[]-.", min_size=1, max_size=12)
QUARANTINES: Final = st.builds(Quarantine, PATTERNS, st.text("abc '\"/|:", min_size=1, max_size=20).map(
    lambda text: " ".join(text.split()) or "why"
))  # fmt: skip
PHASES: Final = st.lists(WORDS.filter(str.strip), max_size=2).map(tuple)
TESTS: Final = st.builds(
    slash.TestRequest,
    st.sampled_from(PROJECTS),
    job=st.none() | WORDS.filter(lambda word: word not in PROJECTS),
    presets=st.lists(WORDS, max_size=3).map(tuple),
    overrides=st.dictionaries(PLAIN, VALUES, max_size=3),
    only=PHASES,
    cells=st.lists(PATTERNS, max_size=2).map(tuple),
    cluster=st.none() | WORDS,
    quarantine=st.lists(QUARANTINES, max_size=2).map(tuple),
)
REQUESTS: Final = st.builds(
    CommentRequest,
    st.lists(TESTS, max_size=3).map(tuple),
    st.lists(st.sampled_from([None, *PROJECTS]), unique=True).map(lambda names: tuple(map(RetestRequest, names))),
    st.booleans(),
    st.booleans(),
)


@given(COMMENTS)
@example("/test alpha\n/var a: !!bool x")
@example("/test alpha\n/var ? [a]\n  : 1")
@settings(max_examples=150)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        slash.parse(text, PROJECTS)
    except UsageError as error:
        lines = refusals.shortened(str(error)).split("\n")
        assert len(lines) <= 5
        assert all(line.isprintable() for line in lines)


@given(COMMENTS)
@settings(max_examples=100)
def test_any_value_of_an_override_is_parsed_or_refused(text: str) -> None:
    try:
        request = slash.parse(f"/test alpha\n/var {text}", PROJECTS)
    except UsageError:
        return
    json.dumps([dict(test.overrides) for test in request.tests], default=str).encode()


def written(request: CommentRequest) -> Iterator[str]:
    """Yield the lines of a comment that requests something."""
    for test in request.tests:
        yield shlex.join(["/test", *([test.job] if test.job else []), test.project, *test.presets])
        for path, value in test.overrides.items():
            yield f"/var {yaml_text.dump_line({path: value})}"
        for command, words in (("only", test.only), ("cells", test.cells)):
            if words:
                yield shlex.join([f"/{command}", *words])
        if test.cluster:
            yield shlex.join(["/cluster", test.cluster])
        yield from (f"/quarantine '{each.cells}' {each.reason}" for each in test.quarantine)
    yield from (shlex.join(["/retest", *([each.project] if each.project else [])]) for each in request.retest)
    yield from ["/cancel"] * request.cancel + ["/help"] * request.help


@given(REQUESTS)
def test_a_comment_that_is_written_from_a_request_gives_the_request_back(request: CommentRequest) -> None:
    assert slash.parse("\n".join(written(request)), PROJECTS) == request


def seconds(text: str) -> float:
    began = time.process_time()
    with pytest.raises(UsageError):
        slash.parse(text, PROJECTS)
    return time.process_time() - began


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "/x\n",
            "/var a: 1\n",
            "/test alpha\n",
            "/var a:\n  b: 1\n\n",
            "/quarantine x y\n",
            "/cells '\n",
            "```\n/x\n",
        ),
        *(
            "/",
            "'",
            "\\",
            "|",
            "[",
            "{a: ",
            "- ",
            "1:",
            "9",
            "\x85",
            "&a ",
            "a.",
            "[0]",
            " ",
            "\n\n",
            "\t",
            "'x' ",
            "?",
        ),
    ],
)
def test_the_time_of_parsing_is_linear(unit: str) -> None:
    head, tail = "/test alpha\n/skip ''\n/var ", "\n/wrong"
    short, long = (head + unit * (size // len(unit)) + tail for size in (15_000, 60_000))
    least = min(seconds(short) for _ in range(3))
    assert min(seconds(long) for _ in range(2)) < 8 * least + 0.2  # four times as long
