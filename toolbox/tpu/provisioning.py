"""Creates a TPU in the first zone with capacity, and tells when its nodes run.

`Provisioning.step` does one step without waiting, from a view of the zone that the caller has listed. So a backend can
follow many TPUs with one list request per zone. `provision` is the loop for one TPU.

Each node and queued resource is on the ledger before it is requested. The caller chooses the names. So a TPU whose
response was lost, or that was requested before a crash, is found by its name and adopted if it has the labels of the
owner.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from toolbox.model import backoff
from toolbox.model.errors import StepError
from toolbox.model.resources import ResourceLedger
from toolbox.model.text import counted
from toolbox.model.verdicts import Cause
from toolbox.system import cancellation
from toolbox.tpu import api_errors, deletion, progress
from toolbox.tpu.api import TpuApi
from toolbox.tpu.api_errors import CapacityError, TpuApiError
from toolbox.tpu.progress import Progress, TpuLost
from toolbox.tpu.tpu_request import TpuRequest
from toolbox.tpu.tpu_states import Node, Operation, Phase, QueuedResource, ZoneView

log = logging.getLogger(__name__)

_UNDER_MAINTENANCE: Final = "UNHEALTHY_MAINTENANCE"
_OPERATION_SECONDS: Final = 20.0  # how often the operation of a node that is being created is read
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 15.0


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
        self._is_leaving = self._is_created = self._is_adopted = False
        self._refusals: list[CapacityError] = []

    @property
    def request(self) -> TpuRequest:
        """The request for the current zone."""
        return self._requests[self._index]

    @property
    def is_requested(self) -> bool:
        """Whether the TPU is requested in the current zone, which has not refused the request."""
        return not self._is_leaving

    @property
    def is_adopted(self) -> bool:
        """Whether `begin` has found the TPU, because an earlier session created it."""
        return self._is_adopted

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
            if self._is_leaving:
                return self._leave(view)
            state = self._queued(view) if self.request.description.is_queued else self._plain(view)
        except CapacityError as error:
            self._refuse(error)
            return self._leaving()
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
        """Request the TPU in the current zone, unless it exists already."""
        resource = self.request.resource
        is_first = all(entry.resource.key != resource.key for entry in self._ledger.open_resources())
        self._operation = None
        if is_first or not self._adopt_existing():
            self._ledger.plan(resource)
            self._create(is_first=is_first)
        self._operation_read = time.monotonic()

    def _create(self, *, is_first: bool) -> None:
        try:
            self._operation = self._api.create(self.request)
        except TpuApiError as error:
            if not error.is_there:
                if error.cause is Cause.CONFIGURATION:
                    self._close_if_absent(error, is_first=is_first)
                raise
            self._adopt(self._object())

    def _adopt_existing(self) -> bool:
        """Adopt the TPU if it exists, and return whether it does."""
        try:
            existing = self._object()
        except TpuApiError as error:
            if error.is_absent:
                return False
            raise
        self._adopt(existing)
        return True

    def _adopt(self, existing: Node | QueuedResource) -> None:
        try:
            self._check_owner(existing)
        except (deletion.ForeignObject, DifferentTpu):
            self._ledger.mark_deleted(self.request.resource)  # another entry of the ledger deletes the object
            raise
        self._check_same(existing)
        self._is_adopted = True
        log.info("%s exists already, and has the labels of this run or user", existing.name)

    def _check_owner(self, existing: Node | QueuedResource) -> None:
        """Check that an existing object has the labels of the owner, and is not part of a queued resource.

        Raises:
            ForeignObject: another owner uses the name.
            DifferentTpu: the object is a node of a queued resource.
        """
        deletion.check_owner(existing.name, existing.labels, self._ledger.owner)
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

    def _object(self) -> Node | QueuedResource:
        is_queued = self.request.description.is_queued
        return (self._api.queued_resource if is_queued else self._api.node)(self.request.full_name)

    def _close_if_absent(self, failure: TpuApiError, *, is_first: bool = False) -> None:
        """Close the entry of the ledger if the failed request created nothing. Otherwise, the entry stays open.

        Args:
            is_first: whether no request for the object was sent before the refused one. Then a zone or a project that
                the account may not use does not contain the object.
        """
        try:
            self._object()
        except TpuApiError as error:
            if error.is_absent or (is_first and error.cause is Cause.CONFIGURATION):
                self._close(failure)

    def _close(self, failure: TpuApiError) -> None:
        """Close the entry of the ledger for a TPU that does not exist, unless a try of its request may come later."""
        if failure.is_uncertain:
            self._ledger.mark_absent(self.request.resource)
        else:
            self._ledger.mark_deleted(self.request.resource)

    def _refuse(self, error: CapacityError) -> None:
        """Note that the current zone has no capacity. The next step moves to the next zone.

        Raises:
            CapacityError: there are no more zones.
        """
        self._refusals.append(error)
        self._is_leaving = True
        if self._index + 1 < len(self._requests):
            log.info("%s", error)
            return
        self._close_if_absent(error)
        if len(self._requests) == 1:
            raise error
        zones = ", ".join(request.location.zone for request in self._requests)
        message = f"no zone has capacity for {self.request.name} ({zones}); the last answer was:\n{error}"
        raise CapacityError(message, code=error.code, cause=error.cause) from error

    def _leave(self, view: ZoneView) -> Progress:
        """Delete what the failed request left in the zone. When nothing is left, request the TPU in the next zone."""
        name = self.request.full_name
        if name in view.nodes or name in view.queued_resources:
            try:
                self._operation = self._delete(name)
            except TpuApiError as error:
                if not (error.is_absent or error.is_busy):
                    raise
            return self._leaving()
        self._close(self._refusals[-1])
        self._index += 1
        self._is_leaving = False
        self._request()
        return Progress(Phase.WAITING, f"{self.request.full_name} was requested")

    def _delete(self, name: str) -> Operation:
        is_queued = self.request.description.is_queued
        return self._api.delete_queued_resource(name) if is_queued else self._api.delete_node(name)

    def _leaving(self) -> Progress:
        following = self._requests[self._index + 1].location.zone
        return Progress(Phase.WAITING, f"{self.request.location.zone} has no capacity; the next zone is {following}")

    def _plain(self, view: ZoneView) -> Progress:
        node = view.nodes.get(self.request.full_name)
        if node is None:
            self._check_operation()
            if self._operation is not None and not self._operation.is_done:
                return Progress(Phase.CREATING, f"the request for the node {self.request.name} is being carried out")
            node = self._read_again()
        is_late = time.monotonic() > self._operation_read + _OPERATION_SECONDS
        if node.phase is not Phase.UP and (node.phase is not Phase.CREATING or is_late):
            self._check_operation()
        return progress.of_nodes([node])

    def _read_again(self) -> Node:
        """Return a node that is not in the view, because the view may be older than the node.

        Raises:
            TpuLost: the node does not exist.
        """
        try:
            return self._api.node(self.request.full_name)
        except TpuApiError as error:
            if error.is_absent:
                raise TpuLost(f"the node {self.request.name} was deleted while it was being created") from error
            raise

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

    def _queued(self, view: ZoneView) -> Progress:
        queued = view.queued_resources.get(self.request.full_name)
        if queued is None:
            self._check_operation()
            if self._operation is not None and not self._operation.is_done:
                message = f"the request for the queued resource {self.request.name} is being carried out"
                return Progress(Phase.WAITING, message)
            queued = self._read_queued_again()
        nodes = [view.nodes.get(name) for name in self.request.node_names]
        return progress.of_queued_resource(queued, nodes, valid_until=self.request.description.valid_until)

    def _read_queued_again(self) -> QueuedResource:
        try:
            return self._api.queued_resource(self.request.full_name)
        except TpuApiError as error:
            if error.is_absent:
                raise TpuLost(f"the queued resource {self.request.name} was deleted while it was waiting") from error
            raise


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


def provision(
    api: TpuApi,
    request: TpuRequest,
    ledger: ResourceLedger,
    *,
    timeout: float,
    report: Callable[[str], None],
) -> Progress:
    """Create a TPU, and return when its nodes run. Their workers may still execute the startup script.

    Args:
        report: called with the state whenever it changes.

    Raises:
        StepError: the TPU was not created, or not in time.
    """
    provisioning = Provisioning(api, request, ledger)
    provisioning.begin()
    return follow(api, provisioning, timeout=timeout, report=report)


def await_request(api: TpuApi, provisioning: Provisioning) -> None:
    """Wait until a zone has accepted the request.

    Raises:
        StepError: no zone has accepted it.
    """
    while not provisioning.is_requested:
        location, is_queued = provisioning.request.location, provisioning.request.description.is_queued
        provisioning.step(api.view(location, queued=is_queued))
        if not provisioning.is_requested:
            cancellation.current().sleep(_FIRST_PAUSE)


def follow(api: TpuApi, provisioning: Provisioning, *, timeout: float, report: Callable[[str], None]) -> Progress:
    """Wait until the nodes of a requested TPU run: see `provision`."""
    deadline = time.monotonic() + timeout
    tries, latest = 0, ""
    while True:
        location, is_queued = provisioning.request.location, provisioning.request.description.is_queued
        state = provisioning.step(api.view(location, queued=is_queued))
        if state.message != latest:
            report(state.message)
            latest, tries = state.message, 0
        if state.is_up:
            return state
        left = deadline - time.monotonic()
        if left <= 0:
            raise progress.timeout_error(state, timeout)
        pause = backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)
        cancellation.current().sleep(min(left, pause))
        tries += 1
