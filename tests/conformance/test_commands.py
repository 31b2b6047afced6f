"""Requirements for every toolbox command that the command line finds: the command, its help and its role agree."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from jinja2 import meta

from toolbox.ground.interface import helptext, options, registry, signature
from toolbox.ground.interface.registry import Command
from toolbox.ground.interface.signature import Help
from toolbox.ground.system import places

GROUPS = {name: registry.group(name) for name in registry.group_files()}
COMMANDS = {command.signature.name: command for group in GROUPS.values() for command in group.commands.values()}
WITH_ROLE = {name: command for name, command in COMMANDS.items() if command.role}
ROLES = {path.name: path for path in places.entries("roles", "*") if path.is_dir()}
_OF_EACH_ROLE = (registry.HOSTS, registry.LOGIN_TIMEOUT)
_LOCALS = ast.dump(ast.parse("locals()", mode="eval").body)

each_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
each_command_with_role = pytest.mark.parametrize("command", WITH_ROLE.values(), ids=WITH_ROLE)
each_group = pytest.mark.parametrize("name", GROUPS)
each_role = pytest.mark.parametrize("name", ROLES)


class UnsafeLoader(yaml.SafeLoader):
    """Reads values with Ansible's own tags as plain values."""


UnsafeLoader.add_multi_constructor("!", lambda loader, _tag, node: loader.construct_scalar(node))


def variables(role: Path) -> set[str]:
    """Return the names of the variables that the YAML files of a role read, in templates and in conditions."""
    names: set[str] = set()
    for file in sorted(role.rglob("*.yml")):
        for text in texts(yaml.load(file.read_text(encoding="utf-8"), Loader=UnsafeLoader)):
            names |= undeclared(text)
    for file in sorted(role.rglob("templates/**/*")):
        if file.is_file():
            names |= undeclared(file.read_text(encoding="utf-8"))
    return names


def texts(value: Any, key: str = "") -> list[str]:
    """Return the templates in a YAML value. Conditions, which are templates without braces, get braces."""
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
    """Return the variables of a command's role, by the names of parameters and of values that its body returns."""
    names = [item.name for item in command.signature.parameters if item not in _OF_EACH_ROLE]
    return {name: f"{command.role}_{name}" for name in [*names, *returned(command)]}


def body(command: Command) -> ast.FunctionDef:
    """Return the source of a command's method."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(command.call))))
    assert isinstance(tree.body[0], ast.FunctionDef)
    return tree.body[0]


def returned(command: Command) -> set[str]:
    """Return the names of the variables that the body of a command returns, as far as its source shows them."""
    names: set[str] = set()
    for statement in ast.walk(body(command)):
        if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Dict):
            names |= {str(key.value) for key in statement.value.keys if isinstance(key, ast.Constant)}
        elif isinstance(statement, ast.Return) and ast.dump(statement.value or statement) == _LOCALS:
            names |= {*inspect.unwrap(command.call).__code__.co_varnames} - {"self"}
    return names


def read_by_the_body(command: Command) -> set[str]:
    """Return the names that the body of a command reads."""
    return {node.id for node in ast.walk(body(command)) if isinstance(node, ast.Name)}


def unused(command: Command, role: Path) -> list[str]:
    """Return the parameters and returned names that neither the role nor the body reads."""
    used = variables(role)
    inside = read_by_the_body(command)
    return sorted(name for name, variable in prefixed(command).items() if variable not in used and name not in inside)


def unset(command: Command, role: Path) -> set[str]:
    """Return the variables that the role reads and the command does not set."""
    own_variables = {name for name in variables(role) if name.startswith(f"{command.role}_")}
    return own_variables - set(prefixed(command).values())


@each_group
def test_a_group_has_a_summary(name: str) -> None:
    summaries = {summary.name: summary for summary in registry.summaries()}
    assert summaries[name].fault is None
    assert summaries[name].summary
    assert GROUPS[name].commands


@each_command
def test_the_summary_of_a_command_is_a_sentence(command: Command) -> None:
    assert command.signature.summary.endswith(".")


@each_command
def test_every_parameter_has_a_type_and_a_meaning(command: Command) -> None:
    for parameter in command.signature.parameters:
        assert parameter.annotation is not signature.NO_DEFAULT, parameter.name
        assert parameter.text, f"{parameter.name} is not documented"


def documented(command: Command) -> dict[str, str]:
    """Return the help of the parameters in a command's own docstring, by name."""
    return signature.parse_docstring(inspect.getdoc(command.call) or "")[2]


