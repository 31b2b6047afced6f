"""A real PostgreSQL server on the loopback interface, whose data is deleted at the end.

with postgres.Server() as server:
    psycopg.connect(server.database())
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tests.servers import reserved_ports

ADDRESS: Final = "127.0.0.1"
_USER: Final = "topgallant"
_ACCOUNT: Final = "postgres"  # the server refuses to be run by root
_START_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05


class ServerError(Exception):
    """No server can be started on this machine. The message gives the reason and the remedy."""


class Server:
    """A server that listens inside a `with`."""

    def __init__(self) -> None:
        self._programs = {name: _program(name) for name in ("initdb", "postgres")}
        # Not below the directory of the tests, which the server's account may not enter.
        self._directory = Path(tempfile.mkdtemp(prefix="topgallant-postgres-"))
        self._data, self._log = self._directory / "data", self._directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved = reserved_ports.reserve(ADDRESS)
        self.port: int = self._reserved.getsockname()[1]

    def __enter__(self) -> Self:
        if _as_account():
            shutil.chown(self._directory, _ACCOUNT)
        self._run([self._programs["initdb"], "--pgdata", self._data, "--username", _USER, "--auth=trust", "--no-sync"])
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._reserved.close()
        shutil.rmtree(self._directory)

    def start(self) -> None:
        """Listen, always on the same port."""
        options = {"listen_addresses": ADDRESS, "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        flags = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_as_account(), self._programs["postgres"], "-D", self._data, *flags], stdout=log, stderr=log
            )
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"PostgreSQL does not start: {self._log.read_text()[-1000:]}")
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        """Stop the server at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # this also ends its sessions
            self._process.wait(_START_SECONDS)
            self._process = None

    def database(self) -> str:
        """Return the URL of a new database."""
        import psycopg

        name = f"results_{uuid.uuid4().hex[:12]}"
        base = f"postgresql://{_USER}@{ADDRESS}:{self.port}"
        with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"{base}/{name}"

    def _run(self, command: Sequence[str | Path]) -> None:
        done = subprocess.run([*_as_account(), *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerError(f"{command[0]}: {done.stderr}")


def _as_account() -> list[str]:
    return ["setpriv", f"--reuid={_ACCOUNT}", f"--regid={_ACCOUNT}", "--clear-groups", "--"] if os.getuid() == 0 else []


def is_installed() -> bool:
    """Return whether a server can be made on this machine."""
    return _found("initdb") is not None


def _found(name: str) -> Path | str | None:
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return next(iter(places), None) or shutil.which(name)


def _program(name: str) -> Path:
    found = _found(name)
    if found is None:
        raise ServerError(f"{name} is not installed: install PostgreSQL's server")
    return Path(found)


def _answers(port: int) -> bool:
    import psycopg

    try:
        psycopg.connect(f"postgresql://{_USER}@{ADDRESS}:{port}/postgres", connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
