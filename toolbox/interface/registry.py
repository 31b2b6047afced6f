"""Finds toolbox commands by their place and name. Nothing is registered, and only what is asked for is imported.

A group is one file of `toolbox/commands/`, or of `commands/` in the workspace or in a project. It holds a class of the
group's name (`host.py`: `Host`) whose public methods are its commands, or a function of the group's name, which is its
only command (`from_config`). A file of the workspace or of a project with the name of a group of Topgallant adds its
commands to that group.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from toolbox.interface import signature
from toolbox.interface.signature import Parameter, Signature
from toolbox.model.addresses import Address
from toolbox.model.errors import UsageError
from toolbox.model.nearest import did_you_mean
from toolbox.system import modules, places

log = logging.getLogger(__name__)

# How to call a command that a role carries out where it runs: see `toolbox.ansible.roles`.
HOSTS = Parameter(
    "hosts",
    list[Address] | None,
    None,
    "the SSH hosts to run on, as [USER@]HOST[:PORT]; this machine when left out.",
    positional=False,
)


# The names of the parameters of `run.run_toolbox` itself, and of HOSTS.
RESERVED = frozenset({"group", "command", "artifact_dir_suffix", "check", "hosts"})


@dataclass(frozen=True, slots=True)
class Command:
    """A toolbox command.

    Args:
        call: the function or the bound method. If a role carries the command out, it is called before the role.
        role: the name of the role that carries the command out, if there is one.
    """

    group: str
    name: str
    call: Callable[..., Any]
    signature: Signature
    role: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """A group of toolbox commands.

    Args:
        alone: whether the group is itself the command.
    """

    name: str
    summary: str
    commands: dict[str, Command]
    alone: bool = False


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group as the list of groups shows it: read, not imported."""

    name: str
    summary: str
    fault: str | None = None


def group_files() -> dict[str, list[Path]]:
    """Return the files of each group by its name: ours first, then those of projects, then that of the workspace."""
    found: dict[str, list[Path]] = {}
    for folder in (places.COMMANDS, *reversed(places.folders("commands"))):
        for path in sorted(folder.glob("[!_]*.py")):
            found.setdefault(path.stem, []).append(path)
    return found


def summaries() -> list[GroupSummary]:
    """Return what each group is for, without importing any. A file that is no Python is reported."""
    found = []
    for name, (path, *_) in sorted(group_files().items()):
        try:
            doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            found.append(GroupSummary(name, doc.partition("\n")[0]))
        except (OSError, SyntaxError, ValueError) as error:
            found.append(GroupSummary(name, "", f"{path}: {error}"))
    return found


def group(name: str) -> Group:
    """Import one group.

    Raises:
        UsageError: there is no such group, or its file is broken.
    """
    known = group_files()
    if name not in known:
        raise UsageError(f"unknown group `{name}`: {did_you_mean(name, known, label='groups')}")
    found, *others = (_loaded(name, path) for path in known[name])
    for other in others:
        found = _merged(found, other)
    return found


def _loaded(name: str, path: Path) -> Group:
    try:
        return _group(name, path)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        # Whatever a group file raises breaks that group alone.
        raise UsageError(f"the group `{name}` is broken: {path}: {type(error).__name__}: {error}") from error


def _merged(ours: Group, theirs: Group) -> Group:
    """Add the commands of a workspace to a group of ours. Where both have a command, that of the workspace counts."""
    if ours.alone or theirs.alone:
        log.info("the group `%s` of the workspace replaces the built-in group", ours.name)
        return theirs
    if both := sorted(ours.commands.keys() & theirs.commands.keys()):
        names = ", ".join(f"`{ours.name} {name}`" for name in both)
        log.info("the workspace replaces the built-in command %s", names)
    return Group(ours.name, ours.summary, ours.commands | theirs.commands)


def _group(name: str, path: Path) -> Group:
    module = _load(name, path)
    doc = (module.__doc__ or "").strip().partition("\n")[0]
    holder = getattr(module, _class_name(name), None)
    if inspect.isclass(holder):
        methods = {key: value for key, value in vars(holder).items() if _is_command(key, value)}
        instance = holder()
        # `import_` is the command `import`: Python keeps some words for itself.
        names = {key: key.removesuffix("_") for key in methods}
        commands = {command: _command(name, command, getattr(instance, key)) for key, command in names.items()}
        return Group(name, (holder.__doc__ or doc).strip().partition("\n")[0], commands)
    function = getattr(module, name, None)
    if inspect.isfunction(function):
        return Group(name, doc, {name: _command(name, name, function)}, alone=True)
    raise UsageError(f"{path}: a class {_class_name(name)} or a function {name} was expected in it")


def command(group_name: str, name: str) -> Command:
    """Return one command.

    Raises:
        UsageError: there is no such group or command.
    """
    found = group(group_name)
    if name not in found.commands:
        hint = did_you_mean(name, found.commands, label="its commands")
        raise UsageError(f"unknown command `{group_name} {name}`: {hint}")
    return found.commands[name]


def _command(group_name: str, name: str, call: Callable[..., Any]) -> Command:
    role = getattr(call, "role", None)
    if role == "":  # `@role` without a name
        role = f"{group_name}_{name}"
    label = group_name if group_name == name else f"{group_name} {name}"
    if role is None and (found := places.find("roles", f"{group_name}_{name}")) is not None:
        raise TypeError(f"{label} has the role {found}, and is not marked with `@role` (toolbox.ansible.roles)")
    described = signature.of(call, name=label, extra=[HOSTS] if role else [])
    if role and (taken := RESERVED & {parameter.name for parameter in described.parameters[:-1]}):
        raise TypeError(f"{label}: a parameter cannot be called {min(taken)}: `run.run_toolbox` has one of that name")
    return Command(group_name, name, call, described, role)


def _is_command(name: str, value: object) -> bool:
    return not name.startswith("_") and inspect.isfunction(value)


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _load(name: str, path: Path) -> ModuleType:
    with modules.gc_frozen_imports():
        if path.parent == places.COMMANDS:
            return importlib.import_module(f"toolbox.commands.{name}")
        return modules.load(f"_commands_{name}", path)
