"""Every group and command has help, which is printed on stdout, with exit code 0 and without a pager."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from toolbox.ground.interface import registry
from toolbox.ground.system import environ
from toolbox.testing import Workspace

CHECKOUT = Path(__file__).parents[2]
GROUPS = sorted(registry.group_files())
COMMANDS = [
    f"{name} {command}"
    for name in GROUPS
    if not registry.group(name).is_command
    for command in registry.group(name).commands
]
# If a command started a pager, this one would print PAGED.
PAGER = {"PAGER": "sh -c 'echo PAGED'", "MANPAGER": "sh -c 'echo PAGED'"}


def helped(workspace: Workspace, *argv: str) -> str:
    """Return the help that a command line prints."""
    outcome = workspace.run(*argv, env=PAGER)
    assert (outcome.exit_code, outcome.stderr) == (0, ""), str(outcome)
    assert "PAGED" not in outcome.stdout
    return outcome.stdout


@pytest.mark.parametrize("argv", ["--help", "host --help", "kubernetes --help", "project run --help"])
def test_the_help_needs_neither_the_libraries_nor_the_parts_of_a_run(argv: str) -> None:
    slow = ("fire", "yaml", "pydantic", "rich", "jinja2", "toolbox.ansible", "toolbox.matrix", "toolbox.records")
    assert imported(argv, slow) == []


def test_a_plan_needs_the_library_of_the_store_only_if_there_is_a_store(tmp_path: Path) -> None:
    assert imported("project plan training_e2e", ("sqlalchemy",), XDG_STATE_HOME=str(tmp_path)) == []


def imported(argv: str, prefixes: tuple[str, ...], **variables: str) -> list[str]:
    """Return the modules with one of the prefixes that a command line imports."""
    program = f"import sys; from toolbox.cli.main import main; main({argv.split()}); print(*sys.modules)"
    outcome = subprocess.run(
        [sys.executable, "-c", program],
        cwd=CHECKOUT,
        env={**environ.everything(), **variables},
        check=True,
        capture_output=True,
        text=True,
    )
    return [name for name in outcome.stdout.splitlines()[-1].split() if name.startswith(prefixes)]


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_without_a_group_all_groups_are_listed(workspace: Workspace, argv: list[str]) -> None:
    text = helped(workspace, *argv)
    assert [name for name in GROUPS if f"\n  {name} " not in text] == []


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_help(workspace: Workspace, group: str) -> None:
    assert helped(workspace, group, "--help").startswith(f"{group}: ")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_help(workspace: Workspace, command: str) -> None:
    text = helped(workspace, *command.split(), "--help")
    assert text.startswith(f"{command}: ")
    assert f"usage: ./run_toolbox.py {command}" in text


def test_help_is_printed_despite_wrong_arguments(workspace: Workspace) -> None:
    assert "--directory" in helped(workspace, "training", "cleanup", "--no_such_flag=1", "--help")


def test_a_dash_in_a_name_stands_for_an_underscore(workspace: Workspace) -> None:
    assert helped(workspace, "host", "capture-state", "--help") == helped(workspace, "host", "capture_state", "-h")


def test_a_group_of_a_workspace_is_listed(workspace: Workspace) -> None:
    workspace.write({"commands/echo.py": '"""Says things."""\ndef echo(text: str) -> str:\n    """Say."""\n'})
    assert "\n  echo         Says things.\n" in helped(workspace)
    assert helped(workspace, "echo", "--help").startswith("echo: Say.")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(workspace: Workspace, closed: str) -> None:
    look = "import os; print(*(os.path.realpath(f'/proc/self/fd/{n}') for n in range(3)), file=open('seen', 'w'))"
    workspace.write(
        {
            "projects/quiet/orchestration.py": f'''
            """Looks at the streams of a program."""
            import subprocess
            import sys

            def test():
                subprocess.run([sys.executable, "-c", {look!r}], check=True)
        ''',
            "config/quiet.yaml": "{}",
        }
    )
    script = f'exec {closed}; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, CHECKOUT / "run_toolbox.py", "project", "run", "quiet"],
        cwd=workspace.directory,
        env={"PATH": os.environ["PATH"], "HOME": str(workspace.home), "TOPGALLANT_NO_VENV": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done
    streams = (workspace.directory / "seen").read_text().split()
    assert all(stream == os.devnull or "pipe:" in stream for stream in streams)


def test_a_broken_pipe_is_not_an_error(workspace: Workspace) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, str(CHECKOUT / "run_toolbox.py"), "training", "cleanup", "--help"]
    done = subprocess.run(argv, cwd=workspace.directory, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


ANSWER = """
    '''Answers.'''
    from typing import Any


    class Answer:
        '''Answers.'''

        def mapping(self) -> dict[str, Any]:
            '''Return a mapping.'''
            return {"text": "1.10", "numbers": [1, 2], "none": None}

        def yes(self) -> bool:
            '''Return true.'''
            return True

        def no(self) -> bool:
            '''Return false.'''
            return False

        def number(self) -> int:
            '''Return an exit code.'''
            return 4

        def nothing(self) -> None:
            '''Return nothing.'''
"""


@pytest.mark.parametrize(
    ("command", "printed"),
    [("mapping", {"text": "1.10", "numbers": [1, 2], "none": None}), ("yes", True), ("no", False)],
)
def test_the_return_value_of_a_command_is_printed_as_yaml(workspace: Workspace, command: str, printed: object) -> None:
    outcome = workspace.write({"commands/answer.py": ANSWER}).run("answer", command)
    assert outcome.exit_code == 0, str(outcome)
    assert yaml.safe_load(outcome.stdout) == printed
    assert "..." not in outcome.stdout


@pytest.mark.parametrize(("command", "code"), [("number", 4), ("nothing", 0)])
def test_a_number_that_a_command_returns_is_the_exit_code(workspace: Workspace, command: str, code: int) -> None:
    outcome = workspace.write({"commands/answer.py": ANSWER}).run("answer", command)
    assert (outcome.exit_code, outcome.stdout) == (code, "")


def test_an_ascii_terminal_shows_other_characters_as_escapes(workspace: Workspace) -> None:
    workspace.write({"config.yaml": "name: Zoë 日本\n"})
    argv = ("config", "get", "--config_file=config.yaml", "--path=name")
    outcome = workspace.run(*argv, env={"PYTHONIOENCODING": "ascii"})
    assert (outcome.exit_code, outcome.stdout) == (0, "Zo\\xeb \\u65e5\\u672c\n"), str(outcome)
