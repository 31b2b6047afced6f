"""The outputs that a kernel sends: counted against the limit of the notebook, and merged while they arrive.

All outputs that the kernel sent count, also outputs that later outputs replaced. So a loop that updates one display can
exceed the limit.
"""

from __future__ import annotations

import json
from typing import Any, Final

STREAMS: Final = ("stdout", "stderr")
MIN_BYTES: Final = 512  # for each output except texts of streams, so that many empty outputs exceed the limit
DROPPED: Final = "dropped_outputs"
"""The field of a kernel's message in which a place says why outputs are missing. Kernels cannot send the field."""
LINE_BYTES: Final = 12  # how much a notebook file adds to each line of a stream
_MIN_BUFFER: Final = 65_536


class TooMuchOutputError(Exception):
    """The outputs of a notebook exceed the limit."""


class OutputBudget:
    """Counts the bytes of the outputs of a notebook."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0

    def charge(self, message: dict[str, Any]) -> None:
        """Count a message of the kernel.

        If a stream exceeds the limit, its text is truncated to the part below the limit.

        Raises:
            TooMuchOutputError: the message exceeds the limit. A truncated stream can still be kept.
        """
        content = message["content"]
        size = _size(message)
        left = self._limit - self._used
        self._used += size
        if size <= left:
            return
        if message.get("msg_type") == "stream":
            content["text"] = content["text"][: len(content["text"]) * max(0, left) // size]
        raise TooMuchOutputError


def _size(message: dict[str, Any]) -> int:
    content = message["content"]
    if message.get("msg_type") == "stream":
        text: str = content["text"]
        return len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) + LINE_BYTES * text.count("\n")
    buffers = sum(memoryview(buffer).nbytes for buffer in message.get("buffers") or ())
    return MIN_BYTES + buffers + len(json.dumps(content, ensure_ascii=False).encode(errors="replace"))


class StreamMerger:
    """Merges the texts of a cell's streams into one output for stdout and one for stderr.

    The texts are collected and joined by `flush`, because appending a million short texts one by one would copy the
    text of the output a million times. Call `flush` before the outputs are read.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[str]] = {}
        self._waiting: dict[str, int] = {}
        self._outputs: dict[str, Any] = {}

    def start_cell(self) -> None:
        """Forget the outputs of the previous cell, or outputs that were cleared."""
        self.flush()
        self._outputs.clear()

    def add(self, outputs: list[Any], name: str, text: str) -> None:
        """Add a text to the stream in the outputs of the cell."""
        if name not in self._outputs:
            from nbformat.v4 import new_output

            self._outputs[name] = new_output("stream", name=name, text="")
            outputs.append(self._outputs[name])
        self._parts.setdefault(name, []).append(text)
        self._waiting[name] = self._waiting.get(name, 0) + len(text)
        if self._waiting[name] > max(_MIN_BUFFER, len(self._outputs[name]["text"]) // 4):
            self.flush()

    def flush(self) -> None:
        """Write the collected texts into the outputs."""
        for name, parts in self._parts.items():
            self._outputs[name]["text"] = "".join([self._outputs[name]["text"], *parts])
        self._parts.clear()
        self._waiting.clear()
