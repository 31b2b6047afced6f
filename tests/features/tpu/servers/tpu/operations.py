"""Long-running operations: https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.operations."""

from __future__ import annotations

import secrets
from typing import Any

import proto
from google.cloud.tpu_v2 import types
from google.longrunning.operations_pb2 import ListOperationsRequest, ListOperationsResponse, Operation
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status

from tests.features.tpu.servers.tpu import refusals, validation
from tests.features.tpu.servers.tpu.cloud import Cloud


class Operations:
    """All operations. They stay after their end, until they are deleted."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._operations: dict[str, Operation] = {}

    def begin(self, target: str, verb: str) -> str:
        """Record an operation that goes on, and return its name."""
        parent = validation.parent(target)
        started = f"{self._cloud.clock.now() * 1000:.0f}-{secrets.token_hex(6)}-{secrets.token_hex(4)}"
        operation = Operation(name=f"{parent}/operations/operation-{started}-{secrets.token_hex(4)}")
        metadata = types.OperationMetadata(
            create_time=self._cloud.timestamp(), target=target, verb=verb, api_version="v2"
        )
        operation.metadata.Pack(types.OperationMetadata.pb(metadata))
        self._operations[operation.name] = operation
        return str(operation.name)

    def finish(self, name: str, result: proto.Message | Message | Status) -> None:
        """Record the end of an operation with its response, or with the status of its error."""
        with self._cloud.changed:
            operation = self._operations.get(name)
            if operation is None or operation.done:
                return
            self._change_metadata(operation, end_time=self._cloud.timestamp())
            if isinstance(result, Status):
                operation.error.CopyFrom(result)
            else:
                operation.response.Pack(type(result).pb(result) if isinstance(result, proto.Message) else result)
            operation.done = True

    def get(self, name: str) -> Operation:
        """Return a copy of an operation.

        Raises:
            ApiError: the operation does not exist.
        """
        operation = Operation()
        operation.CopyFrom(self._of(name))
        return operation

    def list(self, request: ListOperationsRequest) -> ListOperationsResponse:
        """Return a page of the operations of a zone."""
        # The parent is the field `name`: projects/PROJECT/locations/ZONE, or with `/operations` at its end.
        prefix = request.name.removesuffix("/operations") + "/operations/"
        found = [self.get(name) for name in sorted(self._operations) if name.startswith(prefix)]
        items, token = validation.page(found, request.page_size, request.page_token)
        return ListOperationsResponse(operations=items, next_page_token=token)

    def cancel(self, name: str) -> None:
        """Record that a client wants to cancel an operation. As with the real service, the operation may continue."""
        operation = self._of(name)
        if not operation.done:
            self._change_metadata(operation, cancel_requested=True)

    def delete(self, name: str) -> None:
        """Forget the result of an operation."""
        self._of(name)
        del self._operations[name]

    def _of(self, name: str) -> Operation:
        if name not in self._operations:
            raise refusals.not_found(name)
        return self._operations[name]

    @staticmethod
    def _change_metadata(operation: Operation, **changes: Any) -> None:
        metadata = types.OperationMetadata.deserialize(operation.metadata.value)
        for field, value in changes.items():
            setattr(metadata, field, value)
        operation.metadata.Pack(types.OperationMetadata.pb(metadata))
