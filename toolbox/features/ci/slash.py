"""Parses the slash commands of a comment.

    /test [JOB] PROJECT [PRESET ...]  run a project, or one of the jobs that its configuration lists
    /var PATH: VALUE                  override a field; the value is YAML, and may continue in indented lines
    /skip PHASE ...                   leave out phases
    /only PHASE ...                   run only these phases
    /cells PATTERN ...                run only these cells, such as model=small,*
    /cluster NAME                     run on a cluster that the configuration lists
    /quarantine PATTERN REASON        the verdicts of these cells do not count
    /retest [PROJECT]                 run again what did not pass in the newest run
    /cancel                           cancel the runs of this pull request
    /help                             list the commands

Each command from /var to /quarantine applies to the `/test` above it; before the first `/test`, to every `/test`. Lines
that do not begin with a slash are ignored, and so are fenced blocks, quotations, and text that a forge does not show.

This module knows the names of projects, but reads no configuration: `comment_runs` checks all other names.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import yaml

from toolbox.config import comment_limits
from toolbox.features.ci import hidden_text, refusals
from toolbox.features.ci.hidden_text import HiddenText
from toolbox.features.ci.refusals import Fault, quoted
from toolbox.ground.model import yaml_scalars
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.nearest import did_you_mean, nearest
from toolbox.ground.model.text import abbreviated

log = logging.getLogger(__name__)

COMMANDS: Final = ("test", "var", "skip", "only", "cells", "cluster", "quarantine", "retest", "cancel", "help")
_DESCRIBED: Final = frozenset({"var", "skip", "only", "cells", "cluster"})
HELP: Final = (__doc__ or "").partition("\n\n")[2].partition("\n\nEach")[0]
_LONGEST: Final = 1 << 16  # the largest number of characters in a comment
_MAX_COMMANDS: Final = 200
MAX_TESTS: Final = 20
_MAX_PATTERNS: Final = 100  # of cells, in a test: each pattern is compared with each cell
_LONGEST_WORD: Final = 300
_COMMAND = re.compile(r"/(?P<name>[A-Za-z_][\w-]*)(?:(?:[^\S\n]*\n|[^\S\n]+)(?P<rest>.*))?", re.DOTALL)
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_INDENT: Final = {" ", "\t"}
# The end of a /var line whose value is in the following lines. Only such a value may contain blank lines.
_OPENS_BLOCK = re.compile(r"(:|[|>][-+1-9]{0,2})$")
_LONGEST_OPENING: Final = 3  # the longest match, such as `|-2`: only so many last characters are searched
_DEEPEST: Final = 20  # levels that are parsed; `config.comment_limits` allows only 8, and its message names the field


@dataclass(frozen=True, slots=True)
class Line:
    """A slash command of a comment: its line number, its name, and the text after its name."""

    number: int
    name: str
    rest: str


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A `/quarantine` of a comment.

    Args:
        cells: a pattern for the names or ids of the cells.
    """

    cells: str
    reason: str


@dataclass(frozen=True, slots=True)
class TestRequest:
    """A `/test` of a comment, with the commands that apply to it.

    Args:
        job: a job of the project, whose presets come before `presets`; None without a job.
        overrides: the values of `/var` by their paths. If a path occurs twice, the last value is used.
        cells: patterns for the names or ids of cells; empty for all cells.
        lines: the lines of the commands, by the command and its argument; see `line_of`.
    """

    project: str
    job: str | None = None
    presets: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    cluster: str | None = None
    quarantine: tuple[Quarantine, ...] = ()
    lines: Mapping[tuple[str, str], int] = field(default_factory=dict, compare=False, repr=False)

    def line_of(self, command: str = "test", argument: str = "") -> int:
        """Return the line of a command with an argument, such as the path of a `/var`; else the line of the `/test`."""
        return self.lines.get((command, argument)) or self.lines.get(("test", ""), 0)


@dataclass(frozen=True, slots=True)
class RetestRequest:
    """A `/retest` of a comment.

    Args:
        project: None for the project of the newest run.
    """

    project: str | None = None
    line: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CommentRequest:
    """The slash commands of a comment.

    Args:
        tests: the tests in the order of the comment.
        retest: the retests, each project once.
        cancel: whether the comment has `/cancel`.
        help: whether the comment has `/help`.
    """

    tests: tuple[TestRequest, ...] = ()
    retest: tuple[RetestRequest, ...] = ()
    cancel: bool = False
    help: bool = False


