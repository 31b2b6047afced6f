"""A job of Jenkins gets a webhook of GitHub or GitLab, or the text of a person."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.features.ci.servers import gitlab
from toolbox.features.ci.forges.jenkins import EVENT_FORGE, EVENT_PATH, Forge
from toolbox.features.ci.gitlab.merge_requests import GitLabMergeRequests
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.forge_data import CommentEvent


def test_a_webhook_of_gitlab_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gitlab.serving() as server:
        server.add_user("alice", gitlab.DEVELOPER)
        server.push("topic", {}, by="alice")
        number = server.open_merge_request("topic", by="alice")
        note = server.comment(number, "alice", "/test small")
        (tmp_path / "event").write_text(json.dumps(server.note_event(number, note)))
        monkeypatch.setenv(EVENT_PATH, str(tmp_path / "event"))
        monkeypatch.setenv(EVENT_FORGE, "gitlab")
        monkeypatch.setenv("CI_PROJECT_ID", str(server.project))
        monkeypatch.setenv("CI_API_V4_URL", server.url)
        monkeypatch.setenv("GITLAB_TOKEN", server.add_token("bot", gitlab.DEVELOPER))
        (event,) = Forge().events()
        requests = Forge().pull_requests()
        assert isinstance(requests, GitLabMergeRequests)
        requests.verify(event)
        assert requests.revision(event) == server.head(number)


def test_the_text_of_a_person_has_no_pull_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EVENT_PATH, raising=False)
    monkeypatch.setenv("COMMENT", "/test small")
    assert Forge().events() == [CommentEvent("/test small")]
    monkeypatch.setenv("COMMENT", "")
    assert Forge().events() == []


def test_the_kind_of_the_webhook_must_be_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EVENT_PATH, str(tmp_path / "event"))
    monkeypatch.setenv(EVENT_FORGE, "gitea")
    with pytest.raises(UsageError, match=r"\$TOPGALLANT_EVENT_FORGE must be github or gitlab, not 'gitea'"):
        Forge().events()


def test_the_name_of_a_build_becomes_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_TAG", "jenkins-my folder/models (all)-12")
    assert Forge().run().id == "jenkins-my-folder-models--all--12"


def test_a_job_cannot_cancel_others() -> None:
    with pytest.raises(UsageError, match="/cancel does not work on Jenkins"):
        Forge().cancel("jenkins-12")
