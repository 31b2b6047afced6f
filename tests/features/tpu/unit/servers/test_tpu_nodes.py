"""Nodes of the test server of the TPU API, as Google's client library sees them."""

from __future__ import annotations

import pytest
from google.api_core import exceptions
from google.cloud.tpu_v2 import TpuClient, types
from google.protobuf.field_mask_pb2 import FieldMask

from tests.features.tpu.servers.tpu import Fault, Server

PARENT = "projects/p/locations/us-central1-a"
NAME = f"{PARENT}/nodes/n"
State = types.Node.State


def test_a_node_is_creating_then_ready(server: Server, client: TpuClient, node: types.Node) -> None:
    operation = client.create_node(parent=PARENT, node_id="n", node=node)
    assert client.get_node(name=NAME).state == State.CREATING
    server.advance()
    ready = client.get_node(name=NAME)
    assert (ready.state, ready.health) == (State.READY, types.Node.Health.HEALTHY)
    assert ready.accelerator_config == types.AcceleratorConfig(type_="V5LITE_POD", topology="2x4")
    assert operation.result() == ready


def test_an_operation_names_its_verb_and_target(server: Server, client: TpuClient, node: types.Node) -> None:
    operation = client.create_node(parent=PARENT, node_id="n", node=node)
    assert (operation.metadata.target, operation.metadata.verb) == (NAME, "create")
    server.advance()
    assert operation.done()
    assert operation.metadata.end_time > operation.metadata.create_time


WORKERS = {
    "v2-32": 4,
    "v3-8": 1,
    "v4-8": 1,
    "v4-16": 2,
    "v5litepod-1": 1,
    "v5litepod-8": 1,
    "v5litepod-16": 4,
    "v5p-8": 1,
    "v5p-32": 4,
    "v6e-8": 1,
    "v6e-64": 16,
}


@pytest.mark.parametrize(("accelerator", "workers"), WORKERS.items())
def test_a_node_has_as_many_workers_as_its_type(
    server: Server, client: TpuClient, node: types.Node, accelerator: str, workers: int
) -> None:
    node.accelerator_type = accelerator
    client.create_node(parent=PARENT, node_id="n", node=node)
    server.advance()
    assert len(client.get_node(name=NAME).network_endpoints) == workers


def test_a_topology_names_a_type(client: TpuClient) -> None:
    wanted = types.Node(accelerator_config={"type_": "V5P", "topology": "2x2x4"}, runtime_version="v2-alpha-tpuv5")
    client.create_node(parent=PARENT, node_id="n", node=wanted)
    assert client.get_node(name=NAME).accelerator_type == "v5p-32"


def test_a_deleted_node_is_gone(server: Server, client: TpuClient, node: types.Node) -> None:
    client.create_node(parent=PARENT, node_id="n", node=node)
    server.advance()
    operation = client.delete_node(name=NAME)
    assert client.get_node(name=NAME).state == State.DELETING
    server.advance()
    operation.result()
    with pytest.raises(exceptions.NotFound, match=f"Resource '{NAME}' was not found"):
        client.get_node(name=NAME)
    (record,) = server.history()
    assert record.states == ["CREATING", "READY", "DELETING"]
    assert record.deleted is not None
    assert not server.leftovers()


def test_a_name_can_be_used_only_once(client: TpuClient, node: types.Node) -> None:
    client.create_node(parent=PARENT, node_id="n", node=node)
    with pytest.raises(exceptions.AlreadyExists, match=f"Resource '{NAME}' already exists"):
        client.create_node(parent=PARENT, node_id="n", node=node)


def test_a_deletion_ends_a_creation(server: Server, client: TpuClient, node: types.Node) -> None:
    creation = client.create_node(parent=PARENT, node_id="n", node=node)
    client.delete_node(name=NAME)
    server.advance(1)
    with pytest.raises(exceptions.InvalidArgument, match="update is not supported while in state DELETING"):
        creation.result()
    assert not server.leftovers()


def test_a_list_has_pages(client: TpuClient, node: types.Node) -> None:
    for number in range(5):
        client.create_node(parent=PARENT, node_id=f"n{number}", node=node)
    pages = list(client.list_nodes({"parent": PARENT, "page_size": 2}).pages)
    assert [len(page.nodes) for page in pages] == [2, 2, 1]


