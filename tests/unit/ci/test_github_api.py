"""`gh api` gets the method, the path and the body. A refusal, and an answer that is not JSON, are errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolbox.ci import github_api
from toolbox.ci.github_api import CommandLineApi
from toolbox.model.errors import InfrastructureError, UsageError

NOTE = 'printf "%s\\n" "$@" >"$0.args"; cat >"$0.body"; '


@pytest.fixture
def gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path on the PATH to which a test writes a program `gh`."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "gh"


def write(gh: Path, script: str) -> CommandLineApi:
    gh.write_text(f"#!/bin/sh\n{script}\n")
    gh.chmod(0o755)
    return CommandLineApi("owner/name")


def args(gh: Path) -> list[str]:
    return Path(f"{gh}.args").read_text().splitlines()


def test_a_get_request_has_its_query_in_the_path(gh: Path) -> None:
    assert write(gh, f"{NOTE} echo '[1]'").get("activity", ref="refs/heads/a&b #", per_page=1) == [1]
    expected = "repos/owner/name/activity?ref=refs%2Fheads%2Fa%26b+%23&per_page=1"
    assert args(gh) == ["api", "--method", "GET", expected]


def test_a_body_goes_through_standard_input(gh: Path) -> None:
    body = {"body": "-f $(touch pwned) @/etc/passwd\n"}
    assert write(gh, f"{NOTE} echo '{{}}'").send("POST", "issues", body) == {}
    assert args(gh) == ["api", "--method", "POST", "repos/owner/name/issues", "--input", "-"]
    assert json.loads(Path(f"{gh}.body").read_text()) == body


def test_an_empty_answer_is_returned_as_none(gh: Path) -> None:
    assert write(gh, "exit 0").get("x") is None


def test_a_refusal_is_an_error_with_the_words_of_github(gh: Path) -> None:
    with pytest.raises(
        InfrastructureError, match=r"GitHub refused GET x: gh: Forbidden \(HTTP 403\)\n  check .GH_TOKEN"
    ):
        write(gh, "echo 'gh: Forbidden (HTTP 403)' >&2; exit 1").get("x")


def test_an_answer_that_is_not_json_is_an_error(gh: Path) -> None:
    with pytest.raises(InfrastructureError, match="not JSON"):
        write(gh, "echo '<html>'").get("x")


def test_a_missing_program_is_an_error(gh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(gh.parent))
    with pytest.raises(InfrastructureError, match="Install GitHub's command line"):
        CommandLineApi("owner/name").get("x")


@pytest.mark.parametrize("repository", ["", "name", "a/b/c", "../x", "a/b?c", "-f/x y"])
def test_a_repository_is_an_owner_and_a_name(repository: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    with pytest.raises(UsageError, match="GITHUB_REPOSITORY must be OWNER/NAME"):
        github_api.from_environment()


def test_a_segment_of_a_path_has_no_separators() -> None:
    assert github_api.segment("a/../b?c") == "a%2F..%2Fb%3Fc"
