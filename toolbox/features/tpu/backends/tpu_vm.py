"""TPU VMs of Google Cloud: creates a TPU for each cell, or one for the run, and runs cells on its workers by SSH.

A submitted cell is in the queue of the target until its TPU is up, SSH answers on all workers, and the startup script
has ended. `toolbox.features.tpu.fleet` follows the TPUs with one thread. The TPU of a cell is deleted when the cell has
ended; the ledger of the run makes sure that none remains.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import ConfigDict, Field, model_validator

from toolbox.features.tpu import labelled_tpus, ssh_keys, startup, verification, worker_group, workers
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.fleet import Fleet, Tpu
from toolbox.features.tpu.tpu_attempts import Machines, TpuAttempt, TpuAttempts, is_judged
from toolbox.features.tpu.tpu_description import TpuDescription
from toolbox.features.tpu.tpu_request import TpuRequest
from toolbox.features.tpu.tpu_states import Location
from toolbox.features.tpu.worker_group import GroupSettings
from toolbox.ground.extensions.protocols import Backend
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import Cancelled, FilesLost, StepError, ToolboxError, describe
from toolbox.ground.model.resources import OpenResource
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import (
    AttemptState,
    AttemptStatus,
    EndedBy,
    Handle,
    TargetContext,
    Timeouts,
    Workload,
    WorkloadOutcome,
)
from toolbox.ground.system import cancellation
from toolbox.ground.system.cancellation import CancelScope
from toolbox.targets import group_endings
from toolbox.targets.attempt_book import outcome_of_failed_start

log = logging.getLogger(__name__)

_STARTERS: Final = 8
_REQUESTS: Final = 32
_LOOK_SECONDS: Final = 0.5
_CANCEL_SECONDS: Final = 30.0  # how long an adopted attempt may take to end when the run ends
_SHUTDOWN_SECONDS: Final = 20.0  # how long the API may take to report that a node is being taken away
_HASH: Final = 10
_LONGEST_RUN: Final = 40
_PROBE: Final = Workload((), timeouts=Timeouts(wait=60))  # finds an attempt, and is never started
_EXPECTED: Final = (ToolboxError, Cancelled, OSError)


class Target(TpuDescription):
    """The TPU, and how cells use it.

    Args:
        selection: the workers that run each cell: `all`, a number, a range such as `1-3`, or a list such as `1,4`. The
            key in the configuration is `workers`.
        reuse: `cell` creates a TPU for each attempt of a cell; `run` creates one TPU for all cells of the run.
        python: the Python interpreter for the agent, version 3.8 or later.
        directory: the directory for attempts on the workers, as an absolute path or below `~/`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    keeps_attempts: ClassVar[bool] = True

    selection: str = Field(default=workers.ALL, alias="workers")
    reuse: Literal["run", "cell"] = "cell"
    python: str = Field(default="python3", min_length=1)
    directory: str = Field(default="~/.cache/topgallant/attempts", pattern=r"^(/|~/|~$)")

    @model_validator(mode="after")
    def _selects_workers(self) -> Target:
        workers.select(self.selection, self.workers)
        return self

    def open(self, context: TargetContext) -> Backend:
        """Return the backend of these TPUs.

        Raises:
            ConfigurationError: the client library is not installed, or there are no credentials.
        """
        return _TpuVm(context, self)

    @property
    def rents_per_attempt(self) -> bool:
        """Whether each attempt has a TPU of its own."""
        return self.reuse == "cell"

    def identity(self, name: str, workload: Workload) -> str | None:  # noqa: ARG002  # the protocol requires both
        """Return the type, the slices and the runtime of the TPU, the workers that run a cell, and what they mount.

        A startup script in a file has no identity here, because the file may change.
        """
        if self.startup_script_file is not None:
            return None
        fields = {"accelerator_type", "type", "topology", "slices", "runtime_version", "startup_script", "data_disks"}
        return f"tpu_vm {self.model_dump_json(include=fields | {'selection', 'python'})}"

    def accept(self, workload: Workload) -> None:
        """Raise ValueError if a cell may take longer than the time after which `resources reap` may delete its TPU."""
        times = workload.timeouts
        if times.run is None or times.wait + times.run >= self.ttl:
            limit = "no limit" if times.run is None else f"{times.wait + times.run:.0f} s"
            raise ValueError(
                f"timeouts.wait plus timeouts.run ({limit}) must be less than the `ttl` of the TPU ({self.ttl:.0f} s), "
                "after which any user may delete the TPU with `resources reap`: raise `ttl`, or lower the timeouts"
            )

    def verify(self, name: str, clusters: Mapping[str, Access | None], workloads: Iterable[Workload]) -> None:  # noqa: ARG002
        """Check that the TPUs can be requested, as far as this is known without a request.

        Raises:
            ConfigurationError: the description or a permission must be changed.
            InfrastructureError: the API does not answer.
        """
        verification.verify(f"the target `{name}`", self)

    def resources(self, name: str, clusters: Mapping[str, Access | None]) -> Iterable[OpenResource]:  # noqa: ARG002
        """Return the TPUs with labels of Topgallant in the zones of the target."""
        return labelled_tpus.find(self)


