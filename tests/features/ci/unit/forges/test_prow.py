"""A job of Prow knows its pull request, its page, and which comments address it."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from toolbox.features.ci.forges.prow import Forge, _JobSpec
from toolbox.ground.model.errors import UsageError

PULL = {"number": 7, "author": "alice", "sha": "a" * 40}
REFS = {"org": "acme", "repo": "models", "base_ref": "main", "pulls": [PULL]}
JOB = "pull-ci-acme-models-main-light-metal"
SPEC: dict[str, Any] = {
    "type": "presubmit",
    "job": JOB,
    "buildid": "12",
    "refs": REFS,
}


def spec(**changes: Any) -> _JobSpec:
    return _JobSpec.model_validate({**SPEC, **changes})


@pytest.mark.parametrize(("name", "expected"), [("light-metal", True), ("metal", False), ("light", False)])
def test_the_name_of_a_job_of_openshift_is_exact(name: str, expected: bool) -> None:
    assert spec().is_addressed_by(name) is expected


@pytest.mark.parametrize(("name", "expected"), [("metal", True), ("light-metal", True), ("etal", False), ("x", False)])
def test_elsewhere_the_end_of_the_name_addresses_a_job(name: str, expected: bool) -> None:
    assert spec(job="pull-models-light-metal").is_addressed_by(name) is expected


def test_the_id_of_a_build_tells_when_it_was_created() -> None:
    assert spec(buildid="2019864414127132672").started.date() == dt.date(2026, 2, 6)


def test_the_page_of_a_job_is_that_of_openshift_or_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_SPEC", json.dumps({**SPEC, "decoration_config": {"gcs_configuration": {"bucket": "logs"}}}))
    monkeypatch.delenv("TOPGALLANT_PROW_PAGES", raising=False)
    path = f"logs/pr-logs/pull/acme_models/7/{JOB}/12"
    assert Forge().run().url == f"https://prow.ci.openshift.org/view/gs/{path}"
    monkeypatch.setenv("TOPGALLANT_PROW_PAGES", "https://prow.example.com/view/gs")
    assert Forge().run().url == f"https://prow.example.com/view/gs/{path}"


@pytest.mark.parametrize(
    "changes", [{"type": "periodic", "refs": None}, {"type": "batch"}, {"refs": {**REFS, "pulls": [PULL, PULL]}}]
)
def test_a_job_without_one_pull_request_has_no_comment(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOB_SPEC", json.dumps({**SPEC, **changes}))
    assert Forge().events() == []


def test_a_job_without_a_repository_has_no_pull_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_SPEC", json.dumps({**SPEC, "type": "periodic", "refs": None}))
    with pytest.raises(UsageError, match="names no repository"):
        Forge().pull_requests()


def test_a_job_cannot_cancel_others() -> None:
    with pytest.raises(UsageError, match="/cancel does not work on Prow"):
        Forge().cancel("12")
