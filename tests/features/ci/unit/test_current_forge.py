"""The forge of a job is found by its environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolbox.features.ci import current_forge
from toolbox.ground.model.errors import ConfigurationError, UsageError
from toolbox.ground.system import places

VARIABLES = {
    "github": {"GITHUB_ACTIONS": "true"},
    "gitlab": {"GITLAB_CI": "true"},
    "jenkins": {"JENKINS_URL": "https://jenkins", "BUILD_TAG": "jenkins-1"},
    "prow": {"JOB_SPEC": "{}"},
}


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for variables in VARIABLES.values():
        for name in variables:
            monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", VARIABLES)
def test_a_forge_is_found_by_its_variables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in VARIABLES[name].items():
        monkeypatch.setenv(variable, value)
    assert type(current_forge.find()).__module__ == f"toolbox.features.ci.forges.{name}"


def test_a_process_outside_of_jobs_has_the_forge_of_terminals() -> None:
    assert type(current_forge.find()).__module__ == "toolbox.features.ci.forges.terminal"


def test_two_forges_must_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("JOB_SPEC", "{}")
    with pytest.raises(UsageError, match="may be a job of github or prow: name one with --forge"):
        current_forge.find()
    assert type(current_forge.find("prow")).__module__ == "toolbox.features.ci.forges.prow"


def test_an_unknown_forge_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="unknown forge `githab`: did you mean gitlab or github"):
        current_forge.find("githab")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise KeyError('x')", "is broken: KeyError"),
        ("Forge = 7", "`Forge` is not a class"),
        ("class Forge: pass", "`Forge` has no `is_current`"),
    ],
)
def test_a_broken_forge_of_the_workspace_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "forges").mkdir()
    (tmp_path / "forges/mine.py").write_text(f"{text}\n")
    with places.pinned(tmp_path), pytest.raises(ConfigurationError, match=message):
        current_forge.find()
