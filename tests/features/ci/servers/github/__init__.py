"""A test server of the used parts of GitHub's REST API, in this process on loopback.

Its clients are PyGithub and any other HTTP client. The tests of the server compare its answers and events with the
schema that GitHub publishes.

    with github.serving() as server:
        server.add_user("alice", "write")
        server.push("feature", {"model.py": "steps = 1"}, by="alice")
        number = server.open_pull_request("feature", by="alice")
        event = events.issue_comment(server, server.comment(number, "alice", "/test training_e2e"))
        variables = events.start(server, event, directory)  # GITHUB_EVENT_PATH, GITHUB_API_URL and so on
        token = server.add_token(pull_requests="write", checks="write")
        server.faults.add("POST", "*/comments", github.secondary_rate_limit(), times=2)
        ...
        assert [comment.body for comment in server.comments(number)] == ["passed"]

What is modelled, with the pages below https://docs.github.com/ in brackets
- Repositories, forks, commits, files and activities [rest/repos/repos, rest/repos/contents, rest/commits/commits];
  pull requests, their files, force pushes and drafts [rest/pulls/pulls]; people, teams and permissions, where
  `permission` has the legacy names and `role_name` the roles [rest/collaborators/collaborators, rest/teams/members].
- Issues, comments, labels and reactions [rest/issues, rest/reactions/reactions]; check runs with at most 50 annotations
  a request [rest/checks/runs]; statuses [rest/commits/statuses]; runs of workflows and artifacts [rest/actions].
- Tokens: of apps (also $GITHUB_TOKEN), fine-grained and classic, with the permissions of
  [rest/authentication/permissions-required-for-github-apps]. A private repository does not exist for strangers.
- Errors [rest/using-the-rest-api/troubleshooting-the-rest-api], pages with the header `link`
  [rest/using-the-rest-api/using-pagination-in-the-rest-api], rate limits
  [rest/using-the-rest-api/rate-limits-for-the-rest-api], and the version 2022-11-28 of the API.
- Faults: see `faults.py`. Events and variables of GitHub Actions: see `events.py`.

What is not modelled
- GraphQL, reviews, milestones, assignees, organizations' settings, tags, redirects of renamed repositories, conditional
  requests, media types other than JSON, the contents of artifacts and logs, the hidden limits of the rate of writing.
- Merge commits: `refs/pull/N/merge` has an id but no content. A commit has at most one parent. All repositories of a
  server share their commits, as a repository and its forks do.
- Workflows are not executed: `start_workflow` and `finish_workflow` change the list of runs. A cancelled run ends at
  once.

Assumptions, where the documentation is silent
- A bot may not change the comment of another account: 403 "Resource not accessible by integration". GitHub may permit
  this to an app with write permission, so that a client that relies on the refusal or on the permission is wrong.
- A person without the necessary role gets 403 "Must have admin rights to Repository." for all actions.
- Labels that do not exist are created when a client with write access sets them on an issue.
- A permission to write pull requests does not permit changes of plain issues.
- The list of activities has numbered pages; GitHub gives cursors, which a client must also take from `link`.
- The wording of errors, except for those of limits, rate limits and permissions, which public reports show.
"""

from __future__ import annotations

from tests.features.ci.servers.github.faults import (
    Fault,
    dropped_connection,
    primary_rate_limit,
    secondary_rate_limit,
    server_error,
    slow,
)
from tests.features.ci.servers.github.github_server import Server, serving

__all__ = [
    "Fault",
    "Server",
    "dropped_connection",
    "primary_rate_limit",
    "secondary_rate_limit",
    "server_error",
    "serving",
    "slow",
]