def parse(text: str, projects: Collection[str]) -> CommentRequest:
    """Parse the slash commands of a comment.

    Args:
        projects: the names of all projects. If the first word after `/test` is not a project, it is a job.

    Raises:
        UsageError: commands are unknown or wrong. The message names them with their lines.
    """
    request, faults = read(text, projects)
    refusals.raise_for(faults)
    return request


def read(
    text: str, projects: Collection[str], description: str = "", *, commands: Iterable[Line] | None = None
) -> tuple[CommentRequest, list[Fault]]:
    """Return the slash commands of a comment without the wrong ones, and the faults of the wrong ones.

    Args:
        description: the description of the pull request. Its commands from /var to /cluster apply to every test of the
            comment, unless the comment says something else. Its other commands are ignored.
        commands: the commands of the text to read; None for all commands.

    Raises:
        UsageError: the comment or the description is too large.
    """
    for name, content in (("comment", text), ("description", description)):
        if len(content) > _LONGEST:
            raise UsageError(f"the {name} has {len(content)} characters, but at most {_LONGEST} are allowed")
    reader = _Reader(projects)
    reader.read_description(description)
    for count, line in enumerate(lines(text) if commands is None else commands, start=1):
        if count > _MAX_COMMANDS:
            raise UsageError(f"the comment has more than {_MAX_COMMANDS} commands: write several comments")
        try:
            reader.read(line)
        except ValueError as error:
            reader.faults.append(Fault(line.number, str(error)))
    return reader.request(), reader.faults


@dataclass(slots=True)
class _Details:
    """The commands that apply to one `/test`, or to every `/test` of the comment."""

    overrides: dict[str, Any] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    cluster: str | None = None
    quarantine: tuple[Quarantine, ...] = ()
    lines: dict[tuple[str, str], int] = field(default_factory=dict)

    def over(self, common: _Details) -> _Details:
        """Return these commands together with those that apply to every `/test`."""
        others = {path: value for path, value in common.overrides.items() if path not in self.overrides}
        return _Details(
            {**others, **self.overrides},
            (*common.skip, *self.skip),
            (*common.only, *self.only),
            self.cells or common.cells,
            self.cluster or common.cluster,
            (*common.quarantine, *self.quarantine),
            {**common.lines, **self.lines},
        )


@dataclass(frozen=True, slots=True)
class _Test:
    project: str
    job: str | None
    presets: tuple[str, ...]
    details: _Details


