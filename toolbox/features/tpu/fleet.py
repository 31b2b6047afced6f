"""Requests, watches and deletes the TPUs of one target in one run. The backend `tpu_vm` runs cells on them.

One thread polls all TPUs: it sends one request per zone and tick for the nodes, and another one for the queued
resources if there are any. The pauses between ticks grow while nothing changes.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from toolbox.features.tpu import deletion, provisioning
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.api_errors import CapacityError
from toolbox.features.tpu.progress import Progress, TpuLost
from toolbox.features.tpu.provisioning import Provisioning
from toolbox.features.tpu.tpu_request import TpuRequest
from toolbox.features.tpu.tpu_states import Location, Node, Phase, ZoneView
from toolbox.ground.model import backoff
from toolbox.ground.model.errors import Cancelled, StepError, ToolboxError, describe
from toolbox.ground.model.resources import OpenResource, ResourceLedger
from toolbox.ground.model.workloads import EndedBy, WorkloadOutcome
from toolbox.ground.system import cancellation
from toolbox.ground.system.cancellation import CancelScope
from toolbox.targets.attempt_book import outcome_of_failed_start

log = logging.getLogger(__name__)

_POLL_TIMEOUT: Final = 20.0  # the timeout in seconds of the requests for the state of TPUs
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
_PAUSE_FACTOR: Final = 1.3
_REQUESTED: Final = Progress(Phase.WAITING, "the TPU is being requested")
_NO_CAPACITY_YET: Final = Progress(Phase.WAITING, "there is no capacity until other TPUs of the run are deleted")


@dataclass(slots=True, eq=False)
class Tpu:
    """A TPU of the fleet.

    Args:
        wait: how many seconds the TPU may take until it is up.
        deadline: the monotonic time until which the TPU must be up.
        progress: what the API reported last.
        ending: why the TPU can no longer be used; None if it can be used now or later.
        nodes: the nodes in the order of their slices, once the TPU is up.
        up_since: the monotonic time at which the TPU was first seen to be up; None until then.
        is_deleted: whether the run deletes the TPU.
        awaits_deletions: whether the TPU has no capacity until other TPUs of the run are deleted.
        ended_deletions: how many TPUs had been deleted in the zones of the TPU when it was last requested.
        lock: held while a request about the TPU is sent.
    """

    provisioning: Provisioning
    wait: float
    deadline: float
    progress: Progress = _REQUESTED
    ending: WorkloadOutcome | None = None
    nodes: tuple[Node, ...] = ()
    up_since: float | None = None
    is_deleted: bool = False
    awaits_deletions: bool = False
    ended_deletions: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def request(self) -> TpuRequest:
        """The request in the current zone."""
        return self.provisioning.request

    @property
    def name(self) -> str:
        """The name of the node or of the queued resource."""
        return self.request.name

    @property
    def zone(self) -> str:
        """The current zone."""
        return self.request.location.zone

    @property
    def is_up(self) -> bool:
        """Whether cells can run on the TPU."""
        return bool(self.nodes) and self.ending is None and not self.is_deleted

    @property
    def message(self) -> str:
        """The state and its reason, for people."""
        return f"{self.zone}: {self.progress.message}"


class Fleet:
    """The TPUs of one target in one run.

    Args:
        api: the API for the requests of the callers.
        on_change: called with a TPU whose state has changed, and at each tick with each TPU that is up. It must not
            block.
    """

    def __init__(self, label: str, api: TpuApi, ledger: ResourceLedger, on_change: Callable[[Tpu], None]) -> None:
        self._label = label
        self._api = api
        self._polling = api.limited(_POLL_TIMEOUT)
        self._ledger = ledger
        self._on_change = on_change
        self._lock = threading.RLock()
        self._deletions: Counter[str] = Counter()  # the number of TPUs that are being deleted, by zone
        self._ended_deletions: Counter[str] = Counter()  # the number of TPUs that were deleted, by zone
        self._tpus: dict[str, Tpu] = {}
        self._wake = threading.Event()
        self._scope = CancelScope()
        self._poller: threading.Thread | None = None
        self._is_closed = False
        self._has_warned = False

    def request(self, request: TpuRequest, wait: float) -> Tpu:
        """Request a TPU, or adopt the TPU with this name.

        Raises:
            StepError: no zone accepts the request.
        """
        with self._lock:
            known = self._tpus.get(request.name)
            if known is not None and not known.is_deleted:
                return known
            tpu = self._add(request, wait)
        try:
            self._begin(tpu)
            if tpu.provisioning.is_adopted:
                self._refresh(tpu)
        except CapacityError:
            if not self._may_have_room(tpu):
                self.forget(tpu)
                raise
            tpu.awaits_deletions, tpu.progress = True, _NO_CAPACITY_YET
        except BaseException:
            self.forget(tpu)
            raise
        finally:
            tpu.lock.release()
        self._watch()
        return tpu

    def find(self, request: TpuRequest, wait: float) -> Tpu | None:
        """Adopt the TPU with this name.

        Returns:
            None if the TPU does not exist and was never created completely, or if an earlier session of the run has
            deleted the TPU, or was doing so when it ended.

        Raises:
            StepError: the API does not answer.
        """
        with self._lock:
            known = self._tpus.get(request.name)
        if known is not None and not known.is_deleted:
            return known
        planned = self._planned(request)
        if not planned:
            return None
        tpu = self._add(request, wait)
        try:
            existing = self._api.limited(wait).find(tpu.request.full_name)
            is_deleted = planned[-1].is_absent or (existing is not None and existing.phase is Phase.DELETING)
            if existing is not None and not is_deleted:
                tpu.provisioning.begin()
                self._refresh(tpu)
            elif existing is None and planned[-1].is_created:
                text = f"{tpu.request.full_name} no longer exists: it was deleted, but not by Topgallant"
                self._end(tpu, EndedBy.EVICTED, text)
            else:
                self.forget(tpu)
                return None
        except BaseException:
            self.forget(tpu)
            raise
        finally:
            tpu.lock.release()
        self._watch()
        return tpu

    def check(self, tpu: Tpu) -> None:
        """Read the state of one TPU now, and set its `ending` if it was taken away.

        Raises:
            StepError: the API does not answer.
        """
        with tpu.lock:
            self._refresh(tpu)

    def delete(self, tpu: Tpu) -> None:
        """Delete a TPU, and return when it no longer exists. If this fails, the entry in the ledger stays open.

        Raises:
            StepError: the TPU may still exist.
        """
        tpu.is_deleted = True
        with tpu.lock, self._deletion_in(tpu.zone):
            for entry in self._planned(tpu.request):
                self._delete(entry)
        self.forget(tpu)

    def delete_named(self, request: TpuRequest) -> None:
        """Delete the TPU with this name, which an earlier session of the run may have requested.

        Raises:
            StepError: the TPU may still exist.
        """
        with self._lock:
            tpu = self._tpus.get(request.name)
        if tpu is not None:
            self.delete(tpu)
            return
        for entry in self._planned(request):
            self._delete(entry)

    def forget(self, tpu: Tpu) -> None:
        """Stop watching a TPU."""
        with self._lock:
            if self._tpus.get(tpu.name) is tpu:
                del self._tpus[tpu.name]

    def close(self) -> None:
        """Stop watching. The TPUs remain."""
        with self._lock:
            self._is_closed = True
            poller = self._poller
        self._scope.cancel("the target is closed")
        self._wake.set()
        if poller is not None:
            poller.join()

    # Requests

    def _add(self, request: TpuRequest, wait: float) -> Tpu:
        """Add a TPU. Its lock is held, so that no other thread uses it before the caller has requested it."""
        made = Tpu(Provisioning(self._api, request, self._ledger), wait, time.monotonic() + wait)
        made.lock.acquire()
        with self._lock:
            self._tpus[request.name] = made
        return made

    def _planned(self, request: TpuRequest) -> list[OpenResource]:
        """Return the entries of the ledger for a TPU, in all zones."""
        zones = request.description.zone
        keys = {request.in_zone(zone).resource.key for zone in zones}
        return [entry for entry in self._ledger.open_resources() if entry.resource.key in keys]

    def _begin(self, tpu: Tpu) -> None:
        tpu.ended_deletions = self._count_ended_deletions(tpu)
        tpu.provisioning.begin()

    def _delete(self, entry: OpenResource) -> None:
        resource, owner = entry.resource, self._ledger.owner
        try:
            existed = deletion.delete(self._api, resource.name, owner)
        except (ToolboxError, OSError) as error:
            self._ledger.mark_failed(resource, describe(error))
            raise
        if existed:
            self._ledger.mark_deleted(resource)
        else:
            self._ledger.mark_absent(resource)

    @contextmanager
    def _deletion_in(self, zone: str) -> Iterator[None]:
        with self._lock:
            self._deletions[zone] += 1
        try:
            yield
        finally:
            with self._lock:
                self._deletions[zone] -= 1
                self._ended_deletions[zone] += 1
            self._wake.set()

    def _has_deletions(self, tpu: Tpu) -> bool:
        """Return whether other TPUs of the run are being deleted in zones of a TPU.

        Their capacity and their quota are free only afterwards.
        """
        return any(self._deletions[zone] for zone in tpu.request.description.zone)

    def _count_ended_deletions(self, tpu: Tpu) -> int:
        return sum(self._ended_deletions[zone] for zone in tpu.request.description.zone)

    def _may_have_room(self, tpu: Tpu) -> bool:
        """Return whether other TPUs have been or are being deleted since a TPU was requested."""
        return self._has_deletions(tpu) or self._count_ended_deletions(tpu) > tpu.ended_deletions

    # Polling

    def _watch(self) -> None:
        with self._lock:
            if self._poller is None and not self._is_closed:
                # The context is empty, so that the thread does not end with the scope of the caller.
                target = contextvars.Context().run
                self._poller = threading.Thread(
                    target=target, args=(self._poll,), name=f"tpus-{self._label}", daemon=True
                )
                self._poller.start()
        self._wake.set()

    def _poll(self) -> None:
        quiet = 0
        with cancellation.entered(self._scope):
            while True:
                self._wake.clear()
                if self._is_closed:  # checked after `clear`, which may have cleared the event that `close` has set
                    return
                tpus = self._open_tpus()
                if not tpus:
                    self._wake.wait()
                    continue
                before = [tpu.progress for tpu in tpus]
                try:
                    self._tick(tpus)
                except Cancelled:
                    return
                except Exception:  # without this thread, all cells would wait forever
                    log.exception("%s: the states of the TPUs could not be handled", self._label)
                quiet = 0 if [tpu.progress for tpu in tpus] != before else quiet + 1
                pause = backoff.pause(quiet, first=_FIRST_PAUSE, most=_LONGEST_PAUSE, factor=_PAUSE_FACTOR)
                if self._wake.wait(pause):
                    quiet = 0

    def _open_tpus(self) -> list[Tpu]:
        with self._lock:
            return [tpu for tpu in self._tpus.values() if tpu.ending is None and not tpu.is_deleted]

    def _tick(self, tpus: Iterable[Tpu]) -> None:
        by_zone: dict[Location, list[Tpu]] = {}
        for tpu in tpus:
            by_zone.setdefault(tpu.request.location, []).append(tpu)
        for location, members in by_zone.items():
            try:
                view = self._view(self._polling, members)
            except StepError as error:
                self._note_outage(members, error)
                continue
            self._has_warned = False
            for tpu in members:
                self._step_if_idle(tpu, location, view)

    def _view(self, api: TpuApi, tpus: Sequence[Tpu]) -> ZoneView:
        """Return the objects in the zone of some TPUs."""
        return api.view(tpus[0].request.location, queued=any(tpu.request.description.is_queued for tpu in tpus))

    def _refresh(self, tpu: Tpu) -> None:
        self._step(tpu, self._view(self._polling, [tpu]))

    def _step_if_idle(self, tpu: Tpu, location: Location, view: ZoneView) -> None:
        """Handle the state of a TPU, unless another thread sends a request about it."""
        if not tpu.lock.acquire(blocking=False):
            return
        try:
            if tpu.request.location == location and not tpu.is_deleted:
                self._step(tpu, view)
        finally:
            tpu.lock.release()

    def _step(self, tpu: Tpu, view: ZoneView) -> None:
        if tpu.ending is not None or self._still_awaits_deletions(tpu):
            return
        try:
            if tpu.nodes:
                self._check_loss(tpu, view)
                return
            if tpu.awaits_deletions:
                tpu.awaits_deletions = False
                tpu.provisioning = Provisioning(self._api, tpu.request, self._ledger)
                self._begin(tpu)
                return
            progress = tpu.provisioning.step(view)
        except CapacityError as error:
            if not self._may_have_room(tpu):
                self._end(tpu, EndedBy.NO_CAPACITY, str(error))
                return
            tpu.awaits_deletions, progress = True, _NO_CAPACITY_YET
        except TpuLost as error:
            self._end(tpu, EndedBy.EVICTED, str(error))
            return
        except Exception as error:  # without an ending, the cells of the TPU would wait forever
            if not isinstance(error, ToolboxError):  # for example, the ledger cannot be written
                log.exception("%s: the state of %s could not be handled", self._label, tpu.name)
            outcome = outcome_of_failed_start(error)
            self._end(tpu, outcome.ended_by, outcome.message)
            return
        self._note(tpu, progress)

    def _still_awaits_deletions(self, tpu: Tpu) -> bool:
        if not tpu.awaits_deletions:
            return False
        if self._has_deletions(tpu):
            self._check_deadline(tpu, tpu.progress.message)
            return True
        return False

    def _check_loss(self, tpu: Tpu, view: ZoneView) -> None:
        """Handle that a TPU that was up may have been taken away."""
        try:
            reason = provisioning.loss_reason(tpu.request, view)
            if reason:  # the view may have been listed before the TPU was up
                reason = provisioning.loss_reason(tpu.request, self._view(self._polling, [tpu]))
        except StepError as error:
            self._note_outage([tpu], error)
            return
        if reason:
            self._end(tpu, EndedBy.EVICTED, reason)
        else:
            self._on_change(tpu)

    def _note(self, tpu: Tpu, progress: Progress) -> None:
        """Handle a new state of a TPU that was not up before."""
        is_new, tpu.progress = progress != tpu.progress, progress
        if progress.is_up:
            tpu.nodes = progress.nodes
            tpu.up_since = tpu.up_since or time.monotonic()
        if is_new:
            self._on_change(tpu)
        self._check_deadline(tpu, progress.message)

    def _note_outage(self, tpus: Sequence[Tpu], error: StepError) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning("%s: %s", self._label, describe(error))
        for tpu in tpus:
            if tpu.is_up:
                self._on_change(tpu)  # the workers may answer although the API does not
            else:
                self._check_deadline(tpu, str(error).partition("\n")[0])

    def _check_deadline(self, tpu: Tpu, message: str) -> None:
        if tpu.nodes or time.monotonic() < tpu.deadline:
            return
        ended_by = EndedBy.NO_CAPACITY if tpu.progress.phase is Phase.WAITING else EndedBy.LOST
        text = f"the TPU was not up within {tpu.wait:.0f} s (timeouts.wait): {tpu.zone}: {message}"
        self._end(tpu, ended_by, text)

    def _end(self, tpu: Tpu, ended_by: EndedBy, message: str) -> None:
        with self._lock:
            if tpu.ending is not None or tpu.is_deleted:
                return
            tpu.ending = WorkloadOutcome(ended_by, message=message, host=tpu.name)
        self._on_change(tpu)
