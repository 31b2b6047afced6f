"""Parses the slash commands of a comment.

    /test PROJECT [PRESET ...]      run a project
    /var PATH: VALUE                override a field; the value is YAML, and may continue in indented lines
    /skip PHASE ...                 leave out phases
    /only PHASE ...                 run only these phases
    /help                           list the commands

Lines that do not begin with a slash are ignored, and so are fenced blocks and quotations.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from toolbox.config import outside
from toolbox.model.errors import UsageError
from toolbox.model.nearest import did_you_mean
from toolbox.model.text import abbreviated

COMMANDS: Final = ("test", "var", "skip", "only", "help")
HELP: Final = (__doc__ or "").partition("\n\n")[2].partition("\n\nLines")[0]
_LONGEST: Final = 1 << 16  # the largest number of characters in a comment
_COMMAND = re.compile(r"/(?P<name>[A-Za-z_][\w-]*)(?:(?:[^\S\n]*\n|[^\S\n]+)(?P<rest>.*))?", re.DOTALL)
_FENCE = re.compile(r"\s*(?P<mark>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_INDENT: Final = {" ", "\t"}
# The end of a /var line whose value is in the following lines. Only such a value may contain blank lines.
_OPENS_BLOCK = re.compile(r"(:|[|>][-+1-9]{0,2})$")
_LONGEST_OPENING: Final = 3  # the longest match, such as `|-2`: only so many last characters are searched
_DEEPEST: Final = 20  # levels that are parsed; `config.outside` allows only 8, and its message names the field


@dataclass(frozen=True, slots=True)
class Line:
    """A slash command of a comment: its line number, its name, and the text after its name."""

    number: int
    name: str
    rest: str


@dataclass(frozen=True, slots=True)
class CommentRequest:
    """The slash commands of a comment.

    Args:
        project: the project of `/test`; None if the comment has no `/test`.
        overrides: the values of `/var` by their paths. If a path occurs twice, the last value is used.
        help: whether the comment has `/help`.
    """

    project: str | None = None
    presets: tuple[str, ...] = ()
    overrides: dict[str, Any] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    help: bool = False


def parse(text: str) -> CommentRequest:
    """Parse the slash commands of a comment.

    Raises:
        UsageError: commands are unknown or wrong. The message names each of them with its line.
    """
    if len(text) > _LONGEST:
        raise UsageError(f"the comment has {len(text)} characters, but at most {_LONGEST} are allowed")
    fields: dict[str, Any] = {"overrides": {}, "skip": (), "only": ()}
    faults: list[str] = []
    for line in _lines(text):
        try:
            _read_command(fields, line)
        except ValueError as error:
            faults.append(f"line {line.number}: {error}")
    if fields["skip"] and fields["only"]:
        faults.append("/skip and /only cannot be used together")
    if faults:
        raise UsageError(
            "\n  ".join(["the comment cannot be understood:", *faults])
            if len(faults) > 1
            else f"the comment: {faults[0]}"
        )
    return CommentRequest(**fields)


def _lines(text: str) -> Iterator[Line]:
    """Yield the slash commands, each with its continuation lines."""
    number, parts, fence = 0, list[str](), ""
    for index, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if parts and _continues(parts, line):
            parts.append(line if line.strip() else "")
            continue
        if parts:
            yield _line(number, parts)
            parts = []
        fence = _fence_after(line, fence)
        if line.startswith("/") and not fence:
            number, parts = index, [line]
    if parts:
        yield _line(number, parts)


def _continues(parts: list[str], line: str) -> bool:
    """Tell whether a line continues a command. A blank line ends a command, except inside a YAML block."""
    if parts[0].startswith("/var"):
        if not line.strip():
            return True
        return line[:1] in _INDENT and (bool(parts[-1]) or _opens_block(parts[0]))
    return line[:1] in _INDENT and bool(line.strip()) and not _FENCE.match(line)


def _opens_block(line: str) -> bool:
    text = line.rstrip()
    return text == "/var" or _OPENS_BLOCK.search(text[-_LONGEST_OPENING:]) is not None


def _fence_after(line: str, fence: str) -> str:
    """Return the Markdown fence of the code block that is open after a line, or an empty string.

    A code block is closed by a fence of the same character that is at least as long as the opening fence.

    Args:
        fence: the fence that is open before the line.
    """
    match = _FENCE.match(line)
    if match is None or (fence and (not match["mark"].startswith(fence) or match["info"].strip())):
        return fence
    return "" if fence else match["mark"]


def _line(number: int, parts: list[str]) -> Line:
    match = _COMMAND.fullmatch("\n".join(parts).rstrip())
    return Line(number, match["name"], match["rest"] or "") if match else Line(number, parts[0].strip("/ "), "")


def _read_command(fields: dict[str, Any], line: Line) -> None:
    match line.name:
        case "test":
            if "project" in fields:
                raise ValueError("/test occurs twice: a comment can run only one project")
            words = _words(line, "the name of a project")
            fields["project"], fields["presets"] = words[0], tuple(words[1:])
        case "var":
            fields["overrides"].update(_overrides(line.rest))
        case "skip" | "only":
            fields[line.name] += tuple(_words(line, "the names of phases"))
        case "help":
            fields["help"] = True
        case _:
            raise ValueError(f"unknown command /{line.name}: {did_you_mean(line.name, COMMANDS, label='commands')}")


def _words(line: Line, expected: str) -> list[str]:
    try:
        words = shlex.split(line.rest)
    except ValueError as error:
        raise ValueError(f"/{line.name}: {error}") from None
    if not words:
        raise ValueError(f"/{line.name} needs {expected} after it")
    return words


def _refuse_explosive(text: str) -> None:
    """Raise if it would take minutes or gigabytes to construct the YAML of a comment.

    A few nested aliases can expand to gigabytes, and PyYAML's time for each token grows with the nesting depth.

    Raises:
        ValueError: the text contains an alias, or is nested too deep.
        YAMLError: the text is not YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("/var: a YAML alias (*) is not allowed here: write the value itself")  # noqa: TRY004  # `parse` catches ValueError
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError(f"/var: {abbreviated(text.strip())} is nested more than {_DEEPEST} levels deep")


def _overrides(text: str) -> dict[str, Any]:
    try:
        _refuse_explosive(text)
        value = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        problem = getattr(error, "problem", None) or error
        raise ValueError(f"/var: {abbreviated(text.strip())} is not YAML: {problem}") from None
    if not isinstance(value, dict) or not value:
        raise ValueError(f"/var: {abbreviated(text.strip())} is not `path: value`")
    for path, item in value.items():
        try:
            outside.check_value(item)
        except ValueError as error:
            raise ValueError(f"/var {abbreviated(path)}: {error}") from None
    return {str(path): item for path, item in value.items()}
