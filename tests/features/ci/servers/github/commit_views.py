"""The JSON of commits, activities, files, check runs, statuses, and runs of workflows with their artifacts."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.features.ci.servers.github import account_views
from tests.features.ci.servers.github.account_views import Json, Site, node_id, optional_time, time_text
from tests.features.ci.servers.github.state import (
    Activity,
    Artifact,
    CheckRun,
    Commit,
    Issue,
    Repository,
    Status,
    WorkflowRun,
    object_id,
)

_LARGEST_FILE: Final = 1 << 20
_ARTIFACT_LIFE: Final = dt.timedelta(days=90)


def email(commit: Commit) -> str:
    """Return the address that GitHub gives to an account."""
    return f"{commit.author.id}+{commit.author.login}@users.noreply.github.com"


def tree_id(commit: Commit) -> str:
    """Return an id for the tree of a commit, which is not the one that git would give."""
    return object_id("tree", repr(sorted(commit.files.items())).encode())


def simple_commit(commit: Commit) -> Json:
    """Return a commit as a part of a workflow run: the schema `simple-commit`."""
    person = {"name": commit.author.login, "email": email(commit)}
    return {
        "id": commit.sha,
        "tree_id": tree_id(commit),
        "message": commit.message,
        "timestamp": time_text(commit.time),
        "author": person,
        "committer": person,
    }


def activity(site: Site, shown: Activity) -> Json:
    """Return a change of a branch."""
    return {
        "id": shown.id,
        "node_id": node_id("PSH", shown.id),
        "before": shown.before,
        "after": shown.after,
        "ref": shown.ref,
        "timestamp": time_text(shown.time),
        "activity_type": shown.kind,
        "actor": account_views.account(site, shown.account),
    }


def content_file(site: Site, repository: Repository, ref: str, path: str, content: bytes) -> Json:
    """Return a file: the schema `content-file`. Files above 1 MiB have no content."""
    fits = len(content) <= _LARGEST_FILE
    encoded = base64.encodebytes(content).decode() if fits else ""
    return {
        **_content_facts(site, repository, ref, path, object_id("blob", content), "file"),
        "size": len(content),
        "content": encoded,
        "encoding": "base64" if fits else "none",
    }


def content_directory(site: Site, repository: Repository, ref: str, files: Mapping[str, bytes]) -> Sequence[Json]:
    """Return the entries of a directory; `files` has the paths of all files below the directory's entries."""
    return [
        {**_content_facts(site, repository, ref, path, object_id("blob", content), "file"), "size": len(content)}
        for path, content in sorted(files.items())
    ]


def tree(site: Site, repository: Repository, commit: Commit, *, most: int) -> Json:
    """Return all files and directories of a commit: the schema `git-tree`.

    Args:
        most: the number of entries after which the list is truncated.
    """
    directories = {parent for path in commit.files for parent in _parents(path)}
    entries = [_tree_entry(site, repository, path, commit.files.get(path)) for path in {*directories, *commit.files}]
    entries.sort(key=lambda entry: str(entry["path"]))
    url = f"{site.repository(repository)}/git/trees/{tree_id(commit)}"
    return {"sha": tree_id(commit), "url": url, "tree": entries[:most], "truncated": len(entries) > most}