def test_a_list_of_all_zones_says_which_are_unreachable(server: Server, client: TpuClient, node: types.Node) -> None:
    for zone in ("us-central1-a", "us-west4-a"):
        client.create_node(parent=f"projects/p/locations/{zone}", node_id="n", node=node)
    server.set_unreachable("us-west4-a")
    (page,) = client.list_nodes(parent="projects/p/locations/-").pages
    assert [one.name for one in page.nodes] == [NAME]
    assert list(page.unreachable) == ["projects/p/locations/us-west4-a"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accelerator_type": "v9-8"}, "the accelerator v9-8 was not found in zone us-central1-a"),
        ({"runtime_version": "unknown"}, "unknown"),
        ({"labels": {"User": "x"}}, "key 'User' does not match"),
        ({"labels": {"user": "X"}}, "value 'X' does not match"),
        ({"metadata": {"startup-script": "x" * 300_000}}, "longer than 256 KB"),
    ],
)
def test_a_bad_node_is_refused(client: TpuClient, node: types.Node, changes: dict[str, object], message: str) -> None:
    for field, value in changes.items():
        setattr(node, field, value)
    with pytest.raises(exceptions.InvalidArgument, match=message):
        client.create_node(parent=PARENT, node_id="n", node=node)


@pytest.mark.parametrize("node_id", ["", "N", "a_b", "-a", "a-", "a" * 64])
def test_a_bad_id_is_refused(client: TpuClient, node: types.Node, node_id: str) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="node_id"):
        client.create_node(parent=PARENT, node_id=node_id, node=node)


def test_an_unknown_zone_is_a_missing_permission(client: TpuClient) -> None:
    with pytest.raises(exceptions.PermissionDenied, match="locations/moon-a"):
        client.get_node(name="projects/p/locations/moon-a/nodes/n")


def test_an_update_changes_what_its_mask_names(server: Server, client: TpuClient, node: types.Node) -> None:
    client.create_node(parent=PARENT, node_id="n", node=node)
    server.advance()
    changed = types.Node(name=NAME, labels={"a": "b"}, description="not in the mask")
    client.update_node(node=changed, update_mask=FieldMask(paths=["labels"]))
    server.advance()
    found = client.get_node(name=NAME)
    assert (dict(found.labels), found.description) == ({"a": "b"}, "")


def test_a_node_can_be_stopped_and_started(server: Server, client: TpuClient, node: types.Node) -> None:
    client.create_node(parent=PARENT, node_id="n", node=node)
    server.advance()
    client.stop_node({"name": NAME})
    server.advance()
    client.start_node({"name": NAME})
    server.advance()
    (record,) = server.history()
    assert record.states == ["CREATING", "READY", "STOPPING", "STOPPED", "STARTING", "READY"]


def test_a_pod_cannot_be_stopped(server: Server, client: TpuClient, node: types.Node) -> None:
    node.accelerator_type = "v5litepod-16"
    client.create_node(parent=PARENT, node_id="n", node=node)
    server.advance()
    with pytest.raises(exceptions.InvalidArgument, match="TPU Pods"):
        client.stop_node({"name": NAME})


def test_a_zone_without_capacity_fails_the_operation(server: Server, client: TpuClient, node: types.Node) -> None:
    server.set_capacity("us-central1-a", "v5litepod-*", nodes=1)
    client.create_node(parent=PARENT, node_id="first", node=node)
    operation = client.create_node(parent=PARENT, node_id="second", node=node)
    server.advance()
    with pytest.raises(exceptions.ResourceExhausted, match='no more capacity in the zone "us-central1-a"'):
        operation.result()
    assert server.leftovers() == [f"{PARENT}/nodes/first"]


def test_a_reservation_without_capacity_has_its_own_code(server: Server, client: TpuClient, node: types.Node) -> None:
    server.set_capacity("us-central1-a", nodes=0)
    node.scheduling_config.reserved = True
    operation = client.create_node(parent=PARENT, node_id="n", node=node)
    server.advance()
    with pytest.raises(exceptions.FailedPrecondition, match="Insufficient reserved capacity"):
        operation.result()


def test_a_node_can_be_preempted_while_it_is_created(server: Server, client: TpuClient, node: types.Node) -> None:
    operation = client.create_node(parent=PARENT, node_id="n", node=node)
    server.preempt("n")
    server.advance()
    with pytest.raises(exceptions.InvalidArgument, match="update is not supported while in state PREEMPTED"):
        operation.result()
    assert client.get_node(name=NAME).state == State.PREEMPTED


def test_a_fault_can_be_a_rate_limit(server: Server, client: TpuClient, node: types.Node) -> None:
    server.add_fault(Fault("CreateNode", "RESOURCE_EXHAUSTED", "per minute", reason="RATE_LIMIT_EXCEEDED"))
    with pytest.raises(exceptions.ResourceExhausted) as caught:
        client.create_node(parent=PARENT, node_id="n", node=node)
    assert caught.value.reason == "RATE_LIMIT_EXCEEDED"