class _Reader:
    """Reads the commands of a comment in their order."""

    def __init__(self, projects: Collection[str]) -> None:
        self.faults: list[Fault] = []
        self._projects = projects
        self._described = _Details()
        self._faults_of_description: list[Fault] = []
        self._common = _Details()
        self._current = self._common
        self._tests: list[_Test] = []
        self._retests: dict[RetestRequest, None] = {}
        self._cancel = self._help = False

    def read_description(self, text: str) -> None:
        """Read the commands of the description of a pull request. Their faults belong to no line of the comment."""
        self._current = self._described
        for line in islice(lines(text), _MAX_COMMANDS):
            if line.name in _DESCRIBED:
                try:
                    _refuse_hidden(line)
                    self._read_detail(replace(line, number=0))
                except ValueError as error:
                    self._faults_of_description.append(Fault(0, f"the description of the pull request: {error}"))
        self._current = self._common

    def read(self, line: Line) -> None:
        """Read one command, or raise a `ValueError` that says what is wrong with it."""
        _refuse_hidden(line)
        match line.name:
            case "test":
                self._read_test(line)
            case "retest":
                words = _words(line, "the name of one project, or nothing,", least=0, most=1)
                project = self._project(words[0]) if words else None
                self._retests.setdefault(RetestRequest(project, line.number))
            case "cancel":
                _words(line, "nothing", least=0, most=0)
                self._cancel = True
            case "help":
                self._help = True
            case "var" | "skip" | "only" | "cells" | "cluster" | "quarantine":
                self._read_detail(line)
            case _:
                hint = did_you_mean(line.name[:_LONGEST_WORD], COMMANDS, label="commands", prefix="/")
                raise ValueError(f"unknown command {quoted(f'/{line.name}')}: {hint}")

    def request(self) -> CommentRequest:
        """Return the commands, and add the faults that concern several of them."""
        if self._current is self._common and self._common.lines:
            (command, _), number = min(self._common.lines.items(), key=lambda item: item[1])
            self.faults.append(Fault(number, f"/{command} applies to a /test, but there is none: add /test PROJECT"))
        if self._tests:
            self.faults += self._faults_of_description
        tests = tuple(self._request_of(test) for test in self._tests)
        return CommentRequest(tests, tuple(self._retests), self._cancel, self._help)

    def _read_test(self, line: Line) -> None:
        self._current = _Details(lines={("test", ""): line.number})
        if len(self._tests) == MAX_TESTS:
            raise ValueError(f"a comment may have at most {MAX_TESTS} tests: write another comment")
        words = _words(line, "the name of a project")
        job = self._job(words)
        first = 1 if job is None else 2
        self._tests.append(_Test(words[first - 1], job, tuple(words[first:]), self._current))

    def _job(self, words: list[str]) -> str | None:
        """Return the job if the words after `/test` begin with a job and a project; None if with a project."""
        first, second = (*words, "")[:2]
        if first in self._projects:
            return None
        if second in self._projects:
            return first
        is_job = bool(second and nearest(second, self._projects) and not nearest(first, self._projects))
        self._project(second if is_job else first)
        return None

    def _project(self, name: str) -> str:
        if name not in self._projects:
            hint = did_you_mean(name, self._projects, label="projects")
            raise ValueError(f"unknown project {quoted(name)}: {hint}")
        return name

    def _read_detail(self, line: Line) -> None:
        details = self._current
        # A faulty command also has a line, so that a comment without `/test` is refused.
        details.lines.setdefault((line.name, ""), line.number)
        match line.name:
            case "var":
                values = overrides(line.rest)
                for scalar in yaml_scalars.ambiguous_in(line.rest):
                    log.warning("line %d of the comment: /var: %s", line.number, scalar)
                for path, value in values.items():
                    details.overrides.pop(path, None)  # the last value of a path is also applied last
                    details.overrides[path] = value
                if len(details.overrides) > _MAX_COMMANDS:
                    raise ValueError(f"/var: a test may have at most {_MAX_COMMANDS} overrides")
                arguments = list(values)
            case "skip" | "only":
                arguments = _words(line, "the names of phases")
                setattr(details, line.name, (*getattr(details, line.name), *arguments))
            case "cells":
                arguments = _words(line, "a pattern for the names of cells")
                details.cells += tuple(pattern for argument in arguments for pattern in argument.split())
                _check_patterns("cells", len(details.cells))
            case "cluster":
                arguments = _words(line, "the name of one cluster", most=1)
                if details.cluster is not None:
                    raise ValueError("/cluster occurs twice: a test runs on one cluster")
                details.cluster = arguments[0]
            case _:
                entry = _quarantine(line.rest)
                details.quarantine += (entry,)
                _check_patterns("quarantine", len(details.quarantine))
                arguments = [entry.cells]
        details.lines |= {(line.name, argument): line.number for argument in arguments}

    def _request_of(self, test: _Test) -> TestRequest:
        details = test.details.over(self._common)
        described = self._described
        if details.skip or details.only:
            described = replace(described, skip=(), only=())
        details = details.over(described)
        if details.skip and details.only:
            number = max(details.lines["skip", ""], details.lines["only", ""])
            self.faults.append(Fault(number, "/skip and /only cannot be used together"))
        return TestRequest(
            test.project,
            test.job,
            test.presets,
            details.overrides,
            details.skip,
            details.only,
            details.cells,
            details.cluster,
            details.quarantine,
            details.lines,
        )


def lines(text: str) -> Iterator[Line]:
    """Yield the slash commands of a text, each with its continuation lines."""
    number, parts, fence = 0, list[str](), ""
    all_lines = text.replace("\r\n", "\n").split("\n")
    hidden = HiddenText(all_lines)
    for index, line in enumerate(all_lines, start=1):
        # In a block of HTML, a fence is a text, which does not end or hide an HTML comment.
        is_hidden = (not fence or hidden.is_html) and hidden.hides(index - 1)
        if parts and not is_hidden and _continues(parts, line):
            parts.append(line if line.strip() else "")
            continue
        if parts:
            yield _line(number, parts)
            parts = []
        if is_hidden:
            continue
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


