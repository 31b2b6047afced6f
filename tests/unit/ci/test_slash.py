"""The slash commands in a comment are parsed."""

import datetime as dt
import time
from typing import Any

import pytest

from toolbox.ci import slash
from toolbox.ci.slash import CommentRequest
from toolbox.model.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", CommentRequest()),
        ("looks good to me\nno /test here", CommentRequest()),
        ("/test training", CommentRequest(project="training")),
        ("please\n/test training smoke large\nthanks", CommentRequest(project="training", presets=("smoke", "large"))),
        ("/test 'a project' \"p q\" r\\ s", CommentRequest(project="a project", presets=("p q", "r s"))),
        ("/test\ttraining\t smoke  ", CommentRequest(project="training", presets=("smoke",))),
        ("/skip prepare\n/skip 'post_cleanup' test", CommentRequest(skip=("prepare", "post_cleanup", "test"))),
        ("/only test prepare", CommentRequest(only=("test", "prepare"))),
        ("/help", CommentRequest(help=True)),
        ("/help me", CommentRequest(help=True)),
        ("/help\n/test training", CommentRequest(project="training", help=True)),
        (" /test training", CommentRequest()),
        ("> /test training", CommentRequest()),
        ("- /test training", CommentRequest()),
        ("/test training\n  smoke\n  large", CommentRequest(project="training", presets=("smoke", "large"))),
        ("/test training\n\n  in my opinion", CommentRequest(project="training")),
        ("/test training\n \t\n    $ make test", CommentRequest(project="training")),
        ("/skip prepare\n\n  because", CommentRequest(skip=("prepare",))),
        ("```inline``` code\n/test training", CommentRequest(project="training")),
    ],
)
def test_the_commands_of_a_comment_are_parsed(text: str, expected: CommentRequest) -> None:
    assert slash.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("/var a.b: 1", {"a.b": 1}),
        ("/var tag: '1.10'", {"tag": "1.10"}),
        ("/var a: null", {"a": None}),
        ("/var a:", {"a": None}),
        ("/var a: {k: [1, x]}", {"a": {"k": [1, "x"]}}),
        ("/var a[\"x.y\"]: 'q: r'", {'a["x.y"]': "q: r"}),
        ("/var day: 2026-11-21", {"day": dt.date(2026, 11, 21)}),
        ("/var 8: x", {"8": "x"}),
        ("/var a: 1\n/var b: 2\n/var a: 3", {"a": 3, "b": 2}),
        ("/var a: |\n  one\n  two\n\n  three\nthanks", {"a": "one\ntwo\n\nthree"}),
        ("/var a: |-\r\n  one\r\n  two\r\n/help\r\n", {"a": "one\ntwo"}),
        ("/var a:\n  k: 1\n  l:\n  - x", {"a": {"k": 1, "l": ["x"]}}),
        ("/var a:\n\t\n  k: 1\n", {"a": {"k": 1}}),
        ("/var\n  a: 1\n  b: 2\n", {"a": 1, "b": 2}),
        ("/var a: [1,\n  2]\n", {"a": [1, 2]}),
        ("/var a:\n  k: 1\n\n  l: 2\n", {"a": {"k": 1, "l": 2}}),
        ("/var\n  a: 1\n\n  b: 2\n", {"a": 1, "b": 2}),
        ("/var a: 1\n\n    and so on\n", {"a": 1}),
        ("/var a: text\n  goes on\n\n    and so on\n", {"a": "text goes on"}),
        ("/var a: >2-\n    one\n\n    two\n", {"a": "  one\n\n  two"}),
        ("/var a: |\n  ```\n  code\n  ```\n  end\n", {"a": "```\ncode\n```\nend"}),
        ("/var a: '; touch pwned; $(touch pwned2)'", {"a": "; touch pwned; $(touch pwned2)"}),
    ],
)
def test_a_field_is_overridden_with_yaml_in_one_line_or_several(text: str, overrides: dict[str, Any]) -> None:
    assert slash.parse(text).overrides == overrides


