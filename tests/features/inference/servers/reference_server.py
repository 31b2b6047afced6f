"""The reference server of the project `inference`, as a process, with a small model of random parameters."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toolbox.ground.system import places

WORKLOADS = [places.builtin_root() / f"projects/{name}/workload" for name in ("inference", "training_e2e")]
_LISTENING = re.compile(r"(\S+) is served on \S+, port (\d+) \(HTTP\) and (\d+) \(gRPC\)")
# The parameters are large enough for a clear difference between probable and improbable characters.
_CHECKPOINT = """
import sys, numpy, checkpoint, transformer
context = int(sys.argv[2])
vocabulary, heads = "\\n !,.abcdefghijklmnopqrstuvwxyz\u00e9\U0001f600", 4
shape = transformer.Shape(vocabulary=len(vocabulary), layers=2, width=16, heads=heads, context=context)
parameters = transformer.initial_parameters(shape, numpy.random.default_rng(4), "float32")
scaled = {name: 15 * array if array.ndim == 2 else array for name, array in parameters.items()}
content = checkpoint.encode(checkpoint.Checkpoint(shape=shape, parameters=scaled, characters=vocabulary))
open(sys.argv[1], "wb").write(content)
"""


@dataclass(frozen=True, kw_only=True)
class ReferenceServer:
    """A running server: the name of its model, its addresses, its process, and the file of its stderr."""

    model: str
    http_port: int
    grpc_port: int
    process: subprocess.Popen[str]
    errors: Path

    @property
    def url(self) -> str:
        """The base URL of OpenAI's protocol."""
        return f"http://127.0.0.1:{self.http_port}/v1"

    @property
    def grpc_address(self) -> str:
        """The address of the gRPC service."""
        return f"127.0.0.1:{self.grpc_port}"


def environment() -> dict[str, str]:
    """Return the environment in which Python finds the server."""
    path = os.pathsep.join(map(str, [*WORKLOADS, places.builtin_root()]))
    return os.environ | {"PYTHONPATH": path}


def write_checkpoint(path: Path, *, context: int = 32) -> None:
    """Write the small model, which can read and generate texts of `context` characters."""
    subprocess.run([sys.executable, "-c", _CHECKPOINT, path, str(context)], env=environment(), check=True)


def command(checkpoint: Path, **options: object) -> list[str]:
    """Return the command that starts the server on free ports."""
    flags = {"checkpoint": checkpoint, "port": 0, "grpc_port": 0} | options
    return [sys.executable, "-m", "reference_server", *(f"--{name}={value}" for name, value in flags.items())]


@contextlib.contextmanager
def serving(checkpoint: Path, **options: object) -> Iterator[ReferenceServer]:
    """Start a server with some options, and stop it with SIGTERM at the end of the block."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        Path(scratch, "stderr").open("w") as stderr,
        subprocess.Popen(
            command(checkpoint, **options), env=environment(), stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        assert process.stdout
        listening = _LISTENING.match(process.stdout.readline())
        errors = Path(scratch, "stderr")
        assert listening, errors.read_text()
        model, http_port, grpc_port = listening.groups()
        try:
            yield ReferenceServer(
                model=model, http_port=int(http_port), grpc_port=int(grpc_port), process=process, errors=errors
            )
        finally:
            process.terminate()
