"""Creates a TPU in the first zone with capacity, and tells when its nodes run.

`Provisioning.step` does one step without waiting, from a view of the zone that the caller has listed. So a backend can
follow many TPUs with one list request per zone. `follow` is the loop for one TPU.

Each node and queued resource is on the ledger before it is requested. The caller chooses the names. So a TPU whose
response was lost, or that was requested before a crash, is found by its name and adopted if it has the labels of the
owner.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from toolbox.features.tpu import api_errors, deletion, progress
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.api_errors import CapacityError, TpuApiError
from toolbox.features.tpu.progress import Progress, TpuLost
from toolbox.features.tpu.tpu_request import TpuRequest
from toolbox.features.tpu.tpu_states import Node, Operation, Phase, QueuedResource, ZoneView
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.resources import OpenResource, ResourceLedger
from toolbox.ground.model.text import counted
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.system import cancellation

log = logging.getLogger(__name__)

_UNDER_MAINTENANCE: Final = "UNHEALTHY_MAINTENANCE"
_OPERATION_SECONDS: Final = 20.0  # how often the operation of a node that is being created is read
_PAUSE: Final = 1.0


class DifferentTpu(StepError):
    """The TPU with this name was created by the same owner from another description."""

    def __init__(self, name: str, difference: str) -> None:
        super().__init__(f"{name} exists already, and {difference}: delete it, or use another name")
        self.cause = Cause.CONFIGURATION


class Provisioning:
    """The creation of one TPU. Only one thread may call it at a time.

    Args:
        request: the TPU. Its location is not used: the zones are those of the description.
    """

    def __init__(self, api: TpuApi, request: TpuRequest, ledger: ResourceLedger) -> None:
        self._api = api
        self._ledger = ledger
        self._requests = [request.in_zone(zone) for zone in request.description.zone]
        self._index = self._first_zone()
        self._operation: Operation | None = None
        self._operation_read = 0.0
        self._next_index: int | None = None  # the zone of the next request, while the name must become free in this one
        self._entry: OpenResource | None = None  # the entry of the ledger before the request
        self._is_created = False
        self._refusals: list[CapacityError] = []

    @property
    def request(self) -> TpuRequest:
        """The request for the current zone."""
        return self._requests[self._index]

    @property
    def is_requested(self) -> bool:
        """Whether the TPU is requested in the current zone, which has not refused the request."""
        return self._next_index is None

    @property
    def is_adopted(self) -> bool:
        """Whether an earlier session requested the TPU in the current zone."""
        return self._operation is None and self.is_requested

    def begin(self) -> None:
        """Request the TPU, or adopt it if it exists already.

        Raises:
            CapacityError: the only zone, or the last one, has no capacity.
            ForeignObject: another owner uses the name.
            DifferentTpu: the owner created another TPU with the name.
            TpuApiError: the API refused the request, or does not answer.
        """
        try:
            self._request()
        except CapacityError as error:
            self._refuse(error)

    def step(self, view: ZoneView) -> Progress:
        """Do one step, and return the progress of the TPU. The method does not wait.

        Args:
            view: the location of `request`, listed after `begin` or after the previous step. It needs the queued
                resources only if the description `is_queued`.

        Raises:
            CapacityError: no zone has capacity.
            TpuLost: the TPU does not come up any more.
            ForeignObject: another owner uses the name in the next zone.
            TpuApiError: the creation failed, or the API does not answer.
        """
        try:
            if self._next_index is not None:
                return self._free_name(view, self._next_index)
            state = self._progress(view)
        except CapacityError as error:
            self._refuse(error)
            return self._waiting()
        if state.is_up and not self._is_created:
            self._is_created = True
            self._ledger.mark_created(self.request.resource)
        return state

    def _first_zone(self) -> int:
        """Return the index of the zone in which an earlier session requested the TPU; 0 if there was none."""
        keys = {entry.resource.key for entry in self._ledger.open_resources()}
        indices = [index for index, request in enumerate(self._requests) if request.resource.key in keys]
        return max(indices, default=0)

    def _request(self) -> None:
        """Request the TPU in the current zone, unless the TPU exists already."""
        key = self.request.resource.key
        self._entry = next((each for each in self._ledger.open_resources() if each.resource.key == key), None)
        existing = self._existing() if self._entry is not None else None
        self._operation = None
        if existing is None:
            self._ledger.plan(self.request.resource)
            existing = self._create()
        self._operation_read = time.monotonic()
        if existing is not None:
            self._take_over(existing)

    def _existing(self) -> Node | QueuedResource | None:
        return self._api.find(self.request.full_name)

    def _create(self) -> Node | QueuedResource | None:
        """Send the request. If the name is in use, return the existing object."""
        try:
            self._operation = self._api.create(self.request)
        except TpuApiError as error:
            if error.is_there and (existing := self._existing()) is not None:
                return existing
            if error.cause is Cause.CONFIGURATION:
                self._close_if_absent(error)
            raise
        return None

    def _take_over(self, existing: Node | QueuedResource) -> None:
        """Adopt an object that has the name, or free the name if an earlier session deleted the object.

        An object that was created after its deletion is not used, because the SSH key of its session was removed.
        """
        try:
            self._check_owner(existing)
        except DifferentTpu:
            self._ledger.mark_deleted(self.request.resource)  # another entry of the ledger deletes the object
            raise
        if existing.phase is Phase.DELETING or (self._entry is not None and self._entry.is_absent):
            self._next_index = self._index
            return
        self._check_same(existing)
        log.info("%s exists already, and has the labels of this run or user", existing.name)

    def _check_owner(self, existing: Node | QueuedResource) -> None:
        """Check that an existing object has the labels of the owner, and is not part of a queued resource.

        An object with other labels closes the entry of the ledger only if the owner has not requested the name before:
        otherwise, it may be the object of the owner, whose labels were changed.

        Raises:
            ForeignObject: another owner uses the name.
            DifferentTpu: the object is a node of a queued resource.
        """
        if self._entry is None and not self._ledger.owner.owns(existing.labels):
            self._ledger.mark_deleted(self.request.resource)
            raise deletion.ForeignObject(existing.name, existing.labels, "use another name")
        deletion.check_owner(existing, self._ledger.owner)
        if isinstance(existing, Node) and existing.queued_resource and not self.request.description.is_queued:
            raise DifferentTpu(existing.name, f"belongs to {existing.queued_resource}")

    def _check_same(self, existing: Node | QueuedResource) -> None:
        """Check that an existing object of the same owner is what the request describes.

        Raises:
            DifferentTpu: the object differs from the request.
        """
        if (kind := existing.accelerator_type) not in {"", self.request.description.tpu_type.name}:
            raise DifferentTpu(existing.name, f"is a {kind}")
        if (version := existing.runtime_version) not in {"", self.request.description.runtime_version}:
            raise DifferentTpu(existing.name, f"has the runtime version {version}")
        slices = len(existing.nodes) if isinstance(existing, QueuedResource) else 1
        if slices != self.request.description.slices:
            raise DifferentTpu(existing.name, f"has {counted(slices, 'node')}")

    def _close_if_absent(self, failure: TpuApiError) -> None:
        """Close the entry of the ledger if the failed request created nothing. Otherwise, the entry stays open."""
        try:
            is_absent = self._existing() is None
        except TpuApiError as error:
            # A zone or a project that the account may not use does not contain a TPU of the account.
            was_refused = self._entry is None and self._operation is None
            is_absent = was_refused and error.cause is Cause.CONFIGURATION
        if is_absent:
            self._close(failure)

    def _close(self, failure: TpuApiError) -> None:
        """Close the entry of the ledger for a TPU that does not exist, unless an earlier request may create it."""
        if failure.is_uncertain or self._entry is not None:
            self._ledger.mark_absent(self.request.resource)
        else:
            self._ledger.mark_deleted(self.request.resource)

    def _refuse(self, error: CapacityError) -> None:
        """Note that the current zone has no capacity. The next step moves to the next zone.

        Raises:
            CapacityError: there are no more zones.
        """
        self._refusals.append(error)
        if self._index + 1 < len(self._requests):
            self._next_index = self._index + 1
            log.info("%s", error)
            return
        self._close_if_absent(error)
        if len(self._requests) == 1:
            raise error
        zones = ", ".join(request.location.zone for request in self._requests)
        message = f"no zone has capacity for {self.request.name} ({zones}); the last answer was:\n{error}"
        raise CapacityError(message, code=error.code, cause=error.cause) from error

    def _free_name(self, view: ZoneView, next_index: int) -> Progress:
        """Delete the object with the name in this zone. If no object is left, request the TPU in the next zone."""
        existing = view.find(self.request.full_name)
        if existing is not None and self._ledger.owner.owns(existing.labels):
            if existing.phase is not Phase.DELETING:
                self._delete(existing.name)
            return self._waiting()
        if next_index == self._index:
            self._ledger.mark_deleted(self.request.resource)
        else:
            self._close(self._refusals[-1])
        self._index, self._next_index = next_index, None
        self._request()
        return self._waiting()

    def _delete(self, name: str) -> None:
        try:
            self._api.delete(name)
        except TpuApiError as error:
            if not (error.is_absent or error.is_busy):
                raise

    def _waiting(self) -> Progress:
        name, zone = self.request.full_name, self.request.location.zone
        if self._next_index is None:
            return Progress(Phase.WAITING, f"{name} was requested")
        if self._next_index == self._index:
            return Progress(Phase.WAITING, f"{name} can be requested when an earlier TPU of this name is deleted")
        following = self._requests[self._next_index].location.zone
        return Progress(Phase.WAITING, f"{zone} has no capacity; the next zone is {following}")

    def _progress(self, view: ZoneView) -> Progress:
        """Return the progress of the requested TPU."""
        request = self.request
        existing = view.find(request.full_name)
        if existing is None:
            self._check_operation()
            if self._operation is not None and not self._operation.is_done:
                phase = Phase.WAITING if request.description.is_queued else Phase.CREATING
                return Progress(phase, f"the request for {request.full_name} is being carried out")
            existing = self._existing()  # the view may have been listed before the object was created
        if existing is None:
            raise TpuLost(f"{request.full_name} was deleted while it was being created")
        if isinstance(existing, QueuedResource):
            nodes = [view.nodes.get(name) for name in request.node_names]
            return progress.of_queued_resource(existing, nodes, valid_until=request.description.valid_until)
        is_late = time.monotonic() > self._operation_read + _OPERATION_SECONDS
        if existing.phase is not Phase.UP and (existing.phase is not Phase.CREATING or is_late):
            self._check_operation()
        return progress.of_nodes([existing])

    def _check_operation(self) -> None:
        """Read the operation that creates the TPU, unless it was found to be done.

        Raises:
            TpuApiError: the operation failed.
        """
        if self._operation is None:  # an earlier session sent the request
            return
        if not self._operation.is_done:
            self._operation = self._api.operation(self._operation.name)
            self._operation_read = time.monotonic()
        if self._operation.fault is not None:
            error = api_errors.error_of(self._operation.fault, f"{self.request.full_name} cannot be created")
            self._close_if_absent(error)
            raise error


def loss_reason(request: TpuRequest, view: ZoneView) -> str:
    """Return why a TPU that was up can no longer be used; empty if all its nodes exist and are not lost.

    A node that is READY is lost only if its health says that it is under maintenance. The other kinds of bad health
    are reported by a check that may fail for a moment.
    """
    for name in request.node_names:
        node = view.nodes.get(name)
        if node is None:
            queued = view.queued_resources.get(request.full_name)
            is_known = queued is not None and queued.phase is not Phase.UP
            return queued.message if is_known and queued is not None else f"{name} was deleted"
        if node.state != "READY" or node.health == _UNDER_MAINTENANCE:
            return node.message
    return ""


def await_request(api: TpuApi, provisioning: Provisioning) -> None:
    """Wait until a zone has accepted the request.

    Raises:
        StepError: no zone has accepted it.
    """
    while not provisioning.is_requested:
        _step(api, provisioning)
        if not provisioning.is_requested:
            cancellation.current().sleep(_PAUSE)


def follow(api: TpuApi, provisioning: Provisioning, *, timeout: float, report: Callable[[str], None]) -> Progress:
    """Wait until the nodes of a requested TPU run. Their workers may still execute the startup script.

    Args:
        report: called with the state whenever it changes.

    Raises:
        StepError: the TPU was not created, or not in time.
    """
    return progress.wait_up(lambda: _step(api, provisioning), timeout=timeout, report=report)


def _step(api: TpuApi, provisioning: Provisioning) -> Progress:
    location, is_queued = provisioning.request.location, provisioning.request.description.is_queued
    return provisioning.step(api.view(location, queued=is_queued))
