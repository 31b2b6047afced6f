"""Reads a step time from a profile of JAX, PyTorch/XLA or TensorFlow: an `XSpace` message.

Each run of a compiled module is an event on a line of a device's plane. A step is the time from the start of one event
to the start of the next, including the wait between them. As in torchprime's end-to-end tests, the metric is the median
of the steps (torchprime/metrics/step_duration.py). A median over training and evaluation steps together means nothing:
if a line has events of several names, `event` selects the steps.

Messages and field numbers: tsl/profiler/protobuf/xplane.proto (openxla/xla, third_party/tsl).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from toolbox.model import aggregates, patterns
from toolbox.model.aggregates import Aggregate
from toolbox.runs.evidence_files import RelativeGlob, matching, read_document, readable

# The fields to read, with their numbers. A type that is not a scalar is a repeated message.
_MESSAGES: Final = {
    "XSpace": {"planes": (1, "XPlane")},
    "XPlane": {"name": (2, "string"), "lines": (3, "XLine"), "event_metadata": (4, "MetadataEntry")},
    "MetadataEntry": {"key": (1, "int64"), "value": (2, "XEventMetadata")},
    "XEventMetadata": {"name": (2, "bytes")},
    "XLine": {"name": (2, "string"), "events": (4, "XEvent")},
    "XEvent": {"metadata_id": (1, "int64"), "offset_ps": (2, "int64"), "num_occurrences": (5, "int64")},
}
# XLA appends the fingerprint of the program to the name of a module: `jit_train_step(8273645)`.
_FINGERPRINT: Final = re.compile(r"\(\d+\)$")
_PICOSECONDS: Final = 10**12  # in a second


class Source(BaseModel):
    """The line of events, and how to aggregate the seconds between their starts. Exactly one file must match.

    Args:
        event: the name of the events, or a pattern for it (`jit_train*`), with or without the fingerprint that XLA adds
            in parentheses; None if all events of the line have the same name.
    """

    model_config = ConfigDict(extra="forbid")

    file: RelativeGlob = "**/*.xplane.pb"
    plane: str = "/device:TPU:0"
    line: str = "XLA Modules"
    event: Annotated[str, Field(min_length=1)] | None = None
    aggregate: Aggregate = "median"
    warmup: int = Field(default=0, ge=0)

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the aggregate of the intervals, in seconds and in their order.

        Raises:
            ValueError: there is no such profile, plane or line, or more than one; or the line has too few events, or
                events of several names.
        """
        file, space = self._profile(directory)
        plane = _only(space.planes, self.plane, "planes", file)
        line = _only(plane.lines, self.line, "lines", f"`{self.plane}` of {file}")
        # Starts are relative to the timestamp of the line, which cancels out between two of them. An event that stands
        # for several (num_occurrences) has no start.
        events = [event for event in line.events if not event.num_occurrences]
        starts = sorted(event.offset_ps for event in self._chosen(events, _names(plane), file))
        source = f"`{self.line}` of {file}"
        if len(starts) < 2:  # noqa: PLR2004
            raise ValueError(f"{source} has {len(starts)} events, at least 2 were expected")
        intervals = [(later - earlier) / _PICOSECONDS for earlier, later in pairwise(starts)]
        left = aggregates.after_warmup(intervals, self.warmup, source=source)
        return aggregates.aggregate(left, self.aggregate, source=source)

    def _chosen(self, events: Sequence[Any], names: Mapping[int, str], file: str) -> Sequence[Any]:
        """Return the events that `event` selects, or all. They must have the same name."""
        counts = Counter(names.get(event.metadata_id, "") for event in events)
        chosen = _matching(counts, self.event)
        if events and not chosen:
            raise ValueError(f"`{self.line}` of {file} has no event `{self.event}`; there are {_counted(counts)}")
        # Fingerprints distinguish programs, but change with each build: users name a program without its fingerprint.
        if len(chosen if self.event is None else {_without_fingerprint(name) for name in chosen}) > 1:
            found = _counted(Counter({name: counts[name] for name in chosen}))
            raise ValueError(f"`{self.line}` of {file} has events of several names, `event` selects one: {found}")
        return [event for event in events if names.get(event.metadata_id, "") in chosen]

    def _profile(self, directory: Path) -> tuple[str, Any]:
        """Return the name and the content of the one profile."""
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

        found = [path.relative_to(directory).as_posix() for path in matching(directory, self.file)]
        if len(found) != 1:
            raise ValueError(f"{len(found)} files match {self.file}, exactly 1 expected{_listed(found)}")
        with readable(directory, found[0]) as path:
            profile = read_document(path, found[0])
        space = _space()()
        try:
            space.ParseFromString(profile)
        except DecodeError as error:
            raise ValueError(f"{found[0]} is not an XSpace profile: {error}") from None
        return found[0], space


def _only(members: Sequence[Any], name: str, what: str, owner: str) -> Any:
    """Return the only plane or line that has this name."""
    found = [member for member in members if member.name == name]
    if len(found) != 1:
        there = _listed(member.name for member in members)
        raise ValueError(f"{owner} has {len(found)} {what} `{name}`, exactly 1 expected{there}")
    return found[0]


def _names(plane: Any) -> dict[int, str]:
    """Return the names of the events of a plane, by their metadata ids."""
    return {entry.key: value.name.decode(errors="replace") for entry in plane.event_metadata for value in entry.value}


def _matching(names: Iterable[str], event: str | None) -> set[str]:
    """Return the names that equal or match `event`, with or without their fingerprints. An equal name goes first."""
    if event is None:
        return set(names)
    return set(patterns.matching(event, names, lambda name: (name, _without_fingerprint(name))))


def _without_fingerprint(name: str) -> str:
    return _FINGERPRINT.sub("", name)


def _counted(there: Counter[str], most: int = 12) -> str:
    counts = ", ".join(
        f"{name or 'without a name'} ({f'{count} times' if count > 1 else 'once'})"
        for name, count in there.most_common(most)
    )
    return f"{counts} and {len(there) - most} more" if len(there) > most else counts


def _listed(names: Iterable[str], most: int = 12) -> str:
    known = sorted(set(names))
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"; there are {', '.join(known[:most])}{more}" if known else "; there are none"


@cache
def _space() -> Any:
    """Return the message class for XSpace."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {"int64": kinds.TYPE_INT64, "string": kinds.TYPE_STRING, "bytes": kinds.TYPE_BYTES}
    file = descriptor_pb2.FileDescriptorProto(name="xplane.proto", package="profiler", syntax="proto3")
    for message, fields in _MESSAGES.items():
        definition = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            field = definition.field.add(name=name, number=number, type=scalars.get(kind, kinds.TYPE_MESSAGE))
            field.label = kinds.LABEL_OPTIONAL if kind in scalars else kinds.LABEL_REPEATED
            if kind not in scalars:
                field.type_name = f".profiler.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("profiler.XSpace"))
