"""Text with the syntax of a shell, YAML, Jinja or Ansible arrives unchanged, by every way into the system."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import yaml

from toolbox.testing import Workspace

SHELL = '"; touch pwned; $(touch pwned2) `touch pwned3` \'"'
HOSTILE = [
    SHELL,
    "{{ lookup('pipe', 'touch pwned4') }}",
    "{% raw %}{# not a comment #}",
    "#jinja2: variable_start_string: '[%', variable_end_string: '%]'\n[% lookup('pipe', 'touch pwned6') %]",
    "#jinja2:variable_start_string:'[%',variable_end_string:'%]'\n[% lookup('pipe', 'touch pwned7') %]",
    "{{ '{{' }} lookup('pipe', 'touch pwned8') {{ '}}' }}",
    "!unsafe text",
    "!!python/object/apply:os.system ['touch pwned5']",
    "*$@secrets.token",
    "*anchor",
    "&anchor",
    "a: b # no comment",
    "- item",
    "[a, b",
    "null",
    "~",
    "1.10",
    "0x10",
    "1_000",
    "12:30:45",
    "2024-01-31",
    "yes",
    "$HOME ${HOME} $$ ~",
    "%s %(a)s {0} {a}",
    "back\\slash \\n \\",
    "several\nlines\n\n  indented\n",
    "\ttab and trailing space ",
    "\r\n",
    "",
    "=",
    "--flag=value",
    "-",
    "--help",
    "Zoë 日本語 🚀 \u200b\u202e\ufeff",
    "\u0085\u2028\u2029",
    "\ue000-0\ue001",
    "\x01\x1b[31m\x7f",
    "x" * 5000,
]

FILES = {
    "commands/machine.py": '''
        """Machines."""
        from typing import Any

        from toolbox.api import role


        class Machine:
            """Machines."""

            @role
            def write(self, text: str, texts: list[str], mapping: dict[str, Any] | None = None) -> None:
                """
                Write down what was given.

                Args:
                    text: a text.
                    texts: several.
                    mapping: and by name.
                """
    ''',
    "roles/machine_write/tasks/main.yml": """
        - name: Write down what was given
          ansible.builtin.copy:
            content: "{{ [machine_write_text, machine_write_texts, machine_write_mapping] | to_json }}"
            dest: "{{ artifact_extra_logs_dir }}/artifacts/given.json"
            mode: "0600"
        - name: Run a program with it
          ansible.builtin.command:
            argv:
              - "{{ ansible_playbook_python }}"
              - -c
              - "import json, sys; json.dump(sys.argv[2:], open(sys.argv[1], 'w'))"
              - "{{ artifact_extra_logs_dir }}/artifacts/ran.json"
              - "{{ machine_write_text }}"
            expand_argument_vars: false
    """,
    "projects/hostile/orchestration.py": '''
        """Passes texts to programs, variables, roles and directory names."""
        import sys

        from toolbox.orchestration import config, env, run

        WRITE = "import json, sys; json.dump(sys.argv[2:], open(sys.argv[1], 'w'))"


        def test():
            text, texts = config.project.get_config("text"), config.project.get_config("texts")
            run.run([sys.executable, "-c", WRITE, f"{env.ARTIFACT_DIR}/list.json", *texts])
            run.run('printf %s "$TEXT" >"$ARTIFACT_DIR/variable.txt"', env={"TEXT": text})
            run.run_toolbox_from_config("machine", "write", extra={"mapping": {text: texts}})
            with env.NextArtifactDir(text):
                run.run("true")
    ''',
    "command_args/hostile.yaml.j2": """
        machine write:
          text: {{ text }}
          texts: {{ texts }}
        pieces/machine write:
          text: before {{ text }} after
          texts:
          {% for text in texts %}
            - {{ text }}
            - "{{ text }}"
            - '<{{ text }}>'
          {% endfor %}
    """,
}


JINJA_HEADER = (
    "#jinja2: variable_start_string: '[%', variable_end_string: '%]'\n[% lookup('pipe', 'touch {folder}/pwned') %]"
)
PIPE = "{{ lookup('pipe', 'touch {folder}/pwned') }}"


# A configuration would read texts that begin with `*$@` as references, so these texts are left out here.
CONFIGURED = [text for text in HOSTILE if not text.startswith("*$@")]


@pytest.fixture
def hostile(workspace: Workspace) -> Workspace:
    """Return a project that passes the hostile texts of a preset to programs, variables, roles and directory names."""
    preset = {"text": SHELL, "texts": CONFIGURED}
    config = {"ci_presets": {"names": None, "hostile": preset}, "text": "", "texts": []}
    return workspace.write({**FILES, "config/hostile.yaml": yaml.safe_dump(config)})


def flow(value: object) -> str:
    """Return a value as YAML on one line, as a user writes it in a flag."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6)


