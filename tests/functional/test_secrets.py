"""A secret reaches the command that needs it, but no file of the run and no output, even if a program prints it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from toolbox.testing import Outcome, Workspace

CORE = "quux-tr0ub4dor"
# JSON, YAML and the shell each escape quotes, backslashes and non-ASCII letters in a different way.
TOKEN = f"p\"ä'ss\\{CORE} $(x) {{{{ y }}}}"
KEY = f"-----BEGIN KEY-----\nfirst line of {CORE}\nsecond line of {CORE}\n-----END KEY-----"
VARIABLE = "correct-horse-battery"

FILES = {
    "held/token": TOKEN,
    "held/key": KEY,
    "config/vault.yaml": """
        secrets:
          dir: {name: the vault, env_key: VAULT}
          env: [API_KEY]
          token: token
          key: key
        token: "*$@secrets.token"
        key: "*$@secrets.key"
        header: "Bearer {*$@secrets.token}"
        bearer: "Bearer {@token}"
        fails: false
    """,
    "command_args/vault.yaml.j2": """
        vault open:
          token: {{ token }}
          keys: [{{ key }}]
          options: {"bearer": {{ bearer }}}
          fails: {{ fails }}
    """,
    "commands/vault.py": '''
        """Vaults."""
        from typing import Any

        from toolbox.ground.model.secrets import Secret
        from toolbox.api import role


        class Vault:
            """Vaults."""

            @role
            def open(self, token: Secret, keys: list[Any], options: dict[str, Any], fails: bool = False) -> None:
                """
                Open the vault.

                Args:
                    token: a secret.
                    keys: a list of secrets.
                    options: a mapping with secrets.
                    fails: whether the command fails.
                """
    ''',
    # This careless role prints its secrets as text and JSON, and writes them into files and messages.
    "roles/vault_open/tasks/main.yml": r"""
        - name: Compare the secrets with the expected ones
          ansible.builtin.shell:
            cmd: >-
              printf %s "$TOKEN" | cmp - "$VAULT/token" && printf %s "$KEY" | cmp - "$VAULT/key" &&
              test "$BEARER" = "Bearer $(cat "$VAULT/token")" && printf %s "$API_KEY" | cmp - "$VAULT/../variable"
          environment: &secrets
            TOKEN: "{{ vault_open_token }}"
            KEY: "{{ vault_open_keys[0] }}"
            BEARER: "{{ vault_open_options.bearer }}"
        - name: Print the secrets
          ansible.builtin.shell:
            cmd: 'echo "$TOKEN"; echo "$KEY" >&2; echo "$BEARER"; echo "$API_KEY"'
          environment: *secrets
        - name: Print them as JSON
          ansible.builtin.command:
            argv: [printf, "%s\n", "{{ [vault_open_token, vault_open_keys] | to_json }}", "{{ vault_open_token }}"]
        - name: Show them
          ansible.builtin.debug:
            msg: "{{ vault_open_token }} / {{ vault_open_keys }} / {{ vault_open_options }}"
        - name: Show one of them in a list {{ vault_open_token }}
          ansible.builtin.debug:
            var: item
          loop: "{{ vault_open_keys + [vault_open_token] }}"
        - name: Write them
          ansible.builtin.copy:
            content: "{{ item }} {{ vault_open_token }} {{ lookup('env', 'API_KEY') }}\n{{ vault_open_keys | to_yaml }}"
            dest: "{{ artifact_extra_logs_dir }}/artifacts/state-{{ index }}.txt"
            mode: "0600"
          loop: ["{{ vault_open_token }}", "{{ vault_open_keys | to_json }}"]
          loop_control: {index_var: index}
        - name: Fail with them
          ansible.builtin.fail:
            msg: "cannot open with {{ vault_open_token }} and {{ vault_open_keys | to_json }}"
          when: vault_open_fails
    """,
    "projects/vault/orchestration.py": '''
        """Opens a vault."""
        import logging

        from toolbox.orchestration import config, run


        def prepare():
            token, key = config.project.get_config("token"), config.project.get_config("key")
            print(f"the token {token} and {key!r}")
            logging.getLogger("vault").warning("the token is %s", token.reveal())
            run.run(["printf", "%s", token.reveal()])
            run.run('echo "$KEY"; echo "$API_KEY" >&2', env={"KEY": key.reveal()})


        def test():
            run.run_toolbox_from_config("vault", "open")


        def post_cleanup():
            raise ValueError(f"no cleanup with {config.project.get_config('token').reveal()}")
    ''',
}


@pytest.fixture
def vault(workspace: Workspace) -> Workspace:
    """Return a project that is careless with its secrets."""
    return workspace.write({**FILES, "variable": VARIABLE})


def started(vault: Workspace, *argv: str, env: Mapping[str, str] | None = None) -> Outcome:
    """Run a command line with the variables that name the directory of the secrets and hold a secret."""
    return vault.run(*argv, env={"VAULT": str(vault.directory / "held"), "API_KEY": VARIABLE, **(env or {})})


def leaks(vault: Workspace, outcome: Outcome) -> list[object]:
    """Return the secrets that are in the output, and the files that contain a secret or a part of it."""
    shown = [text for text in (CORE, VARIABLE) if text in outcome.stdout + outcome.stderr]
    held: list[Path] = [file for text in (CORE, VARIABLE) for file in vault.holding(text)]
    return [*shown, *held]


@pytest.mark.parametrize("fails", ["false", "true"])
def test_a_careless_project_leaks_nothing_whether_it_passes_or_fails(vault: Workspace, fails: str) -> None:
    outcome = started(vault, "project", "run", "vault", f"--overrides={{fails: {fails}}}")
    (command,) = [step for step in vault.summary()["steps"] if step["name"] == "vault__open"]
    assert command["verdict"] == ("failed" if fails == "true" else "passed"), str(outcome)
    assert "cannot open with ***" in outcome.stdout or fails == "false"
    assert leaks(vault, outcome) == []


@pytest.mark.parametrize("fails", ["false", "true"])
def test_a_toolbox_command_outside_of_a_run_leaks_nothing_and_saves_references(vault: Workspace, fails: str) -> None:
    outcome = started(vault, "from_config", "vault", "open", "--project=vault", f"--extra={{fails: {fails}}}")
    assert outcome.exit_code == (3 if fails == "true" else 0), str(outcome)
    assert leaks(vault, outcome) == []
    (step,) = vault.artifacts.glob("toolbox/*__vault__open")
    assert "*$@secrets.token" in (step / "_python.args.yaml").read_text()
    assert "--token=*$@secrets.token" in shlex.split((step / "_python.cmd").read_text())


@pytest.mark.parametrize("reference", ["@held/token", "env:API_TOKEN"])
def test_a_command_line_can_reference_a_secret(vault: Workspace, reference: str) -> None:
    argv = (f"--token={reference}", "--keys=[none]", "--options={bearer: none}")
    outcome = started(vault, "vault", "open", *argv, env={"API_TOKEN": TOKEN})
    assert outcome.exit_code == 3, "the first task compares the arguments with the files, and fails"
    assert leaks(vault, outcome) == []
    (step,) = vault.artifacts.glob("toolbox/*__vault__open")
    shown = reference.replace("@", f"@{vault.directory}/")
    assert f"--token={shown}" in shlex.split((step / "_python.cmd").read_text())
    assert yaml.safe_load((step / "_python.args.yaml").read_text())["vault open"]["token"] == shown


@pytest.mark.parametrize(
    "argv",
    [
        ["vault", "open", f"--token={TOKEN}", "--keys=[]", "--options={}"],
        ["vault", "open", TOKEN, "[]", "{}"],
        ["from_config", "vault", "open", "--project=vault", f"--extra={json.dumps({'token': TOKEN})}"],
    ],
)
def test_a_secret_on_the_command_line_is_refused_and_not_shown(vault: Workspace, argv: list[str]) -> None:
    outcome = started(vault, *argv)
    assert outcome.exit_code == 2, str(outcome)
    assert "--token: a command line must not contain a secret" in outcome.stderr
    assert "--token  (secret, as env:NAME or @FILE; required)" in vault.run("vault", "open", "--help").stdout
    assert CORE not in outcome.stdout + outcome.stderr
    assert not vault.artifacts.exists()


@pytest.mark.parametrize(
    "argv",
    [
        ["config", "show", "vault"],
        ["config", "show", "vault", "--format=json"],
        ["config", "get", "vault", "bearer"],
        ["config", "explain", "vault", "token", "--overrides={token: '*$@secrets.key'}"],
        ["config", "diff", "vault", "--overrides={token: '*$@secrets.key'}"],
        ["config", "validate", "vault"],
        ["from_config", "vault", "open", "--project=vault", "--show_args"],
        ["from_config", "vault", "open", "--project=vault", "--show_args=options"],
        ["from_config", "vault", "open", "--project=vault", "--extra={token: 5}"],
        ["from_config", "vault", "open", "--project=vault", "--extra={options: 5, keys: {a: b}}"],
        ["--debug", "from_config", "vault", "open", "--project=vault", "--extra={no_such: 5}"],
    ],
    ids=" ".join,
)
def test_no_command_shows_a_secret(vault: Workspace, argv: list[str]) -> None:
    outcome = started(vault, *argv)
    assert outcome.exit_code in {0, 2, 3}
    assert leaks(vault, outcome) == []


def test_a_template_that_converts_a_secret_to_text_is_refused(vault: Workspace) -> None:
    vault.write({"command_args/vault.yaml.j2": "vault open:\n  token: {{ [token] | tojson }}\n"})
    outcome = started(vault, "from_config", "vault", "open", "--project=vault", "--show_args")
    assert outcome.exit_code == 2
    assert "a secret cannot be used with `tojson`" in outcome.stderr


# A program prints this key line by line, and every kind of quoting escapes it differently.
QUOTED_KEY = f'-----BEGIN "KEY"-----\nit\'s "{CORE}" \\ 1\n\'{CORE}\'\n\t{CORE}\n-----END KEY-----'


def test_a_multi_line_key_with_quotes_is_masked_everywhere(vault: Workspace) -> None:
    (vault.directory / "held/key").write_text(QUOTED_KEY)
    outcome = started(vault, "project", "run", "vault", "--overrides={fails: true}")
    assert "Print the secrets" in outcome.stdout
    assert leaks(vault, outcome) == []


WRITING = """
    '''Writes its secrets to files.'''
    from toolbox.orchestration import config, env, run


    def test():
        token, key = config.project.get_config("token"), config.project.get_config("key")
        run.run('printf %s "$KEY" >"$ARTIFACT_DIR/key.txt"', env={"KEY": key})
        with env.NextArtifactDir(f"use {token.reveal()} now"):
            run.run('echo "$TOKEN" >"$ARTIFACT_DIR/$(printf token).txt"', env={"TOKEN": token})
        run.run('echo "the $API_KEY" >"$ARTIFACT_DIR/variable.txt"')