def _refuse_hidden(line: Line) -> None:
    """Raise ValueError if a forge hides a part of a command from the readers of the comment."""
    if opening := hidden_text.opening_in(line.rest):
        raise ValueError(
            f"/{line.name}: a forge does not show the text after `{opening}`. Remove this text from the command"
        )


def _words(line: Line, expected: str, *, least: int = 1, most: int | None = None) -> list[str]:
    """Return the words after a command, which are quoted as in a shell."""
    try:
        words = shlex.split(line.rest)
    except ValueError as error:
        raise ValueError(f"/{line.name}: {str(error).lower()}") from None
    if len(words) < least or (most is not None and len(words) > most):
        raise ValueError(f"/{line.name} needs {expected} after it")
    if any(len(word) > _LONGEST_WORD for word in words):
        raise ValueError(f"/{line.name}: a word has more than {_LONGEST_WORD} characters")
    if unprintable := [word for word in words if not word.isprintable()]:
        raise ValueError(f"/{line.name}: {quoted(unprintable[0])} has unprintable characters")
    return words


def _quarantine(text: str) -> Quarantine:
    cells, reason, *_ = (*text.split(maxsplit=1), "", "")
    reason = " ".join(reason.split())
    if not reason:
        raise ValueError("/quarantine needs a pattern for the names of cells and a reason after it")
    if len(cells) > _LONGEST_WORD or len(reason) > _LONGEST_WORD or not reason.isprintable():
        raise ValueError(f"/quarantine: the reason must have at most {_LONGEST_WORD} printable characters")
    try:
        comment_limits.check_value(reason)
    except ValueError as error:
        raise ValueError(f"/quarantine: {error}") from None
    is_quoted = len(cells) > 1 and cells[0] == cells[-1] and cells[0] in "'\""
    return Quarantine(cells[1:-1] if is_quoted else cells, reason)


def _check_patterns(command: str, count: int) -> None:
    if count > _MAX_PATTERNS:
        raise ValueError(f"/{command}: a test may have at most {_MAX_PATTERNS} patterns")


def _refuse_unsafe(text: str) -> None:
    """Raise if the YAML of a comment has tags, or would take minutes or gigabytes to construct.

    A few nested aliases can expand to gigabytes, and PyYAML's time for each token grows with the nesting depth. PyYAML
    raises errors of any type if a tag does not fit its value.

    Raises:
        ValueError: the text contains a tag or an alias, or is nested too deep.
        YAMLError: the text is not YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("/var: a YAML alias (*) is not allowed here: write the value itself")  # noqa: TRY004  # `parse` catches ValueError
        if getattr(event, "tag", None) is not None:
            raise ValueError("/var: a YAML tag (!) is not allowed here: put a text that begins with ! between quotes")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError(f"/var: {abbreviated(text.strip())} is nested more than {_DEEPEST} levels deep")


def overrides(text: str) -> dict[str, Any]:
    """Return the overrides in the YAML after a `/var`, by their paths.

    Raises:
        ValueError: the text is not a mapping of plain values, or is too large.
    """
    try:
        _refuse_unsafe(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise _not_yaml(text, error) from None
    try:
        value = yaml.load(text, Loader=yaml_scalars.Loader)  # noqa: S506  # a safe loader
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:  # a number or date may be too large
        raise _not_yaml(text, error) from None
    if not isinstance(value, dict) or not value:
        raise ValueError(f"/var: {abbreviated(text.strip())} is not `path: value`")
    for path, item in value.items():
        _check_override(path, item)
    return {str(path): item for path, item in value.items()}


def _check_override(path: object, value: object) -> None:
    try:
        comment_limits.check_value(path)
    except ValueError as error:
        raise ValueError(f"/var: a path is wrong: {error}") from None
    if len(str(path)) > _LONGEST_WORD:
        raise ValueError(f"/var: a path has more than {_LONGEST_WORD} characters")
    try:
        comment_limits.check_value(value)
    except ValueError as error:
        raise ValueError(f"/var {abbreviated(path)}: {error}") from None


def _not_yaml(text: str, error: Exception) -> ValueError:
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
    return ValueError(f"/var: {abbreviated(text.strip())} is not YAML: {problem}")