def test_a_quota_refuses_the_call(server: Server, client: TpuClient, node: types.Node) -> None:
    server.set_quota("TPUV5sLitepodPerProjectPerZoneForTPUAPI", 12)
    client.create_node(parent=PARENT, node_id="first", node=node)
    with pytest.raises(exceptions.ResourceExhausted, match=r"has been exceeded\. Limit: 12 in zone") as caught:
        client.create_node(parent=PARENT, node_id="second", node=node)
    assert caught.value.details[0].violations[0].description.startswith("Quota 'TPUV5sLitepod")


def test_a_preempted_node_stays_until_it_is_deleted(server: Server, client: TpuClient, node: types.Node) -> None:
    client.create_node(parent=PARENT, node_id="n", node=node)
    server.advance()
    server.preempt("n")
    server.advance(3600)
    assert client.get_node(name=NAME).state == State.PREEMPTED


@pytest.mark.parametrize(
    ("event", "state", "health"),
    [("maintain", "READY", "UNHEALTHY_MAINTENANCE"), ("repair", "REPAIRING", "TIMEOUT")],
)
def test_a_node_returns_from_maintenance_and_repair(
    server: Server, client: TpuClient, node: types.Node, event: str, state: str, health: str
) -> None:
    client.create_node(parent=PARENT, node_id="n", node=node)
    server.advance()
    getattr(server, event)("n", seconds=60)
    during = client.get_node(name=NAME)
    assert (during.state.name, during.health.name) == (state, health)
    assert during.health_description
    server.advance(60)
    after = client.get_node(name=NAME)
    assert (after.state.name, after.health.name, after.health_description) == ("READY", "HEALTHY", "")


def test_an_error_before_the_effect_creates_nothing(server: Server, client: TpuClient, node: types.Node) -> None:
    server.add_fault(Fault("CreateNode", "UNAVAILABLE"))
    with pytest.raises(exceptions.ServiceUnavailable):
        client.create_node(parent=PARENT, node_id="n", node=node)
    assert not server.history()


def test_an_error_after_the_effect_loses_only_the_response(server: Server, client: TpuClient, node: types.Node) -> None:
    server.add_fault(Fault("CreateNode", "UNAVAILABLE", when="after"))
    with pytest.raises(exceptions.ServiceUnavailable):
        client.create_node(parent=PARENT, node_id="n", node=node)
    assert server.leftovers() == [NAME]


def test_a_hanging_call_ends_at_the_deadline_of_the_client(server: Server, client: TpuClient, node: types.Node) -> None:
    server.add_fault(Fault("CreateNode", when="after", hang=True))
    with pytest.raises(exceptions.DeadlineExceeded):
        client.create_node(parent=PARENT, node_id="n", node=node, timeout=0.1)
    assert server.leftovers() == [NAME]


def test_a_hanging_call_without_effect_creates_nothing(server: Server, client: TpuClient, node: types.Node) -> None:
    server.add_fault(Fault("CreateNode", hang=True))
    with pytest.raises(exceptions.DeadlineExceeded):
        client.create_node(parent=PARENT, node_id="n", node=node, timeout=0.1)
    client.create_node(parent=PARENT, node_id="n", node=node)
    assert len(server.history()) == 1


def test_a_fault_applies_to_the_calls_that_it_names(server: Server, client: TpuClient, node: types.Node) -> None:
    server.add_fault(Fault("Get*", "INTERNAL", name="n", first=2, times=1))
    client.create_node(parent=PARENT, node_id="n", node=node)
    client.get_node(name=NAME)
    with pytest.raises(exceptions.InternalServerError):
        client.get_node(name=NAME)
    client.get_node(name=NAME)
    assert [one.code for one in server.requests("GetNode")] == ["OK", "INTERNAL", "OK"]


def test_a_call_that_failed_can_take_effect_late(server: Server, client: TpuClient, node: types.Node) -> None:
    server.add_fault(Fault("CreateNode", "UNAVAILABLE", when="late", delay=600))
    with pytest.raises(exceptions.ServiceUnavailable):
        client.create_node(parent=PARENT, node_id="n", node=node)
    server.advance(599)
    assert server.leftovers() == []
    server.advance(1)
    assert server.leftovers() == [NAME]


def test_an_operation_can_fail_and_be_slow(server: Server, client: TpuClient, node: types.Node) -> None:
    server.add_fault(Fault("CreateNode", "INTERNAL", when="operation", operation_seconds=600))
    operation = client.create_node(parent=PARENT, node_id="n", node=node)
    server.advance(599)
    assert not operation.done()
    server.advance(1)
    with pytest.raises(exceptions.InternalServerError, match="an internal error has occurred"):
        operation.result()
