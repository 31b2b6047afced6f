"""Held for every toolbox command, found as the command line finds it: the command, its help and its role agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from jinja2 import meta

from toolbox.interface import helptext, registry, signature
from toolbox.interface.registry import Command
from toolbox.system import places

GROUPS = {name: registry.group(name) for name in registry.group_files()}
COMMANDS = {command.signature.name: command for group in GROUPS.values() for command in group.commands.values()}
WITH_ROLE = {name: command for name, command in COMMANDS.items() if command.role}
ROLES = {path.name: path for path in places.entries("roles", "*") if path.is_dir()}
_HOSTS = registry.HOSTS.name

each_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
each_command_with_role = pytest.mark.parametrize("command", WITH_ROLE.values(), ids=WITH_ROLE)
each_group = pytest.mark.parametrize("name", GROUPS)
each_role = pytest.mark.parametrize("name", ROLES)


class _Unsafe(yaml.SafeLoader):
    """Reads Ansible's own tags as what they stand for."""


_Unsafe.add_multi_constructor("!", lambda loader, _tag, node: loader.construct_scalar(node))


def variables(role: Path) -> set[str]:
    """Return the names of the variables that the YAML files of a role read, in templates and in conditions."""
    names: set[str] = set()
    for file in sorted(role.rglob("*.yml")):
        for text in texts(yaml.load(file.read_text(encoding="utf-8"), Loader=_Unsafe)):
            names |= undeclared(text)
    for file in sorted(role.rglob("templates/**/*")):
        if file.is_file():
            names |= undeclared(file.read_text(encoding="utf-8"))
    return names


def texts(value: Any, key: str = "") -> list[str]:
    """Return the templates in a YAML value; a condition is a template without braces."""
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in texts(item, str(name))]
    if isinstance(value, list):
        return [text for item in value for text in texts(item, key)]
    is_condition = key in {"when", "that", "changed_when", "failed_when", "until"}
    return [f"{{{{ {value} }}}}" if is_condition else str(value)] if isinstance(value, str) else []


def undeclared(text: str) -> set[str]:
    """Return the variables that a template reads. Ansible's filters and tests are not Jinja's, so they are left out."""
    environment = jinja2.Environment()
    for name in set(re.findall(r"\|\s*([\w.]+)", text)):
        environment.filters.setdefault(name, str)
    for name in set(re.findall(r"\bis\s+(?:not\s+)?([\w.]+)", text)):
        environment.tests.setdefault(name, callable)
    return meta.find_undeclared_variables(environment.parse(text))


def prefixed(command: Command) -> dict[str, str]:
    """Return the variables of a command's role, by its own parameters."""
    return {item.name: f"{command.role}_{item.name}" for item in command.signature.parameters if item.name != _HOSTS}


@each_group
def test_a_group_says_what_it_is_for(name: str) -> None:
    summaries = {summary.name: summary for summary in registry.summaries()}
    assert summaries[name].fault is None
    assert summaries[name].summary
    assert GROUPS[name].commands


@each_command
def test_a_command_says_what_it_does_in_a_sentence(command: Command) -> None:
    assert command.signature.summary.endswith(".")


@each_command
def test_every_parameter_has_a_type_and_a_meaning(command: Command) -> None:
    for parameter in command.signature.parameters:
        assert parameter.annotation is not signature.NOTHING, parameter.name
        assert parameter.text, f"{parameter.name} is not documented"


@each_command
def test_nothing_is_documented_that_is_no_parameter(command: Command) -> None:
    documented = signature.parse_docstring(re.sub(r"\n +", "\n ", command.call.__doc__ or ""))[2]
    assert documented.keys() - command.signature.names == set()


@each_command
def test_the_help_explains_every_parameter(command: Command) -> None:
    text = " ".join(helptext.of_command(command).split())
    for parameter in command.signature.parameters:
        assert f"--{parameter.name} ({signature.expected(parameter.annotation)};" in text
        assert " ".join(parameter.text.split()) in text


@each_command
def test_every_default_is_a_value_of_its_own_type(command: Command) -> None:
    for parameter in command.signature.parameters:
        if not parameter.required:
            converted = signature.convert(parameter, parameter.default, text=False)
            assert converted == parameter.default


@each_command_with_role
def test_the_role_of_a_command_exists_under_its_name(command: Command) -> None:
    assert command.role == f"{command.group}_{command.name}"
    assert command.role in ROLES
    assert places.find("roles", command.role, "tasks", "main.yml") is not None


@each_command_with_role
def test_the_role_uses_every_parameter(command: Command) -> None:
    used = variables(ROLES[command.role or ""])
    assert [name for name, variable in prefixed(command).items() if variable not in used] == []


@each_command_with_role
def test_every_variable_that_the_role_asks_for_is_a_parameter(command: Command) -> None:
    asked = {name for name in variables(ROLES[command.role or ""]) if name.startswith(f"{command.role}_")}
    assert asked - set(prefixed(command).values()) == set()


@each_role
def test_a_role_does_not_read_the_variables_of_another(name: str) -> None:
    others = tuple(f"{prefix}{other}_" for other in ROLES if other != name for prefix in ("", "_"))
    own = (f"{name}_", f"_{name}_")
    assert [used for used in variables(ROLES[name]) if used.startswith(others) and not used.startswith(own)] == []


@each_role
def test_a_role_belongs_to_a_command(name: str) -> None:
    assert name in {command.role for command in WITH_ROLE.values()}


@each_role
def test_a_role_has_no_defaults_of_its_own(name: str) -> None:
    assert not (ROLES[name] / "defaults").exists(), "the signature is the only source of names, types and defaults"


@each_role
def test_the_tasks_of_a_role_are_named_for_a_reader(name: str) -> None:
    for file in sorted((ROLES[name] / "tasks").glob("*.yml")):
        for task in yaml.load(file.read_text(encoding="utf-8"), Loader=_Unsafe):
            assert re.match(r"[A-Z]\w+", task["name"]), task


def test_the_reader_of_variables_finds_them() -> None:
    """A test of these tests: a reader that found nothing would let everything pass."""
    assert undeclared("{{ a_b | default(c) }}{% if d is match('x') %}{{ e.f }}{% endif %}") == {"a_b", "c", "d", "e"}
    assert texts([{"when": "a_b > 0", "name": "x {{ y }}"}]) == ["{{ a_b > 0 }}", "x {{ y }}"]
    assert COMMANDS
    assert WITH_ROLE
    assert variables(ROLES["host_capture_state"]) > {"host_capture_state_packages", "artifact_extra_logs_dir"}
