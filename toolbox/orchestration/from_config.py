"""Computes the arguments of a toolbox command from the configuration and the command_args template of a project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolbox.config.command_args import SET_AT_RUNTIME, Template
from toolbox.config.configuration import Configuration
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.nearest import did_you_mean


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a toolbox command whose arguments are in a template.

    Args:
        extra: arguments that replace those of the template.
    """

    group: str
    command: str
    prefix: str | None = None
    suffix: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key of the call in the template: `[prefix/]group command[/suffix]`."""
        return "/".join(filter(None, [self.prefix, f"{self.group} {self.command}", self.suffix]))


def arguments(call: Call, configuration: Configuration, template: Template) -> dict[str, Any]:
    """Return the arguments of a call.

    Raises:
        ConfigurationError: the template does not have the key of the call, or the block of the key is broken.
    """
    return {**template.arguments(call.key, configuration, replaced=call.extra), **call.extra}


def argument(values: Mapping[str, Any], name: str, key: str) -> Any:
    """Return the argument of this name, or raise a `UsageError` that suggests a similar name."""
    if name not in values:
        raise UsageError(f"`{key}` has no argument `{name}`: {did_you_mean(name, values, label='arguments')}")
    return values[name]


def refuse_placeholders(label: str, values: Mapping[str, Any]) -> None:
    """Raise a `UsageError` that names all arguments whose values contain the placeholder SET_AT_RUNTIME."""
    if unset := [f"--{name}" for name, value in values.items() if _has_placeholder(value)]:
        raise UsageError(
            f"{label}: {', '.join(unset)} is {SET_AT_RUNTIME}: the caller has to set the value, with "
            "`extra=dict(...)` or `--extra='{name: value}'`"
        )


def _has_placeholder(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_placeholder, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_placeholder, value))
    return isinstance(value, str) and value == SET_AT_RUNTIME
