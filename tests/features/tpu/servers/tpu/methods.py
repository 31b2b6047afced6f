"""The methods of the API over the shared state, with the faults that tests set. gRPC and REST call them.

Every request is recorded before its effect, and its result after its effect.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import proto
from google.cloud.tpu_v2 import types
from google.longrunning import operations_pb2
from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from tests.features.tpu.servers.tpu import catalog, refusals, validation
from tests.features.tpu.servers.tpu.cloud import Cloud
from tests.features.tpu.servers.tpu.faults import Fault
from tests.features.tpu.servers.tpu.nodes import Nodes
from tests.features.tpu.servers.tpu.operations import Operations
from tests.features.tpu.servers.tpu.queued_resources import QueuedResources
from tests.features.tpu.servers.tpu.refusals import ApiError

SERVICES: Final[Mapping[str, Any]] = {  # by name, with the module of the messages
    "google.cloud.tpu.v2.Tpu": types,
    "google.longrunning.Operations": operations_pb2,
}


@dataclass(slots=True)
class Recorded:
    """A request, and the code of its response; empty while the call is not answered."""

    number: int
    method: str
    target: str
    time: float
    body: Mapping[str, Any]
    code: str = ""


class Api:
    """The methods of the API."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.requests: list[Recorded] = []
        self.nodes = Nodes(cloud, operations := Operations(cloud))
        self.queued = QueuedResources(cloud, self.nodes, operations)
        # The methods that begin an operation also get the fault that applies to the call.
        self._changes: Mapping[str, Callable[[Any, Fault], Any]] = {
            "CreateNode": self.nodes.create,
            "DeleteNode": self.nodes.delete,
            "StopNode": self.nodes.stop,
            "StartNode": self.nodes.start,
            "UpdateNode": self.nodes.update,
            "CreateQueuedResource": self.queued.create,
            "DeleteQueuedResource": self.queued.delete,
            "ResetQueuedResource": self.queued.reset,
        }
        self._others: Mapping[str, Callable[[Any], Any]] = {
            "GetNode": self.nodes.get,
            "ListNodes": self.nodes.list,
            "GetGuestAttributes": self.nodes.guest_attributes,
            "GetQueuedResource": self.queued.get,
            "ListQueuedResources": self.queued.list,
            "GenerateServiceIdentity": _service_identity,
            "GetAcceleratorType": self._get_accelerator_type,
            "ListAcceleratorTypes": self._list_accelerator_types,
            "GetRuntimeVersion": _get_runtime_version,
            "ListRuntimeVersions": _list_runtime_versions,
            "GetOperation": lambda request: operations.get(request.name),
            "ListOperations": operations.list,
            "CancelOperation": lambda request: operations.cancel(request.name),
            "DeleteOperation": lambda request: operations.delete(request.name),
        }
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def methods(self, service: str) -> Mapping[str, Any]:
        """Return the types of the requests of a service, by the names of the methods."""
        requests = {
            name: getattr(SERVICES[service], f"{name}Request", None) for name in (*self._changes, *self._others)
        }
        return {
            name: request.pb() if issubclass(request, proto.Message) else request
            for name, request in requests.items()
            if request is not None
        }

    def call(self, name: str, request: Message, wait_for_end: Callable[[], object]) -> Message:
        """Carry out a method, and return the response.

        Args:
            wait_for_end: waits until the client has gone away or the server stops.

        Raises:
            ApiError: the API refuses the request, or a fault applies.
        """
        recorded = self._record(name, request)
        fault = self.cloud.faults.take(name, validation.zone_of(recorded.target), _id(request))
        try:
            response = self._carry_out(name, request, fault, wait_for_end)
        except ApiError as error:
            recorded.code = error.code.name
            raise
        recorded.code = "OK"
        return response

    def _carry_out(self, name: str, request: Message, fault: Fault, wait_for_end: Callable[[], object]) -> Message:
        if fault.when == "late":
            self.cloud.clock.call_later(fault.delay, lambda: self._carry_out_late(name, request))
        if fault.when in ("before", "late"):
            _apply(fault, wait_for_end)
        response = self._handle(name, request, fault)
        if fault.when == "after":
            _apply(fault, wait_for_end)
        return response

    def _handle(self, name: str, request: Message, fault: Fault) -> Message:
        wrapper = getattr(types, f"{name}Request", None)
        wanted = wrapper.wrap(request) if wrapper is not None else request
        with self.cloud.changed:
            changes = self._changes.get(name)
            return _copy(changes(wanted, fault) if changes is not None else self._others[name](wanted))

    def _carry_out_late(self, name: str, request: Message) -> None:
        with suppress(ApiError):
            self._handle(name, request, Fault())

    def _record(self, name: str, request: Message) -> Recorded:
        with self._lock:
            body = json_format.MessageToDict(request)
            recorded = Recorded(next(self._numbers), name, _target(request), self.cloud.clock.now(), body)
            self.requests.append(recorded)
            return recorded

    def _list_accelerator_types(self, request: types.ListAcceleratorTypesRequest) -> Any:
        zone = validation.parent(request.parent).zone
        found = [_accelerator_type(request.parent, one) for one in self.cloud.offered(zone)]
        items, token = validation.page(found, request.page_size, request.page_token)
        return types.ListAcceleratorTypesResponse(accelerator_types=items, next_page_token=token)

    def _get_accelerator_type(self, request: types.GetAcceleratorTypeRequest) -> Any:
        parent = validation.parent(request.name)
        for one in self.cloud.offered(parent.zone):
            if one.name == validation.id_of(request.name):
                return _accelerator_type(str(parent), one)
        raise refusals.not_found(request.name)