"""


def test_files_and_step_names_are_redacted_at_the_end_of_the_phase(vault: Workspace) -> None:
    outcome = started(vault.write({"projects/vault/orchestration.py": WRITING}), "project", "run", "vault")
    assert outcome.exit_code == 0, str(outcome)
    test = vault.run_directory() / "000__test"
    assert (test / "variable.txt").read_text() == "the ***\n"
    assert "***" in (test / "key.txt").read_text()
    assert "a secret was masked in key.txt" in outcome.stdout
    assert leaks(vault, outcome) == []


LEAVING = """
    '''Leaves a secret in an archive, and one in a text.'''
    from toolbox.orchestration import config, run


    def test():
        key = config.project.get_config("key")
        run.run('printf "\\\\0%s\\\\0" "$KEY" >"$ARTIFACT_DIR/archive.bin"', env={"KEY": key})
        run.run('printf %s "$API_KEY" | base64 >"$ARTIFACT_DIR/header.txt"')
"""


def test_a_binary_file_with_a_secret_is_reported_but_not_changed(vault: Workspace) -> None:
    outcome = started(vault.write({"projects/vault/orchestration.py": LEAVING}), "project", "run", "vault")
    assert outcome.exit_code == 0, str(outcome)
    directory = vault.run_directory()
    assert (directory / "000__test/archive.bin").read_bytes() == b"\0" + KEY.encode() + b"\0"
    assert (directory / "000__test/header.txt").read_text() == "***\n"
    assert vault.summary()["secrets_left"] == ["000__test/archive.bin"]
    assert "do not publish these files, which contain a secret: 000__test/archive.bin" in outcome.stdout
    page = (directory / "report.html").read_text()
    assert "Do not publish this run directory" in page
    assert "archive.bin (contains a secret)" in page
    assert 'href="./000__test/archive.bin"' not in page
    assert 'href="./000__test/header.txt"' in page


def test_a_secret_in_the_name_of_a_step_is_masked(vault: Workspace) -> None:
    outcome = started(vault.write({"projects/vault/orchestration.py": WRITING}), "project", "run", "vault")
    assert [step["name"] for step in vault.summary()["steps"]] == ["test", "use *** now"]
    assert "> use *** now" in outcome.stdout
    assert leaks(vault, outcome) == []


TELLING = """
    '''Raises errors that contain a secret.'''
    import threading

    from toolbox.ground.model.secrets import Secret


    class Teller:
        '''Raises errors that contain a secret.'''

        def tell(self, token: Secret, *, thread: bool = False) -> None:
            '''
            Fail with a secret in the message.

            Args:
                token: the secret.
                thread: fail in a thread.
            '''
            def fail() -> None:
                raise ValueError(f"no use for {token.reveal()}")

            if not thread:
                fail()
            worker = threading.Thread(target=fail)
            worker.start()
            worker.join()
