"""The whole test server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests.servers.openssh import ServerError
from tests.servers.tpu.clock import Clock
from tests.servers.tpu.cloud import Cloud, Timings
from tests.servers.tpu.console import Console
from tests.servers.tpu.control import Control
from tests.servers.tpu.grpc_api import GrpcServer
from tests.servers.tpu.machines import RealMachines
from tests.servers.tpu.methods import Api
from tests.servers.tpu.no_machines import NoMachines
from tests.servers.tpu.rest_api import RestServer


class Server(Control):
    """A test server that answers inside a `with` block.

    Args:
        directory: directory for the files of the workers.
        timings: how long the service takes.
        has_workers: whether nodes have real VMs, which need root. Otherwise only the API answers.
        is_frozen: whether time stands still, except for `advance`.
        port: port of the API over gRPC; 0 means a free one.
        shared: directory of this machine that all workers see at the same path.

    Raises:
        ServerError: this machine cannot run workers.
    """

    def __init__(
        self,
        directory: Path,
        *,
        timings: Timings | None = None,
        has_workers: bool = True,
        is_frozen: bool = False,
        port: int = 0,
        shared: Path | None = None,
    ) -> None:
        self.directory = directory
        self._clock = Clock(frozen=is_frozen)
        self._workers = RealMachines(directory, self._clock, shared) if has_workers else None
        machines = self._workers or NoMachines()
        self._api = Api(Cloud(clock=self._clock, timings=timings or Timings(), machines=machines))
        self._console = Console(self._api, self._workers)
        self._clock.start()
        self._grpc = GrpcServer(self._api, port)
        self._rest = RestServer(self._api)
        self.port, self.rest_port, self.ssh_port = self._grpc.port, self._rest.port, machines.port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def send(self, verb: str, **arguments: Any) -> Any:
        """Execute a verb of the console."""
        return self._console.execute(verb, arguments)

    def stop(self) -> None:
        """Stop the service and all workers.

        Raises:
            AssertionError: something in the server itself has failed.
        """
        self._grpc.stop()
        self._rest.stop()
        if self._workers is not None:
            self._clock.run(self._workers.stop_all)  # not while VMs boot
        self._clock.stop()
        assert not self._clock.failures, "\n".join(self._clock.failures)


@contextmanager
def serving(directory: Path, **settings: Any) -> Iterator[Server]:
    """Run a server for a test, which is skipped if this machine cannot run workers."""
    try:
        server = Server(directory, **settings)
    except ServerError as error:
        pytest.skip(str(error))
    with server:
        yield server
