"""`from_config` takes the arguments of a toolbox command from a configuration and a template."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from toolbox.testing import Workspace

ECHO = {
    "commands/echo.py": '''
        """Prints its arguments."""
        import json


        class Echo:
            """Prints its arguments."""

            def say(self, text: str, times: int = 1, label: str | None = None) -> str:
                """
                Say a text.

                Args:
                    text: the text to print.
                    times: how often.
                    label: what to put before it.
                """
                return json.dumps([text, times, label])
    ''',
    "command_args/small.yaml.j2": """
        echo say:
          text: {{ greeting }}
        loud/echo say:
          text: {{ greeting | upper }}
        echo say/tagged:
          text: {{ tag }}
        a/echo say/b:
          text: both
        nowhere do_it:
          greeting: {{ greeting }}
          tag: {{ tag }}
          whole: {{ commands }}
          quoted: "{{ tag }} and @tag and {{ '@tag' }}"
          followed: "@tag"
        broken do_it:
          x: {{ no_such_name }}
    """,
}


@pytest.fixture
def echo(small: Workspace) -> Workspace:
    """Return the project `small` with a command `echo say`, which prints its arguments."""
    return small.write(ECHO)


def received(workspace: Workspace, *argv: str) -> Any:
    """Return the arguments with which `from_config` calls `echo say`."""
    outcome = workspace.run("from_config", "echo", "say", "--project=small", *argv)
    assert outcome.exit_code == 0, str(outcome)
    return outcome.json


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], ["hello", 1, None]),
        (["--presets=loud"], ["HELLO", 1, None]),
        (["--prefix=loud"], ["HELLO", 1, None]),
        (["--suffix=tagged"], ["1.10", 1, None]),
        (["--prefix=a", "--suffix=b"], ["both", 1, None]),
        (["--extra={times: 3, label: '2'}"], ["hello", 3, "2"]),
        (["--extra={text: null-ish, times: 0x10}"], ["null-ish", 16, None]),
        (["--extra={text: '1.10'}"], ["1.10", 1, None]),
    ],
)
def test_the_arguments_come_from_the_key_and_from_extra(
    echo: Workspace, flags: list[str], expected: list[object]
) -> None:
    assert received(echo, *flags) == expected


def test_extra_replaces_an_undefined_field_and_anchors_are_not_passed_on(echo: Workspace) -> None:
    block = "echo say:\n  _spare: &spare {{ tag }}\n  text: *spare\n  times: {{ no.such.field }}\n"
    echo.write({"command_args/small.yaml.j2": block})
    assert received(echo, "--extra={times: 3}") == ["1.10", 3, None]
    outcome = echo.run("from_config", "echo", "say", "--project=small")
    assert outcome.exit_code == 2
    assert "small.yaml.j2:4: 'no' is undefined" in outcome.stderr


@pytest.mark.parametrize("text", ["1.10", "null-ish", "0x10", "yes", "[a", "a: b", "@tag", " padded ", ""])
def test_a_flag_for_a_str_is_not_converted(echo: Workspace, text: str) -> None:
    assert echo.run("echo", "say", f"--text={text}").json == [text, 1, None]


def test_a_flag_and_its_value_can_be_separate_words(echo: Workspace) -> None:
    assert echo.run("echo", "say", "--text", "1.10", "--times", "2").json == ["1.10", 2, None]


def test_the_files_can_come_from_the_environment(echo: Workspace) -> None:
    env = {
        "TOPGALLANT_FROM_CONFIG_FILE": "config/small.yaml",
        "TOPGALLANT_FROM_COMMAND_ARGS_FILE": "command_args/small.yaml.j2",
    }
    outcome = echo.run("from_config", "echo", "say", env=env)
    assert outcome.json == ["hello", 1, None]


def test_flags_win_over_environment_variables(echo: Workspace) -> None:
    echo.write({"other.j2": "echo say: {text: other}\n"})
    env = {"TOPGALLANT_FROM_CONFIG_FILE": "no/such/file", "TOPGALLANT_FROM_COMMAND_ARGS_FILE": "nor/this/one"}
    files = ("--config_file=config/small.yaml", "--command_args_file=other.j2")
    assert echo.run("from_config", "echo", "say", *files, env=env).json == ["other", 1, None]


def test_show_args_prints_yaml_for_a_command_that_this_checkout_does_not_have(echo: Workspace) -> None:
    outcome = echo.run("from_config", "nowhere", "do_it", "--project=small", "--show_args")
    assert outcome.exit_code == 0, str(outcome)
    assert yaml.safe_load(outcome.stdout) == {
        "greeting": "hello",
        "tag": "1.10",
        "whole": {"prepare": [], "test": ["true"], "cleanup": ["touch $ARTIFACT_DIR/cleaned"]},
        "quoted": "1.10 and @tag and @tag",
        "followed": "1.10",
    }
    assert not echo.artifacts.exists()


def test_show_args_prints_one_argument(echo: Workspace) -> None:
    outcome = echo.run("from_config", "nowhere", "do_it", "--project=small", "--show_args=tag", "--extra={tag: 2}")
    assert outcome.stdout == "2\n"


def test_a_faulty_block_does_not_affect_other_commands(echo: Workspace) -> None:
    broken = echo.run("from_config", "broken", "do_it", "--project=small", "--show_args")
    assert broken.exit_code == 2
    assert "small.yaml.j2:16" in broken.stderr
    assert received(echo) == ["hello", 1, None]


def test_a_configuration_that_breaks_a_contract_runs_nothing_and_shows_its_arguments(echo: Workspace) -> None:
    config = echo.directory / "config/small.yaml"
    config.write_text(f"{config.read_text()}\nsecrets: {{env: 5}}\n")
    argv = ("from_config", "echo", "say", "--project=small")
    outcome = echo.run(*argv)
    assert (outcome.exit_code, outcome.stdout) == (2, ""), str(outcome)
    assert "`secrets.env` must be a valid list, not 5" in outcome.stderr
    assert yaml.safe_load(echo.run(*argv, "--show_args").stdout) == {"text": "hello"}
