"""
The processes of a model that is divided into shards.

The first shard is in the process of the server. Each other shard is a process of its own, which gets the commands of
the first one, sends its part of each sum, and gets the sum. It ends when its connection to the server ends, so a
server that is killed leaves no process behind.

    python -m reference_server.shards DESCRIPTOR

starts the process of a shard, with a connection that it inherits from the server.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from checkpoint import Checkpoint, read
from transformer import Array

from .generation import EngineError
from .model import Model, cast, shard

SECONDS_TO_END = 5.0


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How to serve a checkpoint: the file, the type of numbers, and the size of the cache."""

    checkpoint: Path
    dtype: str
    shards: int
    slots: int
    length: int


class ShardedModel:
    """
    A model in one or several processes, with the methods of `Model`.

    Args:
        checkpoint: the content of `options.checkpoint`.

    Raises ModelError if the checkpoint cannot be served with these options, and EngineError if a process of a shard
    ends. The methods raise EngineError, too.
    """

    def __init__(self, checkpoint: Checkpoint, options: ModelOptions) -> None:
        self._closing = False
        self._connections: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._model = load(checkpoint, options, rank=0, add_up=self._add_up)
        try:
            for rank in range(1, options.shards):
                self._start(rank, options)
            for rank, connection in enumerate(self._connections, start=1):
                self._receive(rank, connection)
        except BaseException:
            self.close()
            raise

    def watch(self, on_death: Callable[[EngineError], None]) -> None:
        """Call a function, in another thread, when the process of a shard ends before `close`."""

        def wait(rank: int, process: subprocess.Popen[bytes]) -> None:
            process.wait()
            if not self._closing:
                on_death(self._death(rank))

        for rank, process in enumerate(self._processes, start=1):
            threading.Thread(target=wait, args=(rank, process), daemon=True).start()

    def prefill(self, slot: int, tokens: Sequence[int], start: int = 0) -> Array:
        """See `Model.prefill`."""
        self._command("prefill", slot, tokens, start)
        return self._model.prefill(slot, tokens, start)

    def decode(self, slots: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> Array:
        """See `Model.decode`."""
        self._command("decode", slots, tokens, positions)
        return self._model.decode(slots, tokens, positions)

    def close(self) -> None:
        """End the processes of the shards."""
        self._closing = True
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            try:
                process.wait(SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, rank: int, options: ModelOptions) -> None:
        ours, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", "reference_server.shards", str(theirs.fileno())]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
            self._connections.append(ours)
            self._processes.append(
                subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL)
            )
        self._send(rank, ours, pickle.dumps((rank, options)))

    def _command(self, *words: object) -> None:
        for rank, connection in enumerate(self._connections, start=1):
            self._send(rank, connection, pickle.dumps(words))

    def _add_up(self, part: Array) -> Array:
        for rank, connection in enumerate(self._connections, start=1):
            part = part + np.frombuffer(self._receive(rank, connection), part.dtype).reshape(part.shape)
        for rank, connection in enumerate(self._connections, start=1):
            self._send(rank, connection, part.tobytes())
        return part

    def _send(self, rank: int, connection: Connection, content: bytes) -> None:
        try:
            connection.send_bytes(content)
        except OSError as error:
            raise self._death(rank) from error

    def _receive(self, rank: int, connection: Connection) -> bytes:
        try:
            return connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._death(rank) from error

    def _death(self, rank: int) -> EngineError:
        process = self._processes[rank - 1]
        try:
            status = f"with exit status {process.wait(SECONDS_TO_END)}"
        except subprocess.TimeoutExpired:
            status = "its connection, but still runs"
        return EngineError(f"shard {rank} (process {process.pid}) ended {status}")


def load(checkpoint: Checkpoint, options: ModelOptions, *, rank: int, add_up: Callable[[Array], Array]) -> Model:
    """Return one shard of a model."""
    parameters = cast(checkpoint.parameters, options.dtype)
    part = shard(checkpoint.shape, parameters, rank=rank, count=options.shards)
    return Model(checkpoint.shape, part, slots=options.slots, length=options.length, add_up=add_up)


def main(connection: Connection) -> int:
    """Be a shard until the connection ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all processes, but the server ends its shards

    def add_up(part: Array) -> Array:
        connection.send_bytes(part.tobytes())
        return np.frombuffer(connection.recv_bytes(), part.dtype).reshape(part.shape)

    try:
        rank, options = connection.recv()
        model = load(read(options.checkpoint), options, rank=rank, add_up=add_up)
        connection.send_bytes(b"ready")
        while True:
            method, *arguments = connection.recv()
            getattr(model, method)(*arguments)
    except (EOFError, ConnectionError):  # the server has closed the connection, or has ended
        return 0


if __name__ == "__main__":
    sys.exit(main(Connection(int(sys.argv[1]))))
