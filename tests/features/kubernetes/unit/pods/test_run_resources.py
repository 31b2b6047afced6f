"""A run creates objects in a namespace; a fake server stores them."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from tests.fakes.ledger import MemoryLedger
from tests.features.kubernetes.fakes import api_server
from tests.features.kubernetes.fakes.api_server import Answer, ApiServer, Request, failure
from tests.features.kubernetes.fakes.stored_objects import StoredObjects
from toolbox.features.kubernetes.api.connection import ApiError, Cluster
from toolbox.features.kubernetes.pods import run_resources
from toolbox.features.kubernetes.pods.run_resources import RunResources
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.resources import expiry_of
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import Workload

PLACE = "/api/v1/namespaces/tests"
MAPS, SECRETS = f"{PLACE}/configmaps", f"{PLACE}/secrets"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server.serving(tmp_path) as found:
        yield found


@pytest.fixture
def kept(server: ApiServer) -> StoredObjects:
    return StoredObjects(server, MAPS, SECRETS)


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[Cluster]:
    found = Cluster(Access(str(server.kubeconfig)))
    yield found
    found.close()


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture
def provided(cluster: Cluster, ledger: MemoryLedger) -> RunResources:
    return RunResources(cluster, "run-1", ledger)


def test_the_owner_is_created_once_with_the_label_of_its_run(provided: RunResources, kept: StoredObjects) -> None:
    owner = provided.owner(5)
    assert (
        provided.owner(5) == owner == {"apiVersion": "v1", "kind": "ConfigMap", "name": provided.name, "uid": "uid-0"}
    )
    labels = kept.objects[provided.name]["metadata"]["labels"]
    assert labels.items() >= {"app.kubernetes.io/managed-by": "topgallant", "topgallant.dev/run": "run-1"}.items()
    assert len(kept.server.requests) == 1


def test_the_owner_is_on_the_ledger_before_it_is_created(
    provided: RunResources, ledger: MemoryLedger, server: ApiServer
) -> None:
    calls: list[str] = []

    def refuse(_: Request) -> Answer:
        calls.extend(ledger.calls)
        return failure(403)

    server.answers("POST", MAPS, refuse)
    with pytest.raises(ApiError):
        provided.owner(5)
    assert len(calls) == 1
    assert calls[0].startswith("plan ")


def test_the_ledger_records_the_creation_and_deletion_of_the_owner(
    provided: RunResources, ledger: MemoryLedger, kept: StoredObjects
) -> None:
    provided.owner(5)
    (entry,) = ledger.open_resources()
    assert entry.is_created
    assert entry.resource.name == f"http://127.0.0.1:{kept.server.server_port}{MAPS}/{provided.name}"
    expiry = expiry_of(kept.objects[provided.name]["metadata"]["labels"], prefix="topgallant.dev/")
    assert expiry is not None
    assert abs(expiry - entry.expires) < timedelta(seconds=60)
    provided.teardown_run()
    assert ledger.open_resources() == []


def test_a_resumed_run_uses_the_existing_owner(provided: RunResources, cluster: Cluster, kept: StoredObjects) -> None:
    owner = provided.owner(5)
    assert RunResources(cluster, "run-1", MemoryLedger()).owner(5) == owner
    assert RunResources(cluster, "run-2", MemoryLedger()).owner(5) != owner
    assert len(kept.objects) == 2


def test_an_error_is_raised_if_the_owner_must_not_be_created(provided: RunResources, server: ApiServer) -> None:
    server.answers("POST", MAPS, failure(403, "may not"))
    with pytest.raises(ApiError, match="may not"):
        provided.owner(5)


def test_threads_that_need_the_same_object_at_once_create_it_once(provided: RunResources, kept: StoredObjects) -> None:
    with ThreadPoolExecutor(8) as threads:
        names = set(threads.map(lambda _: provided.agent(5), range(8)))
    assert len(names) == 1
    assert [each.method for each in kept.server.requests] == ["POST", "POST"]  # the owner and the agent


def test_an_object_that_could_not_be_created_is_tried_again(provided: RunResources, kept: StoredObjects) -> None:
    provided.owner(5)
    kept.server.answers("POST", MAPS, failure(403, "may not"))
    with pytest.raises(ApiError, match="may not"):
        provided.agent(5)
    StoredObjects(kept.server, MAPS, SECRETS)
    assert provided.agent(5).startswith(provided.name)


def test_the_stored_agent_runs(provided: RunResources, kept: StoredObjects, tmp_path: Path) -> None:
    program = tmp_path / "agent.zip"
    program.write_bytes(base64.b64decode(kept.objects[provided.agent(5)]["binaryData"]["agent.zip"]))
    (tmp_path / "exit_code").write_text("0")  # the workload has ended
    command = [sys.executable, "-I", "-S", str(program), "cancel", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=True, cwd="/").stdout == b"cancelling\n"


def test_a_run_that_is_resumed_after_an_upgrade_uses_the_new_agent(
    provided: RunResources, cluster: Cluster, kept: StoredObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = provided.agent(5)
    assert RunResources(cluster, "run-1", MemoryLedger()).agent(5) == old
    monkeypatch.setattr(run_resources, "agent_program", lambda: b"new")
    new = RunResources(cluster, "run-1", MemoryLedger()).agent(5)
    assert base64.b64decode(kept.objects[new]["binaryData"]["agent.zip"]) == b"new"
    assert kept.objects.keys() == {provided.name, old, new}
    assert kept.objects[new]["metadata"]["ownerReferences"] == [provided.owner(5)]


def test_an_agent_whose_owner_was_deleted_is_not_used_again(provided: RunResources, kept: StoredObjects) -> None:
    old = provided.agent(5)
    del kept.objects[provided.name]
    provided.forget()
    new = provided.agent(5)
    assert new != old
    assert kept.objects[new]["metadata"]["ownerReferences"] == [provided.owner(5)]


def test_equal_files_are_stored_once_and_copied_to_each_attempt(
    provided: RunResources, kept: StoredObjects, tmp_path: Path
) -> None:
    workload = Workload(("true",), text_files={"a/b": "text"})
    names = {provided.sources(workload, tmp_path / attempt, 5) for attempt in ("first", "second")}
    other = provided.sources(Workload(("true",), text_files={"a/b": "other"}), tmp_path / "third", 5)
    assert {provided.name, *names, other} == kept.objects.keys()
    assert (tmp_path / "second/src/a/b").read_text() == "text"
    (name,) = names
    content = base64.b64decode(kept.objects[str(name)]["binaryData"]["sources.tar.gz"])
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["a", "a/b"]


def test_all_objects_have_the_owner(provided: RunResources, kept: StoredObjects, tmp_path: Path) -> None:
    name = provided.sources(Workload(("true",), text_files={"a": "b"}), tmp_path, 5)
    secret, _ = provided.secret_env({"TOKEN": Secret("s3cret")}, 5)["TOKEN"]
    for each in (str(name), secret):
        assert kept.objects[each]["metadata"]["ownerReferences"] == [provided.owner(5)]


def test_a_workload_without_files_and_secrets_has_no_objects(
    provided: RunResources, kept: StoredObjects, tmp_path: Path
) -> None:
    assert provided.sources(Workload(("true",)), tmp_path, 5) is None
    assert provided.secret_env({"PLAIN": "text"}, 5) == {}
    assert kept.objects == {}


def test_the_error_for_too_many_files_says_where_to_put_them(
    provided: RunResources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_resources, "_MAX_BYTES", 10)
    with pytest.raises(StepError, match=r"10 can be sent: put large files into the image or on a volume") as caught:
        provided.sources(Workload(("true",), text_files={"a": "b"}), tmp_path, 5)
    assert caught.value.cause is Cause.CONFIGURATION


def test_only_secret_variables_are_stored_in_a_secret(provided: RunResources, kept: StoredObjects) -> None:
    found = provided.secret_env({"TOKEN": Secret("s3cret"), "KEY": Secret("k"), "PLAIN": "text"}, 5)
    ((name,),) = ({place for place, _ in found.values()},)
    assert found == {"TOKEN": (name, "TOKEN"), "KEY": (name, "KEY")}
    assert kept.objects[name]["stringData"] == {"TOKEN": "s3cret", "KEY": "k"}


def test_equal_secrets_are_stored_once(provided: RunResources, kept: StoredObjects) -> None:
    first, again, other = (provided.secret_env({"T": Secret(value)}, 5) for value in ("a", "a", "b"))
    assert first == again != other
    assert kept.server.count("POST", SECRETS) == 2


def test_the_name_of_a_secret_does_not_depend_on_its_content_alone(
    provided: RunResources, cluster: Cluster, kept: StoredObjects
) -> None:
    names = [
        each.secret_env({"T": Secret("a")}, 5)["T"][0]
        for each in (provided, RunResources(cluster, "run-1", MemoryLedger()))
    ]
    assert names[0] != names[1]
    assert set(names) < kept.objects.keys()


def test_objects_are_created_again_after_a_teardown(provided: RunResources, kept: StoredObjects) -> None:
    provided.secret_env({"T": Secret("a")}, 5)
    provided.teardown_run()
    assert provided.name not in kept.objects
    name, _ = provided.secret_env({"T": Secret("a")}, 5)["T"]
    assert kept.objects[name]["metadata"]["ownerReferences"] == [provided.owner(5)]
    assert provided.name in kept.objects


def test_a_teardown_without_objects_is_not_an_error(provided: RunResources, server: ApiServer) -> None:
    provided.teardown_run()
    assert [(each.method, each.path) for each in server.requests] == [("GET", f"{MAPS}/{provided.name}")]


def test_an_object_without_the_label_of_the_run_is_not_deleted(provided: RunResources, kept: StoredObjects) -> None:
    kept.put(MAPS, provided.name, labels={"topgallant.dev/run": "run-1"})
    with pytest.raises(StepError, match="does not have the labels of its owner"):
        provided.teardown_run()
    assert provided.name in kept.objects


def test_deleted_objects_are_created_again_after_forget(provided: RunResources, kept: StoredObjects) -> None:
    before = dict(provided.owner(5))
    provided.secret_env({"T": Secret("a")}, 5)
    kept.objects.clear()
    kept.objects["another"] = {}  # the new owner gets another uid
    provided.forget()
    name, _ = provided.secret_env({"T": Secret("a")}, 5)["T"]
    (owner,) = kept.objects[name]["metadata"]["ownerReferences"]
    assert owner["uid"] != before["uid"]
    assert owner["uid"] == kept.objects[provided.name]["metadata"]["uid"]
