"""Deletes nodes and queued resources, and confirms that they no longer exist.

An object is deleted only if it has the labels of its owner. Every function may be called again at any time: an object
that does not exist is deleted already.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict

from toolbox.features.tpu import api_endpoint, api_errors, ssh_keys
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.api_errors import TpuApiError
from toolbox.features.tpu.tpu_description import is_endpoint
from toolbox.features.tpu.tpu_states import Node, Operation, QueuedResource
from toolbox.ground.model import backoff
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.resources import Owner, ResourceLedger
from toolbox.ground.model.text import duration
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.system import cancellation

TIMEOUT: Final = 900.0
"""The default time limit of a deletion, in seconds. Google Cloud needs a few minutes for a large slice."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 10.0


class TpuObject(BaseModel):
    """A node or a queued resource on a ledger: the fields of `toolbox.ground.model.resources.Resource.deletion`.

    Args:
        name: the full name.
        api_endpoint: the address of the TPU API.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    api_endpoint: Annotated[str, AfterValidator(is_endpoint)]

    def delete(self, owner: Owner) -> bool:
        """See `toolbox.ground.extensions.protocols.RemoteResource`."""
        with TpuApi(api_endpoint.parse(self.api_endpoint)) as api:
            return delete(api, self.name, owner)

    @staticmethod
    def tidy(ledger: ResourceLedger) -> None:
        """Remove the SSH key of a run that has no TPU any more."""
        ssh_keys.remove_unused(ledger)


class ForeignObject(StepError):
    """The labels of the object with this name are not those of its owner, so the object is neither used nor deleted."""

    def __init__(self, name: str, labels: Mapping[str, str], advice: str) -> None:
        owner = Owner.from_labels(labels)
        whose = "lacks labels of Topgallant"
        if owner is not None:
            whose = f"has the labels of another owner, {describe_owner(owner)}"
        super().__init__(f"{name} {whose}: {advice}", cause=Cause.CONFIGURATION)


def describe_owner(owner: Owner) -> str:
    """Return the owner of an object for a message. The values may be from labels."""
    run = f"the run {owner.run} of " if owner.run else ""
    return f"{run}{owner.user} on {owner.host}"


def check_owner(existing: Node | QueuedResource, owner: Owner) -> None:
    """Check that an object on the ledger of an owner has the labels of this owner.

    Raises:
        ForeignObject: the object has other labels.
    """
    if not owner.owns(existing.labels):
        program = "queued-resources delete --force" if isinstance(existing, QueuedResource) else "tpu-vm delete"
        _, project, _, zone, _, name = existing.name.split("/")
        command = f"gcloud compute tpus {program} {name} --zone={zone} --project={project}"
        advice = f"it is not deleted; if only its labels were changed, and it is yours, use `{command}`"
        raise ForeignObject(existing.name, existing.labels, advice)


def delete(api: TpuApi, name: str, owner: Owner, *, timeout: float = TIMEOUT) -> bool:
    """Delete the node or the queued resource with a full name, and return when it no longer exists.

    A queued resource is deleted with its nodes.

    Returns:
        Whether the object existed.

    Raises:
        ForeignObject: the object belongs to another owner.
        StepError: the object may still exist.
    """
    deadline = time.monotonic() + timeout
    deletion = _Deletion(api, name, owner)
    existed = deletion.run(timeout)
    # The API deletes the nodes with their queued resource. The loop confirms the deletion of each node, and deletes a
    # remaining node.
    location = name.partition("/queuedResources/")[0]
    for node in deletion.nodes:
        delete(api, f"{location}/nodes/{node}", owner, timeout=max(1.0, deadline - time.monotonic()))
    return existed


@dataclass(slots=True)
class _Deletion:
    """The deletion of one object.

    Args:
        nodes: the names of the nodes, if the object is a queued resource that was read.
    """

    api: TpuApi
    name: str
    owner: Owner
    nodes: tuple[str, ...] = ()
    _latest: Operation | None = None
    _failure: TpuApiError | None = None

    def run(self, timeout: float) -> bool:
        """Delete the object, and return whether it existed."""
        deadline = time.monotonic() + timeout
        tries = 0
        while (existing := self.api.find(self.name)) is not None:
            check_owner(existing, self.owner)
            self.nodes = existing.nodes if isinstance(existing, QueuedResource) else ()
            if time.monotonic() > deadline:
                raise self._timeout_error(timeout)
            self._step()
            left = max(0.0, deadline - time.monotonic())
            cancellation.current().sleep(min(left, backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)))
            tries += 1
        return tries > 0

    def _step(self) -> None:
        """Request the deletion, unless an earlier request is being carried out."""
        if self._latest is not None and self._is_going_on(self._latest):
            return
        try:
            self._latest = self.api.delete(self.name)
        except TpuApiError as error:
            if not (error.is_absent or error.is_busy):
                raise
            self._failure = error if error.is_busy else None

    def _is_going_on(self, operation: Operation) -> bool:
        try:
            operation = self.api.operation(operation.name)
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
