"""Deletes nodes and queued resources, and confirms that they no longer exist.

An object is deleted only if it has the labels of its owner. Every function may be called again at any time: an object
that does not exist is deleted already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict

from toolbox.model import backoff
from toolbox.model.errors import StepError
from toolbox.model.resources import Owner
from toolbox.model.text import duration
from toolbox.model.verdicts import Cause
from toolbox.system import cancellation
from toolbox.tpu import api_endpoint, api_errors
from toolbox.tpu.api import TpuApi
from toolbox.tpu.api_errors import TpuApiError
from toolbox.tpu.tpu_description import is_endpoint
from toolbox.tpu.tpu_states import Operation

TIMEOUT: Final = 900.0
"""The default time limit of a deletion, in seconds. Google Cloud needs a few minutes for a large slice."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 10.0
_QUEUED: Final = "/queuedResources/"


class TpuObject(BaseModel):
    """A node or a queued resource on a ledger: the fields of `toolbox.model.resources.Resource.deletion`.

    Args:
        name: the full name.
        api_endpoint: the address of the TPU API.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    api_endpoint: Annotated[str, AfterValidator(is_endpoint)]

    def delete(self, owner: Owner) -> bool:
        """See `toolbox.extensions.protocols.RemoteResource`."""
        with TpuApi(api_endpoint.parse(self.api_endpoint)) as api:
            return delete(api, self.name, owner)


class ForeignObject(StepError):
    """The object with this name belongs to another owner, so it is neither used nor deleted."""

    def __init__(self, name: str, labels: Mapping[str, str]) -> None:
        owner = Owner.from_labels(labels)
        whose = "no labels of Topgallant" if owner is None else f"the labels of another owner, {describe_owner(owner)}"
        super().__init__(f"{name} has {whose}: use another name", cause=Cause.CONFIGURATION)


def describe_owner(owner: Owner) -> str:
    """Return the owner of an object for a message. The values may be from labels."""
    run = f"the run {owner.run} of " if owner.run else ""
    return f"{run}{owner.user} on {owner.host}"


def check_owner(name: str, labels: Mapping[str, str], owner: Owner) -> None:
    """Check that an object has the labels of an owner.

    Raises:
        ForeignObject: the object has other labels.
    """
    if not owner.owns(labels):
        raise ForeignObject(name, labels)


def delete(api: TpuApi, name: str, owner: Owner, *, timeout: float = TIMEOUT) -> bool:
    """Delete the node or the queued resource with a full name, and return when it no longer exists.

    A queued resource is deleted with its nodes.

    Returns:
        Whether the object existed.

    Raises:
        ForeignObject: the object belongs to another owner.
        StepError: the object may still exist.
    """
    if _QUEUED in name:
        return _delete_queued_resource(api, name, owner, timeout)
    return _Deletion(name, owner, lambda: api.node(name).labels, lambda: api.delete_node(name), api.operation).run(
        timeout
    )


def _delete_queued_resource(api: TpuApi, name: str, owner: Owner, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    try:
        queued = api.queued_resource(name)
    except TpuApiError as error:
        if error.is_absent:
            return False
        raise
    check_owner(name, queued.labels, owner)
    deletion = _Deletion(
        name,
        owner,
        lambda: api.queued_resource(name).labels,
        lambda: api.delete_queued_resource(name),
        api.operation,
    )
    deletion.run(deadline - time.monotonic())
    # The API deletes the nodes with their queued resource. This confirms it, and deletes a node that is left.
    location = name.partition(_QUEUED)[0]
    for node in queued.nodes:
        delete(api, f"{location}/nodes/{node}", owner, timeout=max(1.0, deadline - time.monotonic()))
    return True


@dataclass(slots=True)
class _Deletion:
    """One deletion.

    Args:
        labels: returns the labels of the object, or raises a `TpuApiError` that `is_absent`.
        request: requests the deletion.
        operation: returns an operation by its name.
    """

    name: str
    owner: Owner
    labels: Callable[[], Mapping[str, str]]
    request: Callable[[], Operation]
    operation: Callable[[str], Operation]
    _latest: Operation | None = None
    _failure: TpuApiError | None = None

    def run(self, timeout: float) -> bool:
        """Delete the object, and return whether it existed."""
        deadline = time.monotonic() + timeout
        tries = 0
        while not self._is_absent():
            if time.monotonic() > deadline:
                raise self._timeout_error(timeout)
            self._step()
            left = max(0.0, deadline - time.monotonic())
            cancellation.current().sleep(min(left, backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)))
            tries += 1
        return tries > 0

    def _is_absent(self) -> bool:
        try:
            check_owner(self.name, self.labels(), self.owner)
        except TpuApiError as error:
            if error.is_absent:
                return True
            raise
        return False

    def _step(self) -> None:
        """Request the deletion, unless an earlier request is being carried out."""
        if self._latest is not None and self._is_going_on(self._latest):
            return
        try:
            self._latest = self.request()
        except TpuApiError as error:
            if not (error.is_absent or error.is_busy):
                raise
            self._failure = error if error.is_busy else None

    def _is_going_on(self, operation: Operation) -> bool:
        try:
            operation = self.operation(operation.name)
        except TpuApiError as error:
            if error.is_absent:  # the API forgets old operations
                return False
            raise
        if operation.fault is not None:
            self._failure = api_errors.error_of(operation.fault, f"{self.name} cannot be deleted")
            if self._failure.cause is Cause.CONFIGURATION and not self._failure.is_absent:
                raise self._failure
        return not operation.is_done

    def _timeout_error(self, timeout: float) -> StepError:
        reason = f": {self._failure}" if self._failure is not None else ""
        return StepError(
            f"{self.name} still exists {duration(timeout, digits=0)} after its deletion was requested{reason}",
            cause=Cause.INFRASTRUCTURE,
        )
