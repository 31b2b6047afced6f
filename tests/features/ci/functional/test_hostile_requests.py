"""Two hundred hostile texts in comments: none is executed, and none changes more than the project allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
import yaml

from tests.functional.test_hostile_entrances import Watched, values
from tests.functional.test_hostile_entrances import watched as watched  # noqa: PLC0414  # re-exports the fixture
from tests.functional.test_hostile_text import FILES
from toolbox.features.ci import comment_runs, slash
from toolbox.features.ci.comment_runs import Settings
from toolbox.ground.model.errors import UsageError
from toolbox.orchestration import request


def comments(text: str) -> Iterator[str]:
    """Yield comments that contain a text at each position of the grammar."""
    yield from (text, f"/{text}", f"/test {text}", f"/test hostile {text}", f"/test hostile\n/skip {text}")
    for value in (f"/var text: {text}", f"/var text:\n  {text}", f"/var {text}: x", f"/var text: {json.dumps(text)}"):
        yield f"/test hostile\n{value}"


def test_comments_change_only_the_field_that_the_project_lists(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"text": "", "ci": {"overridable": ["text"]}, "matrix": {"workload": {"command": ["true"]}}}
    watched.workspace.write({**FILES, "config/hostile.yaml": yaml.safe_dump(config)})
    monkeypatch.chdir(watched.workspace.directory)
    understood = 0
    texts = watched.texts[::8]  # `test_hostile_comments.py` gives each text to one position
    for comment in (comment for text in texts for comment in comments(text)):
        with suppress(UsageError):
            for run in comment_runs.of(slash.parse(comment, ["hostile"]), Settings()):
                _, configuration = request.configure(run.request)
                assert configuration.get("matrix") == config["matrix"]
                assert repr(configuration.get("text")) == repr(run.request.overrides.get("text", ""))
                understood += bool(run.request.overrides)
    assert understood > len(texts) // 2


def test_hostile_comments_on_the_command_line_are_harmless(watched: Watched) -> None:
    config = {"text": "", "texts": [], "ci": {"overridable": ["texts"]}}
    watched.workspace.write({**FILES, "config/hostile.yaml": yaml.safe_dump(config)})
    some = [text for text in values(watched.texts) if len(text) < 400 and "${{" not in text]
    parts = [some[begin : begin + 40] for begin in range(0, len(some), 40)]
    for part in parts:
        watched.run("ci", "parse", f"--text=/test hostile\n/var texts: {json.dumps(part)}")
        watched.run("ci", "parse", "--text=" + "\n".join(f"/{text}" for text in part))
