"""The job of a CI system is known from its environment variables, which may contain anything."""

from __future__ import annotations

import pytest

from toolbox.ground.system import ci_job

VARIABLES = (
    *("BUILD_URL", "CI", "CI_JOB_NAME", "CI_JOB_URL", "JOB_NAME"),
    *("GITHUB_JOB", "GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_SERVER_URL", "GITHUB_WORKFLOW"),
)
SYSTEMS = {
    "GitHub": (
        {
            "CI": "true",
            "GITHUB_JOB": "run",
            "GITHUB_WORKFLOW": "nightly",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": "a/b",
            "GITHUB_RUN_ID": "7",
        },
        ("run", "nightly / run", "https://github.com/a/b/actions/runs/7"),
    ),
    "GitLab": (
        {"CI": "true", "CI_JOB_NAME": "e2e", "CI_JOB_URL": "https://lab/j/7"},
        ("e2e", "e2e", "https://lab/j/7"),
    ),
    "Jenkins": ({"JOB_NAME": "e2e", "BUILD_URL": "http://ci/job/7/"}, ("e2e", "e2e", "http://ci/job/7/")),
    "Prow": ({"CI": "true", "JOB_NAME": "pull-ci-x-light"}, ("pull-ci-x-light", "pull-ci-x-light", "")),
}


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("variables", "expected"), SYSTEMS.values(), ids=SYSTEMS)
def test_the_job_of_each_system_is_known(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: tuple[str, str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ci_job.is_automated()
    assert (ci_job.name(), ci_job.series(), ci_job.url()) == expected


def test_without_a_system_there_is_no_job() -> None:
    assert not ci_job.is_automated()
    assert (ci_job.name(), ci_job.series(), ci_job.url()) == ("", "", "")


@pytest.mark.parametrize(
    "url", ["javascript:x", "https://a b", "https://a/<x>", "https://a/\x1b", "https://" + "a" * 999]
)
def test_a_value_that_is_not_an_address_is_ignored(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("BUILD_URL", url)
    assert ci_job.url() == ""


def test_a_name_is_one_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_NAME", "a\x1b[31m\nb" + "c" * 999)
    assert ci_job.name().startswith("a b")
    assert len(ci_job.name()) <= 300
