"""Operations and the smaller methods of the test server of the TPU API, as Google's client library sees them."""

from __future__ import annotations

import pytest
from google.api_core import exceptions
from google.cloud.tpu_v2 import TpuClient, types
from google.longrunning import operations_pb2

from tests.features.tpu.servers.tpu import Fault, Server

PARENT = "projects/p/locations/us-central1-a"


@pytest.fixture(name="operation")
def _operation(client: TpuClient, node: types.Node) -> str:
    """Return the name of a running operation."""
    return str(client.create_node(parent=PARENT, node_id="n", node=node).operation.name)


def test_operations_are_listed(client: TpuClient, node: types.Node, operation: str) -> None:
    other = client.create_node(parent=PARENT, node_id="other", node=node).operation.name
    client.create_node(parent="projects/p/locations/us-west4-a", node_id="n", node=node)
    listed = client.list_operations(operations_pb2.ListOperationsRequest(name=PARENT))
    assert {one.name for one in listed.operations} == {operation, other}


def test_a_cancelled_operation_goes_on(server: Server, client: TpuClient, operation: str) -> None:
    client.cancel_operation(operations_pb2.CancelOperationRequest(name=operation))
    server.advance()
    found = client.get_operation(operations_pb2.GetOperationRequest(name=operation))
    metadata = types.OperationMetadata.deserialize(found.metadata.value)
    assert (found.done, found.HasField("response"), metadata.cancel_requested) == (True, True, True)


def test_a_deleted_operation_is_not_found(client: TpuClient, operation: str) -> None:
    client.delete_operation(operations_pb2.DeleteOperationRequest(name=operation))
    with pytest.raises(exceptions.NotFound, match=operation):
        client.get_operation(operations_pb2.GetOperationRequest(name=operation))


def test_a_zone_offers_accelerator_types(server: Server, client: TpuClient) -> None:
    server.set_offer("us-central1-a", "v6e-?")
    assert [one.type_ for one in client.list_accelerator_types(parent=PARENT)] == ["v6e-1", "v6e-4", "v6e-8"]
    found = client.get_accelerator_type(name=f"{PARENT}/acceleratorTypes/v6e-8")
    assert found.accelerator_configs[0].topology == "2x4"
    with pytest.raises(exceptions.NotFound):
        client.get_accelerator_type(name=f"{PARENT}/acceleratorTypes/v5p-8")


def test_a_zone_has_runtime_versions(client: TpuClient) -> None:
    versions = [one.version for one in client.list_runtime_versions(parent=PARENT)]
    assert "v2-alpha-tpuv6e" in versions
    assert client.get_runtime_version(name=f"{PARENT}/runtimeVersions/{versions[0]}").version == versions[0]
    with pytest.raises(exceptions.NotFound):
        client.get_runtime_version(name=f"{PARENT}/runtimeVersions/unknown")


def test_the_service_has_an_identity(client: TpuClient) -> None:
    identity = client.generate_service_identity({"parent": PARENT}).identity
    assert identity.email.endswith(".iam.gserviceaccount.com")


def test_a_fault_of_one_zone_does_not_touch_another(server: Server, client: TpuClient, node: types.Node) -> None:
    server.add_fault(Fault("Create*", "PERMISSION_DENIED", zone="us-west4-*", times=None))
    client.create_node(parent=PARENT, node_id="n", node=node)
    with pytest.raises(exceptions.PermissionDenied, match="The caller does not have permission"):
        client.create_node(parent="projects/p/locations/us-west4-a", node_id="n", node=node)
    server.clear_faults()
    client.create_node(parent="projects/p/locations/us-west4-a", node_id="n", node=node)


def test_a_request_is_recorded_with_its_fields(server: Server, client: TpuClient, node: types.Node) -> None:
    node.labels = {"team": "a"}
    client.create_node(parent=PARENT, node_id="n", node=node)
    (request,) = server.requests("CreateNode")
    assert (request.target, request.code, request.body["node"]["labels"]) == (PARENT, "OK", {"team": "a"})
