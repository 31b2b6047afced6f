"""Renders `command_args/NAME.yaml.j2`, the template with the arguments of toolbox commands.

Jinja renders the template with the resolved configuration, and the result is parsed as YAML. The value of an expression
keeps its type, and cannot change the structure of the YAML: Jinja writes a placeholder for each expression, and the
placeholder is replaced by the value after the YAML is parsed. Only the output of `tojson` is parsed as YAML.

To get the arguments of one command, only the block of this command is rendered, so that a broken block breaks only its
own command. All blocks see the names that the template defines before them (`{% set %}`, `{% macro %}`).
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
import secrets
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
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
from toolbox.ground.model import yaml_scalars
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.text import as_text
from toolbox.ground.model.yaml_scalars import AmbiguousScalar
from toolbox.ground.system import environ

log = logging.getLogger(__name__)

SET_AT_RUNTIME: Final = "SET_AT_RUNTIME"
_TABLE: Final = "_topgallant_table"


class Template:
    """The command_args template of a project.

    Raises:
        ConfigurationError: the file cannot be read, or its Jinja syntax is wrong.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._warnings: set[str] = set()  # each is logged once, although a block is rendered for each call
        # With `optimized=True`, Jinja would call `log_warning` on literals at compile time, even in unused branches.
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
        """Return the arguments in the block of a key, without those whose names begin with `_`.

        Args:
            key: `[prefix/]group command[/suffix]`.
            replaced: the names of arguments that the caller sets itself. They are left out, and their expressions may
                fail.

        Raises:
            ConfigurationError: the template does not have the key, or the block of the key is broken.
        """
        try:
            blocks = self._blocks(key, configuration)
        except ConfigurationError:
            if key in self.keys:
                raise
            blocks = {}
        if key not in blocks:
            available = sorted({*self.keys, *map(str, blocks)})
            hint = did_you_mean(key, available, label="keys")
            listed = "\n  ".join(available)
            raise ConfigurationError(f"{self._file} has no key `{key}`: {hint}\n  {listed}")
        values = blocks[key]
        if values is None:
            return {}
        if isinstance(values, dict):
            values = {name: value for name, value in values.items() if not _is_left_out(name, replaced)}
        self._raise_fault(values)
        if not isinstance(values, dict):
            raise ConfigurationError(f"{self._file}: `{key}` must be a mapping of arguments, not {values!r}")
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
        except jinja2.TemplateSyntaxError as error:  # an unknown filter or test
            raise ConfigurationError(f"{self._file}:{error.lineno}: {error.message}") from None
        template = jinja2.Template.from_code(self._environment, code, dict(self._environment.globals))
        try:
            text = template.render({_TABLE: table})
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001  # any error of an expression is a fault of the template
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == str(self._file)]
            raise ConfigurationError(self._explained(_Fault(error, lines[-1] if lines else None, table.view))) from None
        return self._parse(text, table)

    def _parse(self, text: str, table: _Table) -> dict[Any, Any]:
        try:
            loader = _Loader(text, table)
            node = loader.get_single_node()
            scalars = list(yaml_scalars.ambiguous(node, loader))
            blocks = loader.construct_document(node) if node is not None else None
        except yaml.composer.ComposerError as error:
            if "undefined alias" in str(error.problem):
                raise _OtherBlockNeeded(self._not_yaml(error)) from None
            raise ConfigurationError(self._not_yaml(error)) from None
        except yaml.YAMLError as error:
            self._raise_fault(table.values)  # a failed expression may be the reason why the text is not YAML
            raise ConfigurationError(self._not_yaml(error)) from None
        if blocks is None:
            return {}
        if not isinstance(blocks, dict):
            raise ConfigurationError(f"{self._file}: the template renders to a {type(blocks).__name__}, not a mapping")
        self._raise_fault(list(blocks))
        self._warn(scalars)
        return blocks

    def _warn(self, scalars: Iterable[AmbiguousScalar]) -> None:
        """Log each number that may be meant as text. For a boolean or a date, a parameter for text is an error."""
        for scalar in scalars:
            warning = f"{self._file}: `{scalar.keys[0] if scalar.keys else ''}`: {scalar}"
            if scalar.is_number and warning not in self._warnings:
                self._warnings.add(warning)
                log.warning("%s", warning)

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
        is_clear = isinstance(error, jinja2.TemplateError | _RaisedByTemplate)
        message = str(error) if is_clear else f"{type(error).__name__}: {error}"
        if match := re.fullmatch(r"'(\w+)' is undefined", message):
            message += f": {did_you_mean(match[1], fault.view, label='fields of the configuration')}"
        return f"{where}: {message}"


@dataclass(frozen=True, slots=True, eq=False)
class _Fault:
    """Replaces the value of an expression that failed. The error is raised only if the value is needed.

    Args:
        line: the line of the template, if it is known.
    """

    error: Exception
    line: int | None
    view: View


class _RaisedByTemplate(Exception):
    """An error that the template raises with `raise_exception`, or by misusing a filter."""


