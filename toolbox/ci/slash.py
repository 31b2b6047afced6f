"""Slash commands of a comment, as a pure function of its text.

    /test PROJECT [PRESET ...]      run a project
    /var PATH: VALUE                override a field; the value is YAML, and may go on in indented lines
    /skip PHASE ...                 leave phases out
    /only PHASE ...                 run these phases alone
    /help                           say what there is

Lines that do not begin with a slash are talk, and so is what stands in a fenced block or a quotation.
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
_LONGEST: Final = 1 << 16  # as long as GitHub lets a comment be
_COMMAND = re.compile(r"/(?P<name>[A-Za-z_][\w-]*)(?:(?:[^\S\n]*\n|[^\S\n]+)(?P<rest>.*))?", re.DOTALL)
_FENCE = re.compile(r"\s*(?P<mark>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_INDENT: Final = {" ", "\t"}
# The value of a /var is a block of the lines that follow: only then may a blank line stand in it.
_OPENS_BLOCK = re.compile(r"(:|[|>][-+1-9]{0,2})$")
_LONGEST_OPENING: Final = 3  # characters, `|-2`: the rest of a long line is not searched
_DEEPEST: Final = 20  # `config.outside` allows less, and says so


@dataclass(frozen=True, slots=True)
class Line:
    """A slash command as it stands in a comment: the line it begins on, its name, and the rest of it."""

    number: int
    name: str
    rest: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What a comment asks for.

    Args:
        project: None where the comment has no `/test`.
        overrides: from `/var`; the last one of a path counts.
    """

    project: str | None = None
    presets: tuple[str, ...] = ()
    overrides: dict[str, Any] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    help: bool = False


def parse(text: str) -> Asked:
    """Return what a comment asks for.

    Raises:
        UsageError: a command is unknown, or wrongly written; every one of them is named with its line.
    """
    if len(text) > _LONGEST:
        raise UsageError(f"the comment has {len(text)} characters, but at most {_LONGEST} are allowed")
    asked: dict[str, Any] = {"overrides": {}, "skip": (), "only": ()}
    faults: list[str] = []
    for line in _lines(text):
        try:
            _take(asked, line)
        except ValueError as error:
            faults.append(f"line {line.number}: {error}")
    if asked["skip"] and asked["only"]:
        faults.append("/skip and /only cannot be used together")
    if faults:
        raise UsageError(
            "\n  ".join(["the comment cannot be understood:", *faults])
            if len(faults) > 1
            else f"the comment: {faults[0]}"
        )
    return Asked(**asked)


def _lines(text: str) -> Iterator[Line]:
    """Yield the slash commands, each with the indented lines that go on with it."""
    number, parts, fence = 0, list[str](), ""
    for index, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if parts and _goes_on(parts, line):
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


def _goes_on(parts: list[str], line: str) -> bool:
    """Tell whether a command goes on with a line. A blank line ends it, except in the middle of a YAML block."""
    if parts[0].startswith("/var"):
        if not line.strip():
            return True
        return line[:1] in _INDENT and (bool(parts[-1]) or _opens_block(parts[0]))
    return line[:1] in _INDENT and bool(line.strip()) and not _FENCE.match(line)


def _opens_block(line: str) -> bool:
    text = line.rstrip()
    return text == "/var" or _OPENS_BLOCK.search(text[-_LONGEST_OPENING:]) is not None


def _fence_after(line: str, fence: str) -> str:
    """Return the fence in which the text after a line stands. One of its own kind ends it, as long or longer."""
    match = _FENCE.match(line)
    if match is None or (fence and (not match["mark"].startswith(fence) or match["info"].strip())):
        return fence
    return "" if fence else match["mark"]


def _line(number: int, parts: list[str]) -> Line:
    match = _COMMAND.fullmatch("\n".join(parts).rstrip())
    return Line(number, match["name"], match["rest"] or "") if match else Line(number, parts[0].strip("/ "), "")


def _take(asked: dict[str, Any], line: Line) -> None:
    match line.name:
        case "test":
            if "project" in asked:
                raise ValueError("/test occurs twice: a comment can run only one project")
            words = _words(line, "the name of a project")
            asked["project"], asked["presets"] = words[0], tuple(words[1:])
        case "var":
            asked["overrides"].update(_overrides(line.rest))
        case "skip" | "only":
            asked[line.name] += tuple(_words(line, "the names of phases"))
        case "help":
            asked["help"] = True
        case _:
            raise ValueError(f"unknown command /{line.name}: {did_you_mean(line.name, COMMANDS, label='commands')}")


def _words(line: Line, expected: str) -> list[str]:
    try:
        words = shlex.split(line.rest)
    except ValueError as error:
        raise ValueError(f"/{line.name}: {error}") from None
    if not words:
        raise ValueError(f"/{line.name}: {expected} was expected after it")
    return words


def _refuse_explosive(text: str) -> None:
    """Refuse YAML that would take minutes or gigabytes to construct: anybody may write a comment.

    A few aliases of aliases are gigabytes when they are written out, and PyYAML's time for each token grows with the
    number of lists and mappings around the token.

    Raises:
        ValueError: it has an alias, or is nested too deep.
        YAMLError: the text is not YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("/var: a YAML alias (*) is not allowed here: write the value itself")  # noqa: TRY004  # `parse` names it
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
