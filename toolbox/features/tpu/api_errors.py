"""Translates the errors of the TPU API into errors with a cause and a hint. This is the only place that does this.

The same errors arrive in three ways: as the status of a call, as the error of a long-running operation, and as the
error of a failed queued resource. All three become a `Fault` first.

The codes were seen in public logs: a stock-out is RESOURCE_EXHAUSTED (`There is no more capacity in the zone ...`), a
used-up reservation is FAILED_PRECONDITION (`Insufficient reserved capacity`), and a wrong or forbidden zone is
PERMISSION_DENIED (`Location ... is not found or access is unauthorized`).
"""

from __future__ import annotations

from typing import Final

from toolbox.features.tpu.tpu_states import Fault
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate
from toolbox.ground.model.verdicts import Cause

_LONGEST_MESSAGE: Final = 600
_TEMPORARY: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "ABORTED", "UNKNOWN", "CANCELLED"})
_CONFIGURATION: Final = frozenset(
    {"INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED", "OUT_OF_RANGE"}
)
_BUSY: Final = frozenset({"FAILED_PRECONDITION", "ABORTED"})
_NO_RESERVED_CAPACITY: Final = "insufficient reserved capacity"
_WRONG_STATE: Final = "is not supported while in state"  # INVALID_ARGUMENT, as in `delete ... while in state DELETING`
_POLICY: Final = "constraint"  # an organization policy is `constraints/...`
_RATE_LIMIT: Final = ("RATE_LIMIT_EXCEEDED", "per minute")
_LOGIN_FAILED: Final = "metadata from plugin failed"  # how gRPC reports that google-auth got no token
_LOGIN_NEEDED: Final = ("invalid_grant", "Reauthentication", "invalid_client", "unauthorized_client", "account_deleted")
LOGIN_HINT: Final = "log in with `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
_STATUS_PAGE: Final = "https://status.cloud.google.com"
_QUOTAS_PAGE: Final = "https://console.cloud.google.com/iam-admin/quotas"


class TpuApiError(StepError):
    """A request or its operation failed.

    Args:
        code: the name of the gRPC status.
        is_busy: whether the state of the object, or another operation on it, does not allow the request now.
        is_uncertain: whether the outcome of the request, or of an earlier try of it, is unknown: the API may have
            carried it out, or may still do so.
    """

    def __init__(
        self, message: str, *, code: str, cause: Cause, is_busy: bool = False, is_uncertain: bool = False
    ) -> None:
        super().__init__(message, cause=cause)
        self.code = code
        self.is_busy = is_busy
        self.is_uncertain = is_uncertain

    @property
    def is_absent(self) -> bool:
        """Whether the object does not exist."""
        return self.code == "NOT_FOUND"

    @property
    def is_there(self) -> bool:
        """Whether an object with the same name already exists."""
        return self.code == "ALREADY_EXISTS"


class CapacityError(TpuApiError):
    """There is no free TPU in the zone, or the quota of the project is used up. Another zone may have capacity."""


class RejectedRequest(TpuApiError):
    """The configuration or a permission must be changed before the request can succeed."""


class ApiUnavailable(TpuApiError):
    """The API or the machines of Google Cloud failed. The same request may succeed later."""


def is_temporary(fault: Fault) -> bool:
    """Return whether the same request may succeed within a minute."""
    return _is_rate_limit(fault) or is_uncertain(fault)


def is_uncertain(fault: Fault) -> bool:
    """Return whether the API may have carried out the request, or may still do so, although the request failed."""
    return fault.code in _TEMPORARY and not _needs_login(fault)


def error_of(fault: Fault, action: str, *, note: str = "", is_uncertain: bool = False) -> TpuApiError:
    """Return the error to raise for a fault.

    Args:
        action: what failed, as in `the node x cannot be created`.
        note: more about the fault, such as how long the request was repeated.
        is_uncertain: see `TpuApiError`.
    """
    kind, cause = _kind(fault)
    text = truncate(" ".join(clean(fault.message).split()), _LONGEST_MESSAGE) or "the API gives no reason"
    hint = _hint(fault, kind)
    message = f"{action}: {text} ({fault.code}{note})" + (f"\n{hint}" if hint else "")
    return kind(message, code=fault.code, cause=cause, is_busy=_is_busy(fault), is_uncertain=is_uncertain)


def _kind(fault: Fault) -> tuple[type[TpuApiError], Cause]:
    if _is_rate_limit(fault):
        return ApiUnavailable, Cause.INFRASTRUCTURE
    if fault.code == "RESOURCE_EXHAUSTED" or _NO_RESERVED_CAPACITY in fault.message.lower():
        return CapacityError, Cause.CAPACITY
    is_policy = fault.code == "FAILED_PRECONDITION" and _POLICY in fault.message.lower()
    if _WRONG_STATE in fault.message:
        return TpuApiError, Cause.INFRASTRUCTURE
    if fault.code in _CONFIGURATION or is_policy or _needs_login(fault):
        return RejectedRequest, Cause.CONFIGURATION
    if fault.code in {"ALREADY_EXISTS", "FAILED_PRECONDITION"}:
        return TpuApiError, Cause.INFRASTRUCTURE
    return ApiUnavailable, Cause.INFRASTRUCTURE


def _hint(fault: Fault, kind: type[TpuApiError]) -> str:
    """Return what the user can do next; empty if there is no advice."""
    text = fault.message.lower()
    if kind is CapacityError:
        return _capacity_hint(text)
    if kind is ApiUnavailable:
        return f"check the network, or try again later; {_STATUS_PAGE} shows whether Google Cloud has an outage"
    if fault.code == "UNAUTHENTICATED" or _needs_login(fault):
        return LOGIN_HINT
    if fault.reason == "SERVICE_DISABLED" or "has not been used in project" in text:
        return "enable the API with `gcloud services enable tpu.googleapis.com`, and wait a few minutes"
    if fault.code == "PERMISSION_DENIED":
        return "check the project and the zone, and that the account has the permissions that docs/tpu.md lists"
    if fault.code == "NOT_FOUND":
        return "check the project, the zone, the runtime version and the names of the network and of the disks"
    if fault.code == "INVALID_ARGUMENT" and kind is RejectedRequest:
        return (
            "check accelerator_type and runtime_version: `gcloud compute tpus accelerator-types list` shows the types"
        )
    return ""


def _capacity_hint(text: str) -> str:
    if "quota" in text:
        return f"ask for more quota at {_QUOTAS_PAGE}, or use a zone of another region"
    if _NO_RESERVED_CAPACITY in text:
        return "delete TPUs that use the reservation, or leave out `reserved`"
    return "name more zones (`zone` may be a list), wait in the queue with `valid_until`, or try again later"


def _is_busy(fault: Fault) -> bool:
    return fault.code in _BUSY or _WRONG_STATE in fault.message


def _is_rate_limit(fault: Fault) -> bool:
    is_limit = fault.reason == _RATE_LIMIT[0] or _RATE_LIMIT[1] in fault.message.lower()
    return fault.code == "RESOURCE_EXHAUSTED" and is_limit


def _needs_login(fault: Fault) -> bool:
    return _LOGIN_FAILED in fault.message and any(sign in fault.message for sign in _LOGIN_NEEDED)
