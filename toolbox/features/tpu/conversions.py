"""Converts between the messages of the TPU API and the frozen data of this package.

The functions read the protobuf messages below the wrappers of the client library. The wrappers warn about values of an
enumeration that a newer API has, and such a value must not end a run.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from google.cloud import tpu_v2
from google.cloud.tpu_v2 import types
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2

from toolbox.features.tpu.tpu_description import DataDisk, TpuDescription
from toolbox.features.tpu.tpu_request import TpuRequest
from toolbox.features.tpu.tpu_states import Endpoint, Fault, Node, Operation, QueuedResource
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.prices import Tier
from toolbox.ground.model.text import truncate

if TYPE_CHECKING:
    from google.longrunning import operations_pb2
    from google.rpc import status_pb2

_LONGEST_TEXT: Final = 500
# With OS Login, which a project may enable for all its machines, workers ignore the metadata `ssh-keys`.
_METADATA: Final[Mapping[str, str]] = {"enable-oslogin": "FALSE"}
_DISK_MODES: Final = {
    "read-write": types.AttachedDisk.DiskMode.READ_WRITE,
    "read-only": types.AttachedDisk.DiskMode.READ_ONLY,
}


def node_of(message: tpu_v2.Node) -> Node:
    """Return a node."""
    raw = tpu_v2.Node.pb(message)
    return Node(
        raw.name,
        _enum(raw, "state"),
        _enum(raw, "health"),
        _text(raw.health_description),
        raw.accelerator_type,
        raw.runtime_version,
        tuple(Endpoint(each.ip_address, each.access_config.external_ip) for each in raw.network_endpoints),
        dict(raw.labels),
        _time(raw),
        raw.queued_resource,
        _tier(raw.scheduling_config),
        tuple(_symptom(each) for each in raw.symptoms),
    )


def queued_resource_of(message: tpu_v2.QueuedResource) -> QueuedResource:
    """Return a queued resource."""
    raw = tpu_v2.QueuedResource.pb(message)
    specs = raw.tpu.node_spec
    names = [name for spec in specs for name in _node_names(spec, raw.name.rpartition("/")[2])]
    failed = raw.state.failed_data
    return QueuedResource(
        raw.name,
        _enum(raw.state, "state"),
        fault_of_status(failed.error) if failed.HasField("error") else None,
        tuple(names),
        dict(specs[0].node.labels) if specs else {},
        specs[0].node.accelerator_type if specs else "",
        specs[0].node.runtime_version if specs else "",
        _time(raw),
        Tier.SPOT if raw.HasField("spot") else Tier.RESERVED if raw.reservation_name else Tier.ON_DEMAND,
        _enum(raw.state, "state_initiator") == "SERVICE",
    )


def operation_of(message: operations_pb2.Operation) -> Operation:
    """Return an operation."""
    metadata = _operation_metadata(message.metadata)
    fault = fault_of_status(message.error) if message.HasField("error") else None
    target = metadata.target if metadata is not None else ""
    detail = _text(metadata.status_detail) if metadata is not None else ""
    return Operation(message.name, message.done, fault, target, detail)


def fault_of_status(status: status_pb2.Status) -> Fault:
    """Return the fault in a status. A code that gRPC does not define counts as UNKNOWN."""
    known = status.code in code_pb2.Code.values()
    return Fault(code_pb2.Code.Name(status.code) if known else "UNKNOWN", status.message)


def create_node(request: TpuRequest) -> tpu_v2.CreateNodeRequest:
    """Return the request that creates a plain node."""
    node = _node(request)
    tpu = request.description
    node.scheduling_config = types.SchedulingConfig(preemptible=tpu.preemptible, reserved=tpu.reserved is True)
    return tpu_v2.CreateNodeRequest(parent=str(request.location), node_id=request.name, node=node)


def create_queued_resource(request: TpuRequest) -> tpu_v2.CreateQueuedResourceRequest:
    """Return the request that creates a queued resource.

    The id of the request is new. A repeated call sends the same message, and so the same id. The id must not be derived
    from the name: the API ignores requests with a known id for an hour, so that the name could not be used again.
    """
    tpu, parent = request.description, str(request.location)
    spec = types.QueuedResource.Tpu.NodeSpec(parent=parent, node=_node(request))
    if tpu.slices > 1:
        params = types.QueuedResource.Tpu.NodeSpec.MultisliceParams
        spec.multislice_params = params(node_count=tpu.slices, node_id_prefix=request.name)
    else:
        spec.node_id = request.name
    resource = tpu_v2.QueuedResource(tpu=types.QueuedResource.Tpu(node_spec=[spec]))
    if tpu.spot:
        resource.spot = types.QueuedResource.Spot()
    if tpu.reserved:
        resource.guaranteed = types.QueuedResource.Guaranteed()
        resource.reservation_name = _reservation(request)
    if tpu.valid_until is not None:
        valid_until = duration_pb2.Duration(seconds=round(tpu.valid_until) or 1)
        resource.queueing_policy = types.QueuedResource.QueueingPolicy(valid_until_duration=valid_until)
    return tpu_v2.CreateQueuedResourceRequest(
        parent=parent,
        queued_resource_id=request.name,
        queued_resource=resource,
        request_id=str(uuid.uuid4()),
    )


def _node(request: TpuRequest) -> tpu_v2.Node:
    tpu = request.description
    node = tpu_v2.Node(
        runtime_version=tpu.runtime_version,
        network_config=types.NetworkConfig(
            network=tpu.network or "",
            subnetwork=tpu.subnetwork or "",
            enable_external_ips=tpu.external_ips,
        ),
        labels=dict(request.all_labels),
        metadata={**_METADATA, **request.metadata},
        tags=list(tpu.tags),
        data_disks=[_disk(disk, request) for disk in tpu.data_disks],
    )
    _set_type(node, tpu)
    if tpu.service_account is not None:
        account = tpu.service_account
        node.service_account = types.ServiceAccount(email=account.email, scope=list(account.scopes))
    return node


def _set_type(node: tpu_v2.Node, tpu: TpuDescription) -> None:
    if tpu.topology is None:
        node.accelerator_type = tpu.tpu_type.name
        return
    kind: Any = getattr(types.AcceleratorConfig.Type, tpu.tpu_type.generation.api_name)
    node.accelerator_config = types.AcceleratorConfig(type_=kind, topology=tpu.topology)


def _disk(disk: DataDisk, request: TpuRequest) -> types.AttachedDisk:
    path = disk.path(request.location.project, request.location.zone)
    return types.AttachedDisk(source_disk=path, mode=_DISK_MODES[disk.mode])


def _reservation(request: TpuRequest) -> str:
    """Return the full name of the reservation; `-` stands for any reservation of the project, as gcloud sends it."""
    reserved = request.description.reserved
    if isinstance(reserved, str) and "/" in reserved:
        return reserved
    return f"{request.location}/reservations/{reserved if isinstance(reserved, str) else '-'}"


def _node_names(spec: Any, queued_resource: str) -> list[str]:
    if spec.WhichOneof("name_strategy") != "multislice_params":
        return [spec.node_id] if spec.node_id else []
    params = spec.multislice_params
    return [f"{params.node_id_prefix or queued_resource}-{index}" for index in range(min(params.node_count, 256))]


def _operation_metadata(packed: any_pb2.Any) -> Any:
    """Return the metadata of an operation; None if it is of another type or damaged."""
    from google.protobuf.message import DecodeError

    metadata = tpu_v2.OperationMetadata.pb(tpu_v2.OperationMetadata())
    try:
        return metadata if packed.Unpack(metadata) else None
    except DecodeError:
        return None


def _tier(scheduling: Any) -> Tier:
    if scheduling.spot or scheduling.preemptible:
        return Tier.SPOT
    return Tier.RESERVED if scheduling.reserved else Tier.ON_DEMAND


def _symptom(raw: Any) -> str:
    worker = f" on worker {_text(raw.worker_id)}" if raw.worker_id else ""
    details = f" ({_text(raw.details)})" if raw.details else ""
    return f"{_enum(raw, 'symptom_type')}{worker}{details}"


def _enum(message: Any, name: str) -> str:
    """Return the name of an enumeration's value; the number as text if this version does not know the value."""
    number = getattr(message, name)
    value: Mapping[int, Any] = message.DESCRIPTOR.fields_by_name[name].enum_type.values_by_number
    return value[number].name if number in value else str(number)


def _text(value: str) -> str:
    return truncate(clean(value), _LONGEST_TEXT)


def _time(raw: Any) -> datetime | None:
    if not raw.HasField("create_time"):
        return None
    created: datetime = raw.create_time.ToDatetime(tzinfo=UTC)
    return created