# Each help is printed alone, so it has to begin with its noun, and must not continue another help.
_NO_BEGINNING = re.compile(
    r"(?:and|as|by|from|in|it|its|likewise|of|or|so|that|their|them|then|these|they|this|those|to|which)\b"
)
_NO_END = re.compile(r"(?:\b(?:a|and|as|at|by|for|from|in|of|or|than|that|the|to|when|which|with)|[,;:(-])\s*\.?$")


def help_fault(text: str) -> str | None:
    """Return the reason why a help cannot be understood alone, or None."""
    if _NO_BEGINNING.match(text):
        return "it begins with a word that needs another sentence"
    if not text.endswith(".") or _NO_END.search(text):
        return "it does not end as a sentence does"
    if text.count("`") % 2 or text.count("(") != text.count(")") or text.count("{") != text.count("}"):
        return "a pair of `...`, (...) or {...} is incomplete"
    if any(not re.match(r"[A-Z`]|--\w", sentence) for sentence in re.split(r"(?<=\w)\. ", text)[1:]):
        return "a sentence after the first one begins in lower case"
    return None


@each_command
def test_every_help_stands_alone(command: Command) -> None:
    faults = {parameter.name: help_fault(parameter.text) for parameter in command.signature.parameters}
    assert {name: fault for name, fault in faults.items() if fault is not None} == {}


@pytest.mark.parametrize(
    "text",
    [
        "what it runs, and",
        "what it runs, or.",
        "of the Deployment.",
        "its name.",
        "the name of the",
        "the name (of the lease.",
        "the name of the lease",
        "the name. as in a.b.",
        "the name of the lease,",
    ],
)
def test_the_check_finds_dependent_help_texts(text: str) -> None:
    """This tests a function of these tests."""
    assert help_fault(text) is not None


@each_command
def test_only_parameters_are_documented(command: Command) -> None:
    assert documented(command).keys() - command.signature.names == set()


def test_a_help_that_commands_share_is_written_once() -> None:
    texts = Counter(item for command in COMMANDS.values() for item in documented(command).items())
    assert [name for (name, _), count in texts.items() if count > 1] == [], "declare it with its type, by a `Help`"


def shared_helps(command: Command) -> dict[str, str]:
    """Return the help that belongs to the types of a command's parameters, by parameter."""
    annotations = annotated(command).items()
    marks = [(name, mark) for name, kind in annotations for mark in getattr(kind, "__metadata__", ())]
    return {name: mark.text for name, mark in marks if isinstance(mark, Help)}


def annotated(command: Command) -> dict[str, Any]:
    """Return the type annotations of a command's parameters."""
    return inspect.get_annotations(inspect.unwrap(command.call), eval_str=True)


@each_command
def test_a_docstring_does_not_repeat_a_shared_help(command: Command) -> None:
    own = documented(command)
    assert [name for name, text in shared_helps(command).items() if own.get(name) == text] == []


@each_command
def test_the_options_for_cluster_access_are_declared_once(command: Command) -> None:
    shared = {"kubeconfig": options.Kubeconfig, "context": options.Context}
    assert {name: kind for name, kind in annotated(command).items() if kind != shared.get(name, kind)} == {}


@each_command
def test_the_help_explains_every_parameter(command: Command) -> None:
    text = " ".join(helptext.of_command(command).split())
    for parameter in command.signature.parameters:
        assert f"--{parameter.name} ({signature.type_name(parameter.annotation)};" in text
        assert " ".join(parameter.text.split()) in text


