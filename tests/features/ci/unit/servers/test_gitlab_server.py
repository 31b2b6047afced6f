"""The test server of GitLab's API answers as GitLab's documentation and public reports describe it."""

from __future__ import annotations

from collections.abc import Iterator

import gitlab as official
import pytest

from tests.features.ci.servers import gitlab

NOTES = "/projects/group%2Fname/merge_requests/1/notes"


@pytest.fixture
def server() -> Iterator[gitlab.Server]:
    """Yield a server with the merge request 1."""
    with gitlab.serving() as running:
        running.add_user("alice", gitlab.DEVELOPER)
        running.push("topic", {"model.py": "steps = 1"}, by="alice")
        running.open_merge_request("topic", by="alice")
        yield running


def client(server: gitlab.Server, level: int = gitlab.DEVELOPER, scope: str = "api") -> official.Gitlab:
    token = server.add_token("bot", level, scope)
    return official.Gitlab(server.url.removesuffix("/api/v4"), private_token=token)


def test_the_objects_of_the_official_library_can_be_read(server: gitlab.Server) -> None:
    server.comment(1, "alice", "/test small")
    request = client(server).projects.get("group/name", lazy=True).mergerequests.get(1)
    (version,) = request.diffs.list(get_all=True)
    assert request.state == "opened"
    assert request.sha == version.head_commit_sha == server.head(1)
    assert [note.body for note in request.notes.list(get_all=True)] == ["/test small"]


def test_lists_have_pages_that_the_headers_link(server: gitlab.Server) -> None:
    for number in range(45):
        server.comment(1, "alice", str(number))
    listed = client(server).http_list(NOTES, {"sort": "asc"}, iterator=True)
    assert not isinstance(listed, list)
    assert (listed.total, listed.total_pages, listed.per_page, listed.next_page) == (45, 3, 20, 2)
    assert [note["body"] for note in listed] == [str(number) for number in range(45)]


def test_a_token_has_its_scope_and_a_person_an_access_level(server: gitlab.Server) -> None:
    with pytest.raises(official.GitlabHttpError, match="insufficient_scope"):
        client(server, scope="read_api").http_post(NOTES, post_data={"body": "x"})
    path = f"/projects/7/statuses/{server.head(1)}"
    with pytest.raises(official.GitlabHttpError, match="403 Forbidden"):
        client(server, gitlab.REPORTER).http_post(path, post_data={"state": "success"})
    server.state.tokens.clear()
    with pytest.raises(official.GitlabAuthenticationError, match="401 Unauthorized"):
        official.Gitlab(server.url.removesuffix("/api/v4"), private_token="x").http_get("/user")


def test_only_the_author_changes_a_note(server: gitlab.Server) -> None:
    note = server.comment(1, "alice", "mine")
    with pytest.raises(official.GitlabHttpError, match="403 Forbidden"):
        client(server).http_put(f"{NOTES}/{note.id}", post_data={"body": "x"})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/projects/9/merge_requests/1", "404 Project Not Found"),
        ("/projects/7/merge_requests/2", "404 Not Found"),
        (f"{NOTES}/1", "404 Note Not Found"),
        ("/projects/7/repository/branches/x", "404 Branch Not Found"),
        ("/projects/7/repository/files/x/raw", "404 File Not Found"),
        ("/groups/x/members/all/1", "404 Group Not Found"),
        ("/no/such/endpoint", "404 Not Found"),
    ],
)
def test_what_does_not_exist_is_not_found(server: gitlab.Server, path: str, message: str) -> None:
    with pytest.raises(official.GitlabHttpError, match=message):
        client(server).http_get(path)


def test_a_pending_status_cannot_become_pending_again(server: gitlab.Server) -> None:
    path, api = f"/projects/7/statuses/{server.head(1)}", client(server)
    api.http_post(path, post_data={"state": "pending", "name": "x"})
    with pytest.raises(official.GitlabHttpError, match="Cannot transition status via :enqueue from :pending"):
        api.http_post(path, post_data={"state": "pending", "name": "x"})
    api.http_post(path, post_data={"state": "failed", "name": "x"})
    api.http_post(path, post_data={"state": "pending", "name": "x"})
    assert [status.state for status in server.statuses(server.head(1))] == ["failed", "pending"]
