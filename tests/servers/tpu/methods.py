"""The methods of the API over the shared state, with the faults that tests set. gRPC and REST call them.

Every request is recorded before its effect, and its result after that.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import proto
from google.cloud.location import locations_pb2
from google.cloud.tpu_v2 import types
from google.longrunning import operations_pb2
from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from tests.servers.tpu import catalog, checks, pages, refusals
from tests.servers.tpu.cloud import Cloud
from tests.servers.tpu.faults import Fault, Faults
from tests.servers.tpu.names import id_of, parent_of
from tests.servers.tpu.node_store import NodeStore
from tests.servers.tpu.nodes import Effect, Nodes
from tests.servers.tpu.operations import Operations
from tests.servers.tpu.queued_resources import PROVISION, QueuedResources
from tests.servers.tpu.refusals import ApiError

TPU: Final = "google.cloud.tpu.v2.Tpu"
OPERATIONS: Final = "google.longrunning.Operations"
LOCATIONS: Final = "google.cloud.location.Locations"
_WAIT_SECONDS: Final = 30.0  # for WaitOperation without a timeout


class Call(Protocol):
    """The client's side of a call."""

    def wait(self, seconds: float | None) -> bool:
        """Wait, and return whether the client has gone away or the server stops; None means without limit."""


@dataclass(slots=True)
class Recorded:
    """A request, and the code of its response; empty while the call is not answered."""

    number: int
    method: str
    target: str
    time: float
    body: Mapping[str, Any]
    code: str = ""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the API: its service, the type of its request, and what carries it out."""

    service: str
    request: Any
    handle: Callable[[Any, Effect], Any]


class Api:
    """The methods of the API."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.faults = Faults()
        self.requests: list[Recorded] = []
        self.operations = Operations(cloud)
        self.store = NodeStore(cloud)
        self.nodes = Nodes(cloud, self.store, self.operations)
        self.queued = QueuedResources(cloud, self.store, self.operations)
        self.methods = {**self._node_methods(), **self._queued_methods(), **self._other_methods()}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def call(self, name: str, request: Message, call: Call) -> Message:
        """Carry out a method, and return the response.

        Raises:
            ApiError: the API refuses the request, or a fault applies.
        """
        method, target = self.methods[name], _target(request)
        recorded = self._record(name, target, request)
        parent = parent_of(target)
        fault = self.faults.take(name, parent.zone if parent else "", _id(request)) or Fault()
        try:
            response = self._carry_out(method, request, fault, call)
        except ApiError as error:
            recorded.code = error.code.name
            raise
        recorded.code = "OK"
        return response

    def _carry_out(self, method: Method, request: Message, fault: Fault, call: Call) -> Message:
        error = fault.error()
        if fault.when == "before":
            _hold(fault, call)
            if error is not None:
                raise error
        failure = error.status() if error is not None and fault.when == "operation" else None
        if fault.when == "late" and error is not None:
            self.cloud.clock.call_later(fault.delay, lambda: self._carry_out_late(method, request))
            raise error
        response = self._handle(method, request, Effect(failure, fault.operation_seconds))
        if fault.when == "after":
            _hold(fault, call)
            if error is not None:
                raise error
        return response

    def _handle(self, method: Method, request: Message, effect: Effect) -> Message:
        wanted = method.request.wrap(request) if issubclass(method.request, proto.Message) else request
        with self.cloud.changed:
            return _copy(method.handle(wanted, effect))

    def _carry_out_late(self, method: Method, request: Message) -> None:
        with suppress(ApiError):
            self._handle(method, request, Effect())

    def _record(self, name: str, target: str, request: Message) -> Recorded:
        with self._lock:
            body = json_format.MessageToDict(request)
            recorded = Recorded(next(self._numbers), name, target, self.cloud.clock.now(), body)
            self.requests.append(recorded)
            return recorded

    def _node_methods(self) -> Mapping[str, Method]:
        nodes = self.nodes
        return {
            "CreateNode": Method(TPU, types.CreateNodeRequest, nodes.create),
            "GetNode": Method(TPU, types.GetNodeRequest, lambda request, _: nodes.get(request)),
            "ListNodes": Method(TPU, types.ListNodesRequest, lambda request, _: nodes.list(request)),
            "DeleteNode": Method(TPU, types.DeleteNodeRequest, nodes.delete),
            "StopNode": Method(TPU, types.StopNodeRequest, nodes.stop),
            "StartNode": Method(TPU, types.StartNodeRequest, nodes.start),
            "UpdateNode": Method(TPU, types.UpdateNodeRequest, nodes.update),
            "GetGuestAttributes": Method(
                TPU, types.GetGuestAttributesRequest, lambda request, _: nodes.guest_attributes(request)
            ),
        }

    def _queued_methods(self) -> Mapping[str, Method]:
        queued = self.queued
        return {
            "CreateQueuedResource": Method(TPU, types.CreateQueuedResourceRequest, self._create_queued_resource),
            "GetQueuedResource": Method(TPU, types.GetQueuedResourceRequest, lambda request, _: queued.get(request)),
            "ListQueuedResources": Method(
                TPU, types.ListQueuedResourcesRequest, lambda request, _: queued.list(request)
            ),
            "DeleteQueuedResource": Method(TPU, types.DeleteQueuedResourceRequest, queued.delete),
            "ResetQueuedResource": Method(TPU, types.ResetQueuedResourceRequest, queued.reset),
        }

    def _other_methods(self) -> Mapping[str, Method]:
        requests = operations_pb2
        operations = self.operations
        return {
            "GenerateServiceIdentity": Method(TPU, types.GenerateServiceIdentityRequest, _service_identity),
            "ListAcceleratorTypes": Method(TPU, types.ListAcceleratorTypesRequest, self._list_accelerator_types),
            "GetAcceleratorType": Method(TPU, types.GetAcceleratorTypeRequest, self._get_accelerator_type),
            "ListRuntimeVersions": Method(TPU, types.ListRuntimeVersionsRequest, _list_runtime_versions),
            "GetRuntimeVersion": Method(TPU, types.GetRuntimeVersionRequest, _get_runtime_version),
            "ListLocations": Method(LOCATIONS, locations_pb2.ListLocationsRequest, _list_locations),
            "GetLocation": Method(LOCATIONS, locations_pb2.GetLocationRequest, _get_location),
            "GetOperation": Method(
                OPERATIONS, requests.GetOperationRequest, lambda request, _: operations.get(request.name)
            ),
            "ListOperations": Method(
                OPERATIONS, requests.ListOperationsRequest, lambda request, _: operations.list(request)
            ),
            "CancelOperation": Method(
                OPERATIONS, requests.CancelOperationRequest, lambda request, _: operations.cancel(request.name)
            ),
            "DeleteOperation": Method(
                OPERATIONS, requests.DeleteOperationRequest, lambda request, _: operations.delete(request.name)
            ),
            "WaitOperation": Method(OPERATIONS, requests.WaitOperationRequest, self._wait_operation),
        }

    def _create_queued_resource(self, request: types.CreateQueuedResourceRequest, effect: Effect) -> Any:
        parent = parent_of(request.parent)
        fault = self.faults.take(PROVISION, parent.zone if parent else "", request.queued_resource_id) or Fault()
        error = fault.error()
        later = Effect(error.status() if error is not None else None, fault.operation_seconds)
        return self.queued.create(request, effect, later)

    def _wait_operation(self, request: operations_pb2.WaitOperationRequest, _: Effect) -> Any:
        seconds = request.timeout.ToTimedelta().total_seconds() if request.HasField("timeout") else _WAIT_SECONDS
        return self.operations.wait(request.name, seconds)

    def _list_accelerator_types(self, request: types.ListAcceleratorTypesRequest, _: Effect) -> Any:
        parent = checks.parent(request.parent)
        found = [_accelerator_type(str(parent), one) for one in self.cloud.offered(parent.zone)]
        page = pages.page(found, request.page_size, request.page_token)
        return types.ListAcceleratorTypesResponse(accelerator_types=page.items, next_page_token=page.next_page_token)

    def _get_accelerator_type(self, request: types.GetAcceleratorTypeRequest, _: Effect) -> Any:
        parent = checks.parent(request.name)
        for one in self.cloud.offered(parent.zone):
            if one.name == id_of(request.name):
                return _accelerator_type(str(parent), one)
        raise refusals.not_found(request.name)


