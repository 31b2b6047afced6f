"""Hostile comments execute nothing, change only listed fields, and are refused politely."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.features.ci.hostile_comments import comments
from toolbox.features.ci import comment_runs, slash
from toolbox.features.ci.commands.ci import Ci
from toolbox.features.ci.comment_runs import Settings
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.foreign_text import printable
from toolbox.ground.system import places
from toolbox.orchestration import request
from toolbox.orchestration.request import RunRequest
from toolbox.testing import Workspace

PROJECT: Final = {
    "projects/hostile/orchestration.py": '''
        """Prints a text of its configuration."""
        from toolbox.orchestration import config, run

        def test():
            run.run(["printf", "%s", str(config.project.get_config("text"))])
    ''',
    "config/hostile.yaml": """
        ci: {overridable: [text], jobs: {nightly: {presets: [loud]}}, clusters: {metal: {presets: [loud]}}}
        ci_presets: {to_apply: null, names: null, loud: {tag: loud}}
        secrets: {dir: {env_key: VAULT}, token: token}
        text: ""
        tag: "1"
        results: {record: false}
        matrix: {axes: {x: [a, b]}, quarantine: [], workload: {command: ["true"]}}
    """,
}
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
WORKFLOW_COMMAND = re.compile(r"^\s*(::[a-z-]|##\[|##vso\[)", re.MULTILINE)
LONGEST_LINE: Final = 320
LONGEST_WORD: Final = 100_000  # bytes; Linux allows 131,072 for one argument


class Attacked:
    """A workspace in a folder without other files, in which every file that an attack creates is found.

    Args:
        refusals: the message with which `ci parse` refuses each comment; None if the comment is accepted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = Workspace(folder / "workspace", PROJECT)
        with chdir(self.workspace.directory):
            self.refusals = {comment: refusal(partial(Ci().parse, comment)) for comment in comments(folder)}

    @property
    def refused(self) -> list[str]:
        """The comments that are refused."""
        return [comment for comment, message in self.refusals.items() if message is not None]

    @property
    def accepted(self) -> list[str]:
        """The comments that are accepted."""
        return [comment for comment, message in self.refusals.items() if message is None]

    def check(self) -> None:
        """Check that nothing was executed."""
        assert list(self.folder.rglob("*pwned*")) == []
        assert [path.name for path in self.folder.iterdir()] == ["workspace"]
        assert not [name for name in os.listdir("/tmp") if name.startswith("pwned-")]  # noqa: PTH208


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    """Give every comment to `ci parse`."""
    return Attacked(tmp_path_factory.mktemp("attacked") / "all")


@pytest.fixture
def attacked(attacks: Attacked, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attacked]:
    monkeypatch.chdir(attacks.workspace.directory)
    yield attacks
    attacks.check()


def refusal(act: Callable[[], object]) -> str | None:
    """Return the message with which a comment is refused; None if it is accepted."""
    try:
        act()
    except UsageError as error:
        return str(error)
    return None


def test_the_corpus_is_large(attacked: Attacked) -> None:
    assert len(attacked.refused) > 200
    assert len(attacked.accepted) > 30


def test_every_refusal_is_at_most_five_short_printable_lines(attacked: Attacked) -> None:
    for text in filter(None, attacked.refusals.values()):
        lines = printable(f"error: {text}").split("\n")
        assert len(lines) <= 5
        assert all(line.isprintable() and len(line) <= LONGEST_LINE for line in lines), lines
        assert WORKFLOW_COMMAND.search(text) is None


def test_a_comment_that_parse_refuses_does_not_run(attacked: Attacked) -> None:
    for comment in attacked.refused[::3]:
        assert refusal(partial(Ci().run, comment)) == attacked.refusals[comment]
    assert not attacked.workspace.artifacts.exists()


def test_a_refused_comment_ends_with_exit_code_2(attacked: Attacked) -> None:
    possible = [text for text in attacked.refused if text.isascii() and "\0" not in text and len(text) < LONGEST_WORD]
    for comment in possible[::60]:
        outcome = attacked.workspace.run("ci", "run", f"--text={comment}")
        assert outcome.exit_code == 2, str(outcome)
        assert len(outcome.stderr.splitlines()) <= 5
    assert not attacked.workspace.artifacts.exists()


def test_accepted_comments_change_only_the_listed_field(attacked: Attacked) -> None:
    original, loud = (request.configure(RunRequest("hostile", presets))[1] for presets in ([], ["loud"]))
    changed_runs = 0
    for comment in attacked.accepted:
        for run in comment_runs.of(slash.parse(comment, places.projects()), Settings()):
            files, changed = request.configure(run.request)
            before = loud if run.request.presets else original
            assert files.name == "hostile"
            assert {**changed.written("$"), "text": ""} == before.written("$")
            changed_runs += changed.written("text") != ""
    assert changed_runs > 30


def test_accepted_comments_run_and_execute_nothing(attacked: Attacked) -> None:
    texts = [text for text in attacked.accepted if "/var text" in text and len(text) < 500 and "```" not in text]
    harmless = texts[::4]
    assert len(harmless) > 10
    for begin in range(0, len(harmless), 20):
        text = "\n".join(harmless[begin : begin + 20])
        outcome = attacked.workspace.run("ci", "run", f"--text={text}", env={"GITHUB_ACTIONS": "true"}, timeout=300)
        assert outcome.exit_code == 0, str(outcome)
        printed = outcome.stdout + outcome.stderr
        assert RAW.search(printed) is None
        assert WORKFLOW_COMMAND.search(printed) is None
    assert len(attacked.workspace.runs()) == len(harmless)
    shutil.rmtree(attacked.workspace.artifacts)