def tpu_name(run: str, key: str) -> str:
    """Return the name of a TPU. It is unique, and depends only on the run and the key.

    Args:
        key: identifies the TPU in the run, for example the name of an attempt.
    """
    digest = hashlib.sha256(f"{run}\0{key}".encode()).hexdigest()[:_HASH]
    words = re.sub(r"[^a-z0-9]+", "-", run.lower())[:_LONGEST_RUN].strip("-")
    return f"tg-{words}-{digest}" if words else f"tg-{digest}"


class _TpuVm:
    """Executes workloads on TPUs. It implements `toolbox.ground.extensions.protocols.Backend`."""

    def __init__(self, context: TargetContext, target: Target) -> None:
        self._context = context
        self._target = target
        self._api = TpuApi(target.endpoint)
        self._fleet = Fleet(context.name, self._api, context.ledger, self._tpu_changed)
        self._scope = CancelScope()
        self._starters = ThreadPoolExecutor(_STARTERS, thread_name_prefix="tpu-start")
        self._requests = ThreadPoolExecutor(_REQUESTS, thread_name_prefix="tpu-workers")
        self._requesting = threading.Lock()  # held while the TPU of the run is requested
        self._attempts = TpuAttempts(context.notify)
        self._book = self._attempts.book
        self._refusal = ""  # why no attempt can start on any TPU of the target; empty if one may

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        """See `Backend`. The cell is in the queue of the target when its TPU is requested."""
        if self._refusal:
            raise StepError(f"{self._context.name}: {self._refusal}", cause=Cause.CONFIGURATION)
        with self._turn():
            tpu = self._requested(name, workload.timeouts)
        attempt = self._attempts.add(Handle(name, directory), workload, tpu, self._scope)
        try:
            self._await_start(attempt)
        except Cancelled:
            self.cancel(attempt.handle)  # the caller gets no handle, so nothing else ends the workload
            self._book.forget(name)
            raise
        return attempt.handle

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        """See `Backend`."""
        return {handle: self._book[handle.name].status for handle in handles}

    def collect(self, handle: Handle, workload: Workload) -> None:
        """See `Backend`. The files of an attempt are lost if its TPU is lost, or if the workload broke the shell."""
        attempt = self._book[handle.name]
        if not attempt.is_started:
            return
        self._look_for_loss(attempt)  # ssh would try for a minute to reach a worker that no longer exists
        machines = self._attempts.machines_of(attempt)
        try:
            if machines.group is not None and machines.exist:
                machines.group.collect(handle, workload)
                return
        except StepError:
            self._look_for_loss(attempt)
            if machines.are_usable:
                raise
        if is_judged(attempt):
            ending = attempt.tpu.ending
            reason = ending.message if ending else machines.unusable or "the TPU was deleted"
            raise FilesLost(f"its files are lost: {reason}", machine=attempt.tpu.name)

    def cancel(self, handle: Handle) -> None:
        """See `Backend`. An attempt that has not started ends at once."""
        attempt = self._book[handle.name]
        self._attempts.cancel(attempt)
        group = self._attempts.machines_of(attempt).group
        if attempt.is_started and group is not None:
            group.cancel(handle)

    def release(self, handle: Handle) -> None:
        """See `Backend`. Deletes the TPU of the cell."""
        attempt = self._book.get(handle.name)
        if attempt is not None and not attempt.status.state.is_over:
            raise StepError(f"{self._context.name}: {handle.name} is in use: its workload is still running")
        if self._target.reuse == "cell":
            self._delete(handle.name)
        else:
            self._release_files(handle)
        self._book.forget(handle.name)

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        """See `Backend`. An attempt whose TPU is not up yet is in the queue of the target.

        If the run ends while the workers are asked for the attempt, the attempt is cancelled.
        """
        with self._turn():
            tpu = self._fleet.find(self._request(name), workload.timeouts.wait)
        if tpu is None:
            return None
        # A workload starts only on a TPU that is up.
        attempt = self._attempts.add(Handle(name, directory), workload, tpu, self._scope, may_exist=tpu.is_up)
        try:
            self._await_start(attempt)
        except Cancelled:
            attempt.is_cancelled = True
            if not attempt.settled.wait(_CANCEL_SECONDS):
                self._book.forget(name)
                raise
        if attempt.is_absent:
            self._book.forget(name)
            return None
        if tpu.is_up and not attempt.settled.is_set():
            reason = self._attempts.machines_of(attempt).unready or "the workers do not answer"
            self._book.forget(name)
            raise StepError(f"{self._context.name}: {reason}")
        return attempt.handle

    def teardown_run(self) -> None:
        """See `Backend`. Deletes the TPU of the run, and the SSH key if no TPU of the run is left."""
        names = [attempt.name for attempt in self._book.attempts()] if self._target.reuse == "cell" else [""]
        for name in names:
            self._delete(name)
        ssh_keys.remove_unused(self._context.ledger)

    def close(self) -> None:
        """See `Backend`."""
        groups = self._attempts.close()
        self._scope.cancel("the target is closed")
        self._fleet.close()
        for threads in (self._starters, self._requests):
            threads.shutdown(wait=False, cancel_futures=True)
        for group in groups:
            group.close()
        self._api.close()

    # The TPU of an attempt

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let only one attempt at a time request the TPU of the run. The TPUs of cells are requested in parallel."""
        if self._target.reuse == "cell":
            yield
            return
        while not self._requesting.acquire(timeout=_LOOK_SECONDS):
            cancellation.current().check()
        try:
            yield
        finally:
            self._requesting.release()

    def _request(self, attempt: str) -> TpuRequest:
        """Return the request for the TPU of an attempt, or of the run."""
        metadata = {
            "ssh-keys": self._key().metadata(self._target.ssh.user),
            "startup-script": startup.wrapped(self._target.script()),
        }
        return replace(self._request_without_metadata(attempt), metadata=metadata)

    def _request_without_metadata(self, attempt: str) -> TpuRequest:
        target = self._target
        key = attempt if target.reuse == "cell" else f"target {self._context.name}"
        labels = self._context.ledger.owner.labels(target.ttl)
        return TpuRequest(tpu_name(self._context.run, key), Location(target.project, target.zone[0]), target, labels)

    def _key(self) -> ssh_keys.SshKey:
        return ssh_keys.of_owner(self._context.ledger.owner, self._context.mark)

    def _settings(self) -> GroupSettings:
        target = self._target
        return GroupSettings(target.selection, target.python, target.directory, target.ssh, self._key())

    def _requested(self, attempt: str, timeouts: Timeouts) -> Tpu:
        """Request the TPU of an attempt. Delete the TPU of the run first if it cannot be used any more."""
        request = self._request(attempt)
        machines = self._attempts.machines(request.name)
        if machines is not None and not (machines.are_usable and machines.outlast(timeouts)):
            self._await_attempts(machines.tpu, timeouts.wait)
            self._delete(attempt)
        try:
            return self._fleet.request(request, timeouts.wait)
        except StepError:
            if self._target.reuse == "cell":  # the next attempt uses another name, so nothing else deletes the TPU soon
                self._do(partial(self._discard, attempt))
            raise

    def _await_attempts(self, tpu: Tpu, seconds: float) -> None:
        """Wait for the end of the attempts on a TPU that is to be deleted."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if tpu.ending is not None or all(each.status.state.is_over for each in self._attempts.on(tpu)):
                return
            cancellation.current().sleep(_LOOK_SECONDS)

    def _discard(self, attempt: str) -> None:
        """Delete what a failed request may have created. Otherwise, the end of the run deletes it."""
        try:
            self._delete(attempt)
        except StepError as error:
            log.warning("%s: %s", self._context.name, describe(error))

    def _delete(self, attempt: str) -> None:
        """Delete the TPU of an attempt, or of the run, and return when it no longer exists."""
        request = self._request_without_metadata(attempt)
        if (machines := self._attempts.machines(request.name)) is not None:
            text = f"the TPU {request.name} was deleted by the run"
            self._end_on(machines, WorkloadOutcome(EndedBy.LOST, message=text))
        if (group := self._attempts.remove_machines(request.name)) is not None:
            group.close()
        self._fleet.delete_named(request)

    def _release_files(self, handle: Handle) -> None:
        """Remove the files of an attempt from the TPU of the run, unless they are deleted with the TPU."""
        attempt = self._book.get(handle.name)
        if attempt is None and self.find(_PROBE, handle.name, handle.directory) is None:
            return
        attempt = self._book[handle.name]
        machines = self._attempts.machines_of(attempt)
        if attempt.is_started and machines.group is not None and machines.are_usable:
            machines.group.release(handle)

    # The start of an attempt

    def _await_start(self, attempt: TpuAttempt) -> None:
        """Wait until the workload has started if its TPU is up. Otherwise, the attempt is in the queue."""
        self._tpu_changed(attempt.tpu)
        if attempt.tpu.is_up:
            cancellation.current().wait(attempt.settled, attempt.deadline - time.monotonic())

    def _tpu_changed(self, tpu: Tpu) -> None:
        """Handle a new state of a TPU. The fleet calls this method, so it does not block."""
        machines = self._attempts.machines(tpu.name)
        if machines is None or machines.tpu is not tpu or self._book.is_closed:
            return
        if tpu.ending is not None:
            self._end_on(machines, tpu.ending)
            return
        if machines.group is None:
            for attempt in self._attempts.on(tpu):
                self._book.show_waiting(attempt, machines.unready or tpu.message)
        if tpu.is_up:
            self._prepare_soon(machines)

    def _end_on(self, machines: Machines, outcome: WorkloadOutcome) -> None:
        """End all attempts on a TPU that is lost."""
        if machines.group is not None:
            machines.group.end_all(outcome)
        for attempt in self._attempts.on(machines.tpu):
            if not attempt.is_started:
                self._attempts.conclude(attempt, outcome)

    def _prepare_soon(self, machines: Machines) -> None:
        """Let a thread ask the workers whether they are ready, and start the waiting attempts."""
        if attempts := self._attempts.begin_preparing(machines):
            self._do(partial(self._prepare, machines), *attempts)

    def _do(self, work: Callable[[], None], *attempts: TpuAttempt) -> None:
        """Do work in a thread that the end of the run does not cancel.

        Args:
            attempts: the attempts to end if the work fails unexpectedly. Otherwise, the run would wait for them
                forever.
        """

        def tried() -> None:
            try:
                with cancellation.entered(self._scope):
                    work()
            except Cancelled:
                return  # the target is closed
            except Exception as error:
                if self._book.is_closed:  # `close` has ended the threads that the work needs
                    return
                log.exception("%s: an attempt could not be started or ended", self._context.name)
                for attempt in attempts:
                    self._attempts.conclude(attempt, outcome_of_failed_start(error))

        with contextlib.suppress(RuntimeError):  # the target is closed
            self._starters.submit(tried)

    def _prepare(self, machines: Machines) -> None:
        try:
            if machines.group is None:
                self._open_group(machines)
        except _EXPECTED as error:
            self._fail_start(machines, error)
        finally:
            machines.is_preparing = False
        for attempt in self._attempts.begin_starting(machines):
            self._do(partial(self._start, machines, attempt), attempt)

    def _open_group(self, machines: Machines) -> None:
        """Open the group if all workers are ready. Otherwise, end the attempts that have waited too long."""
        nodes, settings = machines.tpu.nodes, self._settings()
        machines.unready = worker_group.unready_reason(nodes, settings, self._context.mark, self._requests)
        if not machines.unready:
            context = replace(self._context, notify=self._group_changed)
            group = worker_group.open_group(context, nodes, settings, self._requests)
            if not self._attempts.set_group(machines, group):
                group.close()
            return
        for attempt in self._attempts.on(machines.tpu):
            self._book.show_waiting(attempt, machines.unready)
            if attempt.is_waiting and attempt.is_cancelled:
                machines.unusable = machines.unready  # the workload of an earlier session may be running there
                self._attempts.conclude(attempt, WorkloadOutcome(EndedBy.CANCELLED))
            elif attempt.is_waiting and time.monotonic() > attempt.deadline:
                limit = f"{attempt.workload.timeouts.wait:.0f} s (timeouts.wait)"
                text = f"the TPU {machines.tpu.name} was not ready within {limit}: {machines.unready}"
                self._attempts.conclude(attempt, WorkloadOutcome(EndedBy.LOST, message=text))

    def _fail_start(self, machines: Machines, error: BaseException) -> None:
        """End the waiting attempts, because the workers cannot become ready."""
        if isinstance(error, Cancelled):
            raise error
        outcome = outcome_of_failed_start(error)
        machines.unusable = outcome.message
        for attempt in self._attempts.on(machines.tpu):
            if attempt.is_waiting:
                if outcome.ended_by is EndedBy.NOT_STARTED and not self._refusal:
                    # The startup script, or another part of the description, would fail again on the next TPU.
                    self._refusal = f"not started, because {attempt.label} has failed on this target: {outcome.message}"
                self._attempts.conclude(attempt, outcome)

    def _start(self, machines: Machines, attempt: TpuAttempt) -> None:
        assert machines.group is not None, "the workers are ready"
        group, handle = machines.group, attempt.handle
        try:
            if attempt.may_exist:
                if group.find(attempt.workload, handle.name, handle.directory) is None:
                    attempt.is_absent = True
                    attempt.settled.set()
                    return
            elif attempt.is_cancelled:
                self._attempts.conclude(attempt, WorkloadOutcome(EndedBy.CANCELLED))
                return
            else:
                with cancellation.entered(attempt.starting):
                    group.submit(attempt.workload, handle.name, handle.directory)
        except _EXPECTED as error:
            outcome = outcome_of_failed_start(error)
            # After other errors, processes may run on a worker that does not answer.
            if outcome.ended_by is not EndedBy.NOT_STARTED:
                machines.unusable = outcome.message
            self._attempts.conclude(attempt, outcome)
            return
        finally:
            attempt.starting.close()
        self._attempts.note_start(attempt)
        if attempt.is_cancelled:  # `cancel` ends the workload only after the start is recorded
            group.cancel(handle)
        self._group_changed(handle.name)

    # The end of an attempt

    def _group_changed(self, name: str) -> None:
        """Handle that an attempt may be over on its workers."""
        attempt = self._book.get(name)
        group = self._attempts.machines_of(attempt).group if attempt is not None else None
        if attempt is None or group is None or not attempt.is_started or attempt.status.state.is_over:
            return
        status = group.poll([attempt.handle])[attempt.handle]
        if status.state.is_over:
            self._do(partial(self._finish, attempt, status), attempt)

    def _finish(self, attempt: TpuAttempt, status: AttemptStatus) -> None:
        """Decide how an attempt ended. If the attempt failed, ask the API whether its TPU was taken away."""
        outcome = group_endings.outcome_of(status)
        fault = ""
        if not group_endings.is_good(outcome) and not (attempt.is_cancelled and outcome.ended_by is EndedBy.CANCELLED):
            # A machine that is being taken away ends the workload before the API tells about it. Another session of
            # the run may have ended the workload as well.
            seconds = _SHUTDOWN_SECONDS if outcome.ended_by is EndedBy.CANCELLED else 0.0
            fault = self._look_for_loss(attempt, seconds)
        if attempt.tpu.ending is not None:
            self._attempts.conclude(attempt, attempt.tpu.ending)
        elif status.state is AttemptState.UNREACHABLE and fault:
            self._book.change(attempt, replace(status, message=f"{status.message}; {fault}"))
        else:
            self._attempts.conclude(attempt, self._explained(attempt, outcome))

    def _explained(self, attempt: TpuAttempt, outcome: WorkloadOutcome) -> WorkloadOutcome:
        """Return the outcome of an attempt whose TPU still exists according to the API."""
        machines = self._attempts.machines_of(attempt)
        if outcome.changed_startup_files:
            files = outcome.changed_startup_files
            machines.unusable = f"startup files of the shell changed while {attempt.label} ran: {files}"
        if outcome.may_remain:
            # The next attempt gets another TPU, and this one is deleted with all processes.
            machines.unusable = outcome.message
            text = f"{outcome.message} (the API reports: {attempt.tpu.message})"
            return replace(outcome, message=text, may_remain=False)
        return outcome

    def _look_for_loss(self, attempt: TpuAttempt, seconds: float = 0.0) -> str:
        """Ask the API whether the TPU of an attempt was taken away. Return why the API does not answer.

        Args:
            seconds: how long to wait until the API reports the loss.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._fleet.check(attempt.tpu)
            except StepError as error:
                return str(error).partition("\n")[0]
            if attempt.tpu.ending is not None or time.monotonic() >= deadline:
                return ""
            cancellation.current().sleep(_LOOK_SECONDS)
