"""Arguments are converted by the annotations of a command, and all wrong arguments are reported at once."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from toolbox.ground.interface import signature
from toolbox.ground.interface.signature import NO_DEFAULT, FlagGroup, Help, Parameter
from toolbox.ground.model.addresses import Address
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.quantities import DURATION, Count, Seconds, SecondsOrZero, WholeSeconds
from toolbox.ground.model.secrets import Secret, secrets_in


def convert(annotation: Any, value: Any, *, text: bool) -> Any:
    """Return the converted value of one argument."""
    return signature.convert(Parameter("x", annotation, NO_DEFAULT, ""), value, text=text)


FROM_TEXT: list[tuple[Any, str, Any]] = [
    (str, "1.10", "1.10"),
    (str, "null", "null"),
    (str, "[a, b]", "[a, b]"),
    (str, "", ""),
    (str, "\"; touch pwned; $(touch pwned2) `touch pwned3` '", "\"; touch pwned; $(touch pwned2) `touch pwned3` '"),
    (int, "12", 12),
    (int, "-3", -3),
    (float, "1.10", 1.1),
    (float, "1e-3", 0.001),
    (float, "2", 2.0),
    (bool, "True", True),
    (bool, "false", False),
    (bool, "no", False),
    (bool, "1", True),
    (Path, "a b/~c", Path("a b/~c")),
    (Path, "1.10", Path("1.10")),
    (Literal["a", "b"], "b", "b"),
    (Literal[1, 2, "x"], "2", 2),
    (Literal[True, "auto"], "auto", "auto"),
    (list[str], "a", ["a"]),
    (list[str], "a, b,1.10", ["a", "b", "1.10"]),
    (list[str], "[a, 1.10, 'x,y']", ["a", "1.10", "x,y"]),
    (list[str], "", []),
    (list[str], "[]", []),
    (list[int], "1,2", [1, 2]),
    (list[int], "[1, 2]", [1, 2]),
    (list[float], "1,2.5", [1.0, 2.5]),
    (list[Path], "a,b/c", [Path("a"), Path("b/c")]),
    (list[list[int]], "[[1], [2, 3]]", [[1], [2, 3]]),
    (dict[str, str], "{tag: 1.10}", {"tag": "1.10"}),
    (dict[str, int], "{a: 1, b: 2}", {"a": 1, "b": 2}),
    (dict[str, list[int]], "{a: [1]}", {"a": [1]}),
    (dict[str, Any], "{a: 1.10, b: null, c: [x]}", {"a": 1.1, "b": None, "c": ["x"]}),
    (list[Any], "[1, x, null]", [1, "x", None]),
    (dict, "{a: 1}", {"a": 1}),
    (list, "[1, x]", [1, "x"]),
    (list[Address], "a,ci@b:22", [Address("a"), Address("b", "ci", 22)]),
    (list[Address], "[a, b]", [Address("a"), Address("b")]),
    (list[Address], "[::1]", [Address("::1")]),
    (list[Address], "[::1]:22,[::2]:23", [Address("::1", None, 22), Address("::2", None, 23)]),
    (str | None, "null", None),
    (str | None, "None", None),
    (str | None, "x", "x"),
    (int | None, "~", None),
    (int | None, "5", 5),
    (list[int] | None, "null", None),
    (list[str] | None, "a,b", ["a", "b"]),
    (bool | str, "True", "True"),
    (int | float, "1.5", 1.5),
    (Any, "1", 1),
    (Any, "{a: [1, null]}", {"a": [1, None]}),
    (Any, "text: [", "text: ["),
    (NO_DEFAULT, "true", True),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), FROM_TEXT, ids=str)
def test_command_line_texts_are_converted_by_annotation(annotation: Any, value: str, expected: Any) -> None:
    found = convert(annotation, value, text=True)
    assert (found, type(found)) == (expected, type(expected))


FROM_PYTHON: list[tuple[Any, Any, Any]] = [
    (str, "x", "x"),
    (str, 1.5, "1.5"),
    (str, 8, "8"),
    (int, 8, 8),
    (int, "8", 8),
    (int, 8.0, 8),
    (float, 1, 1.0),
    (bool, False, False),
    (Path, "a/b", Path("a/b")),
    (Path, Path("a"), Path("a")),
    (list[str], ["a", 1], ["a", "1"]),
    (list[str], ("a",), ["a"]),
    (dict[str, int], {"a": "1"}, {"a": 1}),
    (str | None, None, None),
    (str, "null", "null"),
    (str | None, "null", "null"),
    (Any, "1", "1"),
    (NO_DEFAULT, [1], [1]),
    (Literal["a"], "a", "a"),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), FROM_PYTHON, ids=str)
def test_python_values_are_converted_by_annotation(annotation: Any, value: Any, expected: Any) -> None:
    found = convert(annotation, value, text=False)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, "1.10", "--x must be a whole number, not '1.10'"),
        (int, "", "--x must be a whole number, not ''"),
        (float, "fast", "--x must be a number, not 'fast'"),
        (bool, "maybe", "--x must be true or false, not 'maybe'"),
        (Literal["a", "b"], "c", "--x must be one of a, b, not 'c'"),
        (Literal[1, 2], "3", "--x must be one of 1, 2, not '3'"),
        (list[int], "1,two,3", "--x[1] must be a whole number, not 'two'"),
        (dict[str, int], "a", "--x must be a mapping with a whole number for each key, not 'a'"),
        (dict[str, int], "{a: b}", "--x must be a mapping with a whole number for each key, not {'a': 'b'}"),
        (dict[str, list[int]], "{a: [b]}", "--x[0] must be a mapping with a list for each key, not {'a': ['b']}"),
        (int | None, "none", "--x must be a whole number or null, not 'none'"),
        (list[str], "[a", "--x must be a list, not '[a'"),
        (int, "9" * 100, "--x must be a whole number, not '" + "9" * 56 + "..."),
    ],
    ids=str,
)
def test_wrong_text_is_refused_with_the_expected_type(annotation: Any, value: str, message: str) -> None:
    if value == "9" * 100:
        value += "x"
    with pytest.raises(ValueError, match=r"must be") as caught:
        convert(annotation, value, text=True)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, None),
        (str, True),
        (str, ["a"]),
        (int, 1.5),
        (int, None),
        (float, [1.0]),
        (list[str], "a"),
        (list[str], {"a": 1}),
        (list[str], ["a", None]),
        (dict[str, int], [("a", 1)]),
        (Path, 5),
        (Path, None),
        (bool, "perhaps"),
        (int, Secret("8")),
    ],
    ids=str,
)
def test_a_python_value_of_the_wrong_type_is_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=r"^--x(\[\d\])? must be .*, not "):
        convert(annotation, value, text=False)


def test_types_of_topgallant_have_their_own_messages() -> None:
    with pytest.raises(ValueError, match=r"^--x\[1\]: '\.\.' is not a host: "):
        convert(list[Address], "a,..", text=True)


@pytest.mark.parametrize("annotation", [Secret, Secret | None])
def test_python_text_becomes_a_secret(annotation: Any) -> None:
    found = convert(annotation, "t0ken", text=False)
    assert (repr(found), found.reveal(), found.reference) == ("***", "t0ken", None)


@pytest.mark.parametrize(
    ("annotation", "text", "secrets"),
    [
        (Secret, "env:TOKEN", [("t0ken", "env:TOKEN")]),
        (Secret | None, "env:TOKEN", [("t0ken", "env:TOKEN")]),
        (Secret, "@token", [("from\na file", "@{folder}/token")]),
        (Secret, "@{folder}/token", [("from\na file", "@{folder}/token")]),
        (Secret, "@~/token", [("from\na file", "@{folder}/token")]),
        (list[Secret], "env:TOKEN,@token", [("t0ken", "env:TOKEN"), ("from\na file", "@{folder}/token")]),
        (dict[str, Secret], "{a: env:TOKEN}", [("t0ken", "env:TOKEN")]),
    ],
    ids=str,
)
def test_a_command_line_names_a_secret(
    annotation: Any, text: str, secrets: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(" from\na file\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", "t0ken")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = secrets_in(convert(annotation, text.replace("{folder}", str(tmp_path)), text=True))
    expected = [(value, reference.replace("{folder}", str(tmp_path))) for value, reference in secrets]
    assert [(each.reveal(), each.reference) for each in found] == expected


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        (Secret, "t0ken", "a command line must not contain a secret"),
        (Secret | None, "t0ken", "env:NAME for an environment variable, or @FILE"),
        (list[Secret], "t0ken", "a command line must not contain a secret"),
        (dict[str, Secret], "{a: t0ken}", "a command line must not contain a secret"),
        (dict[str, Secret], "t0ken", r"--x must be a mapping with a secret \(env:NAME or @FILE\) for each key"),
        (Secret, "@", "a command line must not contain a secret"),
        (Secret, "", "a command line must not contain a secret"),
        (Secret, "env:t0ken;x", "a command line must not contain a secret"),
        (Secret, "env:NOWHERE", "the environment variable NOWHERE is not set, or is empty"),
        (Secret, "env:EMPTY", "the environment variable EMPTY is not set, or is empty"),
        (Secret, "@nowhere", "the file .*/nowhere cannot be read: No such file"),
        (Secret, "@/", "the file / cannot be read: Is a directory"),
        (Secret, "@/dev/null", "the file /dev/null is empty"),
        (Secret, "@/dev/zero", "the file /dev/zero has more than 1 MiB"),
        (Secret, "@binary", "the file .*/binary is not UTF-8"),
    ],
    ids=str,
)
def test_a_plain_secret_on_the_command_line_is_refused(
    annotation: Any, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(ValueError, match=message) as caught:
        convert(annotation, text, text=True)
    assert "t0ken" not in str(caught.value)


@pytest.mark.parametrize("annotation", [str, str | None, Secret, Any])
def test_a_secret_is_accepted_for_a_text_parameter(annotation: Any) -> None:
    secret = Secret("t0ken")
    assert convert(annotation, secret, text=False) is secret


def test_a_refused_secret_is_not_shown() -> None:
    with pytest.raises(ValueError, match=r"^--x must be a whole number, not \*\*\*$"):
        convert(int, Secret("t0ken"), text=False)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (str, "str"),
        (Path, "path"),
        (Secret, "secret, as env:NAME or @FILE"),
        (Any, "any value"),
        (NO_DEFAULT, "any value"),
        (None, "null"),
        (int | None, "int or null"),
        (list[int] | None, "list of int or null"),
        (dict[str, list[Path]], "mapping of str to list of path"),
        (Literal["a", 2], "one of a, 2"),
        (list, "list"),
        (dict, "dict"),
    ],
)
def test_types_have_readable_names(annotation: Any, text: str) -> None:
    assert signature.type_name(annotation) == text


def deploy(self: object, name: str, count: int = 1, *, tags: list[str] | None = None) -> None:
    """
    Deploy a thing,
    and wait.

    It takes minutes.

    Twice as long at night.

    Args:
        name: of the thing; as in
            note: the catalog.
        count (int): how many: one or more,
          or none.

        tags: of each.

    Raises:
        ValueError: never: honestly.
    Returns:
        nothing: at all.
    """


def described(function: Callable[..., Any] = deploy) -> signature.Signature:
    """Return the signature of a command."""
    return signature.of(function, name="thing deploy")


def test_a_signature_has_the_names_the_types_the_defaults_and_the_texts() -> None:
    assert [(found.name, found.annotation, found.default, found.text) for found in described().parameters] == [
        ("name", str, NO_DEFAULT, "of the thing; as in note: the catalog."),
        ("count", int, 1, "how many: one or more, or none."),
        ("tags", list[str] | None, None, "of each."),
    ]
    assert [found.positional for found in described().parameters] == [True, True, False]
    assert [found.required for found in described().parameters] == [True, False, False]


def test_a_signature_has_the_first_paragraph_and_the_rest_of_the_docstring() -> None:
    assert described().summary == "Deploy a thing, and wait."
    assert described().description == "It takes minutes.\n\nTwice as long at night."


Label = Annotated[str | None, Help("the label of the thing.")]
Attempts = Annotated[Count, Help("how often to try.")]


def test_a_shared_option_has_its_help() -> None:
    def relabel(name: str, label: Label = None, attempts: Attempts = 1, *labels: Label) -> None:
        """
        Relabel a thing.

        Args:
            name: the name of the thing.
            labels: more labels.
        """

    assert [(found.name, found.annotation, found.text) for found in described(relabel).parameters] == [
        ("name", str, "the name of the thing."),
        ("label", str | None, "the label of the thing."),
        ("attempts", Count, "how often to try."),
        ("labels", list[str | None], "more labels."),
    ]


def test_the_docstring_of_a_command_wins_over_the_help_of_a_shared_option() -> None:
    def remove(label: Label = None) -> None:
        """
        Remove a label.

        Args:
            label: the label to remove.
        """

    assert [found.text for found in described(remove).parameters] == ["the label to remove."]


@dataclass(frozen=True)
class Disk(FlagGroup):
    """The flags that name a disk.

    Args:
        device: the device of the disk.
        unit: the unit of sizes.
    """

    device: str
    unit: str = "g"
    labels: Annotated[list[str], Help("labels.")] = field(default_factory=list)


def measure(*paths: str, at_least: int = 0, disk: Disk, note: str | None = None) -> object:
    """
    Measure a disk.

    Args:
        unit: the unit of the result.
    """
    return paths, at_least, disk, note


def test_the_fields_of_a_group_are_flags() -> None:
    assert [(found.name, found.default, found.text, found.positional) for found in described(measure).parameters] == [
        ("paths", NO_DEFAULT, "", True),
        ("at_least", 0, "", False),
        ("device", NO_DEFAULT, "the device of the disk.", False),
        ("unit", "g", "the unit of the result.", False),
        ("labels", [], "labels.", False),
        ("note", None, "", False),
    ]


def test_a_command_receives_its_group() -> None:
    command = described(measure)
    values = signature.bind(command, {"paths": ["/"], "device": "sda", "labels": "a,b"}, text=True)
    assert signature.call(command, measure, values) == (("/",), 0, Disk("sda", labels=["a", "b"]), None)


def test_the_faults_of_a_group_name_its_flags() -> None:
    with pytest.raises(UsageError, match=r"thing deploy: --device is missing \(text\): the device of the disk\."):
        signature.bind(described(measure), {"paths": ["/"]}, text=True)


def test_a_group_is_a_keyword_only_parameter_with_new_names() -> None:
    def by_position(disk: Disk) -> None: ...
    def named_twice(unit: str, *, disk: Disk) -> None: ...

    with pytest.raises(TypeError, match="`disk` is a group of flags: write it after"):
        described(by_position)
    with pytest.raises(TypeError, match="two parameters are called unit"):
        described(named_twice)


@pytest.mark.parametrize(
    ("doc", "parsed"),
    [
        ("", ("", "", {})),
        ("Do it.", ("Do it.", "", {})),
        ("Do it.\n\nArgs:\n    a: one.", ("Do it.", "", {"a": "one."})),
        ("Do it.\n\nRaises:\n    ValueError: no.", ("Do it.", "", {})),
        ("Do it.\n\nMore.\n\nReturns:\n    it.", ("Do it.", "More.", {})),
        ("Do it.\n\nReturns:\n    it.\n\nArgs:\n    a: one.", ("Do it.", "", {"a": "one."})),
        ("Do it.\n\nArgs:\n    a: one.\n\nAfterwards.", ("Do it.", "", {"a": "one."})),
        ("Do it.\n\nArgs:\n", ("Do it.", "", {})),
    ],
)
def test_a_docstring_is_parsed(doc: str, parsed: tuple[str, str, dict[str, str]]) -> None:
    assert signature.parse_docstring(doc) == parsed


def test_extra_parameters_come_last() -> None:
    extra = Parameter("hosts", list[str], None, "where", positional=False)
    assert signature.of(deploy, name="x", extra=[extra]).parameters[-1] is extra


def test_arguments_are_bound_with_the_defaults() -> None:
    assert signature.bind(described(), {"name": "n", "count": "3"}, text=True) == {
        "name": "n",
        "count": 3,
        "tags": None,
    }


def test_every_wrong_argument_is_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        signature.bind(described(), {"nmae": "x", "count": "many", "tags": [], "other": 1}, text=True)
    assert str(caught.value).split("\n  ") == [
        "thing deploy:",
        "unknown argument --nmae: did you mean --name?",
        "unknown argument --other: the arguments are --count, --name, --tags",
        "--name is missing (text): of the thing; as in note: the catalog.",
        "--count must be a whole number, not 'many'",
    ]


def test_one_wrong_argument_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^thing deploy: --count must be a whole number, not 'x'$"):
        signature.bind(described(), {"name": "n", "count": "x"}, text=True)


def test_a_default_is_not_converted() -> None:
    def odd(a: int = "eight") -> None:  # type: ignore[assignment]
        """Do it."""

    assert signature.bind(described(odd), {}, text=True) == {"a": "eight"}


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
@pytest.mark.parametrize("annotation", [float, float | None, Seconds, list[float], dict[str, float]])
def test_a_number_that_is_not_finite_is_refused(annotation: Any, text: str) -> None:
    given = {dict[str, float]: f"{{a: {text}}}"}.get(annotation, text)
    with pytest.raises(ValueError, match=r"--x(\[0\])? must be a finite number, not "):
        convert(annotation, given, text=True)


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        (Count, "0", "--x must be a number above 0, not 0"),
        (Count | None, "-1", "--x must be a number above 0, not -1"),
        (Seconds, "0", "--x must be a number above 0 and of at most 315360000, not 0"),
        (Seconds | None, "1e300", "--x must be a number above 0 and of at most 315360000, not 1e+300"),
        (SecondsOrZero, "-1", "--x must be a number of at least 0 and of at most 315360000, not -1"),
        (Seconds | None, "99999999d", "--x must be a number above 0 and of at most 315360000, not 8639999913600"),
        (WholeSeconds, "0.5s", f"--x must be {DURATION}, without fractions of a second, not '0.5s'"),
        (Seconds, "soon", f"--x must be {DURATION}, not 'soon'"),
    ],
)
def test_a_number_outside_of_its_range_is_refused(annotation: Any, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        convert(annotation, text, text=True)


def test_a_number_in_its_range_is_accepted() -> None:
    assert [convert(Count | None, text, text=True) for text in ("1", "null")] == [1, None]
    assert [convert(kind, "0.5", text=True) for kind in (Seconds, SecondsOrZero)] == [0.5, 0.5]


@pytest.mark.parametrize("text", ["5400", "5400s", "90m", "1.5h", "90 m"])
@pytest.mark.parametrize("kind", [Seconds, SecondsOrZero | None, WholeSeconds])
@pytest.mark.parametrize("is_text", [True, False])
def test_a_duration_may_have_a_unit(kind: Any, text: str, is_text: bool) -> None:
    assert convert(kind, text, text=is_text) == 5400


@pytest.mark.parametrize("text", ["", "h", "2 weeks", "1e9d", "2h30m", "-2h", "PT2H"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"--x must be {DURATION}, not '{text}'")):
        convert(Seconds, text, text=True)


@pytest.mark.parametrize("text", ["x" * 256, "a/" * 2100, "é" * 128])
def test_an_overlong_path_is_refused(text: str) -> None:
    parameter = signature.Parameter("directory", Path | None, None, "where")
    with pytest.raises(ValueError, match="which is too long for a path"):
        signature.convert(parameter, text, text=True)
    assert signature.convert(parameter, "x" * 255, text=True) == Path("x" * 255)


@pytest.mark.parametrize("annotation", [Any, dict[str, Any], dict[str, Any] | None])
def test_a_yaml_value_that_may_be_text_is_named_with_its_option(
    annotation: Any, caplog: pytest.LogCaptureFixture
) -> None:
    value = convert(annotation, "{tag: 3.10, b: 1e-4, c: '1:30', d: on}", text=True)
    assert value == {"tag": 3.1, "b": 1e-4, "c": "1:30", "d": True}
    assert caplog.messages == [
        '--x, column 7: `3.10` is read as 3.1: write "3.10" for the text, or 3.1',
        '--x, column 36: `on` is read as true: write "on" for the text, or true',
    ]


@pytest.mark.parametrize(
    ("annotation", "text"), [(str, "3.10"), (list[str], "[3.10, on]"), (dict[str, float], "{a: 2.40}")]
)
def test_a_value_whose_type_is_known_gives_no_warning(
    annotation: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    convert(annotation, text, text=True)
    assert caplog.messages == []
