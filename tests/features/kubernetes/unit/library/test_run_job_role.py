"""Ansible runs the role of `kubernetes run_job` on a fake API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.features.kubernetes.fakes import pod_security
from tests.features.kubernetes.fakes.api_server import ApiServer, failure, listing
from toolbox.ground.model.errors import StepError
from toolbox.ground.system import filesystem
from toolbox.ground.system.redaction import Redactor
from toolbox.orchestration import run
from toolbox.records.runs import steps
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Step

JOBS = "/apis/batch/v1/namespaces/tests/jobs"
JOB = f"{JOBS}/probe"
ENDED = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "probe", "namespace": "tests", "labels": {"app.kubernetes.io/managed-by": "topgallant"}},
    "status": {"conditions": [{"type": "Complete", "status": "True"}]},
}


def kinds(**named: str) -> dict[str, Any]:
    """Return the answer in which a server lists its kinds."""
    return {
        "resources": [{"name": name, "kind": kind, "namespaced": True, "verbs": []} for name, kind in named.items()]
    }


@pytest.fixture(autouse=True)
def _top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Enter the top step of a run, in an empty repository."""
    (tmp_path / "repository/projects").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repository")
    directory = filesystem.make_directory(tmp_path / "run")
    with steps.entered(Step(directory, Recorder(directory, Redactor(), []), "top")):
        yield


@pytest.fixture(name="server")
def _server(server: ApiServer) -> ApiServer:
    """Return a server on which the Job completes at once."""
    server.answers("GET", "/api/v1", kinds(pods="Pod", events="Event"))
    server.answers("GET", "/apis/batch/v1", kinds(jobs="Job"))
    server.answers("GET", JOB, failure(404), ENDED)
    server.answers("PATCH", JOB, ENDED)
    server.answers("DELETE", JOB, {})
    server.answers("GET", JOBS, listing(1))
    server.answers("GET", "/api/v1/namespaces/tests/pods", listing(1))
    server.answers("GET", "/api/v1/namespaces/tests/events", listing(1))
    return server


def run_job(server: ApiServer, **more: Any) -> None:
    run.run_toolbox("kubernetes", "run_job", name="probe", image="i", kubeconfig=str(server.kubeconfig), **more)


def applied(server: ApiServer) -> dict[str, Any]:
    """Return the Job manifest that the role has applied."""
    (found,) = (each.body for each in server.requests if each.method == "PATCH")
    assert isinstance(found, dict)
    return found


def test_a_job_whose_logs_cannot_be_kept_is_deleted(server: ApiServer) -> None:
    server.answers("GET", "/api/v1/namespaces/tests/pods", failure(403, "pods is forbidden"))
    with pytest.raises(StepError, match=r"`Save the logs of the Job` failed.*: pods is forbidden"):
        run_job(server)
    assert server.count("DELETE", JOB) == 1
    assert applied(server)["spec"]["ttlSecondsAfterFinished"] == 3600


def test_a_job_with_keep_is_not_deleted(server: ApiServer) -> None:
    run_job(server, keep=True)
    assert server.count("DELETE", JOB) == 0
    assert "ttlSecondsAfterFinished" not in applied(server)["spec"]


def test_a_job_has_no_privilege_and_no_token_unless_it_names_an_account(server: ApiServer) -> None:
    user = {"spec": {"template": {"spec": {"securityContext": {"runAsUser": 1000, "runAsNonRoot": True}}}}}
    run_job(server, patch=user)
    spec = applied(server)["spec"]["template"]["spec"]
    assert pod_security.violations(spec) == []
    assert spec["automountServiceAccountToken"] is False


def test_a_job_that_names_an_account_has_its_token(server: ApiServer) -> None:
    run_job(server, service_account="trainer")
    spec = applied(server)["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "trainer"
    assert "automountServiceAccountToken" not in spec


def step_of(tmp_path: Path) -> Path:
    """Return the directory of the only step."""
    (found,) = (tmp_path / "run").glob("*__kubernetes__run_job")
    return found


def test_the_job_is_applied_as_its_kept_manifest_and_its_end_is_written(server: ApiServer, tmp_path: Path) -> None:
    env = {"COUNT": "1", "DAY": "2026-11-01", "TEXT": "{{ 7 * 6 }}"}
    run_job(server, env=env)
    kept = yaml.safe_load((step_of(tmp_path) / "src/job.yaml").read_text())
    assert kept == applied(server)
    (container,) = kept["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: each["value"] for each in container["env"]} == env
    assert json.loads((step_of(tmp_path) / "artifacts/ended.json").read_text()) == {"missing": [], "pods": []}


def test_the_manifest_is_kept_although_there_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="there is no kubeconfig"):
        run.run_toolbox("kubernetes", "run_job", name="probe", image="i", kubeconfig=str(tmp_path / "nowhere"))
    assert yaml.safe_load((step_of(tmp_path) / "src/job.yaml").read_text())["kind"] == "Job"
