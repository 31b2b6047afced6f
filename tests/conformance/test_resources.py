"""Requirements for every kind of remote resources: a deletion is repeatable, and spares resources of other owners."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from pydantic import ValidationError

from tests.fakes import api_server
from tests.fakes.stored_objects import StoredObjects
from tests.servers import jupyterhub, tpu
from toolbox.extensions import discovery, loading
from toolbox.extensions.protocols import RESOURCES, RemoteResource
from toolbox.jupyterhub import hub_tokens, server_request
from toolbox.jupyterhub.hub_replies import LABELS
from toolbox.kubernetes import owned_objects
from toolbox.kubernetes.api.connection import Cluster
from toolbox.kubernetes.api.objects import CONFIG_MAP, NAMESPACE, Kind
from toolbox.model.clusters import Access
from toolbox.model.errors import ToolboxError
from toolbox.model.resources import Owner, Resource
from toolbox.runs import ledger, steps
from toolbox.runs.recorder import Recorder
from toolbox.runs.steps import Step
from toolbox.system.redaction import Redactor
from toolbox.tpu import api_endpoint
from toolbox.tpu.api import TpuApi
from toolbox.tpu.tpu_description import TpuDescription
from toolbox.tpu.tpu_request import TpuRequest
from toolbox.tpu.tpu_states import Location

OWNER = Owner("20261121-011343-x7k2", "project", "ann", "laptop")
OTHER = Owner("20261121-011343-aaaa", "project", "ann", "laptop")


@dataclass(frozen=True, slots=True)
class ResourceSite:
    """A remote side with resources of one kind.

    Args:
        create: creates a resource with the labels of an owner, and returns its description.
        names: returns the names of the existing resources.
        is_labelled: whether the remote side stores labels.
    """

    create: Callable[[Owner], Resource]
    names: Callable[[], list[str]]
    is_labelled: bool = True


@contextmanager
def _objects(directory: Path, kind: Kind) -> Iterator[ResourceSite]:
    with (
        api_server.serving(directory) as server,
        closing(Cluster(Access(str(server.kubeconfig)))) as cluster,
    ):
        path = kind.path(api_server.NAMESPACE)
        stored = StoredObjects(server, path)

        def create(owner: Owner) -> Resource:
            stored.put(path, "it", labels=owned_objects.labels(owner, owned_objects.TTL))
            return owned_objects.resource(cluster, kind, "it")

        yield ResourceSite(create, lambda: list(stored.objects))


@contextmanager
def _clusters(directory: Path) -> Iterator[ResourceSite]:
    """Yield a site whose cluster is a file."""
    it = directory / "it"

    def create(owner: Owner) -> Resource:  # noqa: ARG001  # a cluster has no labels
        it.touch()
        arguments, folder = ["rm", "-f", str(it)], str(directory)
        fields = {"directory": folder, "created_by": folder, "kubeconfig": f"{folder}/kubeconfig"}
        return Resource("cluster", "it", {"arguments": arguments, "variables": {}, **fields}, 60, f"rm {it}")

    with steps.entered(Step(directory, Recorder(directory, Redactor()), "top")):
        yield ResourceSite(create, lambda: ["it"] if it.exists() else [], is_labelled=False)


@contextmanager
def _tpus(directory: Path, fields: Mapping[str, object]) -> Iterator[ResourceSite]:
    with (
        tpu.serving(directory, has_workers=False) as server,
        TpuApi(api_endpoint.parse(server.endpoint)) as api,
    ):
        description = TpuDescription.model_validate(
            {
                "project": "my-project",
                "zone": "us-central1-b",
                "accelerator_type": "v6e-8",
                "runtime_version": "v2-alpha-tpuv6e",
                "api_endpoint": server.endpoint,
                **fields,
            }
        )

        def create(owner: Owner) -> Resource:
            location = Location("my-project", "us-central1-b")
            request = TpuRequest("it", location, description, owner.labels(description.ttl))
            api.create(request)
            server.wait_for_state(request.node_names[0], "READY")
            return request.resource

        kind = "/queuedResources/" if description.is_queued else "/nodes/"
        yield ResourceSite(create, lambda: [name for name in server.leftovers() if kind in name])


@contextmanager
def _servers(directory: Path) -> Iterator[ResourceSite]:  # noqa: ARG001  # the hub has a directory of its own
    with jupyterhub.serving() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv(hub_tokens.VARIABLE, hub.token)

        def create(owner: Owner) -> Resource:
            hub.start_server("it", profile="bare", **{LABELS: owner.labels(60)})
            return server_request.ledger_entry(hub.url, hub.user, "it", None, 60)

        yield ResourceSite(create, lambda: list(hub.servers()))


SITES: Final[dict[str, Callable[[Path], AbstractContextManager[ResourceSite]]]] = {
    "cluster": _clusters,
    "jupyterhub_server": _servers,
    "kubernetes_namespace": lambda directory: _objects(directory, NAMESPACE),
    "kubernetes_owner": lambda directory: _objects(directory, CONFIG_MAP),
    "tpu_node": lambda directory: _tpus(directory, {}),
    "tpu_queued_resource": lambda directory: _tpus(directory, {"slices": 2}),
}
KINDS: Final = sorted(discovery.builtin(RESOURCES.folder))


def test_every_kind_has_a_site() -> None:
    assert sorted(SITES) == KINDS


@pytest.fixture(params=SITES, scope="module")
def running_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResourceSite]:
    """Yield a site of each kind, which may take some seconds to start."""
    with SITES[request.param](tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture
def site(running_site: ResourceSite) -> Iterator[ResourceSite]:
    """Yield a site without resources, and delete the resources that the test creates there."""
    assert running_site.names() == []
    with ExitStack() as stack:

        def create(owner: Owner) -> Resource:
            resource = running_site.create(owner)
            stack.callback(loaded(resource).delete, owner)
            return resource

        yield replace(running_site, create=create)


def loaded(resource: Resource) -> RemoteResource:
    """Return the model of a resource whose description was read from a ledger."""
    deletion = json.loads(json.dumps(resource.deletion))
    return loading.parse(RESOURCES, {**deletion, RESOURCES.key: resource.kind})


def test_a_resource_is_deleted(site: ResourceSite) -> None:
    resource = site.create(OWNER)
    assert len(site.names()) == 1
    loaded(resource).delete(OWNER)
    assert site.names() == []


def test_a_deletion_can_be_repeated(site: ResourceSite) -> None:
    resource = site.create(OWNER)
    for _ in range(2):
        loaded(resource).delete(OWNER)
    assert site.names() == []


def test_a_resource_of_another_owner_is_not_deleted(site: ResourceSite) -> None:
    if not site.is_labelled:
        pytest.skip("the remote side has no labels")
    resource = site.create(OTHER)
    with pytest.raises(ToolboxError, match="owner"):
        loaded(resource).delete(OWNER)
    assert len(site.names()) == 1


def test_a_damaged_description_is_refused(site: ResourceSite) -> None:
    resource = site.create(OWNER)
    model = loading.load(RESOURCES, resource.kind)
    for field in resource.deletion:
        with pytest.raises(ValidationError):
            model.model_validate({**resource.deletion, field: {"x": [1]}})
    with pytest.raises(ValidationError, match="no_such_field"):
        model.model_validate({**resource.deletion, "no_such_field": 1})


def test_a_resource_has_a_command_for_a_deletion_by_hand(site: ResourceSite) -> None:
    resource = site.create(OWNER)
    assert "it" in resource.command
    assert resource.ttl > 0


def test_a_ledger_of_an_earlier_version_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "topgallant").mkdir()
    (tmp_path / "topgallant" / "ledger.key").write_bytes(bytes(range(32)))
    contents = ledger.load(Path(__file__).parent / "data" / "ledger.jsonl")
    assert contents.damage == ()
    assert sorted(entry.resource.kind for entry in contents.resources) == KINDS
    for entry in contents.resources:
        assert entry.is_sealed, "the seal must not change, or the resources of earlier runs are not deleted"
        assert entry.owner == Owner("20261121-021705-us5v", "tpu_ci", "ann", "laptop")
        loaded(entry.resource)
    states = {entry.resource.kind: entry.state for entry in contents.resources}
    assert states["tpu_node"] == "could not be deleted: no answer"
    assert states["kubernetes_namespace"] == "kept"
