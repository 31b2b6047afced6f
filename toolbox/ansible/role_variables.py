"""Prepares the variables of a role: the arguments of its command, and the variables that its method returns."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from toolbox.ansible import unsafe_yaml
from toolbox.ground.interface import signature
from toolbox.ground.interface.registry import Command
from toolbox.ground.interface.signature import Signature
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.secrets import Secret
from toolbox.ground.system import environ


def run_body(command: Command, values: Mapping[str, Any]) -> dict[str, Any]:
    """Call the method of a command with the converted arguments, and return the variables that it adds or replaces.

    Raises:
        UsageError: the method refused the arguments (by ValueError or `sys.exit`), or returned a value that cannot be
            used as variables.
    """
    name = command.signature.name
    try:
        returned = signature.call(command.signature, command.call, values)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error
    except SystemExit as error:
        raise UsageError(f"{name}: the body of its method ended with sys.exit({error.code!r})") from error
    if returned is None:
        return {}
    if not isinstance(returned, Mapping):
        kind = type(returned).__name__
        raise UsageError(f"{name}: its method must return None or a mapping of variables, not a value of type {kind}")
    # Leave `self` and groups of flags out, so that a method may end with `return locals()`.
    return {
        variable: _checked(command.signature, variable, value)
        for variable, value in returned.items()
        if variable != "self" and variable not in command.signature.groups
    }


def _checked(method: Signature, variable: object, value: Any) -> Any:
    if not isinstance(variable, str) or not variable.isascii() or not variable.isidentifier():
        raise UsageError(f"{method.name}: its method returned {variable!r}, which cannot name a variable")
    parameter = next((each for each in method.parameters if each.name == variable), None)
    try:
        if parameter is not None:
            value = signature.convert(parameter, value, text=False)
        unsafe_yaml.dump(plain(value))
    except ValueError as error:
        raise UsageError(f"{method.name}: its method returned a wrong argument: {error}") from None
    except yaml.YAMLError:
        kind = type(value).__name__
        raise UsageError(
            f"{method.name}: its method returned `{variable}` of type {kind}: text, numbers, booleans, "
            "null, lists and mappings can be variables"
        ) from None
    return value


def with_absolute_paths(label: str, values: Mapping[str, Any], *, is_remote: bool) -> dict[str, Any]:
    """Return variables in which all paths are absolute, because the role runs in another working directory.

    If `is_remote`, the paths are on SSH hosts. There, a path that begins with `~` counts as absolute.

    Args:
        label: the name of the command, for messages.

    Raises:
        UsageError: a path on an SSH host is relative.
    """
    return {name: _absolute(label, name, value, is_remote=is_remote) for name, value in values.items()}


def _absolute(label: str, name: str, value: Any, *, is_remote: bool) -> Any:
    if not isinstance(value, Path):
        return value
    if not is_remote:
        return environ.expanded(value).absolute()
    if not value.is_absolute() and not str(value).startswith("~"):
        raise UsageError(f"{label}: --{name}={value}: a path on another host has to be absolute")
    return value


def plain(value: Any, *, reveal: bool = False) -> Any:
    """Return a value with paths and members of enumerations replaced by text, so that YAML can represent the value.

    Args:
        reveal: whether to replace secrets by their values.
    """
    if isinstance(value, Secret):
        return value.reveal() if reveal else value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: plain(item, reveal=reveal) for key, item in value.items()}
    return [plain(item, reveal=reveal) for item in value] if isinstance(value, list | tuple) else value
