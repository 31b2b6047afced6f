"""Each fault of the API becomes an error with its cause and a hint."""

from __future__ import annotations

import pytest

from toolbox.features.tpu import api_errors
from toolbox.features.tpu.api_errors import ApiUnavailable, CapacityError, RejectedRequest, TpuApiError
from toolbox.features.tpu.tpu_states import Fault
from toolbox.ground.model.verdicts import Cause, Verdict

STOCK_OUT = 'There is no more capacity in the zone "us-central1-b"; you can try in another zone'
QUOTA = "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0 in region us-east5."
RATE = "Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'"
NO_TOKEN = "Getting metadata from plugin failed with error: ('invalid_grant: Bad Request', {})"
WRONG_STATE = "Cloud TPU received a bad request. delete is not supported while in state DELETING"
NO_ROUTE = "Getting metadata from plugin failed with error: Connection refused"


@pytest.mark.parametrize(
    ("fault", "kind", "cause", "hint"),
    [
        (Fault("RESOURCE_EXHAUSTED", STOCK_OUT), CapacityError, Cause.CAPACITY, "name more zones"),
        (Fault("RESOURCE_EXHAUSTED", QUOTA), CapacityError, Cause.CAPACITY, "ask for more quota"),
        (Fault("RESOURCE_EXHAUSTED", RATE), ApiUnavailable, Cause.INFRASTRUCTURE, "try again later"),
        (
            Fault("FAILED_PRECONDITION", "Insufficient reserved capacity."),
            CapacityError,
            Cause.CAPACITY,
            "delete TPUs that use the reservation",
        ),
        (
            Fault("FAILED_PRECONDITION", "Constraint constraints/x violated"),
            RejectedRequest,
            Cause.CONFIGURATION,
            "",
        ),
        (Fault("FAILED_PRECONDITION", "the node is being deleted"), TpuApiError, Cause.INFRASTRUCTURE, ""),
        (Fault("INVALID_ARGUMENT", WRONG_STATE), TpuApiError, Cause.INFRASTRUCTURE, ""),
        (Fault("PERMISSION_DENIED", "denied"), RejectedRequest, Cause.CONFIGURATION, "docs/tpu.md"),
        (
            Fault("PERMISSION_DENIED", "off", "SERVICE_DISABLED"),
            RejectedRequest,
            Cause.CONFIGURATION,
            "gcloud services enable",
        ),
        (Fault("NOT_FOUND", "x"), RejectedRequest, Cause.CONFIGURATION, "check the project, the zone"),
        (Fault("INVALID_ARGUMENT", "x"), RejectedRequest, Cause.CONFIGURATION, "check accelerator_type"),
        (Fault("UNAUTHENTICATED", "x"), RejectedRequest, Cause.CONFIGURATION, "gcloud auth"),
        (Fault("UNAVAILABLE", NO_TOKEN), RejectedRequest, Cause.CONFIGURATION, "gcloud auth"),
        (Fault("UNAVAILABLE", NO_ROUTE), ApiUnavailable, Cause.INFRASTRUCTURE, "try again later"),
        (Fault("UNAVAILABLE", "x"), ApiUnavailable, Cause.INFRASTRUCTURE, "try again later"),
        (Fault("INTERNAL", "x"), ApiUnavailable, Cause.INFRASTRUCTURE, "try again later"),
        (Fault("SOME_NEW_CODE", "x"), ApiUnavailable, Cause.INFRASTRUCTURE, "try again later"),
    ],
)
def test_a_fault_has_a_cause_and_a_hint(fault: Fault, kind: type[TpuApiError], cause: Cause, hint: str) -> None:
    error = api_errors.error_of(fault, "the node x cannot be created")
    assert type(error) is kind
    assert (error.verdict, error.cause) == (Verdict.ERROR, cause)
    assert str(error).startswith("the node x cannot be created: ")
    assert hint in str(error)
    assert str(error).count("\n") < 5


@pytest.mark.parametrize(
    ("fault", "is_temporary"),
    [
        (Fault("UNAVAILABLE", "x"), True),
        (Fault("UNAVAILABLE", NO_TOKEN), False),
        (Fault("UNAVAILABLE", NO_ROUTE), True),
        (Fault("RESOURCE_EXHAUSTED", STOCK_OUT), False),
        (Fault("RESOURCE_EXHAUSTED", RATE), True),
        (Fault("ALREADY_EXISTS", "x"), False),
    ],
)
def test_only_temporary_faults_are_tried_again(fault: Fault, is_temporary: bool) -> None:
    assert api_errors.is_temporary(fault) is is_temporary


@pytest.mark.parametrize(
    "fault", [Fault("FAILED_PRECONDITION", "x"), Fault("ABORTED", "x"), Fault("INVALID_ARGUMENT", WRONG_STATE)]
)
def test_an_object_in_another_operation_is_busy(fault: Fault) -> None:
    assert api_errors.error_of(fault, "x").is_busy


def test_a_long_hostile_message_is_one_short_line() -> None:
    message = str(api_errors.error_of(Fault("ABORTED", "\x1b[31m" + "a\nb " * 1000), "x")).splitlines()[0]
    assert len(message) < 700
    assert "\x1b" not in message
