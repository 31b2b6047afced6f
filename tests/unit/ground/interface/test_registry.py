"""Groups of commands are found by their location; a broken group does not affect other groups."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from toolbox.ground.interface import registry
from toolbox.ground.model.errors import UsageError
from toolbox.ground.system import environ, places

GOOD = '''"""What is good for a team."""

class Good:
    """Do good. And more."""

    def thing(self, count: int = 1) -> str:
        """Do a good thing."""
        return "good" * count

    def _helper(self) -> None:
        """No command."""

    number = 5
'''
ALONE = '''"""A command that is its own group."""

def alone(name: str) -> str:
    """Do it alone."""
    return name
'''
BROKEN = {
    "syntax": "def (:\n",
    "raises": "raise RuntimeError('no luck')\n",
    "imports": "import a_module_that_nobody_has\n",
    "empty": "",
    "annotated": "class Annotated:\n    'x'\n    def f(self, a: 'Missing') -> None:\n        'x'\n",
    "made": "class Made:\n    'x'\n    def __init__(self): 1 / 0\n    def f(self) -> None:\n        'x'\n",
    "leaves": "raise SystemExit(0)\n",
}


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the repository of a team, with valid and broken groups of commands."""
    (tmp_path / "projects").mkdir()
    (tmp_path / "commands").mkdir()
    files: Mapping[str, str] = {"good": GOOD, "alone": ALONE, "_private": GOOD, **BROKEN}
    for name, text in files.items():
        (tmp_path / "commands" / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("team")
def test_groups_of_a_workspace_are_listed_with_built_in_groups() -> None:
    names = {summary.name for summary in registry.summaries()}
    assert {"good", "alone", "host", "config", "project"} <= names
    assert not {"_private", "_invoke", "__init__"} & names


@pytest.mark.usefixtures("team")
def test_summaries_are_read_without_imports() -> None:
    summaries = {summary.name: summary for summary in registry.summaries()}
    assert summaries["good"].summary == "What is good for a team."
    assert summaries["raises"].fault is None
    assert "invalid syntax" in (summaries["syntax"].fault or "")


def test_an_unreadable_group_is_reported(team: Path) -> None:
    (team / "commands" / "latin.py").write_bytes(b"'caf\xe9'")
    (fault,) = [summary.fault for summary in registry.summaries() if summary.name == "latin"]
    assert fault is not None
    assert "latin.py" in fault


@pytest.mark.usefixtures("team")
def test_a_group_has_its_public_methods_as_commands() -> None:
    group = registry.group("good")
    assert (group.summary, list(group.commands), group.is_command) == ("Do good. And more.", ["thing"], False)
    assert registry.command("good", "thing").call(count=2) == "goodgood"


@pytest.mark.usefixtures("team")
def test_a_function_is_a_group_with_one_command() -> None:
    group = registry.group("alone")
    assert (group.is_command, group.summary) == (True, "A command that is its own group.")
    assert group.commands["alone"].signature.name == "alone"


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize("name", sorted(set(BROKEN) - {"empty"}))
def test_a_broken_group_is_named_with_its_file(name: str) -> None:
    with pytest.raises(UsageError, match=rf"the group `{name}` is broken: .*{name}\.py: \w+"):
        registry.group(name)
    assert registry.command("good", "thing").call() == "good"


@pytest.mark.usefixtures("team")
def test_a_group_without_a_class_or_function_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"empty\.py: the file must define a class Empty or a function empty"):
        registry.group("empty")


def test_a_workspace_file_extends_a_built_in_group(team: Path) -> None:
    (team / "commands" / "host.py").write_text(GOOD.replace("Good", "Host"))
    group = registry.group("host")
    assert list(group.commands) == ["capture_state", "thing"]
    assert group.summary == "Inspect one machine: its hardware, its system and its packages."


