"""The endpoints of repositories, collaborators, teams, files, activities and pull requests."""

from __future__ import annotations

from http import HTTPStatus

from tests.features.ci.servers.github import account_views, commit_views, issue_views, refusals
from tests.features.ci.servers.github.endpoints import Answer, Call, check_permission, endpoint
from tests.features.ci.servers.github.state import Issue, Role

_MAX_FILES = 3000
_MAX_TREE_ENTRIES = 100_000


@endpoint("GET", "/user", "users/users#get-the-authenticated-user")
def get_user(call: Call) -> Answer:
    """Return the account of the token. The tokens of apps are of no person."""
    if call.account.app:
        raise refusals.forbidden("Resource not accessible by integration")
    return Answer(account_views.public_user(call.site, call.account, call.state.clock.now))


@endpoint("GET", "/orgs/{organization}/teams/{team}/memberships/{user}", "teams/members", "members", is_public=False)
def get_membership(call: Call) -> Answer:
    """Return the membership of a person in a team."""
    check_permission(call)
    team = call.state.teams.get((call.parameters["organization"].lower(), call.parameters["team"].lower()))
    person = call.state.find_account(call.parameters["user"])
    if team is None or person is None or person.login not in team.members:
        raise refusals.not_found()
    return Answer(account_views.membership(call.site, team, person.login))


@endpoint("GET", "/repos/{owner}/{repo}", "repos/repos#get-a-repository", "metadata")
def get_repository(call: Call) -> Answer:
    """Return the repository."""
    repository = call.repository
    forks = sum(one.parent is repository for one in call.state.repositories.values())
    role = repository.role_of(call.token.account) if call.token else Role.read
    return Answer(account_views.full_repository(call.site, repository, role, forks=forks))


@endpoint(
    "GET",
    "/repos/{owner}/{repo}/collaborators/{user}/permission",
    "collaborators/collaborators#get-repository-permissions-for-a-user",
    "metadata",
    is_public=False,
)
def get_permission(call: Call) -> Answer:
    """Return the permission of a person, which only clients with write access may see."""
    person, repository = call.state.find_account(call.parameters["user"]), call.repository
    if not call.account.app and repository.role_of(call.account) < Role.write:
        raise refusals.forbidden("Must have push access to view collaborator permission.")
    if person is None:
        message = f"{call.parameters['user']} is not a user"
        raise refusals.ApiError(HTTPStatus.NOT_FOUND, message)
    role = repository.role_of(person)
    return Answer(account_views.collaborator_permission(call.site, person, role))


@endpoint("GET", "/repos/{owner}/{repo}/contents/{path}", "repos/contents#get-repository-content", "contents")
def get_contents(call: Call) -> Answer:
    """Return a file, or the files of a directory."""
    repository, path = call.repository, call.parameters["path"].strip("/")
    ref = call.query.get("ref", repository.default_branch)
    commit = call.find_commit(ref)
    if commit is None:
        raise refusals.ApiError(HTTPStatus.NOT_FOUND, f"No commit found for the ref {ref}")
    if path in commit.files:
        return Answer(commit_views.content_file(call.site, repository, ref, path, commit.files[path]))
    files = {name: content for name, content in commit.files.items() if name.rpartition("/")[0] == path}
    if not files:
        raise refusals.not_found()
    return Answer(commit_views.content_directory(call.site, repository, ref, files))


@endpoint("GET", "/repos/{owner}/{repo}/git/trees/{tree}", "git/trees#get-a-tree", "contents")
def get_tree(call: Call) -> Answer:
    """Return all files and directories of a commit; only the recursive list is modelled."""
    commit = call.find_commit(call.parameters["tree"])
    if commit is None or "recursive" not in call.query:
        raise refusals.not_found()
    return Answer(commit_views.tree(call.site, call.repository, commit, most=_MAX_TREE_ENTRIES))


@endpoint("GET", "/repos/{owner}/{repo}/commits/{ref}", "commits/commits#get-a-commit", "contents")
def get_commit(call: Call) -> Answer:
    """Return a commit with its changes."""
    commit = call.find_commit(call.parameters["ref"])
    if commit is None:
        raise refusals.unprocessable(f"No commit found for SHA: {call.parameters['ref']}")
    return Answer(issue_views.commit(call.site, call.state, call.repository, commit))


@endpoint("GET", "/repos/{owner}/{repo}/activity", "repos/repos#list-repository-activities", "contents")
def list_activities(call: Call) -> Answer:
    """List the changes of branches, the newest first."""
    found = list(call.repository.activities)
    if "ref" in call.query:
        ref = f"refs/heads/{call.query['ref'].removeprefix('refs/heads/')}"
        found = [one for one in found if one.ref == ref]
    if "activity_type" in call.query:
        found = [one for one in found if one.kind == call.query["activity_type"]]
    if "actor" in call.query:
        found = [one for one in found if one.account.login == call.query["actor"]]
    found.sort(key=lambda one: (one.time, one.id), reverse=call.query.get("direction") != "asc")
    return call.page(found, lambda one: commit_views.activity(call.site, one))


def _pull_request(call: Call) -> Issue:
    if call.issue.pull is None:
        raise refusals.not_found()
    return call.issue


@endpoint("GET", "/repos/{owner}/{repo}/pulls/{number}", "pulls/pulls#get-a-pull-request", "pull_requests")
def get_pull_request(call: Call) -> Answer:
    """Return a pull request."""
    return Answer(issue_views.pull_request(call.site, call.state, call.repository, _pull_request(call)))


@endpoint("GET", "/repos/{owner}/{repo}/pulls/{number}/files", "pulls/pulls#list-pull-requests-files", "pull_requests")
def list_files(call: Call) -> Answer:
    """List the files of a pull request; GitHub lists at most 3000."""
    pull = _pull_request(call).pull
    assert pull is not None
    changes = issue_views.file_changes(call.state, pull)[:_MAX_FILES]
    return call.page(changes, lambda one: issue_views.changed_file(call.site, call.repository, pull.head_sha, one))
