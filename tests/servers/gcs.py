"""A server of the API of Google Cloud Storage on the loopback interface: gcp-storage-emulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gcp_storage_emulator.server import create_server

from tests.servers import reserved_ports

BUCKET: Final = "exports"


@contextmanager
def served() -> Iterator[str]:
    """Start a server with an empty bucket, and yield its address, for `$STORAGE_EMULATOR_HOST`."""
    with reserved_ports.reserve("127.0.0.1") as kept:
        port = kept.getsockname()[1]
        server = create_server("127.0.0.1", port, in_memory=True, default_bucket=BUCKET)
        server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()
