"""A step time from the profile that JAX, PyTorch/XLA and TensorFlow leave: an `XSpace` message.

A run of a compiled module is an event on a line of a device's plane. The time from one start to the next is the
step, the wait between them included, and the median of those is what torchprime's end-to-end tests hold against
their bounds (torchprime/metrics/step_duration.py). A median over steps of training and of evaluation means nothing:
where a line has events of several names, `event` says which of them are the steps.

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

# The fields that are read, with their numbers. A type that is no scalar is a repeated message.
_MESSAGES: Final = {
    "XSpace": {"planes": (1, "XPlane")},
    "XPlane": {"name": (2, "string"), "lines": (3, "XLine"), "event_metadata": (4, "MetadataEntry")},
    "MetadataEntry": {"key": (1, "int64"), "value": (2, "XEventMetadata")},
    "XEventMetadata": {"name": (2, "bytes")},
    "XLine": {"name": (2, "string"), "events": (4, "XEvent")},
    "XEvent": {"metadata_id": (1, "int64"), "offset_ps": (2, "int64"), "num_occurrences": (5, "int64")},
}
# XLA ends the name of a module with the fingerprint of the program: `jit_train_step(8273645)`.
_FINGERPRINT: Final = re.compile(r"\(\d+\)$")
_PICOSECONDS: Final = 10**12  # in a second


class Source(BaseModel):
    """The line of events, and what to make of the seconds between their starts. One file has to match.

    Args:
        event: the name of the events, or a pattern for it (`jit_train*`), with or without the fingerprint that XLA adds
            in parentheses; None where all events of the line have the same name.
    """

    model_config = ConfigDict(extra="forbid")

    file: RelativeGlob = "**/*.xplane.pb"
    plane: str = "/device:TPU:0"
    line: str = "XLA Modules"
    event: Annotated[str, Field(min_length=1)] | None = None
    aggregate: Aggregate = "median"
    warmup: int = Field(default=0, ge=0)

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return what the intervals, in seconds and in their order, come to.

        Raises:
            ValueError: there is no such profile, plane or line, more than one, too few events on it, or events of
                several names.
        """
        file, space = self._profile(directory)
        plane = _only(space.planes, self.plane, "planes", file)
        line = _only(plane.lines, self.line, "lines", f"`{self.plane}` of {file}")
        # All starts of a line count from its timestamp, which makes no difference between two of them. An event that
        # stands for several (num_occurrences) has no start.
        events = [event for event in line.events if not event.num_occurrences]
        starts = sorted(event.offset_ps for event in self._chosen(events, _names(plane), file))
        source = f"`{self.line}` of {file}"
        if len(starts) < 2:  # noqa: PLR2004
            raise ValueError(f"{source} has {len(starts)} events, at least 2 were expected")
        intervals = [(later - earlier) / _PICOSECONDS for earlier, later in pairwise(starts)]
        left = aggregates.after_warmup(intervals, self.warmup, source=source)
        return aggregates.aggregate(left, self.aggregate, source=source)

    def _chosen(self, events: Sequence[Any], names: Mapping[int, str], file: str) -> Sequence[Any]:
        """Return the events that `event` names, which have one name, or all events if they have one name."""
        counts = Counter(names.get(event.metadata_id, "") for event in events)
        chosen = _matching(counts, self.event)
        if events and not chosen:
            raise ValueError(f"`{self.line}` of {file} has no event `{self.event}`; there are {_counted(counts)}")
        # Fingerprints tell programs apart, and change from build to build: a person names a program without one.
        if len(chosen if self.event is None else {_without_fingerprint(name) for name in chosen}) > 1:
            found = _counted(Counter({name: counts[name] for name in chosen}))
            raise ValueError(f"`{self.line}` of {file} has events of several names, `event` selects one: {found}")
        return [event for event in events if names.get(event.metadata_id, "") in chosen]

    def _profile(self, directory: Path) -> tuple[str, Any]:
        """Return the one profile, with its name."""
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
            raise ValueError(f"{found[0]} is no XSpace: {error}") from None
        return found[0], space


def _only(members: Sequence[Any], name: str, what: str, owner: str) -> Any:
    """Return the one plane or line of a name."""
    found = [member for member in members if member.name == name]
    if len(found) != 1:
        there = _listed(member.name for member in members)
        raise ValueError(f"{owner} has {len(found)} {what} `{name}`, exactly 1 expected{there}")
    return found[0]


def _names(plane: Any) -> dict[int, str]:
    """Return the names of the events of a plane, by the number under which events refer to them."""
    return {entry.key: value.name.decode(errors="replace") for entry in plane.event_metadata for value in entry.value}


def _matching(names: Iterable[str], event: str | None) -> set[str]:
    """Return the names that are `event` or match it, with or without their fingerprint. An equal name goes first."""
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
    """Return the class of an XSpace message."""
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
