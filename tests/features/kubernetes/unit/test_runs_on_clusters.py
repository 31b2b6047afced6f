"""The clusters and the permissions of the targets are checked before the first phase of a run."""

from typing import Any

import pytest
import yaml

from tests.features.kubernetes.fakes.api_server import ApiServer
from tests.unit.orchestration.conftest import repository as repository  # noqa: PLC0414  # re-exports the fixture
from tests.unit.orchestration.conftest import seen as seen  # noqa: PLC0414
from tests.unit.orchestration.test_project_run import Project
from tests.unit.orchestration.test_project_run import project as project  # noqa: PLC0414
from toolbox.ground.model.errors import ConfigurationError

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def on_clusters(block: dict[str, Any], cluster: str) -> str:
    """Return the configuration of a project with these clusters and a cell on the cluster `cluster`."""
    target = {"backend": "kubernetes", "cluster": cluster, "pod": {"image": "any"}}
    matrix = {"axes": {"x": ["a"]}, "target": "there", "workload": {"command": "true"}}
    return yaml.safe_dump({"clusters": block, "targets": {"there": target}, "matrix": matrix})


@pytest.mark.parametrize(
    ("block", "hint"),
    [
        ({}, "there are no clusters"),
        ({"sut": {"create": {"command": "touch made", "destroy": "true"}}}, r"did you mean sut\?"),
        ({"sutt": {"machine": {"lock_file": "lock"}}, "lab": {"pool": [{"name": "a"}]}}, "the clusters are lab"),
    ],
)
def test_a_target_on_an_unknown_cluster_starts_nothing(
    project: Project, server: ApiServer, monkeypatch: pytest.MonkeyPatch, block: dict[str, Any], hint: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    project.write("def prepare(): ...\ndef test(): ...", on_clusters(block, "sutt"))
    with pytest.raises(ConfigurationError, match=f"no cluster `sutt` in the block `clusters`: {hint}"):
        project.run()
    assert (project.runs, project.seen.events, server.requests) == ([], [], [])
    assert not (project.root / "made").exists()


def test_missing_permissions_on_existing_clusters_are_reported_before_the_lease(
    project: Project, server: ApiServer
) -> None:
    server.answers("POST", REVIEWS, {"status": {"allowed": False}})
    block = {"sut": {"existing": {"kubeconfig": str(server.kubeconfig)}}}
    project.write("def prepare(): ...\ndef test(): ...", on_clusters(block, "sut"))
    with pytest.raises(ConfigurationError, match="in the namespace tests the account may not create jobs"):
        project.run()
    assert (project.runs, {request.path for request in server.requests}) == ([], {REVIEWS})


def test_missing_permissions_on_created_clusters_end_the_run_before_the_first_phase(
    project: Project, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(project.root / "state"))
    server.answers("POST", REVIEWS, {"status": {"allowed": False}})
    create = {"command": f"cp {server.kubeconfig} $KUBECONFIG", "destroy": "touch destroyed"}
    project.write("def prepare(): ...\ndef test(): ...", on_clusters({"sut": {"create": create}}, "sut"))
    summary, code = project.run()
    assert summary.finished is not None
    assert "in the namespace tests the account may not create jobs" in summary.finished.message
    assert (code, project.phases, (project.root / "destroyed").exists()) == (3, {}, True)


def test_permissions_are_not_checked_without_the_test_phase(project: Project) -> None:
    project.write("def prepare(): ...\ndef test(): ...", on_clusters({}, "sutt"))
    assert project.run(phases=["prepare"])[1] == 0
