"""Requirements for every kind of remote resources: a deletion is repeatable, and spares resources of other owners."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from pydantic import ValidationError

from tests.conformance import feature_sites
from tests.conformance.resource_sites import ResourceSite
from toolbox.ground.extensions import discovery, loading
from toolbox.ground.extensions.protocols import RESOURCES, RemoteResource
from toolbox.ground.model.errors import ToolboxError
from toolbox.ground.model.resources import Owner, Resource
from toolbox.ground.system.redaction import Redactor
from toolbox.records.runs import ledger, steps
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Step

OWNER = Owner("20261121-011343-x7k2", "project", "ann", "laptop")
OTHER = Owner("20261121-011343-aaaa", "project", "ann", "laptop")


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


SITES: Final[dict[str, Callable[[Path], AbstractContextManager[ResourceSite]]]] = {
    "cluster": _clusters,
    **feature_sites.of("RESOURCES"),
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
    assert {entry.resource.kind for entry in contents.resources} >= set(KINDS)
    for entry in contents.resources:
        assert entry.is_sealed, "the seal must not change, or the resources of earlier runs are not deleted"
        assert entry.owner == Owner("20261121-021705-us5v", "tpu_ci", "ann", "laptop")
        if entry.resource.kind in KINDS:
            loaded(entry.resource)
    states = {entry.resource.kind: entry.state for entry in contents.resources}
    assert states["tpu_node"] == "could not be deleted: no answer"
    assert states["kubernetes_namespace"] == "kept"
