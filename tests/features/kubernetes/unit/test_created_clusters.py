"""A cluster that a run creates is on its ledger, and is removed at the end of the run."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.orchestration.conftest import repository as repository  # noqa: PLC0414  # re-exports the fixture
from tests.unit.orchestration.conftest import seen as seen  # noqa: PLC0414
from tests.unit.orchestration.test_remote_resources import Project, message
from tests.unit.orchestration.test_remote_resources import project as project  # noqa: PLC0414
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState

KUBECONFIG = json.dumps(
    {
        "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "x", "user": {"token": "t0ken"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
)
COMMAND = f"""
    echo create >>lines
    if [ -e fail ]; then exit 7; fi
    echo '{KUBECONFIG}' >"$KUBECONFIG"
"""
DESTROY = "echo destroy >>lines; [ ! -e stuck ]"


def clusters(**create: Any) -> str:
    """Return a configuration with a cluster that the run creates."""
    return yaml.safe_dump({"clusters": {"sut": {"create": {"command": COMMAND, "destroy": DESTROY, **create}}}})


def lines(project: Project) -> list[str]:
    return (project.root / "lines").read_text().split()


def kubeconfigs(project: Project) -> list[Path]:
    return list((project.root / "state" / "topgallant" / "clusters").iterdir())


def test_a_created_cluster_is_on_the_ledger_until_it_is_removed(project: Project) -> None:
    orchestration = """
        def test():
            (entry,) = session.step().recorder.ledger.open_resources()
            assert (entry.resource.kind, entry.is_created) == ("cluster", True)
    """
    state, code = project.run(orchestration, clusters())
    assert (code, message(state), lines(project)) == (0, "", ["create", "destroy"])
    assert (state.resources, kubeconfigs(project)) == ((), [])
    (log,) = state.directory.glob("*__delete_resources/run.log")
    assert log.read_text().startswith("$ bash ")


def test_resources_inside_a_created_cluster_are_deleted_with_the_cluster(project: Project) -> None:
    orchestration = """
        def test():
            (entry,) = session.step().recorder.ledger.open_resources()
            make("stuck", kubeconfig=entry.resource.deletion["kubeconfig"])
    """
    state, code = project.run(orchestration, clusters())
    assert (code, message(state), state.resources) == (0, "", ())
    assert project.things == ["stuck"]


def test_a_cluster_whose_creation_failed_is_removed(project: Project) -> None:
    (project.root / "fail").touch()
    state, code = project.run("def test(): ...", clusters(keep=True))
    assert (code, lines(project), state.resources) == (3, ["create", "destroy"], ())
    assert kubeconfigs(project) == []


def test_a_kept_cluster_stays_with_its_kubeconfig(project: Project) -> None:
    state, code = project.run("def test(): ...", clusters(keep=True))
    assert (code, lines(project)) == (0, ["create"])
    (folder,) = kubeconfigs(project)
    (entry,) = state.remaining_resources
    assert entry.state == "kept"
    assert entry.resource.command.startswith(f"env KUBECONFIG={folder}/kubeconfig TOPGALLANT_CLUSTER=sut-")


def test_a_cluster_that_cannot_be_removed_is_an_error(project: Project) -> None:
    (project.root / "stuck").touch()
    state, code = project.run("def test(): ...", clusters())
    assert (code, lines(project)) == (3, ["create", *["destroy"] * 3])
    assert "ended with status 1" in message(state)
    assert [entry.resource.kind for entry in state.remaining_resources] == ["cluster"]


def left_incomplete(project: Project) -> RunState:
    """Return a run that has left an incomplete cluster, because neither its creation nor its removal succeeded."""
    for name in ("fail", "stuck"):
        (project.root / name).touch()
    state, _ = project.run("def test(): ...", clusters())
    (project.root / "fail").unlink()
    (project.root / "lines").unlink()
    return state


def test_an_incomplete_cluster_that_cannot_be_removed_is_not_created_again(project: Project) -> None:
    state = left_incomplete(project)
    state, code = project.resume(state.directory)
    assert (code, lines(project)) == (3, ["destroy"] * 6)  # before the creation, and at the end of the run
    heading, cause = message(state).splitlines()[:2]
    assert heading == "clusters.sut: it exists in part, and could not be removed, so it was not created again"
    (entry,) = state.remaining_resources
    assert cause.startswith(f"cluster sut-{state.run}: `bash ")
    assert cause.endswith(f"ended with status 1; by hand: {entry.resource.command}")
    assert (entry.is_created, "ended with status 1" in entry.failure) == (False, True)


def test_an_incomplete_cluster_is_removed_before_it_is_created_again(project: Project) -> None:
    state = left_incomplete(project)
    (project.root / "stuck").unlink()
    state, code = project.resume(state.directory)
    assert (code, lines(project), state.resources) == (0, ["destroy", "create", "destroy"], ())


def test_a_run_resumed_on_another_machine_removes_its_incomplete_cluster_with_its_own_command(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = left_incomplete(project)
    (project.root / "stuck").unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(project.root / "another-state"))
    file = RunDirectory(state.directory).ledger
    file.write_text(file.read_text().replace("destroy >>lines", "evil >>lines"))
    state, code = project.resume(state.directory)
    assert (code, lines(project), state.resources) == (0, ["destroy", "create", "destroy"], ())
