"""The arguments of a toolbox command from a configuration, for `from_config` and for the orchestration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolbox.config.command_args import SET_AT_RUNTIME, Template
from toolbox.config.configuration import Configuration
from toolbox.model.errors import UsageError
from toolbox.model.nearest import did_you_mean


@dataclass(frozen=True, slots=True)
class Call:
    """A toolbox command as a template names it.

    Args:
        extra: arguments that win over those of the template.
    """

    group: str
    command: str
    prefix: str | None = None
    suffix: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its key in the template: `[prefix/]group command[/suffix]`."""
        key = f"{self.group} {self.command}"
        if self.prefix:
            key = f"{self.prefix}/{key}"
        return f"{key}/{self.suffix}" if self.suffix else key


def arguments(call: Call, configuration: Configuration, template: Template) -> dict[str, Any]:
    """Return the arguments of a call.

    Raises:
        ConfigurationError: the template has no such key, or its block is broken.
    """
    return {**template.arguments(call.key, configuration, replaced=call.extra), **call.extra}


def one(values: Mapping[str, Any], name: str, key: str) -> Any:
    """Return one argument.

    Raises:
        UsageError: there is none of this name.
    """
    if name not in values:
        raise UsageError(f"`{key}` has no argument `{name}`: {did_you_mean(name, values, label='its arguments')}")
    return values[name]


def refuse_placeholders(label: str, values: Mapping[str, Any]) -> None:
    """Refuse arguments that were to be set at run time, and were not.

    Raises:
        UsageError: it names them.
    """
    if left := [f"--{name}" for name, value in values.items() if _holds_placeholder(value)]:
        raise UsageError(
            f"{label}: {', '.join(left)} is {SET_AT_RUNTIME}: the template leaves it to the caller, who did not set it "
            "(`extra=dict(...)`, or `--extra='{name: value}'`)"
        )


def _holds_placeholder(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_placeholder, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_placeholder, value))
    return isinstance(value, str) and value == SET_AT_RUNTIME