class _OtherBlockNeeded(ConfigurationError):
    """A YAML alias in the rendered block refers to an anchor in the block of another command."""


class _Raw(str):
    """Text that is inserted into the YAML as it is: the output of `tojson`."""

    __slots__ = ()


class _Table:
    """The values of the expressions of one rendering, by their placeholders.

    A placeholder consists of characters of Unicode's private use area, a random number, so that no value can imitate a
    placeholder, and the index of the value. For YAML, a placeholder is plain text.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.values: list[Any] = []
        mark = secrets.randbits(64)  # only digits, because filters such as `upper` do not change digits
        self._open, self._close = f"\ue000{mark}\ue002", "\ue001"
        self._pattern = re.compile(f"{self._open}(\\d+){self._close}")

    def add(self, value: Any) -> str:
        """Store a value, and return its placeholder."""
        self.values.append(value)
        return f"{self._open}{len(self.values) - 1}{self._close}"

    def has_values(self, text: str) -> bool:
        """Tell whether a text contains a placeholder."""
        return self._open in text

    def fill(self, text: str, *, typed: bool) -> Any:
        """Replace the placeholders in a scalar by their values.

        Args:
            typed: whether a scalar that consists of one placeholder keeps the type of its value. Any other scalar
                becomes text.
        """
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
        def text_of(match: re.Match[str]) -> str:
            value = self._value(match)
            return value.reveal() if reveal and isinstance(value, Secret) else as_text(value)

        return self._pattern.sub(text_of, text)

    def _value(self, match: re.Match[str]) -> Any:
        value = self.values[int(match[1])]
        # The text of a `{% set %}` block or a macro contains placeholders of its own expressions.
        return self.fill(value, typed=True) if isinstance(value, str) else value


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which also replaces placeholders by their values."""

    def __init__(self, stream: str, table: _Table) -> None:
        super().__init__(stream)
        self.table = table

    def text(self, node: yaml.ScalarNode) -> Any:
        """Construct a text scalar. A scalar that the template quotes is text, whatever the type of the value.

        A reference in the literal text of the template (`tag: "@rhods.catalog.tag"`) is resolved. References in the
        values of expressions are already resolved, and a value that looks like a reference stays text.
        """
        text: str = node.value
        if is_reference(text) and not self.table.has_values(text):
            try:
                return self.table.view.resolve_text(text)
            except ConfigurationError as error:
                return _Fault(error, None, self.table.view)
        return self.table.fill(text, typed=node.style is None)


yaml_scalars.read_exponents(_Loader)
_Loader.add_constructor("tag:yaml.org,2002:str", _Loader.text)


class _Context(Context):
    """Looks up a name among the names that the template defines, and then in the configuration."""

    def resolve_or_missing(self, key: str) -> Any:
        """Return the value of a name, or Jinja's `missing`."""
        value = super().resolve_or_missing(key)
        table = self.parent.get(_TABLE)
        if value is missing and isinstance(table, _Table) and key in table.view:
            return table.view[key]
        return value


class _Generator(CodeGenerator):
    """Generates code that evaluates each output expression through `_Environment.guarded`."""

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        self.write(f"environment.guarded(context, {node.lineno}, lambda: ")
        super()._output_child_pre(node, frame, finalize)

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        super()._output_child_post(node, frame, finalize)
        self.write(")")


class _Environment(jinja2.Environment):
    """A Jinja environment in which `a.items` is the field `items` of `a`, or the method if there is no such field."""

    context_class = _Context
    code_generator_class = _Generator

    @staticmethod
    def guarded(context: Context, line: int, render: Callable[[], str]) -> str:
        """Return the text of an expression, or a placeholder if it fails, because `--extra` may replace the value."""
        try:
            return render()
        except _RaisedByTemplate:
            raise
        except Exception as error:  # noqa: BLE001  # any error of an expression is a fault of the template
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
        hint = did_you_mean(str(name), map(str, mapping), label="fields")
        return self.undefined(f"{where} has no field `{name}`: {hint}", obj=mapping, name=name)


@jinja2.pass_context
def _leave_placeholder(context: Context, value: Any) -> str:
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, Undefined):
        return str(value)  # raises an error that names the undefined variable
    table: _Table = context.parent[_TABLE]
    return table.add(_plain(value))


def _is_left_out(name: object, replaced: Collection[str]) -> bool:
    return isinstance(name, str) and (name.startswith("_") or name in replaced)


def _first_fault(value: Any) -> _Fault | None:
    if isinstance(value, _Fault):
        return value
    if isinstance(value, Mapping):
        return _first_fault([part for item in value.items() for part in item])
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
            raise _RaisedByTemplate("a secret cannot be used with `tojson`: give the secret an argument of its own")
        return str(item)

    return _Raw(json.dumps(_plain(value), default=refuse))


def _or_env(value: Any, name: str) -> Any:
    return value or environ.get(name)


def _raise_exception(message: Any) -> None:
    raise _RaisedByTemplate(str(message).strip())


def _log_warning(message: Any) -> _Raw:
    log.warning("%s", message)
    return _Raw("")
