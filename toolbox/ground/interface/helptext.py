"""Formats the help of the command line as plain text, for terminals, logs of CI and grep."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path

from toolbox.ground.interface import signature
from toolbox.ground.interface.registry import Command, Group, GroupSummary
from toolbox.ground.interface.signature import Parameter
from toolbox.ground.system import environ

_WIDTH = 100


def of_groups(groups: Iterable[GroupSummary]) -> str:
    """Return the list of the groups with their purposes."""
    groups = list(groups)
    width = max((len(group.name) for group in groups), default=0)
    lines = [
        "Topgallant tests AI-accelerator platforms end to end.",
        "",
        f"usage: {environ.program()} GROUP [COMMAND] [--name=value ...]",
        "",
        "groups:",
    ]
    for group in groups:
        text = f"BROKEN: {group.fault}" if group.fault else group.summary
        lines.append(f"  {group.name:<{width}}  {text}")
    lines += [
        "",
        f"`{environ.program()} GROUP --help` lists the commands of a group.",
        f"Begin with `{environ.program()} project list`.",
        "`--debug` shows the traceback of an error. `--version` prints the version.",
    ]
    return "\n".join(lines)


def of_group(group: Group) -> str:
    """Return the list of the commands of a group with their purposes."""
    width = max((len(name) for name in group.commands), default=0)
    lines = [
        f"{group.name}: {group.summary}",
        "",
        f"usage: {environ.program()} {group.name} COMMAND [--name=value ...]",
        "",
    ]
    lines.append("commands:")
    lines += [f"  {name:<{width}}  {command.signature.summary}" for name, command in group.commands.items()]
    lines += ["", f"`{environ.program()} {group.name} COMMAND --help` explains the arguments of a command."]
    return "\n".join(lines)


def of_command(command: Command) -> str:
    """Return the purpose of a command, and the meaning, type and default of each parameter."""
    described = command.signature
    lines = [f"{described.name}: {described.summary}", ""]
    if described.description:
        lines += [*described.description.splitlines(), ""]
    lines += [
        f"usage: {environ.program()} {described.name} {' '.join(map(_usage, described.parameters))}".rstrip(),
        "",
    ]
    if described.parameters:
        lines.append("arguments:")
        for parameter in described.parameters:
            lines += _explained(parameter)
    if command.role:
        lines += ["", f"The Ansible role roles/{command.role} carries out this command."]
    return "\n".join(lines)


def _usage(parameter: Parameter) -> str:
    if parameter.variadic:
        return f"{parameter.name.upper()}..."
    if parameter.required:
        return parameter.name.upper() if parameter.positional else f"--{parameter.name}=..."
    return f"[--{parameter.name}]"


def _explained(parameter: Parameter) -> Iterator[str]:
    kind = signature.type_name(parameter.annotation)
    end = "required" if parameter.required else f"default: {_default(parameter.default)}"
    yield f"  --{parameter.name}  ({kind}; {end})"
    yield from textwrap.wrap(parameter.text, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _default(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, Enum | Path) else repr(value)
