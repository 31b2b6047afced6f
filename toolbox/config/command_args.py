"""Renders `command_args/NAME.yaml.j2`: the arguments of toolbox commands, from the configuration.

The template is Jinja over the resolved configuration, then YAML. What an expression yields cannot change the
structure around it, and keeps its type: while Jinja renders, each expression leaves a placeholder, and its value
takes that place when the YAML has been read. Only `tojson` and the literal text of the template are YAML.

The template of one command is rendered without the blocks of the others, so that a broken block breaks its own
command alone. What a template sets (`{% set %}`, `{% macro %}`) is seen by all blocks after it.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
import secrets
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jinja2
import yaml
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context, Undefined
from jinja2.utils import missing

from toolbox.config.configuration import Configuration, View
from toolbox.config.document import read_text
from toolbox.config.references import is_reference
from toolbox.config.template_blocks import Selection
from toolbox.model.errors import ConfigurationError
from toolbox.model.nearest import did_you_mean
from toolbox.model.secrets import Secret
from toolbox.model.text import as_text
from toolbox.system import environ

log = logging.getLogger(__name__)

SET_AT_RUNTIME: Final = "SET_AT_RUNTIME"
_TABLE: Final = "_topgallant_table"


class Template:
    """The template of a project's command arguments.

    Args:
        file: the template.

    Raises:
        ConfigurationError: it cannot be read, or its Jinja syntax is wrong.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        # Not optimized: that would call `log_warning` on literal text when it compiles, also where nothing is logged.
        self._environment = _Environment(undefined=jinja2.StrictUndefined, finalize=_leave_placeholder, optimized=False)
        self._environment.filters |= {
            "basename": posixpath.basename,
            "dirname": posixpath.dirname,
            "log_warning": _log_warning,
            "or_env": _or_env,
            "raise_exception": _raise_exception,
            "tojson": _to_json,
        }
        source = read_text(file, what="the command_args file")
        try:
            self._tree = self._environment.parse(source, filename=str(file))
        except jinja2.TemplateSyntaxError as error:
            raise ConfigurationError(f"{file}:{error.lineno}: {error.message}") from None
        self.keys = tuple(dict.fromkeys(Selection(self._tree, None).keys))

    def arguments(self, key: str, configuration: Configuration, *, replaced: Collection[str] = ()) -> dict[str, Any]:
        """Return the arguments of one command: `[prefix/]group command[/suffix]`.

        Keys that begin with `_` are anchors for other values, and no arguments.

        Args:
            replaced: arguments that the caller sets. They are left out, and their expressions may fail.

        Raises:
            ConfigurationError: there is no such key, or its block is broken.
        """
        try:
            blocks = self._blocks(key, configuration)
        except ConfigurationError:
            if key in self.keys:
                raise
            blocks = {}
        if key not in blocks:
            available = sorted({*self.keys, *map(str, blocks)})
            hint = did_you_mean(key, available, label="the available keys")
            listed = "\n  ".join(available)
            raise ConfigurationError(f"{self._file} has no key `{key}`: {hint}\n  {listed}")
        values = blocks[key]
        if values is None:
            return {}
        if isinstance(values, dict):
            values = {name: value for name, value in values.items() if not _is_left_out(name, replaced)}
        self._raise_fault(values)
        if not isinstance(values, dict):
            raise ConfigurationError(f"{self._file}: `{key}` is {values!r}, a mapping of arguments was expected")
        return {str(name): value for name, value in values.items()}

    def _blocks(self, key: str, configuration: Configuration) -> dict[Any, Any]:
        try:
            return self._render(Selection(self._tree, key if key in self.keys else None).tree, configuration)
        except _OtherBlockNeeded:
            return self._render(self._tree, configuration)

    def _render(self, tree: nodes.Template, configuration: Configuration) -> dict[Any, Any]:
        table = _Table(configuration.view())
        try:
            code = self._environment.compile(tree, filename=str(self._file))
        except jinja2.TemplateSyntaxError as error:  # a filter or a test that does not exist
            raise ConfigurationError(f"{self._file}:{error.lineno}: {error.message}") from None
        template = jinja2.Template.from_code(self._environment, code, dict(self._environment.globals))
        try:
            text = template.render({_TABLE: table})
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever an expression raises is a fault at a line of the template
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == str(self._file)]
            raise ConfigurationError(self._explained(_Fault(error, lines[-1] if lines else None, table.view))) from None
        return self._parse(text, table)

    def _parse(self, text: str, table: _Table) -> dict[Any, Any]:
        try:
            blocks = _Loader(text, table).get_single_data()
        except yaml.composer.ComposerError as error:
            if "undefined alias" in str(error.problem):
                raise _OtherBlockNeeded(self._not_yaml(error)) from None
            raise ConfigurationError(self._not_yaml(error)) from None
        except yaml.YAMLError as error:
            self._raise_fault(table.values)  # an expression that failed may be what makes it no YAML
            raise ConfigurationError(self._not_yaml(error)) from None
        if blocks is None:
            return {}
        if not isinstance(blocks, dict):
            raise ConfigurationError(f"{self._file}: the template renders to a {type(blocks).__name__}, not a mapping")
        self._raise_fault(list(blocks))
        return blocks

    def _raise_fault(self, value: Any) -> None:
        if (fault := _first_fault(value)) is not None:
            raise ConfigurationError(self._explained(fault))

    def _not_yaml(self, error: yaml.YAMLError) -> str:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1} of the rendered template)" if mark else ""
        problem = getattr(error, "problem", None) or error
        return f"{self._file}: the rendered template is not YAML: {problem}{line}"

    def _explained(self, fault: _Fault) -> str:
        error = fault.error
        if isinstance(error, ConfigurationError):
            return str(error)
        where = f"{self._file}:{fault.line}" if fault.line else str(self._file)
        is_ours = isinstance(error, jinja2.TemplateError | _RaisedByTemplate)
        message = str(error) if is_ours else f"{type(error).__name__}: {error}"
        if match := re.fullmatch(r"'(\w+)' is undefined", message):
            message += f": {did_you_mean(match[1], fault.view, label='the fields of the configuration')}"
        return f"{where}: {message}"