def _accelerator_type(parent: str, one: catalog.Accelerator) -> types.AcceleratorType:
    name = f"{parent}/acceleratorTypes/{one.name}"
    return types.AcceleratorType(name=name, type_=one.name, accelerator_configs=[one.config])


def _service_identity(request: types.GenerateServiceIdentityRequest, _: Effect) -> Any:
    checks.parent(request.parent)
    identity = types.ServiceIdentity(email="service-123456789012@cloud-tpu.iam.gserviceaccount.com")
    return types.GenerateServiceIdentityResponse(identity=identity)


def _list_runtime_versions(request: types.ListRuntimeVersionsRequest, _: Effect) -> Any:
    parent = checks.parent(request.parent)
    found = [_runtime_version(str(parent), one) for one in catalog.RUNTIME_VERSIONS]
    page = pages.page(found, request.page_size, request.page_token)
    return types.ListRuntimeVersionsResponse(runtime_versions=page.items, next_page_token=page.next_page_token)


def _get_runtime_version(request: types.GetRuntimeVersionRequest, _: Effect) -> Any:
    parent = checks.parent(request.name)
    if id_of(request.name) not in catalog.RUNTIME_VERSIONS:
        raise refusals.not_found(request.name)
    return _runtime_version(str(parent), id_of(request.name))


