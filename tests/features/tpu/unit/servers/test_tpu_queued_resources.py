"""Queued resources of the test server of the TPU API, as Google's client library sees them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud.tpu_v2 import TpuClient, types

from tests.features.tpu.servers.tpu import Fault, Server

PARENT = "projects/p/locations/us-central1-a"
NAME = f"{PARENT}/queuedResources/q"
ZONE = "us-central1-a"


@pytest.fixture(name="wanted")
def _wanted(node: types.Node) -> types.QueuedResource:
    """Return the description of a queued resource with one node `n`."""
    return types.QueuedResource(tpu={"node_spec": [{"parent": PARENT, "node_id": "n", "node": node}]}, spot={})


def slices(node: types.Node, count: int) -> list[types.QueuedResource.Tpu.NodeSpec]:
    params = {"node_count": count}
    return [types.QueuedResource.Tpu.NodeSpec(parent=PARENT, multislice_params=params, node=node)]


def create(client: TpuClient, wanted: types.QueuedResource, name: str = "q") -> Any:
    return client.create_queued_resource(parent=PARENT, queued_resource_id=name, queued_resource=wanted)


def state(client: TpuClient) -> str:
    return str(client.get_queued_resource(name=NAME).state.state.name)


def test_a_queued_resource_becomes_active(server: Server, client: TpuClient, wanted: types.QueuedResource) -> None:
    operation = create(client, wanted)
    states = [state(client)]
    for _ in range(3):
        server.advance()
        states.append(state(client))
    assert states == ["CREATING", "ACCEPTED", "PROVISIONING", "ACTIVE"]
    assert operation.result().name == NAME
    assert "active_data" in client.get_queued_resource(name=NAME).state
    made = client.get_node(name=f"{PARENT}/nodes/n")
    assert (made.multislice_node, made.state.name, made.scheduling_config.spot) == (False, "READY", True)


def test_the_parts_of_a_queued_resource_contain_the_number_of_the_project(
    server: Server, client: TpuClient, wanted: types.QueuedResource
) -> None:
    create(client, wanted)
    server.advance(10)
    by_number = client.get_node(name=f"{PARENT}/nodes/n").queued_resource
    assert re.fullmatch(r"projects/\d{12}/locations/us-central1-a/queuedResources/q", by_number)
    (spec,) = client.get_queued_resource(name=by_number).tpu.node_spec
    assert (spec.parent, spec.node.queued_resource) == (by_number.partition("/queued")[0], by_number)
    assert client.get_queued_resource(name=by_number).name == NAME


def test_a_multislice_has_numbered_nodes(
    server: Server, client: TpuClient, wanted: types.QueuedResource, node: types.Node
) -> None:
    wanted.tpu.node_spec = slices(node, 3)
    create(client, wanted)
    server.advance(10)
    nodes = list(client.list_nodes(parent=PARENT))
    assert [one.name.rpartition("/")[2] for one in nodes] == ["q-0", "q-1", "q-2"]
    assert all(one.multislice_node for one in nodes)


def test_a_queued_resource_waits_for_capacity(server: Server, client: TpuClient, wanted: types.QueuedResource) -> None:
    server.set_capacity(ZONE, nodes=0)
    create(client, wanted)
    server.advance(3600)
    assert state(client) == "WAITING_FOR_RESOURCES"
    assert not server.history()
    server.set_capacity(ZONE, nodes=None)
    assert state(client) == "PROVISIONING"


def test_capacity_is_granted_to_all_slices_or_to_none(
    server: Server, client: TpuClient, wanted: types.QueuedResource, node: types.Node
) -> None:
    server.set_capacity(ZONE, nodes=2)
    wanted.tpu.node_spec = slices(node, 3)
    create(client, wanted)
    server.advance(10)
    assert state(client) == "WAITING_FOR_RESOURCES"


def test_the_freed_capacity_goes_to_the_next_in_the_queue(
    server: Server, client: TpuClient, wanted: types.QueuedResource, node: types.Node
) -> None:
    server.set_capacity(ZONE, nodes=1)
    client.create_node(parent=PARENT, node_id="first", node=node)
    create(client, wanted)
    server.advance(10)
    client.delete_node(name=f"{PARENT}/nodes/first")
    server.advance(10)
    assert state(client) == "ACTIVE"


@pytest.mark.parametrize(
    "policy",
    [
        lambda: {"valid_until_duration": timedelta(hours=1)},
        lambda: {"valid_until_time": datetime.now(UTC) + timedelta(hours=1)},
    ],
    ids=["duration", "time"],
)
def test_a_queued_resource_that_waits_too_long_fails(
    server: Server, client: TpuClient, wanted: types.QueuedResource, policy: Callable[[], dict[str, Any]]
) -> None:
    server.set_capacity(ZONE, nodes=0)
    wanted.queueing_policy = types.QueuedResource.QueueingPolicy(policy())
    create(client, wanted)
    server.advance(3500)
    assert state(client) == "WAITING_FOR_RESOURCES"
    server.advance(200)
    assert state(client) == "FAILED"
    assert client.get_queued_resource(name=NAME).state.failed_data.error.message


def test_a_queued_resource_can_begin_later(server: Server, client: TpuClient, wanted: types.QueuedResource) -> None:
    policy = {"valid_after_duration": timedelta(hours=1)}
    wanted.queueing_policy = types.QueuedResource.QueueingPolicy(policy)
    create(client, wanted)
    server.advance(3500)
    assert state(client) == "ACCEPTED"
    server.advance(200)
    assert state(client) == "ACTIVE"


def test_an_active_queued_resource_is_deleted_with_force_only(
    server: Server, client: TpuClient, wanted: types.QueuedResource
) -> None:
    create(client, wanted)
    server.advance(10)
    with pytest.raises(exceptions.FailedPrecondition, match="is in state ACTIVE"):
        client.delete_queued_resource(name=NAME)
    client.delete_queued_resource({"name": NAME, "force": True})
    assert client.get_node(name=f"{PARENT}/nodes/n").state.name == "DELETING"
    server.advance(10)
    assert not server.leftovers()


def test_a_waiting_queued_resource_is_deleted_without_force(
    server: Server, client: TpuClient, wanted: types.QueuedResource
) -> None:
    server.set_capacity(ZONE, nodes=0)
    create(client, wanted)
    server.advance(10)
    client.delete_queued_resource(name=NAME)
    server.advance(10)
    assert not server.leftovers()


@pytest.mark.parametrize("by_user", [True, False])
def test_a_lost_node_suspends_all_slices(
    server: Server, client: TpuClient, wanted: types.QueuedResource, node: types.Node, *, by_user: bool
) -> None:
    wanted.tpu.node_spec = slices(node, 2)
    create(client, wanted)
    server.advance(10)
    client.delete_node(name=f"{PARENT}/nodes/q-1") if by_user else server.preempt("q-1")
    assert state(client) == "SUSPENDING"
    server.advance(10)
    found = client.get_queued_resource(name=NAME).state
    assert (found.state.name, found.state_initiator.name) == ("SUSPENDED", "USER" if by_user else "SERVICE")
    assert server.leftovers() == [NAME]


def test_the_deletion_of_a_node_succeeds_with_that_of_its_queued_resource(
    server: Server, client: TpuClient, wanted: types.QueuedResource
) -> None:
    create(client, wanted)
    server.advance(10)
    server.add_fault(Fault("DeleteNode", when="operation", operation_seconds=60))
    deletion = client.delete_node(name=f"{PARENT}/nodes/n")
    client.delete_queued_resource({"name": NAME, "force": True})
    server.advance(60)
    deletion.result()
    assert not server.leftovers()


def test_provisioning_can_fail(server: Server, client: TpuClient, wanted: types.QueuedResource) -> None:
    server.add_fault(Fault("ProvisionQueuedResource", "INTERNAL"))
    create(client, wanted)
    server.advance(10)
    error = client.get_queued_resource(name=NAME).state.failed_data.error
    assert (error.code, "an internal error has occurred" in error.message) == (13, True)
    assert server.leftovers() == [NAME]


def test_a_queued_resource_counts_for_the_quota_until_its_deletion(
    server: Server, client: TpuClient, wanted: types.QueuedResource
) -> None:
    server.set_quota("TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI", 8)
    create(client, wanted)
    server.advance(10)
    server.preempt("n")
    server.advance(10)
    with pytest.raises(exceptions.ResourceExhausted, match="has been exceeded"):
        create(client, wanted, "other")
    client.delete_queued_resource(name=NAME)
    server.advance(10)
    create(client, wanted, "other")


def test_requests_with_the_same_id_count_as_one(client: TpuClient, wanted: types.QueuedResource) -> None:
    request = {"parent": PARENT, "queued_resource_id": "q", "queued_resource": wanted, "request_id": "1-2-3"}
    names = {client.create_queued_resource(request).operation.name for _ in range(2)}
    assert len(names) == 1
    with pytest.raises(exceptions.AlreadyExists):
        create(client, wanted)


def test_a_reset_makes_the_nodes_again(server: Server, client: TpuClient, wanted: types.QueuedResource) -> None:
    create(client, wanted)
    server.advance(10)
    client.reset_queued_resource(name=NAME)
    server.advance(10)
    assert state(client) == "ACTIVE"
    assert [record.states[-1] for record in server.history()] == ["READY", "READY"]


def test_the_nodes_of_a_queued_resource_must_be_valid(
    client: TpuClient, wanted: types.QueuedResource, node: types.Node
) -> None:
    node.runtime_version = ""
    wanted.tpu.node_spec = [types.QueuedResource.Tpu.NodeSpec(parent=PARENT, node_id="n", node=node)]
    with pytest.raises(exceptions.InvalidArgument, match="runtime_version"):
        create(client, wanted)
