"""The profile of a training run is decoded by protobuf with the message definitions of xplane.proto."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from xplane import Span, encode_profile

Train = Callable[..., int]

# The field numbers of tsl/profiler/protobuf/xplane.proto. A type that is not a scalar is a repeated message.
MESSAGES = {
    "XSpace": {"planes": (1, "XPlane"), "hostnames": (4, "strings")},
    "XPlane": {
        "id": (1, "int64"),
        "name": (2, "string"),
        "lines": (3, "XLine"),
        "event_metadata": (4, "EventMetadataEntry"),  # map<int64, XEventMetadata>
    },
    "EventMetadataEntry": {"key": (1, "int64"), "value": (2, "XEventMetadata")},
    "XLine": {
        "id": (1, "int64"),
        "name": (2, "string"),
        "timestamp_ns": (3, "int64"),
        "events": (4, "XEvent"),
    },
    "XEvent": {"metadata_id": (1, "int64"), "offset_ps": (2, "int64"), "duration_ps": (3, "int64")},
    "XEventMetadata": {"id": (1, "int64"), "name": (2, "string")},
}


def decode(content: bytes) -> Any:
    """Return the content as an XSpace, or raise an error if it is not one."""
    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {"int64": kinds.TYPE_INT64, "string": kinds.TYPE_STRING, "strings": kinds.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(name="xplane.proto", package="profiler", syntax="proto3")
    for message, fields in MESSAGES.items():
        definition = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            field = definition.field.add(name=name, number=number, type=scalars.get(kind, kinds.TYPE_MESSAGE))
            field.label = kinds.LABEL_OPTIONAL if kind in ("int64", "string") else kinds.LABEL_REPEATED
            if kind not in scalars:
                field.type_name = f".profiler.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    space = message_factory.GetMessageClass(pool.FindMessageTypeByName("profiler.XSpace"))()
    space.ParseFromString(content)
    return space


def test_a_profile_contains_each_span_in_picoseconds() -> None:
    spans = [Span(0, 5), Span(1_000_000, 2_000_000_000)]
    space = decode(encode_profile(spans, start_ns=1_795_225_623_000_000_000, hostname="höst"))
    (plane,) = space.planes
    (line,) = plane.lines
    assert list(space.hostnames) == ["höst"]
    assert (plane.name, line.name, line.timestamp_ns) == (
        "/host:CPU",
        "train steps",
        1_795_225_623_000_000_000,
    )
    assert [(event.offset_ps, event.duration_ps) for event in line.events] == [
        (0, 5_000),
        (1_000_000_000, 2_000_000_000_000),
    ]


def test_the_events_are_named_by_their_metadata() -> None:
    (plane,) = decode(encode_profile([Span(0, 1)], start_ns=1, hostname="h")).planes
    (entry,) = plane.event_metadata
    (metadata,) = entry.value
    assert entry.key == metadata.id == plane.lines[0].events[0].metadata_id
    assert metadata.name == "train_step"


def test_a_span_before_the_start_is_an_error() -> None:
    with pytest.raises(ValueError, match="-1000"):
        encode_profile([Span(-1, 1)], start_ns=1, hostname="h")


def test_a_training_writes_one_profile_with_an_event_per_step(
    train: Train, small: dict[str, Any], tmp_path: Path
) -> None:
    for _ in range(2):  # the profile of the first training is gone
        assert train() == 0
    (path,) = (tmp_path / "output").rglob("*.pb")
    assert path.match("profile/plugins/profile/????_??_??_??_??_??/*.xplane.pb")
    (plane,) = decode(path.read_bytes()).planes
    events = plane.lines[0].events
    assert len(events) == small["steps"]
    assert all(a.offset_ps + a.duration_ps <= b.offset_ps for a, b in pairwise(events))
