"""A role runs in each locale of its user, because Ansible gets a locale that it accepts."""

from __future__ import annotations

import pytest

from toolbox.testing import Workspace

FILES = {
    "commands/word.py": '''
        """Say words."""
        from toolbox.api import role


        class Word:
            """Say words."""

            @role
            def say(self, word: str) -> None:
                """
                Say a word.

                Args:
                    word: the word.
                """
    ''',
    "roles/word_say/tasks/main.yml": """
        - name: Say it
          ansible.builtin.command: {argv: [echo, "{{ word_say_word }}"], expand_argument_vars: false}
          changed_when: false
        - name: Fail in English
          ansible.builtin.command: {argv: [cat, /no/such/file]}
          register: _word_say_error
          failed_when: "'No such file or directory' not in _word_say_error.stderr"
          changed_when: false
    """,
}
UNSET = {"LC_ALL": "", "LC_CTYPE": "", "LANG": ""}


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LANG": "xx_YY.UTF-8"},
        {"LC_ALL": "C", "TOPGALLANT_ANSIBLE_WARM": "0"},
    ],
)
def test_a_role_runs_in_every_locale(workspace: Workspace, locale: dict[str, str]) -> None:
    outcome = workspace.write(FILES).run("word", "say", "été", env={**UNSET, **locale})
    assert outcome.exit_code == 0, str(outcome)
    (log,) = workspace.artifacts.glob("toolbox/*/_ansible.log")
    assert "été" in log.read_text(encoding="utf-8")
    assert "Ansible starts slowly" not in outcome.stderr
