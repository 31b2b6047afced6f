"""The slash commands in a comment are parsed."""

import datetime as dt
import time
from typing import Any, Final

import pytest

from toolbox.features.ci import slash
from toolbox.features.ci.slash import CommentRequest, Quarantine, RetestRequest
from toolbox.ground.model.errors import UsageError

PROJECTS: Final = ("a project", "one", "three", "training", "two")


def parse(text: str) -> CommentRequest:
    return slash.parse(text, PROJECTS)


def only(text: str) -> slash.TestRequest:
    """Return the only test of a comment."""
    (test,) = parse(text).tests
    return test


def requested(project: str, *presets: str, **fields: Any) -> CommentRequest:
    """Return a comment with one test."""
    return CommentRequest((slash.TestRequest(project, presets=presets, **fields),))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", CommentRequest()),
        ("looks good to me\nno /test here", CommentRequest()),
        ("/test training", requested("training")),
        ("please\n/test training smoke large\nthanks", requested("training", "smoke", "large")),
        ("/test 'a project' \"p q\" r\\ s", requested("a project", "p q", "r s")),
        ("/test\ttraining\t smoke  ", requested("training", "smoke")),
        ("/test nightly training", requested("training", job="nightly")),
        ("/test nightly training smoke", requested("training", "smoke", job="nightly")),
        ("/test one training", requested("one", "training")),
        (
            "/test one\n/skip prepare\n/skip 'post_cleanup' test",
            requested("one", skip=("prepare", "post_cleanup", "test")),
        ),
        ("/test one\n/only test prepare", requested("one", only=("test", "prepare"))),
        ("/test one\n/cells x=* 'y=1 y=2'\n/cells z", requested("one", cells=("x=*", "y=1", "y=2", "z"))),
        ("/test one\n/cluster metal", requested("one", cluster="metal")),
        ("/test one\n/quarantine x=1 it's flaky", requested("one", quarantine=(Quarantine("x=1", "it's flaky"),))),
        ("/test one\n/quarantine 'x=*'\n  a  reason", requested("one", quarantine=(Quarantine("x=*", "a reason"),))),
        ("/retest", CommentRequest(retest=(RetestRequest(),))),
        ("/retest one\n/retest two\n/retest one", CommentRequest(retest=(RetestRequest("one"), RetestRequest("two")))),
        ("/cancel", CommentRequest(cancel=True)),
        ("/help", CommentRequest(help=True)),
        ("/help me", CommentRequest(help=True)),
        ("/help\n/test training", CommentRequest((slash.TestRequest("training"),), help=True)),
        (" /test training", CommentRequest()),
        ("> /test training", CommentRequest()),
        ("- /test training", CommentRequest()),
        ("/test training\n  smoke\n  large", requested("training", "smoke", "large")),
        ("/test training\n\n  in my opinion", requested("training")),
        ("/test training\n \t\n    $ make test", requested("training")),
        ("/test one\n/skip prepare\n\n  because", requested("one", skip=("prepare",))),
        ("```inline``` code\n/test training", requested("training")),
    ],
)
def test_the_commands_of_a_comment_are_parsed(text: str, expected: CommentRequest) -> None:
    assert parse(text) == expected


def test_a_command_applies_to_the_test_above_it() -> None:
    first, second = parse("/test one\n/var a: 1\n/skip prepare\n/test two large\n/var a: 2\n/only test").tests
    assert (first.project, first.overrides, first.skip, first.only) == ("one", {"a": 1}, ("prepare",), ())
    assert (second.project, second.overrides, second.skip, second.only) == ("two", {"a": 2}, (), ("test",))


def test_commands_before_the_first_test_apply_to_every_test() -> None:
    common = "/var a: 1\n/var b: 1\n/cells x=*\n/cluster metal\n/quarantine y slow\n/skip prepare\n"
    first, second = parse(f"{common}/test one\n/test two\n/var a: 2\n/cells z\n/cluster light\n/skip test").tests
    assert (first.overrides, first.cells, first.cluster, first.skip) == (
        {"a": 1, "b": 1},
        ("x=*",),
        "metal",
        ("prepare",),
    )
    assert (second.overrides, second.cells, second.cluster) == ({"b": 1, "a": 2}, ("z",), "light")
    assert second.skip == ("prepare", "test")
    assert first.quarantine == second.quarantine == (Quarantine("y", "slow"),)


