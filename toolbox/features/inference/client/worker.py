"""The worker: starts a server or uses a running one, sends the cases, records the answers, and ends the server.

It runs on the target, in the working directory of the attempt, and writes there `answers.jsonl`, `server.log` and
`worker.json`. With a load, it sends the cases again and again, and writes `load.json` and `load_samples.csv` instead of
`answers.jsonl`. It judges nothing. Its exit status:

    0    each request has an answer, right or wrong; or all steps of the load have ended
    2    the settings or a request are invalid, or a library is missing
    70   the server ended or did not answer completely
    74   the results cannot be written
    75   the server was never ready
    130, 143   a signal ended the worker
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TextIO

from toolbox.ground.kit import safe_files, streams
from toolbox.ground.kit.exit_codes import SIGNALLED

from . import task_ends, worker_settings
from .answer_format import Answer, Limits, SettingsError
from .connections import Connections
from .key_mask import KeyMask
from .load_run import LoadRun
from .ports import PortReservations
from .sending import INVALID, Sender
from .server_log import ServerLog
from .server_process import ServerProcess
from .server_readiness import NotReadyError, wait_until_ready
from .worker_results import (
    ANSWERED,
    ANSWERS,
    CANNOT_WRITE,
    INVALID_SETTINGS,
    NEVER_READY,
    REPORT,
    SERVER_FAILED,
    SERVER_LOG,
)
from .worker_settings import Ports, ServerSettings, WorkerSettings

_MAX_STARTS: Final = 4
_LOG_LINES: Final = 20


def main(arguments: Sequence[str]) -> int:
    """Run the worker with the path of its settings, and return its exit status."""
    streams.print_escapes()
    if len(arguments) != 1:
        print("usage: inference_client SETTINGS.json", file=sys.stderr)
        return INVALID_SETTINGS
    try:
        settings = worker_settings.read(Path(arguments[0]))
        return asyncio.run(_until_signal(Worker(settings, Path.cwd())))
    except SettingsError as error:
        print(f"inference_client: {error}", file=sys.stderr)
        return INVALID_SETTINGS
    except OSError as error:
        print(f"inference_client: the results cannot be written: {error.strerror or error}", file=sys.stderr)
        return CANNOT_WRITE


async def _until_signal(worker: Worker) -> int:
    """Run the worker until its end, or until SIGTERM or SIGINT."""
    received: list[int] = []
    running = asyncio.ensure_future(worker.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _end, running, received, number)
    try:
        return await running
    except asyncio.CancelledError:
        if not received:
            raise
        return SIGNALLED + received[0]


def _end(running: asyncio.Future[int], received: list[int], number: int) -> None:
    if not received:  # a second signal must not interrupt the end of the server
        received.append(number)
        running.cancel()


class Worker:
    """The work of one attempt.

    Args:
        directory: where the files are written.
    """

    def __init__(self, settings: WorkerSettings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._masked = KeyMask(settings.server.api_key)
        self._limits = Limits(seconds=settings.timeout)
        self._reservations = PortReservations()
        self._process: ServerProcess | None = None
        self._connections = Connections(settings, self._limits)
        self._ready_seconds: float | None = None
        self._not_ready: str | None = None
        self._answers = 0
        self._faults = 0
        self._invalid = 0
        self._load: LoadRun | None = None

    async def run(self) -> int:
        """Do everything, and return the exit status."""
        self._connections.import_libraries()
        try:
            await self._start()
            await (self._send_load() if self._settings.load else self._send_cases())
        except NotReadyError as error:
            self._not_ready = str(error)
            self._say_log()
            self._say(self._not_ready, sys.stderr)
            return NEVER_READY
        finally:
            await task_ends.completed(self._stop())
        return self._exit_status()

    async def _start(self) -> None:
        """Start the server, if it has a command, and wait until it is ready.

        Another program can take a port after it was chosen. The server then refuses to start, and gets other ports.
        """
        server = self._settings.server
        started = time.monotonic()
        for last_start in (*[False] * (_MAX_STARTS - 1), True):
            http, grpc = self._reservations.choose(2)
            ports = Ports(http=http if server.needs_port else None, grpc=grpc if server.needs_grpc_port else None)
            await self._start_process(ports)
            self._connections.open(_with_ports(server, ports))
            try:
                await wait_until_ready(
                    self._connections.probes(),
                    server.ready_timeout,
                    server_end=self._process.ended if self._process else None,
                    say=lambda reason: self._say(f"waiting for the server: {reason}"),
                )
            except NotReadyError:
                process = self._process
                if last_start or not (process and process.died and ports.all and process.could_not_listen(ports.all)):
                    raise
                self._say("another program has taken a port of the server; starting it again with other ports")
                await self._stop()
            else:
                break
        self._ready_seconds = time.monotonic() - started
        self._say(f"the server is ready after {self._ready_seconds:.1f} s")

    async def _start_process(self, ports: Ports) -> None:
        server = self._settings.server
        self._process = None
        if server.command is None:
            return
        command = [ports.filled(word) for word in server.command]
        environment = {**os.environ, **{name: ports.filled(value) for name, value in server.env.items()}}
        try:
            log = ServerLog(self._directory / SERVER_LOG, self._masked)
            self._process = await ServerProcess.start(command, environment, log)
        except OSError as error:
            raise SettingsError(f"the server cannot be started: {command[0]}: {error.strerror}") from error
        self._say(f"started the server {Path(command[0]).name}" + "".join(f", port {p}" for p in ports.all))

    async def _send_cases(self) -> None:
        with (self._directory / ANSWERS).open("wb") as answers:

            def receive(answer: Answer) -> None:
                answers.write(f"{answer.line(self._masked)}\n".encode())
                answers.flush()  # without a buffer, a full disk may cut a line without an error
                self._count(answer)

            sender = Sender(
                self._connections.clients,
                self._limits,
                receive=receive,
                server_end=self._process.ended if self._process else None,
            )
            await sender.send_all(self._settings.cases, self._settings.concurrency)

    async def _send_load(self) -> None:
        assert self._settings.load
        choosing = asyncio.ensure_future(self._connections.choose_model())
        await asyncio.wait({choosing}, timeout=self._limits.seconds)
        await task_ends.ended(choosing)
        self._load = LoadRun(
            self._connections.clients,
            self._limits,
            directory=self._directory,
            mask=self._masked,
            say=self._say,
            server_end=self._process.ended if self._process else None,
        )
        await self._load.run(self._settings.load, self._settings.cases)

    def _count(self, answer: Answer) -> None:
        self._answers += 1
        result = "answered"
        if answer.error:
            result = f"error {answer.error.code}"
        if answer.fault:
            result = f"no complete answer: {answer.fault}"
            self._faults += 1
            self._invalid += answer.fault.startswith(INVALID)
        kind = " as a stream" if answer.stream else ""
        refused = f", refused before: {answer.refusals}" if answer.refusals else ""
        self._say(f"case {answer.case}{kind}: {result} ({answer.seconds:.2f} s){refused}")

    async def _stop(self) -> None:
        """Close the connections, end the server, and write the report."""
        try:
            await self._connections.close()
        finally:
            if self._process:
                await self._process.stop(self._settings.server.grace)
            self._reservations.release()
            self._write_report()

    def _write_report(self) -> None:
        process = self._process
        server = {
            "ready_seconds": self._ready_seconds,
            "exit_status": process.exit_status if process else None,
            "died": bool(process and process.died),
            "fault": self._masked(self._server_fault() or "") or None,
            "log": SERVER_LOG if process else None,
        }
        report = {"server": server, "cases": len(self._settings.cases), **self._counts()}
        safe_files.replace(str(self._directory / REPORT), f"{json.dumps(report)}\n".encode(), mode=0o666)

    def _counts(self) -> Mapping[str, int]:
        if self._settings.load is None:
            return {"faults": self._faults}
        return {"steps": self._load.steps_ended if self._load else 0}

    def _server_fault(self) -> str | None:
        """Return why the server was never ready, or how it ended by itself."""
        died = self._process.ended.result() if self._process and self._process.died else None
        return self._not_ready or died

    def _exit_status(self) -> int:
        if fault := self._server_fault():
            self._say_log()
            self._say(fault, sys.stderr)
            return SERVER_FAILED
        if self._faults > self._invalid:
            self._say(f"{self._faults - self._invalid} of {self._answers} answers are not complete", sys.stderr)
            return SERVER_FAILED
        if self._invalid:
            self._say(f"{self._invalid} of {self._answers} requests are invalid", sys.stderr)
        return INVALID_SETTINGS if self._invalid else ANSWERED

    def _say_log(self) -> None:
        lines = self._process.log.tail(_LOG_LINES) if self._process else []
        for line in lines:
            self._say(f"{SERVER_LOG}: {line}")

    def _say(self, text: str, stream: TextIO | None = None) -> None:
        """Print a line, by default to stdout. Text of a server may contain anything."""
        shown = "".join(character if character.isprintable() else " " for character in self._masked(text))
        print(shown[:2000], file=stream or sys.stdout, flush=True)


def _with_ports(server: ServerSettings, ports: Ports) -> ServerSettings:
    url = server.url or ("http://127.0.0.1:{port}" if server.needs_port else None)
    grpc = server.grpc or ("127.0.0.1:{grpc_port}" if server.needs_grpc_port else None)
    changes: dict[str, Any] = {"url": url and ports.filled(url), "grpc": grpc and ports.filled(grpc)}
    return replace(server, **changes)
