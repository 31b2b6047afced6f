"""
Write the profile of a training run in the format that TensorBoard's profiler reads.

JAX, PyTorch/XLA and TensorFlow write an `XSpace` message to `plugins/profile/<time>/<host>.xplane.pb`. This module
encodes the few fields for a list of steps by hand, so that the workload does not need protobuf.

Messages and field numbers: tsl/profiler/protobuf/xplane.proto (openxla/xla, third_party/tsl).
Encoding: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

VARINT, LENGTH_DELIMITED = 0, 2  # wire types
STEP_METADATA_ID = 1  # the profile has only this kind of event


class Span(NamedTuple):
    """One step: its start relative to the start of the XLine `train steps`, and its duration, in nanoseconds."""

    offset_ns: int
    duration_ns: int


def encode_profile(spans: Iterable[Span], *, start_ns: int, hostname: str) -> bytes:
    """
    Return an XSpace with the plane `/host:CPU`, its line `train steps`, and one event `train_step` per span.

    Args:
        spans: the steps, in order.
        start_ns: the start of the line, in nanoseconds since the epoch.
        hostname: the name of the profiled machine.
    """
    event_metadata = _integer(1, STEP_METADATA_ID) + _text(2, "train_step")
    # A protobuf map is a repeated message of key = 1, value = 2.
    metadata_entry = _integer(1, STEP_METADATA_ID) + _message(2, event_metadata)
    events = b"".join(_message(4, _event(span)) for span in spans)
    line = _integer(1, 1) + _text(2, "train steps") + _integer(3, start_ns) + events
    plane = _integer(1, 1) + _text(2, "/host:CPU") + _message(3, line) + _message(4, metadata_entry)
    return _message(1, plane) + _text(4, hostname)


def _event(span: Span) -> bytes:
    picoseconds = 1000  # per nanosecond
    return (
        _integer(1, STEP_METADATA_ID)
        + _integer(2, span.offset_ns * picoseconds)
        + _integer(3, span.duration_ns * picoseconds)
    )


def _varint(value: int) -> bytes:
    """Encode seven bits per byte, the lowest first. The top bit is set if more bytes follow."""
    if value < 0:
        raise ValueError(f"negative values cannot be encoded here: {value}")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3 | VARINT) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | LENGTH_DELIMITED) + _varint(len(content)) + content


def _text(field: int, content: str) -> bytes:
    return _message(field, content.encode())
