"""The states of the API become phases, also states that this version does not know."""

from __future__ import annotations

import pytest
from google.cloud import tpu_v2
from google.longrunning import operations_pb2
from google.protobuf import any_pb2
from google.rpc import status_pb2

from tests.features.tpu.unit.conftest import PLACE
from toolbox.features.tpu import conversions, progress
from toolbox.features.tpu.api_errors import CapacityError
from toolbox.features.tpu.progress import TpuLost
from toolbox.features.tpu.tpu_states import Endpoint, Fault, Node, Phase, QueuedResource
from toolbox.ground.model.errors import StepError

NODE = PLACE.node("tpu")
QUEUED = PLACE.queued_resource("tpu")


@pytest.mark.parametrize("state", list(tpu_v2.Node.State))
def test_every_state_of_a_node_has_a_phase(state: tpu_v2.Node.State) -> None:
    phase = Node(NODE, state.name).phase
    assert phase is (Phase.UP if state.name == "READY" else phase)
    assert phase is not Phase.LOST or state.name in {
        "RESTARTING", "REIMAGING", "REPAIRING", "STOPPED", "STOPPING", "PREEMPTED", "TERMINATED", "HIDING", "HIDDEN",
    }  # fmt: skip


@pytest.mark.parametrize("state", list(tpu_v2.QueuedResourceState.State))
def test_only_an_active_queued_resource_is_up(state: tpu_v2.QueuedResourceState.State) -> None:
    assert (QueuedResource(QUEUED, state.name).phase is Phase.UP) is (state.name == "ACTIVE")


def test_an_unknown_state_of_a_newer_api_is_named_by_its_number() -> None:
    message = tpu_v2.Node(name=NODE)
    tpu_v2.Node.pb(message).state = 99
    node = conversions.node_of(message)
    assert (node.state, node.phase) == ("99", Phase.CREATING)


def test_symptoms_and_health_are_the_reason() -> None:
    message = tpu_v2.Node(
        name=NODE,
        state="READY",
        health="UNHEALTHY_MAINTENANCE",
        health_description="broken\x1b[31m",
        symptoms=[{"symptom_type": "OUT_OF_MEMORY", "worker_id": "3", "details": "host"}],
    )
    text = "the node tpu is READY but not healthy (UNHEALTHY_MAINTENANCE): broken; OUT_OF_MEMORY on worker 3 (host)"
    assert conversions.node_of(message).message == text


def test_an_operation_with_foreign_metadata_is_read() -> None:
    metadata = any_pb2.Any(type_url="type.googleapis.com/google.cloud.tpu.v2.OperationMetadata", value=b"\xff\xff")
    message = operations_pb2.Operation(name="o", metadata=metadata, error=status_pb2.Status(code=99, message="x"))
    operation = conversions.operation_of(message)
    assert (operation.target, operation.fault) == ("", Fault("UNKNOWN", "x"))


def test_a_node_without_all_of_its_workers_is_awaited() -> None:
    node = Node(NODE, "READY", accelerator_type="v6e-16", endpoints=(Endpoint("10.0.0.1"),))
    state = progress.of_nodes([node])
    assert (state.phase, state.message) == (Phase.CREATING, "the node tpu has the addresses of 1 of 4 workers")


def test_a_type_that_this_version_does_not_know_needs_one_worker() -> None:
    assert progress.of_nodes([Node(NODE, "READY", accelerator_type="v9-8", endpoints=(Endpoint("10.0.0.1"),))]).is_up


@pytest.mark.parametrize(
    ("queued", "kind"),
    [
        (QueuedResource(QUEUED, "FAILED"), CapacityError),
        (QueuedResource(QUEUED, "FAILED", Fault("DEADLINE_EXCEEDED", "expired")), CapacityError),
        (QueuedResource(QUEUED, "FAILED", Fault("INTERNAL", "x")), StepError),
        (QueuedResource(QUEUED, "SUSPENDED", is_by_service=True), TpuLost),
        (QueuedResource(QUEUED, "DELETING"), TpuLost),
    ],
)
def test_a_queued_resource_that_does_not_come_up_is_an_error(queued: QueuedResource, kind: type[StepError]) -> None:
    with pytest.raises(kind):
        progress.of_queued_resource(queued, [])