def _accelerator_type(parent: str, one: catalog.Accelerator) -> types.AcceleratorType:
    name = f"{parent}/acceleratorTypes/{one.name}"
    return types.AcceleratorType(name=name, type_=one.name, accelerator_configs=[one.config])


def _service_identity(request: types.GenerateServiceIdentityRequest) -> Any:
    number = validation.project_number(validation.parent(request.parent).project)
    identity = types.ServiceIdentity(email=f"service-{number}@cloud-tpu.iam.gserviceaccount.com")
    return types.GenerateServiceIdentityResponse(identity=identity)


def _list_runtime_versions(request: types.ListRuntimeVersionsRequest) -> Any:
    parent = validation.parent(request.parent)
    found = [_runtime_version(f"{parent}/runtimeVersions/{one}") for one in catalog.RUNTIME_VERSIONS]
    items, token = validation.page(found, request.page_size, request.page_token)
    return types.ListRuntimeVersionsResponse(runtime_versions=items, next_page_token=token)


def _get_runtime_version(request: types.GetRuntimeVersionRequest) -> Any:
    validation.parent(request.name)
    if validation.id_of(request.name) not in catalog.RUNTIME_VERSIONS:
        raise refusals.not_found(request.name)
    return _runtime_version(request.name)


def _runtime_version(name: str) -> types.RuntimeVersion:
    return types.RuntimeVersion(name=name, version=validation.id_of(name))


def _apply(fault: Fault, wait_for_end: Callable[[], object]) -> None:
    """Let a call hang or fail."""
    if fault.hang:
        wait_for_end()
        raise ApiError("CANCELLED", "the client has gone away")
    if error := fault.error():
        raise error


def _copy(response: Any) -> Message:
    """Return a copy of a response, so that later changes of the state do not change it."""
    if response is None:
        return Empty()
    found = type(response).pb(response) if isinstance(response, proto.Message) else response
    result: Message = type(found)()
    result.CopyFrom(found)
    return result


def _target(request: Any) -> str:
    """Return the name of the resource that a request is about, or the name of its parent."""
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
    return "" if "parent" in fields else validation.id_of(_target(request))
