"""One issue per workflow, found by its label, its author and its marker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.ci.fakes.github_api import FakeApi
from toolbox.features.ci import failure_issue
from toolbox.features.ci.failure_issue import LABEL, Result, WorkflowRun

BOT = {"login": "github-actions[bot]"}
MARKER = "<!-- topgallant-ci: tpu_ci/nightly failures=3 -->"
URL = "https://github.com/owner/name/actions/runs/77"


def run(result: Result = Result.FAILURE, details: str = "") -> WorkflowRun:
    return WorkflowRun("tpu_ci", "nightly", result, URL, "5" * 40, details)


def issue(number: int = 4, body: str | None = f"{MARKER}\nold text", **fields: Any) -> dict[str, Any]:
    return {"number": number, "body": body, "user": BOT, **fields}


def api(*issues: dict[str, Any], labels: tuple[str, ...] = (LABEL,)) -> FakeApi:
    return FakeApi({"issues": list(issues), **{f"labels/{name}": {} for name in labels}})


def test_a_first_failure_opens_an_issue_with_the_label() -> None:
    fake = api()
    assert failure_issue.update(fake, run(details="<h2>failed</h2>")) == "opened issue #12"
    ((method, path, body),) = fake.sent
    assert (method, path, body["labels"]) == ("POST", "issues", [LABEL])
    assert body["body"].startswith("<!-- topgallant-ci: tpu_ci/nightly failures=1 -->\n")
    assert body["body"].endswith("\n<h2>failed</h2>")
    assert f"The latest run failed, at {'5' * 40}: {URL}" in body["body"]


def test_only_open_issues_of_the_bot_with_the_label_are_requested() -> None:
    fake = api()
    failure_issue.update(fake, run())
    assert fake.queries["issues"] == {"labels": LABEL, "state": "open", "creator": BOT["login"], "per_page": 100}


def test_a_missing_label_is_created_first() -> None:
    fake = api(labels=())
    failure_issue.update(fake, run())
    assert [path for _, path, _ in fake.sent] == ["labels", "issues"]


def test_a_further_failure_updates_the_issue() -> None:
    fake = api(issue())
    assert failure_issue.update(fake, run()) == "updated issue #4: 4 failures in a row"
    ((method, path, body),) = fake.sent
    assert (method, path) == ("PATCH", "issues/4")
    assert "failures=4" in body["body"]
    assert "did not pass 4 times in a row" in body["body"]


def test_a_marker_with_windows_line_ends_is_found() -> None:
    assert failure_issue.update(api(issue(body=f"{MARKER}\r\nold")), run()) == "updated issue #4: 4 failures in a row"


def test_a_cancelled_run_did_not_pass() -> None:
    fake = api()
    failure_issue.update(fake, run(Result.CANCELLED))
    assert "was cancelled, or exceeded its time limit" in fake.sent[0][2]["body"]


def test_a_skipped_run_changes_nothing() -> None:
    fake = api(issue())
    assert "skipped" in failure_issue.update(fake, run(Result.SKIPPED))
    assert not fake.sent
    assert not fake.queries


def test_a_pass_closes_every_issue_of_the_workflow() -> None:
    fake = api(issue(9), issue(4))
    assert failure_issue.update(fake, run(Result.SUCCESS)) == "closed issue #4, #9"
    assert [(method, path) for method, path, _ in fake.sent] == [
        ("POST", "issues/4/comments"),
        ("PATCH", "issues/4"),
        ("POST", "issues/9/comments"),
        ("PATCH", "issues/9"),
    ]
    assert fake.sent[1][2] == {"state": "closed", "state_reason": "completed"}


@pytest.mark.parametrize(
    "other",
    [
        issue(user={"login": "mallory"}),
        issue(user=None),
        issue(pull_request={"url": "x"}),
        issue(body=None),
        issue(body=f"text before\n{MARKER}"),
        issue(body=MARKER.replace("nightly", "weekly")),
        issue(body=MARKER.replace("tpu_ci", "tpu")),
        issue(body=MARKER.replace("failures=3", "failures=three")),
    ],
    ids=["a person", "a ghost", "a pull request", "empty", "quoted", "workflow", "project", "damaged"],
)
def test_other_issues_are_left_alone(other: dict[str, Any]) -> None:
    fake = api(other)
    assert "no open issue" in failure_issue.update(fake, run(Result.SUCCESS))
    assert not fake.sent


def test_details_that_do_not_fit_are_left_out() -> None:
    fake = api()
    failure_issue.update(fake, run(details="x" * 65_500))
    assert len(fake.sent[0][2]["body"]) < 1_000