def _runtime_version(parent: str, version: str) -> types.RuntimeVersion:
    return types.RuntimeVersion(name=f"{parent}/runtimeVersions/{version}", version=version)


def _list_locations(request: locations_pb2.ListLocationsRequest, _: Effect) -> Any:
    page = pages.page(catalog.ZONES, request.page_size, request.page_token)
    found = [_location(f"{request.name}/locations/{zone}") for zone in page.items]
    return locations_pb2.ListLocationsResponse(locations=found, next_page_token=page.next_page_token)


def _get_location(request: locations_pb2.GetLocationRequest, _: Effect) -> Any:
    checks.parent(request.name)
    return _location(request.name)


def _location(name: str) -> locations_pb2.Location:
    return locations_pb2.Location(name=name, location_id=id_of(name))


def _hold(fault: Fault, call: Call) -> None:
    """Delay a call, or let it hang."""
    if fault.hang:
        call.wait(None)
        raise ApiError("CANCELLED", "the client has gone away")
    if fault.delay:
        call.wait(fault.delay)


def _copy(response: Any) -> Message:
    """Return a copy of a response that later changes of the state do not reach."""
    if response is None:
        return Empty()
    found = type(response).pb(response) if isinstance(response, proto.Message) else response
    result: Message = type(found)()
    result.CopyFrom(found)
    return result


def _target(request: Any) -> str:
    """Return the name of the resource that a request is about, or that of its parent."""
    fields = request.DESCRIPTOR.fields_by_name
    if "parent" in fields:
        return str(request.parent)
    return str(request.name if "name" in fields else request.node.name)


def _id(request: Any) -> str:
    """Return the id of the resource that a request is about, or an empty text for lists."""
    fields = request.DESCRIPTOR.fields_by_name
    for field in ("node_id", "queued_resource_id"):
        if field in fields:
            return str(getattr(request, field))
    return "" if "parent" in fields else id_of(_target(request))
