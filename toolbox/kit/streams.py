"""Writes to pipes, files and sockets by their descriptors."""

from __future__ import annotations

import os


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of the content to a descriptor that blocks.

    Raises:
        OSError: the content cannot be written.
    """
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