"""


@pytest.mark.parametrize("flags", [[], ["--debug"]], ids=["message", "traceback"])
@pytest.mark.parametrize("thread", ["false", "true"], ids=["command", "thread"])
def test_an_unexpected_error_shows_no_secret(vault: Workspace, thread: str, flags: list[str]) -> None:
    template = "teller tell:\n  token: {{ token }}\n"
    vault.write({"commands/teller.py": TELLING, "command_args/vault.yaml.j2": template})
    argv = ("from_config", "teller", "tell", "--project=vault", f"--extra={{thread: {thread}}}")
    outcome = started(vault, *flags, *argv)
    assert outcome.exit_code == (0 if thread == "true" else 3), str(outcome)
    assert "ValueError: no use for ***" in outcome.stderr
    assert ("Traceback" in outcome.stderr) is bool(flags or thread == "true")
    assert leaks(vault, outcome) == []


# Each tested word is a name in this project, and also the value of a secret variable.
NAMED = {
    "config/named.yaml": """
        secrets: {env: [API_KEY]}
        matrix:
          axes: {mode: [train, test]}
          workload: {command: [echo, "the {@cell.mode} says $API_KEY"]}
          checks: [{check: exit_status}]
    """,
    "projects/named/orchestration.py": """
        '''Has names that are secrets too.'''
        from toolbox.orchestration import matrix


        def test():
            matrix.run()
    """,
}


@pytest.mark.parametrize("word", ["test", "mode", "train", "exit", "named", "attempt"])
def test_a_run_whose_names_are_secrets_can_be_shown_and_resumed(workspace: Workspace, word: str) -> None:
    workspace.write(NAMED)
    variables = {"API_KEY": word}
    ran = workspace.run("project", "run", "named", "--format=json", env=variables)
    assert ran.exit_code == 0, str(ran)
    directory = workspace.run_directory()
    assert (directory / "000__test/000__mode=train/attempt-1/outcome.json").is_file()
    assert [step["name"] for step in ran.json["steps"]] == ["test", "mode=train", "mode=test"]
    status = workspace.run("project", "status", str(directory), "--format=json", env=variables)
    assert [step["name"] for step in status.json["steps"]] == ["test", "mode=train", "mode=test"]
    again = workspace.run("project", "resume", str(directory), env=variables)
    assert again.exit_code == 0, str(again)
    assert "there is nothing to do" in again.stdout + again.stderr
