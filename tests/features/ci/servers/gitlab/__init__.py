"""A test server of the used parts of GitLab's REST API (version 4), in this process on loopback.

Its client is python-gitlab.

    with gitlab.serving() as server:
        server.add_user("alice", gitlab.DEVELOPER)
        server.push("feature", by="alice")
        number = server.open_merge_request("feature", by="alice")
        payload = server.note_event(server.comment(number, "alice", "/test training_e2e"))
        token = server.add_token("project_7_bot", gitlab.DEVELOPER)
        server.faults.add("POST", "*/notes", github.server_error(), times=2)
        ...
        assert [note.body for note in server.notes(number)][-1] == "passed"

What is modelled, with the pages below https://docs.gitlab.com/api/ in brackets
- Members of a project and of groups with access levels, also inherited ones [members], users [users], tokens with the
  scopes `api` and `read_api` [rest/authentication].
- Merge requests with the versions that pushes make [merge_requests], notes [notes], branches [branches], files
  [repository_files], pipelines and their cancellation [pipelines], statuses with the refused transitions [commits].
- Pages, with the headers `x-next-page`, `x-total` and `link` [rest/#pagination]; the errors 400, 401, 403 and 404.
- The event of a comment, as a webhook sends it [../user/project/integrations/webhook_events/#comment-events].
- Faults: those of the test server of GitHub.

What is not modelled
- Other kinds of notes (threads, reviews), confidential notes, private projects, keyset pagination, GraphQL, and the
  content of pipelines. A cancelled pipeline ends at once.

Assumptions, where the documentation is silent
- A token with the scope `read_api` gets 403 with `insufficient_scope` for all methods except GET.
- A person without the necessary access level gets 403 "403 Forbidden".
- A new status with a name that a running or pending status of the commit has changes this status. A transition to the
  same state is refused with 400, as many public reports show.
"""

from __future__ import annotations

from tests.features.ci.servers.gitlab.gitlab_server import Server, serving
from tests.features.ci.servers.gitlab.gitlab_state import DEVELOPER, GUEST, MAINTAINER, REPORTER

__all__ = ["DEVELOPER", "GUEST", "MAINTAINER", "REPORTER", "Server", "serving"]