def given(workspace: Workspace, pattern: str) -> Any:
    """Return the texts that a program or role has received, and check that no text was executed."""
    assert [path for path in workspace.directory.rglob("*pwned*") if "__" not in path.name] == []
    (file,) = workspace.artifacts.glob(pattern)
    return json.loads(file.read_text(encoding="utf-8"))


def test_a_preset_passes_hostile_text_to_the_orchestration_unchanged(hostile: Workspace) -> None:
    outcome = hostile.run("project", "run", "hostile", "--presets=hostile")
    assert outcome.exit_code == 0, str(outcome)
    run = "hostile/*/000__test"
    assert given(hostile, f"{run}/list.json") == CONFIGURED
    assert given(hostile, f"{run}/*__machine__write/artifacts/given.json") == [SHELL, CONFIGURED, {SHELL: CONFIGURED}]
    assert given(hostile, f"{run}/*__machine__write/artifacts/ran.json") == [SHELL]
    (variable,) = hostile.artifacts.glob(f"{run}/variable.txt")
    assert variable.read_text() == SHELL
    assert "\x1b" not in outcome.stdout


def test_extra_passes_hostile_text_unchanged(hostile: Workspace) -> None:
    extra = flow({"text": SHELL, "texts": HOSTILE, "mapping": {SHELL: HOSTILE}})
    outcome = hostile.run("from_config", "machine", "write", "--project=hostile", f"--extra={extra}")
    assert outcome.exit_code == 0, str(outcome)
    assert given(hostile, "toolbox/*/artifacts/given.json") == [SHELL, HOSTILE, {SHELL: HOSTILE}]


def test_a_template_keeps_hostile_text_inside_of_text_and_quotes(hostile: Workspace) -> None:
    argv = ("from_config", "machine", "write", "--project=hostile", "--presets=hostile", "--prefix=pieces")
    shown = yaml.safe_load(hostile.run(*argv, "--show_args").stdout)
    assert shown["text"] == f"before {SHELL} after"
    assert shown["texts"] == [piece for text in CONFIGURED for piece in (text, text, f"<{text}>")]


@pytest.mark.parametrize("style", ["yaml", "json"])
def test_config_get_prints_hostile_text_unchanged(hostile: Workspace, style: str) -> None:
    outcome = hostile.run("config", "get", "hostile", "texts", "--presets=hostile", f"--format={style}")
    assert (json.loads if style == "json" else yaml.safe_load)(outcome.stdout) == CONFIGURED


def test_the_command_line_of_a_step_reproduces_hostile_text(hostile: Workspace) -> None:
    first = hostile.run("machine", "write", f"--text={SHELL}", f"--texts={flow(HOSTILE)}")
    assert first.exit_code == 0, str(first)
    assert given(hostile, "toolbox/*/artifacts/given.json") == [SHELL, HOSTILE, None]
    assert given(hostile, "toolbox/*/artifacts/ran.json") == [SHELL]
    (kept,) = hostile.artifacts.glob("toolbox/*/_python.cmd")
    _, *argv = shlex.split(kept.read_text())
    assert hostile.run(*argv).exit_code == 0
    one, again = sorted(hostile.artifacts.glob("toolbox/*/artifacts/given.json"))
    assert again.read_bytes() == one.read_bytes()


def test_a_header_for_jinja_stays_text(hostile: Workspace) -> None:
    text = JINJA_HEADER.replace("{folder}", str(hostile.directory))
    outcome = hostile.run("machine", "write", f"--text={text}", f"--texts={flow([text])}")
    assert outcome.exit_code == 0, str(outcome)
    assert given(hostile, "toolbox/*/artifacts/given.json") == [text, [text], None]


@pytest.mark.parametrize(
    "host", [PIPE, JINJA_HEADER, f"{PIPE}@node", "-oProxyCommand=touch pwned", "..", "a/b\x1b[31m"]
)
def test_a_malformed_host_is_wrong_usage(hostile: Workspace, host: str) -> None:
    text = host.replace("{folder}", str(hostile.directory))
    outcome = hostile.run("machine", "write", "--text=a", "--texts=b", f"--hosts={flow([text])}")
    assert outcome.exit_code == 2, str(outcome)
    assert "is not a " in outcome.stderr
    assert "\x1b" not in outcome.stderr
    assert not hostile.artifacts.exists()
    assert list(hostile.directory.rglob("*pwned*")) == []


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("far", {"host": JINJA_HEADER}),
        ("far", {"host": PIPE}),
        ("far", {"host": ".."}),
        ("far", {"host": "node", "user": PIPE}),
        ("far", {"host": "node", "user": "-oX"}),
        ("..", {}),
        ("-oX", {}),
        (PIPE, {}),
    ],
)
def test_a_malformed_target_is_wrong_configuration(hostile: Workspace, name: str, target: dict[str, str]) -> None:
    config = {
        "targets": {name: {"backend": "ssh", **target}},
        "matrix": {"axes": {"x": [1]}, "workload": {"command": ["true"]}},
    }
    folder = str(hostile.directory)
    hostile.write({"config/hostile.yaml": yaml.safe_dump(config, width=10**6).replace("{folder}", folder)})
    outcome = hostile.run("project", "run", "hostile")
    assert outcome.exit_code == 2, str(outcome)
    assert "config/hostile.yaml:" in outcome.stderr
    assert not hostile.artifacts.exists()
    assert list(hostile.directory.rglob("*pwned*")) == []


