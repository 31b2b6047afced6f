"""A deletion is confirmed, can be repeated, and never deletes an object of another owner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.tpu.servers import tpu
from tests.features.tpu.servers.tpu import Fault, Server
from tests.features.tpu.unit.conftest import PLACE, Request
from toolbox.features.tpu import deletion
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.api_errors import RejectedRequest
from toolbox.features.tpu.deletion import ForeignObject
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.resources import Owner

NODE = PLACE.node("tpu")
QUEUED = PLACE.queued_resource("tpu")
STRANGER = Owner("run-2", "project", "eve", "elsewhere")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Yield a server on which time passes, because a deletion waits."""
    with tpu.serving(tmp_path, has_workers=False) as running:
        yield running


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(deletion, "_LONGEST_PAUSE", 0.05)


def test_a_node_is_gone_after_its_deletion(server: Server, api: TpuApi, owner: Owner, request_for: Request) -> None:
    api.create(request_for())
    server.wait_for_state("tpu", "READY")
    assert deletion.delete(api, NODE, owner)
    assert server.leftovers() == []
    assert not deletion.delete(api, NODE, owner)


def test_a_queued_resource_is_gone_with_its_nodes(
    server: Server, api: TpuApi, owner: Owner, request_for: Request
) -> None:
    api.create(request_for(slices=2))
    server.wait_for_state("tpu-1", "READY")
    assert deletion.delete(api, QUEUED, owner)
    assert server.leftovers() == []
    assert not deletion.delete(api, QUEUED, owner)


@pytest.mark.parametrize("fields", [{}, {"spot": True}])
def test_a_tpu_that_is_being_created_is_deleted(
    server: Server, api: TpuApi, owner: Owner, request_for: Request, fields: dict[str, bool]
) -> None:
    api.create(request_for(**fields))
    if fields:
        deletion.delete(api, QUEUED, owner)
    else:
        deletion.delete(api, NODE, owner)
    assert server.leftovers() == []


def test_a_waiting_queued_resource_is_deleted(server: Server, api: TpuApi, owner: Owner, request_for: Request) -> None:
    server.set_capacity(PLACE.zone, nodes=0)
    api.create(request_for(spot=True))
    deletion.delete(api, QUEUED, owner)
    assert server.leftovers() == []


def test_a_preempted_node_is_deleted(server: Server, api: TpuApi, owner: Owner, request_for: Request) -> None:
    api.create(request_for(spot=True))
    server.wait_for_state(NODE, "READY")
    server.preempt("tpu")
    deletion.delete(api, QUEUED, owner)
    assert server.leftovers() == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault("DeleteNode", "FAILED_PRECONDITION", times=3),
        Fault("DeleteNode", "ABORTED"),
        Fault("DeleteNode", "UNAVAILABLE", when="after"),
        Fault("DeleteNode", "INTERNAL", when="operation"),
        Fault("DeleteNode", operation_seconds=0.5),
        Fault("DeleteNode", hang=True),
        Fault("GetOperation", "NOT_FOUND", times=None),
    ],
    ids=["busy", "aborted", "lost", "failed", "slow", "hanging", "forgotten"],
)
def test_a_deletion_survives_faults(
    server: Server, api: TpuApi, owner: Owner, request_for: Request, fault: Fault
) -> None:
    api.create(request_for())
    server.wait_for_state("tpu", "READY")
    server.add_fault(fault)
    deletion.delete(api, NODE, owner, timeout=20)
    assert server.leftovers() == []


def test_a_deletion_that_takes_too_long_is_an_error(
    server: Server, api: TpuApi, owner: Owner, request_for: Request
) -> None:
    api.create(request_for())
    server.add_fault(Fault("DeleteNode", "FAILED_PRECONDITION", "locked", times=None))
    with pytest.raises(StepError, match=r"still exists .*locked"):
        deletion.delete(api, NODE, owner, timeout=0.2)


def test_a_deletion_that_is_not_permitted_is_an_error_at_once(
    server: Server, api: TpuApi, owner: Owner, request_for: Request
) -> None:
    api.create(request_for())
    server.add_fault(Fault("DeleteNode", "PERMISSION_DENIED", times=None))
    with pytest.raises(RejectedRequest, match="permissions"):
        deletion.delete(api, NODE, owner)


@pytest.mark.parametrize("fields", [{}, {"slices": 2}])
def test_a_tpu_of_another_owner_is_not_deleted(
    server: Server, api: TpuApi, owner: Owner, request_for: Request, fields: dict[str, int]
) -> None:
    api.create(request_for(owner=STRANGER, **fields))
    command = f"gcloud compute tpus {'queued-resources delete --force' if fields else 'tpu-vm delete'} tpu --zone="
    with pytest.raises(ForeignObject, match=f"another owner, .*: it is not deleted; .* use `{command}"):
        deletion.delete(api, QUEUED if fields else NODE, owner)
    assert server.requests("DeleteNode") == server.requests("DeleteQueuedResource") == []