def test_a_workspace_command_replaces_a_built_in_command(team: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (team / "commands" / "config.py").write_text(GOOD.replace("Good", "Config").replace("thing", "get"))
    assert registry.command("config", "get").call(count=2) == "goodgood"
    assert "show" in registry.group("config").commands
    shipped = registry.group_files()["config"][0]
    assert caplog.messages[0] == f"{team}/commands/config.py replaces the command `config get` of {shipped}"


def test_replacing_a_command_of_a_project_is_logged(team: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    files = [team / folder / "disk.py" for folder in ("commands", "projects/a/commands", "projects/b/commands")]
    for file, name in zip(files, ("thing", "thing", "other"), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(GOOD.replace("Good", "Disk").replace("thing", name))
    assert sorted(registry.group("disk").commands) == ["other", "thing"]
    assert caplog.messages == [f"{files[0]} replaces the command `disk thing` of {files[1]}"]


def test_a_group_with_one_command_is_replaced_as_a_whole(team: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (team / "commands" / "from_config.py").write_text(GOOD.replace("Good", "FromConfig"))
    assert list(registry.group("from_config").commands) == ["thing"]
    files = reversed(registry.group_files()["from_config"])
    assert caplog.messages == [f"{next(files)} replaces the group `from_config` of {next(files)}"]


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize(
    ("group", "command", "message"),
    [
        ("hots", "x", "unknown group `hots`: did you mean host"),
        ("_private", "x", "unknown group `_private`: "),
        ("../good", "x", "unknown group `../good`: "),
        ("good", "thng", "unknown command `good thng`: did you mean thing?"),
        ("good", "_helper", "unknown command `good _helper`: "),
        ("good", "number", "unknown command `good number`: "),
        ("good", "__init__", "unknown command `good __init__`: "),
    ],
)
def test_an_unknown_name_suggests_a_similar_name(group: str, command: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        registry.command(group, command)
    assert str(caught.value).startswith(message)


def test_a_command_with_a_role_has_hosts() -> None:
    command = registry.command("host", "capture_state")
    assert (command.role, command.signature.parameters[-1]) == ("host_capture_state", registry.HOSTS)


def test_a_command_without_a_role_has_no_hosts() -> None:
    assert "hosts" not in registry.command("config", "get").signature.names


IMPORTED = """
import json, sys
from toolbox.ground.interface import registry
registry.summaries()
before = sorted(name for name in sys.modules if name.startswith("toolbox.cli.commands."))
registry.group("host")
print(json.dumps([before, sorted(sys.modules)]))
"""


def test_only_the_requested_group_is_imported(tmp_path: Path) -> None:
    environment = environ.everything() | {"PYTHONPATH": str(places.builtin_root())}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    before, after = json.loads(done.stdout)
    assert before == []
    assert [name for name in after if name.startswith("toolbox.cli.commands.")] == ["toolbox.cli.commands.host"]
    assert not {"pydantic", "jinja2", "ansible_runner", "rich", "sqlalchemy", "scipy", "numpy"} & set(after)


@pytest.mark.parametrize("name", ["check", "group", "command", "hosts", "artifact_dir_suffix"])
def test_a_parameter_with_a_reserved_name_breaks_its_group(team: Path, name: str) -> None:
    source = f"""
from toolbox.api import role

class Taken:
    'Taken.'

    @role
    def thing(self, {name}: str) -> None:
        'Do it.'
"""
    (team / "commands" / "taken.py").write_text(source)
    with pytest.raises(UsageError) as caught:
        registry.group("taken")
    assert "the group `taken` is broken" in str(caught.value)
    assert f"taken thing: a parameter cannot be called {name}: `run.run_toolbox` uses this name" in str(caught.value)


def test_the_decorator_returns_the_method_unchanged() -> None:
    def measure() -> None:
        """Measure."""

    assert registry.role(measure) is registry.role("disk_measure")(measure) is measure


@pytest.mark.parametrize("name", ["", "a b", "../x", "{{ x }}", "dísk"])
def test_an_invalid_name_of_a_role_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="`@role` needs the name of a role"):
        registry.role(name)
