"""JupyterHub: starts a named server for each attempt. The workload runs on this machine and uses the server.

A submitted cell is in the queue of the target until the hub reports that the server of the cell is ready. Then the
workload starts under the usual supervisor, so that it continues if the orchestrator is killed. It gets the address of
the server and the token in its environment (`toolbox.features.notebooks.worker.server_variables`). The server is
deleted when the cell has ended. Each server is on the ledger of the run, so that no server remains.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from toolbox.features.notebooks.jupyterhub import (
    hub_tokens,
    hub_verification,
    labelled_servers,
    server_deletion,
    server_request,
    server_starts,
)
from toolbox.features.notebooks.jupyterhub.hub_address import HubUrl, UserName
from toolbox.features.notebooks.jupyterhub.hub_api import HubAccess, HubApi
from toolbox.features.notebooks.jupyterhub.server_request import ServerRequest
from toolbox.features.notebooks.worker import server_variables
from toolbox.ground.extensions.protocols import Backend
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import Cancelled, StepError, ToolboxError, describe
from toolbox.ground.model.quantities import AnySeconds
from toolbox.ground.model.resources import OpenResource
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.workloads import (
    AttemptState,
    AttemptStatus,
    EndedBy,
    Handle,
    TargetContext,
    Workload,
    WorkloadOutcome,
)
from toolbox.ground.system import cancellation
from toolbox.ground.system.cancellation import CancelScope
from toolbox.targets.attempt_book import Attempt, AttemptBook, outcome_of_failed_start
from toolbox.targets.local_machine import LocalMachine

log = logging.getLogger(__name__)

_DAY: Final = 86400.0
_QUICK_SECONDS: Final = 10.0  # how long a submission waits for the start of the workload


class ServerFields(BaseModel):
    """The server of a workload.

    Args:
        options: options for the spawner of the hub, such as `image`, which override those of the target.
    """

    model_config = ConfigDict(extra="forbid")

    options: dict[str, Any] = {}


class WorkloadFields(BaseModel):
    """The fields of a workload that only this backend reads.

    Args:
        server: the server of the workload. Before the cells are known, it can also be a reference.
    """

    server: ServerFields | str = ServerFields()

    @field_validator("server")
    @classmethod
    def _is_a_reference(cls, server: ServerFields | str) -> ServerFields | str:
        if isinstance(server, str) and not server.startswith("@"):
            raise ValueError("`server` is a mapping such as {options: {image: NAME}}")
        return server


class Target(BaseModel):
    """The hub, and the options of its servers.

    Args:
        url: the address of the hub.
        user: the user whose servers are started; the owner of the token when left out.
        token: a token of the hub's REST API, as a secret; $JUPYTERHUB_API_TOKEN when left out.
        profile: the option `profile` of the servers, which the spawner of the hub defines.
        options: further options for the spawner.
        ca_file: the certificates of the authorities that verify the hub's certificate; those of the system when left
            out.
        ttl: the seconds from the request until `resources reap` of any user may delete the server.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    keeps_attempts: ClassVar[bool] = True
    workload_fields: ClassVar[type[BaseModel]] = WorkloadFields

    url: HubUrl
    user: UserName | None = None
    token: Secret | None = Field(default=None, repr=False)
    profile: str | None = Field(default=None, min_length=1)
    options: dict[str, Any] = {}
    ca_file: str | None = Field(default=None, min_length=1)
    ttl: AnySeconds = Field(default=14400.0, gt=0, le=30 * _DAY)

    def model_post_init(self, _: object) -> None:
        """Store the token for deletions, because the ledger of a run contains no secrets."""
        if self.token is not None:
            hub_tokens.remember(self.url, self.user or "", self.token)

    def open(self, context: TargetContext) -> Backend:
        """Return the backend of this hub.

        Raises:
            ConfigurationError: a library is not installed, or there is no token.
        """
        return _JupyterHub(context, self)

    @property
    def access(self) -> HubAccess:
        """How to reach the hub.

        Raises:
            ConfigurationError: there is no token.
        """
        ca_file = Path(self.ca_file).absolute() if self.ca_file else None
        if self.token is not None:  # not `hub_tokens.access`: another target may have another token for the same hub
            return HubAccess(self.url, self.token, ca_file)
        return hub_tokens.access(self.url, self.user or "", ca_file)

    def accept(self, workload: Workload) -> None:
        """Raise ValueError if a cell may take longer than the `ttl` of its server, or has a working directory."""
        times = workload.timeouts
        if times.run is None or times.wait + times.run >= self.ttl:
            limit = "no limit" if times.run is None else f"{times.wait + times.run:.0f} s"
            raise ValueError(
                f"timeouts.wait plus timeouts.run ({limit}) must be less than the `ttl` of the server "
                f"({self.ttl:.0f} s), after which any user may delete the server with `resources reap`: raise `ttl`, "
                "or lower the timeouts"
            )
        if workload.cwd is not None:
            raise ValueError(
                "`cwd` is a directory of the target, but the workload runs beside Topgallant: leave it out"
            )

    def verify(self, name: str, clusters: Mapping[str, Access | None], workloads: Iterable[Workload]) -> None:  # noqa: ARG002
        """Check that the hub accepts the token for the user.

        Raises:
            ConfigurationError: the token or the user must be changed.
            InfrastructureError: the hub does not answer.
        """
        hub_verification.verify(f"the target `{name}`", self.access, self.user)

    def resources(self, name: str, clusters: Mapping[str, Access | None]) -> Iterable[OpenResource]:  # noqa: ARG002
        """Return the servers of the user that have labels of Topgallant."""
        with HubApi(self.access) as api:
            return list(labelled_servers.find(api, self.user or hub_verification.user_of_token(api), self.ttl))