@each_command
def test_every_default_is_a_value_of_its_own_type(command: Command) -> None:
    for parameter in command.signature.parameters:
        if not parameter.required:
            converted = signature.convert(parameter, parameter.default, text=False)
            assert converted == parameter.default


@each_command_with_role
def test_the_role_of_a_command_exists_under_its_name(command: Command) -> None:
    assert command.role in ROLES
    assert places.find("roles", command.role, "tasks", "main.yml") is not None


@each_command_with_role
def test_the_role_or_the_body_uses_every_parameter(command: Command) -> None:
    assert unused(command, ROLES[command.role or ""]) == []


@each_command_with_role
def test_every_variable_of_the_role_is_set(command: Command) -> None:
    assert unset(command, ROLES[command.role or ""]) == set()


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


def tasks(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the tasks of a file, including the tasks in blocks."""
    for task in value:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks(task.get(part, ()))


@each_role
def test_a_role_starts_programs_without_a_shell_and_leaves_their_arguments_alone(name: str) -> None:
    for file in sorted((ROLES[name] / "tasks").glob("*.yml")):
        for task in tasks(yaml.load(file.read_text(encoding="utf-8"), Loader=UnsafeLoader)):
            assert not {"shell", "raw", "script"} & {key.rpartition(".")[2] for key in task}, task
            command = task.get("ansible.builtin.command")
            assert command is None or ("argv" in command and command["expand_argument_vars"] is False), task


@each_role
def test_the_tasks_of_a_role_are_named_for_a_reader(name: str) -> None:
    for file in sorted((ROLES[name] / "tasks").glob("*.yml")):
        for task in yaml.load(file.read_text(encoding="utf-8"), Loader=UnsafeLoader):
            assert re.match(r"[A-Z]\w+", task["name"]), task


SAMPLE = '''
"""Look at disks."""
from toolbox.api import role

class Disk:
    """Look at disks."""

    @role
    def measure(self, path: str, unit: str = "g"):
        """Measure."""
        if unit not in "gm":
            raise ValueError(unit)
        return {"label": path.upper(), "nothing": 1}

    @role("disk_measure")
    def measure_all(self, path: str):
        """Measure, too."""
        label = "all"
        return locals()

    @role("disk_measure")
    def forget(self, path: str, spare: int = 0):
        """Forget the label."""
'''


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the role of a workspace whose group `disk` has methods with bodies and roles with other names."""
    role = tmp_path / "roles/disk_measure"
    for file, text in {
        tmp_path / "commands/disk.py": SAMPLE,
        role / "tasks/main.yml": "[{name: Measure, debug: {msg: '{{ disk_measure_path }} {{ disk_measure_label }}'}}]",
        tmp_path / "projects/x": "",
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield role
    sys.modules.pop("_commands_disk", None)


def test_commands_with_a_body_are_covered(disk: Path) -> None:
    """This tests functions of these tests: they consider the names in a body, and the name of another role."""
    commands = registry.group("disk").commands
    assert {name: command.role for name, command in commands.items()} == dict.fromkeys(commands, "disk_measure")
    assert {name: unused(command, disk) for name, command in commands.items()} == {
        "measure": ["nothing"],
        "measure_all": [],
        "forget": ["spare"],
    }
    assert {name: unset(command, disk) for name, command in commands.items()} == {
        "measure": set(),
        "measure_all": set(),
        "forget": {"disk_measure_label"},
    }


def test_the_variables_of_a_role_are_found() -> None:
    """This tests functions of these tests: if they found no variables, every role would pass."""
    assert undeclared("{{ a_b | default(c) }}{% if d is match('x') %}{{ e.f }}{% endif %}") == {"a_b", "c", "d", "e"}
    assert texts([{"when": "a_b > 0", "name": "x {{ y }}"}]) == ["{{ a_b > 0 }}", "x {{ y }}"]
    assert COMMANDS
    assert WITH_ROLE
    assert any(map(shared_helps, COMMANDS.values()))
    assert variables(ROLES["host_capture_state"]) > {"host_capture_state_packages", "artifact_extra_logs_dir"}