@dataclass(frozen=True, slots=True, eq=False)
class _Fault:
    """Stands for the value of an expression that failed, until it is known whether the value is needed.

    Args:
        line: the line of the template; None where it is not known.
    """

    error: Exception
    line: int | None
    view: View


class _RaisedByTemplate(Exception):
    """The template itself said that something is wrong."""


class _OtherBlockNeeded(ConfigurationError):
    """A YAML alias refers to an anchor in the block of another command."""


class _Raw(str):
    """Text that is YAML: the output of `tojson`."""

    __slots__ = ()


class _Table:
    """The values of the expressions of one rendering, by their placeholders.

    A placeholder is a number between two characters of Unicode's private use area, with a random part that no
    value can know. YAML takes it for plain text.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.values: list[Any] = []
        mark = secrets.randbits(64)  # digits: a filter as `upper` on captured text leaves them as they are
        self._open, self._close = f"\ue000{mark}\ue002", "\ue001"
        self._pattern = re.compile(f"{self._open}(\\d+){self._close}")

    def add(self, value: Any) -> str:
        """Keep a value, and return its placeholder."""
        self.values.append(value)
        return f"{self._open}{len(self.values) - 1}{self._close}"

    def has_values(self, text: str) -> bool:
        """Tell whether a text holds a placeholder."""
        return self._open in text

    def fill(self, text: str, *, typed: bool) -> Any:
        """Return a scalar with its values in it; a value that is the whole scalar keeps its type if `typed`."""
        if not self.has_values(text):
            return text
        match = self._pattern.fullmatch(text)
        if match and typed:
            return self._value(match)
        parts = [self._value(match) for match in self._pattern.finditer(text)]
        if (fault := _first_fault(parts)) is not None:
            return fault
        if any(isinstance(part, Secret) for part in parts):
            return Secret(lambda: self._join(text, reveal=True))
        return self._join(text, reveal=False)

    def _join(self, text: str, *, reveal: bool) -> str:
        def shown(match: re.Match[str]) -> str:
            value = self._value(match)
            return value.reveal() if reveal and isinstance(value, Secret) else as_text(value)

        return self._pattern.sub(shown, text)

    def _value(self, match: re.Match[str]) -> Any:
        value = self.values[int(match[1])]
        # A `{% set %}` block or a macro yields text that holds the placeholders of its own expressions.
        return self.fill(value, typed=True) if isinstance(value, str) else value


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which puts values where their placeholders are."""

    def __init__(self, stream: str, table: _Table) -> None:
        super().__init__(stream)
        self.table = table

    def text(self, node: yaml.ScalarNode) -> Any:
        """Construct a text scalar. What the template quotes is text, whatever an expression yields.

        A reference that the template itself writes (`tag: "@rhods.catalog.tag"`) is followed; what an expression
        yields has been resolved, and is not looked at again.
        """
        text: str = node.value
        if is_reference(text) and not self.table.has_values(text):
            try:
                return self.table.view.follow(text)
            except ConfigurationError as error:
                return _Fault(error, None, self.table.view)
        return self.table.fill(text, typed=node.style is None)


