"""Writes to pipes, files and sockets by their descriptors, and sets up the standard streams."""

from __future__ import annotations

import io
import os
import sys


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of the content to a descriptor that blocks.

    Raises:
        OSError: the content cannot be written.
    """
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def print_escapes() -> None:
    """Let `print` write a character that the encoding of the terminal lacks as an escape, and not raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a test may have replaced it
            stream.reconfigure(errors="backslashreplace")