def test_the_line_of_a_command_is_known() -> None:
    test = only("hi\n/var\n  a: 1\n  b: 2\n/test one\n/cells x y\n")
    lines = [test.line_of(), test.line_of("var", "b"), test.line_of("cells", "y"), test.line_of("cells", "z")]
    assert lines == [5, 2, 6, 5]


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
    assert dict(only(f"/test one\n{text}").overrides) == overrides


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
    assert parse(text) == CommentRequest()


RUN = "/test training"
HIDDEN = [
    f"<!--\n{RUN}\n-->",
    f"<!-- {RUN}\n{RUN}\n{RUN} -->",
    f"<!--\n\n```\n{RUN}",  # a fence is no fence in a comment, and the comment is not closed
    f"   <!--\n{RUN}\n -->",
    f"text <!-- hidden\n{RUN}\n--> text",
    f"<!-- a --> <!-- b\n{RUN}\n-->\n{RUN}",  # Markdown ends the block, but HTML does not end the second comment
    f"<!-- a\n--> <!-- b\n{RUN}",
    f"- <!--\n{RUN}\n-->\n{RUN}",  # the list ends, but not the comment
    f"> <!--\n{RUN}\n-->\n{RUN}",
    f"1. a\n\n    <!-- b\n\n{RUN}",
    f"<div> <!--\n\n{RUN}",
    f"<p>\ntext <!--\n\n{RUN}",
    f"<div>\n<!--\n\na\n-->\n{RUN}",  # a blank line ends the block of HTML, and Markdown escapes the end of the comment
    f"<div>\n```\n<!--\n```\n\n{RUN}",
    f"<details>\n```\n{RUN}\n```",
    f"<?php\n{RUN}\n?>",
    f"<!X\n{RUN}\n>",
    f"<![CDATA[\n{RUN}\n>\n{RUN}\n]]>",
    f"text <?\n{RUN}\n?>",
    f"<!--\r\n{RUN}\r\n-->\r\n",
    f"<!--\n-- >\n{RUN}",
    "<!--\n/retest\n/cancel\n/help\n/var a: 1\n-->",
]


@pytest.mark.parametrize("text", HIDDEN)
def test_text_that_a_forge_does_not_show_is_ignored(text: str) -> None:
    assert parse(text) == CommentRequest()
    assert slash.read("/test training", ["training"], text.replace(RUN, "/var a: 1"))[0].tests[0].overrides == {}


@pytest.mark.parametrize(
    "text",
    [
        f"<!-- a -->\n{RUN}",
        f"<!-- a --> <!-- b -->\n{RUN}",
        f"<!--\na\n-->\n{RUN}",
        f"<!-->\n{RUN}",
        f"<!--->\n{RUN}",
        f"text <!-- a\nb --> text\n{RUN}",
        f"the text `<!--` begins a comment\n\n{RUN}",  # Markdown shows it, because the paragraph ends
        f"a <!--\n```\n-->\n```\n{RUN}",
        f"```\n<!--\n```\n{RUN}",
        f"~~~\n<!-- a\n~~~\n{RUN}\n<!--",
        f"> <!-- a\n> b -->\n{RUN}",
        f"- <!-- a\n  b -->\n{RUN}",
        f"- [ ] <!-- a\n  b -->\n{RUN}",
        f"<?xml version='1.0'?>\n{RUN}",
        f"a --> b\n{RUN}",
        f"<details>\n\n{RUN}",
        f"<details>\n<!-- a\nb -->\n{RUN}",
        f"<details>\n\n```\n<!--\n```\n{RUN}",
    ],
)
def test_commands_beside_hidden_text_are_read(text: str) -> None:
    assert [test.project for test in parse(text).tests] == ["training"]


@pytest.mark.parametrize(
    "command",
    [
        "/test training <!-- smoke -->",
        "/var a: 1 # <!--\n  b: 2 # -->",
        "/var a: 1\n  # <!-- b",
        "/cells x=1 <!-- y -->",
        "/quarantine x <!-- hidden -->",
        "/var a: '<?x?>'",
    ],
)
def test_a_command_of_which_a_part_is_hidden_is_refused(command: str) -> None:
    with pytest.raises(UsageError, match=r"a forge does not show the text after `<[!?]"):
        parse(f"/test training\n{command}")
    if command.startswith(("/var", "/cells")):
        _, faults = slash.read("/test training", ["training"], command)
        assert "does not show the text" in str(faults[0])