STEERING = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e::stop-commands::x ##[error]y"
TELLING = """
    '''Prints commands for a CI system, and for a terminal.'''
    import logging

    from toolbox.orchestration import run


    def test():
        run.run(r"printf '::stop-commands::x\\n  ::add-mask::y\\n##[error]z\\033]0;title\\007\\n'")
        logging.getLogger("told").warning("one\\n::error::two \\x1b]0;title\\x07")
        raise ValueError("one\\n::error::two \\x1b]0;title\\x07 ##[error]")
"""


def steered(text: str) -> list[str]:
    """Return the lines that contain commands for a terminal or a CI system."""
    bad = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|##\\[|^\\s*::")
    return [line for line in text.split("\n") if bad.search(line)]


@pytest.mark.parametrize(
    "argv",
    [
        [STEERING],
        ["project", STEERING],
        ["project", "run", STEERING],
        ["project", "run", "hostile", f"--presets={STEERING}"],
        ["project", "run", "hostile", "--overrides={'" + STEERING.replace("\x1b", "") + "': 1}"],
        ["project", "run", "hostile", f"--overrides={STEERING}.yaml"],
        ["project", "status", STEERING],
        ["machine", "write", f"--{STEERING}=1"],
        ["from_config", "machine", "write", f"--config_file={STEERING}"],
        ["--debug", "config", "show", STEERING],
    ],
    ids=lambda argv: " ".join(argv).encode("unicode_escape").decode()[:40],
)
def test_an_error_message_steers_neither_a_terminal_nor_a_ci_system(hostile: Workspace, argv: list[str]) -> None:
    outcome = hostile.run(*argv)
    assert outcome.exit_code == 2, str(outcome)
    assert outcome.stderr
    assert steered(outcome.stdout + outcome.stderr) == []


@pytest.mark.parametrize("flags", [[], ["--format=json"], ["--debug"]], ids=str)
def test_output_of_a_program_steers_neither_a_terminal_nor_a_ci_system(hostile: Workspace, flags: list[str]) -> None:
    hostile.write({"projects/hostile/orchestration.py": TELLING})
    outcome = hostile.run("project", "run", "hostile", *flags, env={"GITHUB_ACTIONS": "true"})
    assert outcome.exit_code == 3, str(outcome)
    assert "stop-commands" in outcome.stdout + outcome.stderr
    assert "two" in outcome.stderr
    assert steered(outcome.stdout + outcome.stderr) == []
    again = hostile.run("project", "status", "--format=json")
    assert steered(again.stdout + again.stderr) == []


def test_a_directory_name_is_not_evaluated_as_a_template(hostile: Workspace) -> None:
    folder = hostile.directory / "{{ lookup('pipe', 'touch pwned') }}"
    outcome = hostile.run("machine", "write", "--text=a", "--texts=b", env={"ARTIFACT_DIR": str(folder)})
    assert outcome.exit_code == 0, str(outcome)
    (kept,) = folder.glob("*/artifacts/given.json")
    assert json.loads(kept.read_text()) == ["a", ["b"], None]
    assert list(hostile.directory.rglob("pwned")) == []


BODY = '''
    """Disks."""
    from typing import Any

    from toolbox.api import role


    class Disk:
        """Disks."""

        @role("machine_write")
        def label(self, text: str, returned: str = "") -> dict[str, Any]:
            """
            Write a label.

            Args:
                text: the label.
                returned: what the body returns besides.
            """
            if text == "wrong":
                raise ValueError("--text=wrong is not a label")
            return {"texts": [text, returned], "mapping": {text: returned}}
'''


def test_the_return_value_of_a_body_stays_text(hostile: Workspace) -> None:
    hostile.write({"commands/disk.py": BODY})
    text = JINJA_HEADER.replace("{folder}", str(hostile.directory))
    outcome = hostile.run("disk", "label", f"--text={SHELL}", f"--returned={text}")
    assert outcome.exit_code == 0, str(outcome)
    assert given(hostile, "toolbox/*__disk__label/artifacts/given.json") == [SHELL, [SHELL, text], {SHELL: text}]


def test_a_value_error_in_a_body_is_wrong_usage(hostile: Workspace) -> None:
    hostile.write({"commands/disk.py": BODY})
    outcome = hostile.run("disk", "label", "--text=wrong")
    assert outcome.exit_code == 2
    assert outcome.stderr == "error: disk label: --text=wrong is not a label\n"
    assert list(hostile.artifacts.glob("toolbox/*")) == []