@dataclass(slots=True, eq=False)
class _ServerAttempt(Attempt):
    """An attempt of a cell. When its server is ready, its workload starts on this machine.

    Args:
        server: the server of the attempt.
        scope: the scope of the request that starts the workload.
        is_started: whether the workload was started on this machine.
        is_cancelled: whether the run cancelled the attempt.
        stop_following: cancels the coroutine that starts the server.
    """

    workload: Workload
    server: ServerRequest
    scope: CancelScope
    is_started: bool = False
    is_cancelled: bool = False
    stop_following: Callable[[], object] = lambda: None


class _JupyterHub:
    """Executes workloads that use servers of a hub. It implements `toolbox.ground.extensions.protocols.Backend`."""

    def __init__(self, context: TargetContext, target: Target) -> None:
        self._context = context
        self._target = target
        self._api = HubApi(target.access)
        self._machine = LocalMachine(replace(context, notify=self._workload_changed))
        self._book: AttemptBook[_ServerAttempt] = AttemptBook(context.notify)
        self._scope = CancelScope()
        self._asking = threading.Lock()
        self._user = target.user or ""

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        """See `Backend`. If the server is not ready soon, the cell stays in the queue of the target."""
        handle = Handle(name, directory)
        if self._book.get(name) is None and not self._adopt_workload(workload, handle):
            attempt = self._attempt(workload, handle)
            self._context.ledger.plan(attempt.server.resource)
            self._await_start(self._follow(attempt))
        return handle

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        """See `Backend`."""
        return {handle: self._book[handle.name].status for handle in handles}

    def collect(self, handle: Handle, workload: Workload) -> None:
        """See `Backend`."""
        if self._book[handle.name].is_started:
            self._machine.collect(handle, workload)

    def cancel(self, handle: Handle) -> None:
        """See `Backend`. If the server is not ready, the attempt ends at once."""
        attempt = self._book[handle.name]
        attempt.is_cancelled = True
        if not attempt.is_started:
            attempt.stop_following()
            attempt.scope.cancel("the attempt is cancelled")
            self._conclude(attempt, WorkloadOutcome(EndedBy.CANCELLED))
        if attempt.is_started:
            self._machine.cancel(handle)

    def release(self, handle: Handle) -> None:
        """See `Backend`. Deletes the server, and returns when it no longer exists."""
        attempt = self._book.get(handle.name)
        if attempt is not None and not attempt.status.state.is_over:
            raise StepError(f"{self._context.name}: {handle.name} is in use: its workload is still running")
        self._delete(attempt.server if attempt is not None else self._server(Workload(()), handle.name))
        if attempt is not None and attempt.is_started:
            self._machine.release(handle)
        self._book.forget(handle.name)

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        """See `Backend`. If the server exists but its workload does not, the attempt is in the queue of the target."""
        handle = Handle(name, directory)
        if self._adopt_workload(workload, handle):
            return handle
        attempt = self._attempt(workload, handle)
        servers = self._api.run(self._api.servers(attempt.server.user, seconds=workload.timeouts.wait))
        existing = servers.get(attempt.server.name)
        if existing is None:
            return None
        server_deletion.check_owner(existing, self._context.ledger.owner)
        self._follow(attempt)
        return handle

    def close(self) -> None:
        """See `Backend`. The servers and the workloads continue to run."""
        self._book.close()
        self._scope.cancel("the target is closed")
        self._machine.close()
        self._api.close()

    def _attempt(self, workload: Workload, handle: Handle) -> _ServerAttempt:
        return _ServerAttempt(handle, workload, self._server(workload, handle.name), CancelScope(self._scope))

    # The server of an attempt

    def _server(self, workload: Workload, name: str) -> ServerRequest:
        """Return the request for the server of an attempt."""
        target, fields = self._target, workload.backend_fields.get("server")
        options = fields.options if isinstance(fields, ServerFields) else {}
        profile = {"profile": target.profile} if target.profile else {}
        return ServerRequest(
            target.url,
            self._user_name(workload.timeouts.wait),
            server_request.server_name(self._context.run, name),
            self._context.ledger.owner.labels(target.ttl),
            target.ttl,
            self._api.access.ca_file,
            {**target.options, **profile, **options},
        )

    def _user_name(self, seconds: float) -> str:
        with self._asking:
            if not self._user:
                self._user = hub_verification.user_of_token(self._api, seconds)
            return self._user

    def _delete(self, server: ServerRequest) -> None:
        """Delete a server, and record it on the ledger."""
        ledger, owner = self._context.ledger, self._context.ledger.owner
        try:
            existed = self._api.run(server_deletion.delete(self._api, server.user, server.name, owner))
        except StepError as error:
            ledger.mark_failed(server.resource, describe(error))
            raise
        (ledger.mark_deleted if existed else ledger.mark_absent)(server.resource)

    # The start of an attempt

    def _adopt_workload(self, workload: Workload, handle: Handle) -> bool:
        """Adopt the workload of an earlier session, and return True. Return False if it was never started."""
        if self._machine.find(workload, handle.name, handle.directory) is None:
            return False
        self._note_start(self._book.add(self._attempt(workload, handle)))
        return True

    def _follow(self, attempt: _ServerAttempt) -> _ServerAttempt:
        """Start the server of an attempt in the loop of the connection, and its workload when the server is ready."""
        added = self._book.add(attempt)
        if added is attempt:
            attempt.stop_following = self._api.start(self._bring_up(attempt))
        return added

    def _await_start(self, attempt: _ServerAttempt) -> None:
        """Wait a short time for the start of the workload."""
        try:
            cancellation.current().wait(attempt.settled, min(_QUICK_SECONDS, attempt.workload.timeouts.wait))
        except Cancelled:
            self.cancel(attempt.handle)  # the caller gets no handle, so nothing else ends the attempt
            self._book.forget(attempt.name)
            raise

    def _conclude(self, attempt: _ServerAttempt, outcome: WorkloadOutcome) -> None:
        """End an attempt, unless its workload has started."""
        with self._book.lock:
            if not attempt.is_started:
                self._book.change(attempt, AttemptStatus(AttemptState.ENDED, outcome))

    async def _bring_up(self, attempt: _ServerAttempt) -> None:
        server, wait = attempt.server, attempt.workload.timeouts.wait
        report = partial(self._book.show_waiting, attempt)
        try:
            await server_starts.start(
                self._api, server.user, server.name, server.spawner_options, seconds=wait, report=report
            )
            await asyncio.to_thread(self._start_workload, attempt)
        except (ToolboxError, Cancelled, OSError) as error:
            self._conclude(attempt, outcome_of_failed_start(error))
        except Exception as error:  # if it escaped, the run would wait for the attempt forever
            if not self._book.is_closed:
                log.exception("%s: an attempt could not be started", self._context.name)
            self._conclude(attempt, outcome_of_failed_start(error))

    def _start_workload(self, attempt: _ServerAttempt) -> None:
        """Start the workload, with the address of its server and the token in its environment."""
        self._context.ledger.mark_created(attempt.server.resource)
        access, env = self._api.access, dict(attempt.workload.env)
        env[server_variables.URL] = attempt.server.server_url
        env[server_variables.TOKEN] = access.token
        if access.ca_file is not None:
            env[server_variables.CA_FILE] = str(access.ca_file)
        workload = replace(attempt.workload, env=env)
        with cancellation.entered(attempt.scope):
            attempt.scope.check()
            self._machine.submit(workload, attempt.name, attempt.directory)
        self._note_start(attempt)
        if attempt.is_cancelled:
            self._machine.cancel(attempt.handle)

    def _note_start(self, attempt: _ServerAttempt) -> None:
        """Record that this machine has the workload. It may have ended before."""
        with self._book.lock:
            attempt.is_started |= self._book.change(attempt, AttemptStatus(AttemptState.RUNNING))
        self._workload_changed(attempt.name)

    def _workload_changed(self, name: str) -> None:
        """Record the end of a workload whose start is recorded."""
        attempt = self._book.get(name)
        if attempt is not None and attempt.is_started:
            self._book.change(attempt, self._machine.poll([attempt.handle])[attempt.handle])