def test_many_openings_take_little_time() -> None:
    for text in (
        "a <!--\n" * 9_000,
        "<!-- --> " * 7_000,
        "a <?\n" * 10_000,
        "- " * 30_000 + "<!--",
        "a <!--\n\n" * 8_000,
    ):
        began = time.process_time()
        parse(text[:65_000])
        assert time.process_time() - began < 1


DESCRIPTION = "Faster kernels.\n/var a: 1\n/cells x=1\n/test q\n/cancel\n/quarantine y broken"


def test_a_description_applies_to_every_test_unless_the_comment_says_otherwise() -> None:
    request, faults = slash.read("/test p\n/cells x=2\n/test p fast", ["p"], DESCRIPTION)
    assert not faults
    first, second = request.tests
    assert (first.overrides, first.cells, first.quarantine) == ({"a": 1}, ("x=2",), ())
    assert (second.overrides, second.cells) == ({"a": 1}, ("x=1",))
    assert not request.cancel


@pytest.mark.parametrize("command", ["/only test", "/skip prepare"])
def test_phases_of_a_comment_replace_those_of_the_description(command: str) -> None:
    request, faults = slash.read(f"/test p\n{command}", ["p"], "/skip pre_cleanup")
    assert not faults
    assert (request.tests[0].skip, request.tests[0].only) != (("pre_cleanup",), ())
    assert "pre_cleanup" not in request.tests[0].skip


def test_a_description_does_not_matter_to_a_comment_without_a_test() -> None:
    assert slash.read("/cancel", ["p"], "/var a\n/cells x") == (CommentRequest(cancel=True), [])


def test_a_fault_of_the_description_is_named() -> None:
    _, faults = slash.read("/test p", ["p"], "/var a")
    assert [str(fault) for fault in faults] == ["the description of the pull request: /var: 'a' is not `path: value`"]
    with pytest.raises(UsageError, match="the description has 70000 characters"):
        slash.read("/test p", ["p"], "x" * 70_000)


@pytest.mark.parametrize("mark", ["    ```", "\u00a0```", "\v```"])
def test_a_line_that_markdown_does_not_read_as_a_fence_closes_no_block(mark: str) -> None:
    assert not slash.parse(f"```\n{mark}\n/test p\n```", ["p"]).tests


def test_a_number_that_is_too_large_is_a_fault_of_the_comment() -> None:
    with pytest.raises(UsageError, match="is not YAML"):
        slash.parse(f"/test p\n/var a: {'1:' * 20_000}1.5", ["p"])


@pytest.mark.parametrize(("command", "rest"), [("cells", "{0}"), ("quarantine", "{0} reason")])
def test_a_test_has_a_limited_number_of_patterns(command: str, rest: str) -> None:
    lines = "\n".join(f"/{command} {rest.format(number)}" for number in range(101))
    with pytest.raises(UsageError, match="at most 100 patterns"):
        slash.parse(f"/test p\n{lines}", ["p"])


def test_commands_after_a_fenced_block_are_read() -> None:
    assert parse("```\n/test one\n```\n/test two\n~~~\n/test three\n~~~") == requested("two")


def test_a_fenced_block_after_a_test_is_not_part_of_it() -> None:
    (test,) = (request := parse("/test training\n\n  ```\n  log\n  ```\n/help")).tests
    assert (test, request.help) == (slash.TestRequest("training"), True)


def test_a_fenced_block_ends_the_command_before_it() -> None:
    assert only("/test one\n/var a: 1\n```\n  b: 2\n```\n/var c: 3").overrides == {"a": 1, "c": 3}


def test_every_fault_is_named_with_its_line() -> None:
    text = "/tset training\nhello\n/var a: [\n/lgtm\n/test trainin"
    with pytest.raises(UsageError) as caught:
        parse(text)
    head, *faults = str(caught.value).split("\n  ")
    assert head == "the comment has 4 faults:"
    assert faults[0] == "line 1: unknown command `/tset`: did you mean /test?"
    assert faults[1].startswith("line 3: /var: 'a: [' is not YAML: ")
    assert faults[2].startswith("line 4: unknown command `/lgtm`: the commands are /cancel, ")
    assert faults[3] == "line 5: unknown project `trainin`: did you mean training?"


