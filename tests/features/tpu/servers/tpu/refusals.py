"""Errors of the API, with the codes and messages of Google's service.

The messages of stock-outs, quotas, permissions on zones, unknown accelerator types and unsupported states were copied
from public reports of users. The others follow the general wording of Google's APIs; a client must not depend on them.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status

STOCK_OUT: Final = (
    'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud TPU Nodes are offered '
    "(see https://cloud.google.com/tpu/docs/regions)"
)
NO_RESERVATION: Final = "Insufficient reserved capacity. Contact customer support to increase your reservation."
INTERNAL: Final = "an internal error has occurred"


class ApiError(Exception):
    """A request that the API refuses.

    Args:
        code: name of a code of gRPC, for example `NOT_FOUND`.
        details: messages for the field `details` of the status.
    """

    def __init__(self, code: str, message: str, details: Sequence[Message] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code = grpc.StatusCode[code]
        self.message = message
        self.details = details

    def status(self) -> Status:
        """Return the error as the status of an operation or of a response."""
        return status(self.code.name, self.message, self.details)


def status(code: str, message: str, details: Sequence[Message] = ()) -> Status:
    """Return a status with the name of its code."""
    result = Status(code=Code.Value(code), message=message)
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        result.details.append(packed)
    return result


def with_event_id(message: str) -> str:
    """Return a message with an event id at its end, as many messages of the service have it."""
    return f"{message} [EID: 0x{secrets.token_hex(8)}]"


def not_found(name: str) -> ApiError:
    """Return the error for a resource that does not exist."""
    return ApiError("NOT_FOUND", f"Resource '{name}' was not found", [_resource(name, "was not found")])


def already_exists(name: str) -> ApiError:
    """Return the error for a resource that exists."""
    return ApiError("ALREADY_EXISTS", f"Resource '{name}' already exists", [_resource(name, "already exists")])


def unknown_zone(zone: str, project: str) -> ApiError:
    """Return the error for a zone that does not exist, or where the project may not use TPUs."""
    message = f"Permission denied on 'locations/{zone}' (or it may not exist)."
    metadata = {"consumer": f"projects/{project}", "location": zone, "service": "tpu.googleapis.com"}
    info = error_details_pb2.ErrorInfo(reason="LOCATION_POLICY_VIOLATED", domain="googleapis.com", metadata=metadata)
    return ApiError("PERMISSION_DENIED", message, [info])


def bad_request(message: str) -> ApiError:
    """Return the error for a request that the service refuses."""
    return ApiError("INVALID_ARGUMENT", with_event_id(f"Cloud TPU received a bad request. {message}"))


def invalid_field(field: str, description: str) -> ApiError:
    """Return the error for a field with a wrong value."""
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=description)
    details = [error_details_pb2.BadRequest(field_violations=[violation])]
    return ApiError("INVALID_ARGUMENT", f"Invalid value for field '{field}': {description}", details)


def unknown_accelerator(accelerator: str, zone: str) -> ApiError:
    """Return the error for an accelerator type that a zone does not offer."""
    return bad_request(
        f'The requested accelerator configuration for accelerator type, "{accelerator}", could not be found in the '
        f'zonal accelerator configurations for "{zone}".; the accelerator {accelerator} was not found in zone {zone}'
    )


def unsupported_state(action: str, state: str) -> ApiError:
    """Return the error for an action that a node in this state does not support."""
    return bad_request(f"{action} is not supported while in state {state}")


def failed_precondition(message: str) -> ApiError:
    """Return the error for a request that the state of the resource does not permit."""
    return ApiError("FAILED_PRECONDITION", with_event_id(message))


def quota_exceeded(quota: str, limit: int, zone: str, project: str) -> ApiError:
    """Return the error for a quota that a request would exceed."""
    violation = error_details_pb2.QuotaFailure.Violation(
        subject=f"project:{project}", description=f"Quota '{quota}' exhausted. Limit {limit} in zone {zone}"
    )
    return ApiError(
        "RESOURCE_EXHAUSTED",
        f"Quota limit '{quota}' has been exceeded. Limit: {limit} in zone {zone}.",
        [error_details_pb2.QuotaFailure(violations=[violation])],
    )


def stock_out(zone: str, *, is_reserved: bool) -> Status:
    """Return the error of an operation for which a zone, or the reservation, has no capacity."""
    if is_reserved:
        return status("FAILED_PRECONDITION", with_event_id(NO_RESERVATION))
    return status("RESOURCE_EXHAUSTED", with_event_id(STOCK_OUT.format(zone=zone)))


def _resource(name: str, description: str) -> error_details_pb2.ResourceInfo:
    return error_details_pb2.ResourceInfo(resource_name=name, description=description)