def _parents(path: str) -> Sequence[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _tree_entry(site: Site, repository: Repository, path: str, content: bytes | None) -> Json:
    kind = "tree" if content is None else "blob"
    sha = object_id(kind, path.encode() if content is None else content)
    mode = "040000" if content is None else "100644"
    url = f"{site.repository(repository)}/git/{kind}s/{sha}"
    size = {} if content is None else {"size": len(content)}
    return {"path": path, "mode": mode, "type": kind, "sha": sha, "url": url, **size}


def _content_facts(site: Site, repository: Repository, ref: str, path: str, sha: str, kind: str) -> Json:
    url = f"{site.repository(repository)}/contents/{path}?ref={ref}"
    git = f"{site.repository(repository)}/git/blobs/{sha}"
    page = f"{site.page(repository)}/blob/{ref}/{path}"
    return {
        "name": path.rpartition("/")[2],
        "path": path,
        "sha": sha,
        "type": kind,
        "url": url,
        "html_url": page,
        "git_url": git,
        "download_url": f"https://raw.githubusercontent.com/{repository.full_name}/{ref}/{path}",
        "_links": {"self": url, "git": git, "html": page},
    }


def check_run(site: Site, repository: Repository, shown: CheckRun) -> Json:
    """Return a check run."""
    url = f"{site.repository(repository)}/check-runs/{shown.id}"
    page = f"{site.page(repository)}/runs/{shown.id}"
    output = {name: shown.output.get(name) for name in ("title", "summary", "text")}
    pulls = [
        minimal_pull_request(site, repository, issue)
        for issue in repository.issues.values()
        if issue.pull and issue.state == "open" and issue.pull.head_sha == shown.head_sha
    ]
    return {
        "id": shown.id,
        "name": shown.name,
        "node_id": node_id("CR", shown.id),
        "head_sha": shown.head_sha,
        "external_id": shown.external_id,
        "url": url,
        "html_url": page,
        "details_url": shown.details_url or page,
        "status": shown.status,
        "conclusion": shown.conclusion,
        "started_at": optional_time(shown.started),
        "completed_at": optional_time(shown.completed),
        "output": {
            **output,
            "annotations_count": len(shown.annotations),
            "annotations_url": f"{url}/annotations",
        },
        "check_suite": {"id": shown.suite},
        "app": account_views.app(site, shown.app),
        "pull_requests": pulls,
    }


def annotation(site: Site, repository: Repository, run: CheckRun, shown: Mapping[str, Any]) -> Json:
    """Return an annotation of a check run."""
    names = ("path", "start_line", "end_line", "start_column", "end_column", "annotation_level", "title", "message")
    blob = f"{site.page(repository)}/blob/{run.head_sha}/{shown['path']}"
    return {**{name: shown.get(name) for name in names}, "raw_details": shown.get("raw_details"), "blob_href": blob}


def minimal_pull_request(site: Site, repository: Repository, issue: Issue) -> Json:
    """Return a pull request as a part of a check run or of a workflow run."""
    assert issue.pull is not None
    pull, root = issue.pull, site.repository(repository)
    head = pull.head or repository
    return {
        "id": pull.id,
        "number": issue.number,
        "url": f"{root}/pulls/{issue.number}",
        "head": {"ref": pull.head_branch, "sha": pull.head_sha, "repo": _minimal(site, head)},
        "base": {"ref": pull.base_branch, "sha": pull.base_sha, "repo": _minimal(site, repository)},
    }


def _minimal(site: Site, repository: Repository) -> Json:
    return {"id": repository.id, "url": site.repository(repository), "name": repository.name}


def status(site: Site, repository: Repository, shown: Status) -> Json:
    """Return a status of a commit."""
    return {
        **simple_status(site, repository, shown),
        "creator": account_views.account(site, shown.creator),
    }


def simple_status(site: Site, repository: Repository, shown: Status) -> Json:
    """Return a status as a part of the combined status."""
    return {
        "url": f"{site.repository(repository)}/statuses/{shown.sha}",
        "avatar_url": f"https://avatars.githubusercontent.com/u/{shown.creator.id}?v=4",
        "id": shown.id,
        "node_id": node_id("SC", shown.id),
        "state": shown.state,
        "description": shown.description,
        "target_url": shown.target_url,
        "context": shown.context,
        "created_at": time_text(shown.created),
        "updated_at": time_text(shown.created),
    }


def workflow_run(site: Site, repository: Repository, shown: WorkflowRun, commit: Commit) -> Json:
    """Return a run of a workflow."""
    root = site.repository(repository)
    url = f"{root}/actions/runs/{shown.id}"
    suite, workflow = shown.id + 1_000_000, int(hashlib.sha256(shown.path.encode()).hexdigest()[:8], 16)
    actor = account_views.account(site, shown.actor)
    return {
        "id": shown.id,
        "name": shown.workflow,
        "node_id": node_id("WFR", shown.id),
        "head_branch": shown.head_branch,
        "head_sha": shown.head_sha,
        "path": shown.path,
        "display_title": commit.message,
        "run_number": shown.number,
        "run_attempt": shown.attempt,
        "event": shown.event,
        "status": shown.status,
        "conclusion": shown.conclusion,
        "workflow_id": workflow,
        "check_suite_id": suite,
        "check_suite_node_id": node_id("CS", suite),
        "url": url,
        "html_url": f"{site.page(repository)}/actions/runs/{shown.id}",
        "pull_requests": [],
        "created_at": time_text(shown.created),
        "updated_at": time_text(shown.updated),
        "run_started_at": time_text(shown.created),
        "actor": actor,
        "triggering_actor": actor,
        "referenced_workflows": [],
        "jobs_url": f"{url}/jobs",
        "logs_url": f"{url}/logs",
        "check_suite_url": f"{root}/check-suites/{suite}",
        "artifacts_url": f"{url}/artifacts",
        "cancel_url": f"{url}/cancel",
        "rerun_url": f"{url}/rerun",
        "previous_attempt_url": None,
        "workflow_url": f"{root}/actions/workflows/{workflow}",
        "head_commit": simple_commit(commit),
        "repository": account_views.minimal_repository(site, repository),
        "head_repository": account_views.minimal_repository(site, repository),
    }


def artifact(site: Site, repository: Repository, run: WorkflowRun, shown: Artifact) -> Json:
    """Return an artifact."""
    url = f"{site.repository(repository)}/actions/artifacts/{shown.id}"
    return {
        "id": shown.id,
        "node_id": node_id("MDg", shown.id),
        "name": shown.name,
        "size_in_bytes": len(shown.content),
        "url": url,
        "archive_download_url": f"{url}/zip",
        "expired": shown.is_expired,
        "digest": f"sha256:{hashlib.sha256(shown.content).hexdigest()}",
        "created_at": time_text(shown.created),
        "updated_at": time_text(shown.created),
        "expires_at": time_text(shown.created + _ARTIFACT_LIFE),
        "workflow_run": {
            "id": run.id,
            "repository_id": repository.id,
            "head_repository_id": repository.id,
            "head_branch": run.head_branch,
            "head_sha": run.head_sha,
        },
    }
