"""The spawner of the hub of the tests: starts single-user servers as processes, with profiles.

The profile is the option `profile` of a start:

- `small` and `large` are Jupyter servers. `small` may use one processor, and `large` may use all;
- `bare` is a web server without Jupyter, which starts in a tenth of a second;
- `progress` is `bare` after a client has received three events of progress;
- `fail` is a start that raises an error;
- `full` is a start for which a cluster has no room, as KubeSpawner reports it, and which never ends;
- `slow` never becomes ready.

Servers know their profile and their image by the variables `SERVER_PROFILE` and `SERVER_IMAGE`. The log of the hub has
a line for each start.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from multiprocessing.process import BaseProcess
from typing import Any, Final

from jupyterhub.spawner import SimpleLocalProcessSpawner
from tests.features.notebooks.servers.jupyterhub import forked_server
from tests.servers import reserved_ports

_BARE: Final = "tests.features.notebooks.servers.jupyterhub.bare_server"
_NO_ROOM: Final = "0/3 nodes are available: 3 Insufficient memory."


class ProfileSpawner(SimpleLocalProcessSpawner):  # type: ignore[misc]  # jupyterhub has no types
    """Starts a server as its profile says."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._are_events_sent = asyncio.Event()
        self._forked: BaseProcess | None = None

    @property
    def profile(self) -> str:
        return str(self.user_options.get("profile") or "small")

    @property
    def cmd(self) -> list[str]:
        return [sys.executable, "-m", _BARE]

    def get_env(self) -> dict[str, str]:
        environment: dict[str, str] = super().get_env()
        image = str(self.user_options.get("image") or "")
        return environment | {"SERVER_PROFILE": self.profile, "SERVER_IMAGE": image}

    async def start(self) -> tuple[str, int]:
        self.log.info("start of the server %s", self.name)
        if self.profile == "fail":
            raise RuntimeError("the image \x1b[31mno-such-image\x1b[0m cannot be pulled")
        if self.profile in ("slow", "full"):
            await asyncio.Event().wait()
        if self.profile == "progress":
            await self._are_events_sent.wait()
        self._reserved = reserved_ports.reserve(self.ip)
        self.port = self._reserved.getsockname()[1]
        if self.profile in ("small", "large"):
            return await self._fork()
        address: tuple[str, int] = await super().start()
        return address

    async def _fork(self) -> tuple[str, int]:
        processors = sorted(os.sched_getaffinity(0))[: 1 if self.profile == "small" else None]
        arguments, variables = self.get_args(), self.get_env()
        self._forked = await asyncio.to_thread(forked_server.start, arguments, variables, self.home_dir, processors)
        self.pid = self._forked.pid
        return self.ip, self.port

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        if self.profile == "full":
            event = {"reason": "FailedScheduling", "message": _NO_ROOM}
            yield {"progress": 10, "raw_event": event, "message": f"[Warning] {_NO_ROOM}"}
            return
        if self.profile == "slow":
            yield {"progress": 5, "message": "waiting for \x1b[31ma node"}
            return
        yield {"progress": 0, "message": "Server requested"}
        if self.profile == "progress":
            for number, message in enumerate(["pulling the image", "image pulled", "starting the server"], start=1):
                yield {"progress": 25 * number, "message": message}
            self._are_events_sent.set()

    async def poll(self) -> int | None:
        if self.profile in ("slow", "full", "fail") and not getattr(self, "proc", None):
            return 0
        status: int | None = await super().poll() if self._forked is None else self._forked.exitcode
        return status
