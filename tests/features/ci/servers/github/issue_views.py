"""The JSON of issues, pull requests, labels, comments and reactions."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.features.ci.servers.github import account_views, commit_views
from tests.features.ci.servers.github.account_views import Json, Site, node_id, optional_app, optional_time, time_text
from tests.features.ci.servers.github.state import (
    Account,
    Comment,
    Commit,
    Issue,
    Label,
    Pull,
    Reaction,
    Repository,
    Role,
    State,
    object_id,
)

REACTIONS: Final = ("+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes")


def association(repository: Repository, account: Account) -> str:
    """Return how an account is associated with a repository, as far as the server knows."""
    if account is repository.owner:
        return "OWNER"
    is_member = repository.owner.kind == "Organization" and repository.roles.get(account.login, Role.none) > Role.read
    if account.kind == "User" and account.login in repository.roles:
        return "MEMBER" if is_member else "COLLABORATOR"
    return "NONE"


def label(site: Site, repository: Repository, shown: Label) -> Json:
    """Return a label."""
    return {
        "id": shown.id,
        "node_id": node_id("LA", shown.id),
        "url": f"{site.repository(repository)}/labels/{shown.name}",
        "name": shown.name,
        "color": shown.color,
        "default": False,
        "description": shown.description,
        "archived_at": None,
        "archived_by": None,
    }


def reaction(site: Site, shown: Reaction) -> Json:
    """Return a reaction."""
    return {
        "id": shown.id,
        "node_id": node_id("REA", shown.id),
        "user": account_views.account(site, shown.account),
        "content": shown.content,
        "created_at": time_text(shown.created),
    }


def _rollup(url: str, reactions: Sequence[Reaction]) -> Json:
    counts = Counter(one.content for one in reactions)
    each = {content: counts[content] for content in REACTIONS}
    return {"url": f"{url}/reactions", "total_count": len(reactions), **each}


def comment(site: Site, repository: Repository, shown: Comment) -> Json:
    """Return a comment: the schema `issue-comment`."""
    url = f"{site.repository(repository)}/issues/comments/{shown.id}"
    return {
        "url": url,
        "html_url": f"{_page(site, repository, shown.issue)}#issuecomment-{shown.id}",
        "issue_url": f"{site.repository(repository)}/issues/{shown.issue.number}",
        "id": shown.id,
        "node_id": node_id("IC", shown.id),
        "user": account_views.account(site, shown.author),
        "created_at": time_text(shown.created),
        "updated_at": time_text(shown.updated),
        "author_association": association(repository, shown.author),
        "body": shown.body,
        "reactions": _rollup(url, shown.reactions),
        "performed_via_github_app": optional_app(site, shown.app),
    }


def issue(site: Site, repository: Repository, shown: Issue) -> Json:
    """Return an issue or a pull request: the schema `issue`."""
    url = f"{site.repository(repository)}/issues/{shown.number}"
    pull = {"pull_request": _pull_links(site, repository, shown), "draft": shown.pull.is_draft} if shown.pull else {}
    return {
        "url": url,
        "repository_url": site.repository(repository),
        "labels_url": f"{url}/labels{{/name}}",
        "comments_url": f"{url}/comments",
        "events_url": f"{url}/events",
        "html_url": _page(site, repository, shown),
        "id": shown.id,
        "node_id": node_id("I", shown.id),
        "number": shown.number,
        "title": shown.title,
        "user": account_views.account(site, shown.author),
        "labels": [label(site, repository, one) for one in shown.labels],
        "state": shown.state,
        "locked": shown.is_locked,
        "assignee": None,
        "assignees": [],
        "milestone": None,
        "comments": _count_comments(repository, shown),
        "created_at": time_text(shown.created),
        "updated_at": time_text(shown.updated),
        "closed_at": optional_time(shown.closed),
        "author_association": association(repository, shown.author),
        "active_lock_reason": None,
        "body": shown.body,
        "closed_by": account_views.account(site, shown.closed_by) if shown.closed_by else None,
        "reactions": _rollup(url, []),
        "timeline_url": f"{url}/timeline",
        "performed_via_github_app": optional_app(site, shown.app),
        "state_reason": shown.state_reason,
        **pull,
    }


def _pull_links(site: Site, repository: Repository, shown: Issue) -> Json:
    page = _page(site, repository, shown)
    return {
        "url": f"{site.repository(repository)}/pulls/{shown.number}",
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "merged_at": optional_time(shown.pull.merged if shown.pull else None),
    }


def pull_request(site: Site, state: State, repository: Repository, shown: Issue) -> Json:
    """Return a pull request: the schema `pull-request`."""
    assert shown.pull is not None
    pull, root = shown.pull, site.repository(repository)
    url, issue_url, page = (
        f"{root}/pulls/{shown.number}",
        f"{root}/issues/{shown.number}",
        _page(site, repository, shown),
    )
    changes = file_changes(state, pull)
    links = {
        "self": url,
        "html": page,
        "issue": issue_url,
        "comments": f"{issue_url}/comments",
        "review_comments": f"{url}/comments",
        "review_comment": f"{root}/pulls/comments{{/number}}",
        "commits": f"{url}/commits",
        "statuses": f"{root}/statuses/{pull.head_sha}",
    }
    addresses = {f"{name}_url": link for name, link in links.items() if name not in ("self", "html", "issue")}
    is_open = shown.state == "open"
    return {
        "url": url,
        "id": pull.id,
        "node_id": node_id("PR", pull.id),
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "issue_url": issue_url,
        **addresses,
        "number": shown.number,
        "state": shown.state,
        "locked": shown.is_locked,
        "title": shown.title,
        "user": account_views.account(site, shown.author),
        "body": shown.body,
        "labels": [label(site, repository, one) for one in shown.labels],
        "milestone": None,
        "active_lock_reason": None,
        "created_at": time_text(shown.created),
        "updated_at": time_text(shown.updated),
        "closed_at": optional_time(shown.closed),
        "merged_at": optional_time(pull.merged),
        "merge_commit_sha": merge_commit(pull),
        "assignee": None,
        "assignees": [],
        "requested_reviewers": [],
        "requested_teams": [],
        "head": _head(site, pull),
        "base": _base(site, repository, pull),
        "_links": {name: {"href": link} for name, link in links.items()},
        "author_association": association(repository, shown.author),
        "auto_merge": None,
        "draft": pull.is_draft,
        "merged": pull.merged is not None,
        "mergeable": True if is_open else None,
        "rebaseable": True if is_open else None,
        "mergeable_state": ("draft" if pull.is_draft else "clean") if is_open else "unknown",
        "merged_by": account_views.account(site, pull.merged_by) if pull.merged_by else None,
        "comments": _count_comments(repository, shown),
        "review_comments": 0,
        "maintainer_can_modify": pull.head is not repository,
        "commits": count_commits(state, pull),
        "additions": sum(change.additions for change in changes),
        "deletions": sum(change.deletions for change in changes),
        "changed_files": len(changes),
    }


def merge_commit(pull: Pull) -> str:
    """Return the id of the commit of `refs/pull/N/merge`, which GitHub makes of the base and the head."""
    return object_id("commit", f"merge {pull.head_sha} into {pull.base_sha}".encode())


def count_commits(state: State, pull: Pull) -> int:
    """Return how many commits a pull request has."""
    base = state.merge_base(pull.base_sha, pull.head_sha)
    return next((n for n, commit in enumerate(state.history(pull.head_sha)) if commit.sha == base), 0)


def _head(site: Site, pull: Pull) -> Json:
    return {
        "label": f"{pull.head_owner.login}:{pull.head_branch}",
        "ref": pull.head_branch,
        "sha": pull.head_sha,
        "user": account_views.account(site, pull.head_owner),
        "repo": account_views.repository(site, pull.head) if pull.head else None,
    }


def _base(site: Site, repository: Repository, pull: Pull) -> Json:
    return {
        "label": f"{repository.owner.login}:{pull.base_branch}",
        "ref": pull.base_branch,
        "sha": pull.base_sha,
        "user": account_views.account(site, repository.owner),
        "repo": account_views.repository(site, repository),
    }


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that a pull request changes, with its patch."""

    path: str
    before: bytes | None
    after: bytes | None
    lines: Sequence[str]

    @property
    def status(self) -> str:
        """What happened to the file."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "modified"

    @property
    def additions(self) -> int:
        """How many lines were added."""
        return sum(line.startswith("+") for line in self.lines)

    @property
    def deletions(self) -> int:
        """How many lines were removed."""
        return sum(line.startswith("-") for line in self.lines)


def file_changes(state: State, pull: Pull) -> Sequence[FileChange]:
    """Return the files that differ between the head of a pull request and its merge base, by path."""
    return changes_between(state, state.merge_base(pull.base_sha, pull.head_sha), pull.head_sha)


def changes_between(state: State, base: str | None, head: str) -> Sequence[FileChange]:
    """Return the files that differ between two commits, by path."""
    before = state.commits[base].files if base else {}
    after = state.commits[head].files
    paths = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return [FileChange(path, old := before.get(path), new := after.get(path), _diff(old, new)) for path in paths]


def _diff(before: bytes | None, after: bytes | None) -> Sequence[str]:
    old, new = ((content or b"").decode(errors="replace").splitlines() for content in (before, after))
    return list(difflib.unified_diff(old, new, lineterm=""))[2:]


def changed_file(site: Site, repository: Repository, sha: str, shown: FileChange) -> Json:
    """Return a file that a pull request or a commit changes: the schema `diff-entry`."""
    content = shown.after if shown.after is not None else shown.before
    return {
        "sha": object_id("blob", content or b""),
        "filename": shown.path,
        "status": shown.status,
        "additions": shown.additions,
        "deletions": shown.deletions,
        "changes": shown.additions + shown.deletions,
        "blob_url": f"{site.page(repository)}/blob/{sha}/{shown.path}",
        "raw_url": f"{site.page(repository)}/raw/{sha}/{shown.path}",
        "contents_url": f"{site.repository(repository)}/contents/{shown.path}?ref={sha}",
        "patch": "\n".join(shown.lines),
    }


def commit(site: Site, state: State, repository: Repository, shown: Commit) -> Json:
    """Return a commit with its changes: the schema `commit`."""
    url, page = f"{site.repository(repository)}/commits/{shown.sha}", f"{site.page(repository)}/commit/{shown.sha}"
    changes = changes_between(state, shown.parent, shown.sha)
    person = {"name": shown.author.login, "email": commit_views.email(shown), "date": time_text(shown.time)}
    account = account_views.account(site, shown.author)
    counts = (sum(one.additions for one in changes), sum(one.deletions for one in changes))
    parents = [shown.parent] if shown.parent else []
    root, tree = site.repository(repository), commit_views.tree_id(shown)
    return {
        "sha": shown.sha,
        "node_id": f"C_{shown.sha}",
        "url": url,
        "html_url": page,
        "comments_url": f"{url}/comments",
        "commit": {
            "url": f"{root}/git/commits/{shown.sha}",
            "author": person,
            "committer": person,
            "message": shown.message,
            "tree": {"sha": tree, "url": f"{root}/git/trees/{tree}"},
            "comment_count": 0,
        },
        "author": account,
        "committer": account,
        "parents": [{"sha": sha, "url": f"{root}/commits/{sha}"} for sha in parents],
        "stats": {"additions": counts[0], "deletions": counts[1], "total": sum(counts)},
        "files": [changed_file(site, repository, shown.sha, one) for one in changes],
    }


def _page(site: Site, repository: Repository, shown: Issue) -> str:
    return f"{site.page(repository)}/{'pull' if shown.pull else 'issues'}/{shown.number}"


def _count_comments(repository: Repository, shown: Issue) -> int:
    comments: Iterable[Comment] = repository.comments.values()
    return sum(one.issue is shown for one in comments)