def test_a_message_about_many_faults_has_five_lines_and_names_all_lines() -> None:
    with pytest.raises(UsageError) as caught:
        parse("/a\n/b\n/c\n/d\n/e\n/f\n/f")
    lines = str(caught.value).split("\n  ")
    assert (len(lines), lines[0], lines[-1]) == (5, "the comment has 7 faults:", "and 4 more, in lines 4, 5, 6, 7")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("/test one\n/skip a\n/only b", "line 3: /skip and /only cannot be used together"),
        ("/skip a\n/test one\n/test two\n/only b", "line 4: /skip and /only cannot be used together"),
        ("/var a: 1\n/retest", "line 1: /var applies to a /test, but there is none: add /test PROJECT"),
        ("/test", "line 1: /test needs the name of a project after it"),
        ("/test it's", "line 1: /test: no closing quotation"),
        ("/test onne", "line 1: unknown project `onne`: did you mean one?"),
        ("/test nightly onne", "line 1: unknown project `onne`: did you mean one?"),
        ("/test \u043ene", "unknown project `\u043ene` (which contains U+043E): did you mean one?"),
        ("/t\u0435st one", "unknown command `/t\u0435st` (which contains U+0435): did you mean /test"),
        ("/test o\u200bne", "/test: `o\\u200bne` (which contains U+200B) has unprintable characters"),
        ("/only", "line 1: /only needs the names of phases after it"),
        ("/test one\n/cluster a b", "line 2: /cluster needs the name of one cluster after it"),
        ("/test one\n/cluster a\n/cluster b", "line 3: /cluster occurs twice: a test runs on one cluster"),
        ("/test one\n/quarantine x", "line 2: /quarantine needs a pattern for the names of cells and a reason"),
        ("/test one\n/quarantine x @secrets.token", "line 2: /quarantine: the value contains a reference"),
        ("/retest one two", "line 1: /retest needs the name of one project, or nothing, after it"),
        ("/retest onne", "line 1: unknown project `onne`: did you mean one?"),
        ("/cancel that", "line 1: /cancel needs nothing after it"),
        ("/test one\n" * 21, "line 21: a comment may have at most 20 tests: write another comment"),
        ("/test one\n" + "/skip x\n" * 200, "the comment has more than 200 commands: write several comments"),
        ("/var {}".format({f"a{n}": 1 for n in range(201)}), "a test may have at most 200 overrides"),
        ('/var a: "\\0"', "line 1: /var 'a': the value contains a NUL character"),
        ('/var a: "\\uD800"', "line 1: /var 'a': the value contains a NUL character or a half of a surrogate pair"),
        ("/var a", "line 1: /var: 'a' is not `path: value`"),
        ("/var", "line 1: /var: '' is not `path: value`"),
        ("/var - a", "line 1: /var: '- a' is not `path: value`"),
        ("/var {}", "line 1: /var: '{}' is not `path: value`"),
        ("/var a: !!python/object/apply:os.system ['true']", "a YAML tag (!) is not allowed here"),
        ("/var a: !!bool x", "a YAML tag (!) is not allowed here"),
        ("/var a: 2026-13-45", "is not YAML: month must be in 1..12"),
        (f"/var a: {'[' * 500}{']' * 500}", "is nested more than 20 levels deep"),
        (
            "/var a: &a [1]\n/var b: [*a, *a]",
            "line 2: /var: a YAML alias (*) is not allowed here: write the value itself",
        ),
        ("/var\n a: &a [*a]", "line 1: /var: a YAML alias (*) is not allowed here: write the value itself"),
        ("/TEST training", "line 1: unknown command `/TEST`: "),
        ("/usr/bin/env", "line 1: unknown command `/usr/bin/env`: "),
        ("/", "line 1: unknown command `/`: "),
        ("//", "line 1: unknown command `/`: "),
        ("/тест", "line 1: unknown command `/тест` (which contains U+0442, U+0435, U+0441): "),
    ],
)
def test_unparsable_commands_are_refused(text: str, fault: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
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
        parse(text)
    assert time.process_time() - began < 5  # without limits, these comments took up to three minutes


def test_the_help_names_every_command() -> None:
    assert all(f"/{name}" in slash.HELP for name in slash.COMMANDS)
    assert "fenced" not in slash.HELP


def test_a_value_that_may_be_text_is_named_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    text = "/test training\n/var versions:\n  - 3.10\n  - '3.20'\n/var lr: 1e-4\n"
    assert only(text).overrides == {"versions": [3.1, "3.20"], "lr": 1e-4}
    assert caplog.messages == ['line 2 of the comment: /var: `3.10` is read as 3.1: write "3.10" for the text, or 3.1']
