"""Finds toolbox commands by the names of files and classes. Only the file of the requested group is imported.

A group is a file in `toolbox/cli/commands/`, or in `commands/` of the workspace or of a project. The file contains a
class with the name of the group (`host.py`: `Host`), whose public methods are the commands, or a function with the name
of the group, which is the only command (`from_config`). If the name of a file in the workspace or in a project is also
the name of a built-in group, the commands of the file are added to the built-in group.

`@role` marks a command that a role carries out. It is here, not in `toolbox.ansible.roles`, which carries out such
commands: the help must not wait for the import of Ansible's parts.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, overload

from toolbox.ground.interface import signature
from toolbox.ground.interface.signature import Parameter, Signature
from toolbox.ground.model.addresses import Address
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.quantities import WholeSeconds
from toolbox.ground.system import modules, places

log = logging.getLogger(__name__)

# A command that a role carries out has this parameter in addition to those of its method.
HOSTS = Parameter(
    "hosts",
    list[Address] | None,
    None,
    "the SSH hosts to run on, as [USER@]HOST[:PORT]; this machine when left out. The commands of the groups `cluster` "
    "and `kubernetes` always run on this machine.",
    positional=False,
)

# The command also has this parameter, unless its method has a parameter of this name.
LOGIN_TIMEOUT = Parameter(
    "timeout",
    WholeSeconds,
    60,
    "how long a host of `--hosts` may take to log in, in seconds. The tasks after the login have no time limit.",
    positional=False,
)


# Names that a parameter of a command cannot have, because `run.run_toolbox` or HOSTS uses them.
RESERVED = frozenset({"group", "command", "artifact_dir_suffix", "check", "hosts"})


Method = TypeVar("Method", bound=Callable[..., Mapping[str, Any] | None])


@overload
def role(method: Method, /) -> Method: ...
@overload
def role(name: str, /) -> Callable[[Method], Method]: ...
def role(method: Any, /) -> Any:
    """Mark a method as a toolbox command that runs a role: `GROUP_COMMAND`, or the name in `@role("name")`."""
    if not isinstance(method, str):
        return _marked(method, "")
    if not method.isascii() or not method.isidentifier():
        raise ValueError(f"@role({method!r}): `@role` needs the name of a role, as in @role('disk_measure')")
    return functools.partial(_marked, role_name=method)


def _marked(method: Method, role_name: str) -> Method:
    method.role = role_name  # type: ignore[attr-defined]  # the registry reads this attribute
    return method


@dataclass(frozen=True, slots=True)
class Command:
    """A toolbox command.

    Args:
        call: the function or the bound method of the command, which is called before the role, if there is a role.
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
        files: the file of each command.
        is_command: whether the group is itself a command, as `from_config` is.
    """

    name: str
    summary: str
    commands: dict[str, Command]
    files: dict[str, Path]
    is_command: bool = False


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """The name and the purpose of a group, or the fault of its file."""

    name: str
    summary: str
    fault: str | None = None


def group_files() -> dict[str, list[Path]]:
    """Return the files of each group: the built-in file first, then files of projects, then the workspace's file."""
    files: dict[str, list[Path]] = {}
    for folder in reversed(places.folders("commands")):
        for path in sorted(folder.glob("[!_]*.py")):
            files.setdefault(path.stem, []).append(path)
    return files


def summaries() -> list[GroupSummary]:
    """Return the purpose of each group, or the fault of its file. The files are parsed but not imported."""
    result = []
    for name, (path, *_) in sorted(group_files().items()):
        try:
            doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            result.append(GroupSummary(name, doc.partition("\n")[0]))
        except (OSError, SyntaxError, ValueError) as error:
            result.append(GroupSummary(name, "", f"{path}: {error}"))
    return result


def group(name: str) -> Group:
    """Import the group of this name. A missing group and a broken file are each a `UsageError`."""
    files = group_files()
    if name not in files:
        raise UsageError(f"unknown group `{name}`: {did_you_mean(name, files, label='groups')}")
    result, *additions = (_loaded(name, path) for path in files[name])
    for added in additions:
        result = _merged(result, added)
    return result


def _loaded(name: str, path: Path) -> Group:
    try:
        return _group(name, path)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        # An error in the file of one group must not break the other groups.
        raise UsageError(f"the group `{name}` is broken: {path}: {type(error).__name__}: {error}") from error


def _merged(group: Group, added: Group) -> Group:
    """Add the commands of another file to a group, and log which commands the other file replaces."""
    if group.is_command or added.is_command:
        log.info("%s replaces the group `%s` of %s", _paths(added), group.name, _paths(group))
        return added
    for name in sorted(group.commands.keys() & added.commands.keys()):
        log.info("%s replaces the command `%s %s` of %s", added.files[name], group.name, name, group.files[name])
    return Group(group.name, group.summary, group.commands | added.commands, group.files | added.files)


def _paths(group: Group) -> str:
    return ", ".join(sorted(map(str, set(group.files.values()))))


def _group(name: str, path: Path) -> Group:
    module = _load(name, path)
    doc = (module.__doc__ or "").strip().partition("\n")[0]
    holder = getattr(module, _class_name(name), None)
    if inspect.isclass(holder):
        methods = {key: value for key, value in vars(holder).items() if _is_command(key, value)}
        instance = holder()
        # The method `import_` is the command `import`, because `import` is a Python keyword.
        names = {key: key.removesuffix("_") for key in methods}
        commands = {command: _command(name, command, getattr(instance, key)) for key, command in names.items()}
        summary = (holder.__doc__ or doc).strip().partition("\n")[0]
        return Group(name, summary, commands, dict.fromkeys(commands, path))
    function = getattr(module, name, None)
    if inspect.isfunction(function):
        return Group(name, doc, {name: _command(name, name, function)}, {name: path}, is_command=True)
    raise UsageError(f"{path}: the file must define a class {_class_name(name)} or a function {name}")


def command(group_name: str, name: str) -> Command:
    """Return the command of this name, or raise a `UsageError` that suggests a similar name."""
    commands = group(group_name).commands
    if name not in commands:
        hint = did_you_mean(name, commands, label="commands")
        raise UsageError(f"unknown command `{group_name} {name}`: {hint}")
    return commands[name]


def _command(group_name: str, name: str, call: Callable[..., Any]) -> Command:
    role = getattr(call, "role", None)
    if role == "":  # `@role` without a name
        role = f"{group_name}_{name}"
    label = group_name if group_name == name else f"{group_name} {name}"
    if role is None and (folder := places.find("roles", f"{group_name}_{name}")) is not None:
        raise TypeError(f"{label} has the role {folder}, but is not marked with `@role` (toolbox.api)")
    described = signature.of(call, name=label, extra=_extra_parameters(call) if role else [])
    if role and (reserved := RESERVED & {parameter.name for parameter in described.parameters[:-1]}):
        raise TypeError(f"{label}: a parameter cannot be called {min(reserved)}: `run.run_toolbox` uses this name")
    return Command(group_name, name, call, described, role)


def _extra_parameters(call: Callable[..., Any]) -> list[Parameter]:
    has_own = LOGIN_TIMEOUT.name in inspect.signature(inspect.unwrap(call)).parameters
    return [HOSTS] if has_own else [LOGIN_TIMEOUT, HOSTS]


def _is_command(name: str, value: object) -> bool:
    return not name.startswith("_") and inspect.isfunction(value)


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _load(name: str, path: Path) -> ModuleType:
    with modules.gc_frozen_imports():
        if (module := places.module_name(path)) is not None:
            return importlib.import_module(module)
        return modules.load(f"_commands_{name}", path)