@pytest.mark.parametrize(
    "text",
    [
        "```\n/test training\n```",
        "```yaml\n/test training\n```",
        "~~~\n/test training\n~~~",
        "```\n~~~\n/test training\n```",
        "````\n```\n/test training\n```\n````",
        "```\n``` not the end\n/test training\n```",
        "```\n/test training",
        "  ```\n/test training\n  ```",
        "```\r\n/test training\r\n```\r\n",
    ],
)
def test_fenced_blocks_are_ignored(text: str) -> None:
    assert slash.parse(text) == CommentRequest()


def test_commands_after_a_fenced_block_are_read() -> None:
    assert slash.parse("```\n/test one\n```\n/test two\n~~~\n/test three\n~~~").project == "two"


def test_a_fenced_block_after_a_test_is_not_part_of_it() -> None:
    assert slash.parse("/test training\n\n  ```\n  log\n  ```\n/help") == CommentRequest(project="training", help=True)


def test_a_fenced_block_ends_the_command_before_it() -> None:
    assert slash.parse("/var a: 1\n```\n  b: 2\n```\n/var c: 3").overrides == {"a": 1, "c": 3}


def test_every_fault_is_named_with_its_line() -> None:
    text = "/tset training\nhello\n/var a: [\n/test\n/lgtm\n/only\n/test it's"
    with pytest.raises(UsageError) as caught:
        slash.parse(text)
    head, *faults = str(caught.value).split("\n  ")
    assert head == "the comment cannot be understood:"
    assert faults[0] == "line 1: unknown command /tset: did you mean test?"
    assert faults[1].startswith("line 3: /var: 'a: [' is not YAML: ")
    assert faults[2:] == [
        "line 4: /test needs the name of a project after it",
        "line 5: unknown command /lgtm: the commands are help, only, skip, test, var",
        "line 6: /only needs the names of phases after it",
        "line 7: /test: No closing quotation",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("/test one\n\n/test two", "line 3: /test occurs twice: a comment can run only one project"),
        ("/skip a\n/only b", "/skip and /only cannot be used together"),
        ("/var a", "line 1: /var: 'a' is not `path: value`"),
        ("/var", "line 1: /var: '' is not `path: value`"),
        ("/var - a", "line 1: /var: '- a' is not `path: value`"),
        ("/var {}", "line 1: /var: '{}' is not `path: value`"),
        ("/var a: !!python/object/apply:os.system ['true']", "is not YAML: could not determine a constructor"),
        (f"/var a: {'[' * 500}{']' * 500}", "is nested more than 20 levels deep"),
        (
            "/var a: &a [1]\n/var b: [*a, *a]",
            "line 2: /var: a YAML alias (*) is not allowed here: write the value itself",
        ),
        ("/var\n a: &a [*a]", "line 1: /var: a YAML alias (*) is not allowed here: write the value itself"),
        ("/TEST training", "line 1: unknown command /TEST: "),
        ("/usr/bin/env", "line 1: unknown command /usr/bin/env: "),
        ("/", "line 1: unknown command /: "),
        ("//", "line 1: unknown command /: "),
        ("/тест", "line 1: unknown command /тест: "),
    ],
)
def test_unparsable_commands_are_refused(text: str, fault: str) -> None:
    with pytest.raises(UsageError) as caught:
        slash.parse(text)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"/var a: {'[' * 60_000}",
        f"/var a: {'{a: ' * 15_000}",
        f"/var a: {'|' * 30_000}" + "\n\n a\n" * 5000,
        "/var a: 0x" + "f" * 60_000,
        "/var a: 0b" + "1" * 60_000,
        "/var a: " + "1:" * 20_000 + "1",
        "/var a: " + "9" * 60_000,
    ],
    ids=lambda text: text[:11],
)
def test_a_comment_with_explosive_yaml_is_refused(text: str) -> None:
    began = time.process_time()
    with pytest.raises(UsageError):
        slash.parse(text)
    assert time.process_time() - began < 5  # without limits, these comments took up to three minutes


def test_the_help_names_every_command() -> None:
    assert all(f"/{name}" in slash.HELP for name in slash.COMMANDS)
    assert "fenced" not in slash.HELP