_Loader.add_constructor("tag:yaml.org,2002:str", _Loader.text)


class _Context(Context):
    """Looks up a name in what the template sets, then in the configuration."""

    def resolve_or_missing(self, key: str) -> Any:
        """Return the value of a name, or Jinja's mark for a missing one."""
        value = super().resolve_or_missing(key)
        table = self.parent.get(_TABLE)
        if value is missing and isinstance(table, _Table) and key in table.view:
            return table.view[key]
        return value


class _Generator(CodeGenerator):
    """Has each expression that writes text evaluated by `_Environment.guarded`."""

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        self.write(f"environment.guarded(context, {node.lineno}, lambda: ")
        super()._output_child_pre(node, frame, finalize)

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        super()._output_child_post(node, frame, finalize)
        self.write(")")


class _Environment(jinja2.Environment):
    """Jinja in which a field of the configuration goes before a method of a mapping (`a.items`, `a.values`)."""

    context_class = _Context
    code_generator_class = _Generator

    @staticmethod
    def guarded(context: Context, line: int, render: Callable[[], str]) -> str:
        """Return the text of an expression, or the placeholder of a fault: `--extra` may replace the value."""
        try:
            return render()
        except _RaisedByTemplate:
            raise
        except Exception as error:  # noqa: BLE001  # whatever an expression raises is a fault at a line of the template
            table: _Table = context.parent[_TABLE]
            return table.add(_Fault(error, line, table.view))

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return `obj.attribute`."""
        return self._field(obj, attribute) if isinstance(obj, Mapping) else super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return `obj[argument]`."""
        return self._field(obj, argument) if isinstance(obj, Mapping) else super().getitem(obj, argument)

    def _field(self, mapping: Mapping[Any, Any], name: Any) -> Any:
        if name in mapping:
            return mapping[name]
        if isinstance(name, str) and hasattr(mapping, name) and not name.startswith("_"):
            return getattr(mapping, name)
        where = f"`{mapping.path}`" if isinstance(mapping, View) else "the mapping"
        hint = did_you_mean(str(name), map(str, mapping), label="its fields")
        return self.undefined(f"{where} has no field `{name}`: {hint}", obj=mapping, name=name)


@jinja2.pass_context
def _leave_placeholder(context: Context, value: Any) -> str:
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, Undefined):
        return str(value)  # raises, with the name
    table: _Table = context.parent[_TABLE]
    return table.add(_plain(value))


def _is_left_out(name: object, replaced: Collection[str]) -> bool:
    return isinstance(name, str) and (name.startswith("_") or name in replaced)


def _first_fault(value: Any) -> _Fault | None:
    if isinstance(value, _Fault):
        return value
    if isinstance(value, Mapping):
        return _first_fault([each for item in value.items() for each in item])
    faults = map(_first_fault, value) if isinstance(value, list) else ()
    return next((fault for fault in faults if fault is not None), None)


def _plain(value: Any) -> Any:
    if isinstance(value, View):
        return value.resolved()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _to_json(value: Any) -> _Raw:
    def refuse(item: Any) -> str:
        if isinstance(item, Secret):
            raise _RaisedByTemplate(
                "a secret cannot be used with `tojson`: write the secret as an expression of its own"
            )
        return str(item)

    return _Raw(json.dumps(_plain(value), default=refuse))


def _or_env(value: Any, name: str) -> Any:
    return value or environ.get(name)


def _raise_exception(message: Any) -> None:
    raise _RaisedByTemplate(str(message).strip())


def _log_warning(message: Any) -> _Raw:
    log.warning("%s", message)
    return _Raw("")
