"""The JSON of accounts, apps, teams and repositories."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.features.ci.servers.github.state import Account, App, Repository, Role, Team

Json = dict[str, Any]

WEB: Final = "https://github.com"
_USER_LINKS: Final = {
    "followers_url": "/followers",
    "following_url": "/following{/other_user}",
    "gists_url": "/gists{/gist_id}",
    "starred_url": "/starred{/owner}{/repo}",
    "subscriptions_url": "/subscriptions",
    "organizations_url": "/orgs",
    "repos_url": "/repos",
    "events_url": "/events{/privacy}",
    "received_events_url": "/received_events",
}
_REPOSITORY_LINKS: Final = {
    "archive_url": "/{archive_format}{/ref}",
    "assignees_url": "/assignees{/user}",
    "blobs_url": "/git/blobs{/sha}",
    "branches_url": "/branches{/branch}",
    "collaborators_url": "/collaborators{/collaborator}",
    "comments_url": "/comments{/number}",
    "commits_url": "/commits{/sha}",
    "compare_url": "/compare/{base}...{head}",
    "contents_url": "/contents/{+path}",
    "contributors_url": "/contributors",
    "deployments_url": "/deployments",
    "downloads_url": "/downloads",
    "events_url": "/events",
    "forks_url": "/forks",
    "git_commits_url": "/git/commits{/sha}",
    "git_refs_url": "/git/refs{/sha}",
    "git_tags_url": "/git/tags{/sha}",
    "hooks_url": "/hooks",
    "issue_comment_url": "/issues/comments{/number}",
    "issue_events_url": "/issues/events{/number}",
    "issues_url": "/issues{/number}",
    "keys_url": "/keys{/key_id}",
    "labels_url": "/labels{/name}",
    "languages_url": "/languages",
    "merges_url": "/merges",
    "milestones_url": "/milestones{/number}",
    "notifications_url": "/notifications{?since,all,participating}",
    "pulls_url": "/pulls{/number}",
    "releases_url": "/releases{/id}",
    "stargazers_url": "/stargazers",
    "statuses_url": "/statuses/{sha}",
    "subscribers_url": "/subscribers",
    "subscription_url": "/subscription",
    "tags_url": "/tags",
    "teams_url": "/teams",
    "trees_url": "/git/trees{/sha}",
}


@dataclass(frozen=True, slots=True)
class Site:
    """The addresses of the server.

    Args:
        api: the address of the API, which $GITHUB_API_URL names.
    """

    api: str

    def repository(self, repository: Repository) -> str:
        """Return the address of a repository in the API."""
        return f"{self.api}/repos/{repository.full_name}"

    def page(self, repository: Repository) -> str:
        """Return the address of the page of a repository."""
        return f"{WEB}/{repository.full_name}"


def time_text(time: dt.datetime) -> str:
    """Return a time as the API writes it."""
    return time.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def optional_time(time: dt.datetime | None) -> str | None:
    """Return a time as the API writes it, or None."""
    return time_text(time) if time else None


def node_id(prefix: str, number: int) -> str:
    """Return the id of an object in the GraphQL API, which clients must not interpret."""
    return f"{prefix}_kwDO{number:08x}"


def account(site: Site, shown: Account) -> Json:
    """Return an account: the schema `simple-user`."""
    url = f"{site.api}/users/{shown.login}"
    page = f"{WEB}/apps/{shown.app.slug}" if shown.app else f"{WEB}/{shown.login}"
    return {
        "login": shown.login,
        "id": shown.id,
        "node_id": node_id("U", shown.id),
        "avatar_url": f"https://avatars.githubusercontent.com/u/{shown.id}?v=4",
        "gravatar_id": "",
        "url": url,
        "html_url": page,
        **{name: url + path for name, path in _USER_LINKS.items()},
        "type": shown.kind,
        "user_view_type": "public",
        "site_admin": False,
    }


def public_user(site: Site, shown: Account, time: dt.datetime) -> Json:
    """Return the account of a token: the schema `public-user`."""
    empty = ("name", "company", "location", "email", "hireable", "bio")
    counts = ("public_repos", "public_gists", "followers", "following")
    return {
        **account(site, shown),
        **dict.fromkeys(empty),
        "blog": "",
        **dict.fromkeys(counts, 0),
        "created_at": time_text(time),
        "updated_at": time_text(time),
    }


def app(site: Site, shown: App) -> Json:
    """Return an app: the schema `integration`."""
    return {
        "id": shown.id,
        "client_id": f"Iv1.{shown.id:016x}",
        "slug": shown.slug,
        "node_id": node_id("A", shown.id),
        "owner": account(site, shown.owner),
        "name": shown.name,
        "description": "",
        "external_url": "https://help.github.com/en/actions",
        "html_url": f"{WEB}/apps/{shown.slug}",
        "created_at": time_text(shown.created),
        "updated_at": time_text(shown.created),
        "permissions": {"checks": "write", "contents": "write", "issues": "write", "metadata": "read"},
        "events": ["check_run", "check_suite", "issue_comment", "pull_request", "push"],
    }


def optional_app(site: Site, shown: App | None) -> Json | None:
    """Return an app or None."""
    return app(site, shown) if shown else None


def collaborator_permission(site: Site, shown: Account, role: Role) -> Json:
    """Return a permission, which knows neither `maintain` nor `triage`: only `role_name` does."""
    permission = {"maintain": "write", "triage": "read"}.get(role.name, role.name)
    user = {**account(site, shown), "permissions": role_permissions(role), "role_name": role.name}
    return {"permission": permission, "user": user, "role_name": role.name}


def role_permissions(role: Role) -> Mapping[str, bool]:
    """Return what a role permits, by the names of the API."""
    names = {"admin": Role.admin, "maintain": Role.maintain, "push": Role.write, "triage": Role.triage}
    return {name: role >= least for name, least in names.items()} | {"pull": role >= Role.read}


def membership(site: Site, team: Team, login: str) -> Json:
    """Return the membership of a person in a team."""
    url = f"{site.api}/organizations/{team.organization.id}/team/{team.id}/memberships/{login}"
    return {"state": "active", "role": team.members[login], "url": url}


def minimal_repository(site: Site, shown: Repository) -> Json:
    """Return a repository as a part of another object: the schema `minimal-repository`."""
    url = site.repository(shown)
    return {
        "id": shown.id,
        "node_id": node_id("R", shown.id),
        "name": shown.name,
        "full_name": shown.full_name,
        "private": shown.is_private,
        "owner": account(site, shown.owner),
        "html_url": site.page(shown),
        "description": None,
        "fork": shown.parent is not None,
        "url": url,
        **{name: url + path for name, path in _REPOSITORY_LINKS.items()},
    }


def repository(site: Site, shown: Repository, *, forks: int = 0) -> Json:
    """Return a repository: the schema `repository`, without the fields that depend on the token."""
    page, open_issues = site.page(shown), sum(issue.state == "open" for issue in shown.issues.values())
    return {
        **minimal_repository(site, shown),
        "created_at": time_text(shown.created),
        "updated_at": time_text(shown.pushed),
        "pushed_at": time_text(shown.pushed),
        "git_url": f"git://github.com/{shown.full_name}.git",
        "ssh_url": f"git@github.com:{shown.full_name}.git",
        "clone_url": f"{page}.git",
        "svn_url": page,
        "mirror_url": None,
        "homepage": None,
        "language": None,
        "license": None,
        "size": 0,
        "stargazers_count": 0,
        "watchers_count": 0,
        "watchers": 0,
        "forks_count": forks,
        "forks": forks,
        "open_issues_count": open_issues,
        "open_issues": open_issues,
        "has_issues": shown.parent is None,
        "has_projects": True,
        "has_downloads": True,
        "has_wiki": True,
        "has_pages": False,
        "has_discussions": False,
        "archived": False,
        "disabled": False,
        "allow_forking": True,
        "is_template": False,
        "web_commit_signoff_required": False,
        "topics": [],
        "visibility": "private" if shown.is_private else "public",
        "default_branch": shown.default_branch,
    }


def full_repository(site: Site, shown: Repository, role: Role, *, forks: int) -> Json:
    """Return a repository: the schema `full-repository`."""
    parent = repository(site, shown.parent) if shown.parent else None
    family = {"parent": parent, "source": parent} if parent else {}
    organization = {"organization": account(site, shown.owner)} if shown.owner.kind == "Organization" else {}
    return {
        **repository(site, shown, forks=forks),
        "permissions": role_permissions(role),
        "temp_clone_token": None,
        "subscribers_count": 0,
        "network_count": forks,
        **organization,
        **family,
    }
