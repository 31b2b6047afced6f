"""Reads the step time from a profile of JAX, PyTorch/XLA or TensorFlow, which is an `XSpace` message.

A profile contains a plane for each device, a plane contains lines, and each run of a compiled module is an event on a
line. The step time is the time from the start of an event to the start of the next event, including the wait between
them. As in the end-to-end tests of torchprime (torchprime/metrics/step_duration.py), the metric is the median of the
step times. If a line has events with several names, such as training and evaluation steps, `event` selects one name.

The messages and field numbers are those of tsl/profiler/protobuf/xplane.proto (openxla/xla, third_party/tsl).
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

from toolbox.ground.model import aggregates, patterns
from toolbox.ground.model.aggregates import Aggregate
from toolbox.ground.model.nearest import listed
from toolbox.records.runs.evidence_files import RelativeGlob, matching, read_document, readable

# The fields to read, with their numbers and types. Each field whose type is a message is repeated.
_MESSAGES: Final = {
    "XSpace": {"planes": (1, "XPlane")},
    "XPlane": {"name": (2, "string"), "lines": (3, "XLine"), "event_metadata": (4, "MetadataEntry")},
    "MetadataEntry": {"key": (1, "int64"), "value": (2, "XEventMetadata")},
    "XEventMetadata": {"name": (2, "bytes")},
    "XLine": {"name": (2, "string"), "events": (4, "XEvent")},
    "XEvent": {"metadata_id": (1, "int64"), "offset_ps": (2, "int64"), "num_occurrences": (5, "int64")},
}
# XLA appends a fingerprint of the program to the name of a module: `jit_train_step(8273645)`.
_FINGERPRINT: Final = re.compile(r"\(\d+\)$")
_PICOSECONDS: Final = 10**12  # per second


class Source(BaseModel):
    """The events to read, and how to aggregate the seconds between their starts.

    Args:
        file: the pattern of the profile. Exactly one file must match it.
        event: the name of the events, or a pattern of names such as `jit_train*`, with or without the fingerprint that
            XLA appends; None if all events of the line have the same name.
    """

    model_config = ConfigDict(extra="forbid")

    file: RelativeGlob = "**/*.xplane.pb"
    plane: str = "/device:TPU:0"
    line: str = "XLA Modules"
    event: Annotated[str, Field(min_length=1)] | None = None
    aggregate: Aggregate = "median"
    warmup: int = Field(default=0, ge=0)

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the aggregate of the step times, in seconds.

        Raises:
            ValueError: there is no profile, plane or line to read, or there are several of them; or the line has fewer
                than two events, or events with several names.
        """
        file, space = self._profile(directory)
        plane = _only(space.planes, self.plane, "planes", file)
        line = _only(plane.lines, self.line, "lines", f"`{self.plane}` of {file}")
        # A start is relative to the start of the line, which does not matter for differences. An event with
        # `num_occurrences` summarizes several events, and has no start.
        events = [event for event in line.events if not event.num_occurrences]
        starts = sorted(event.offset_ps for event in self._selected(events, _names(plane), file))
        source = f"`{self.line}` of {file}"
        if len(starts) < 2:  # noqa: PLR2004
            raise ValueError(f"{source} has {len(starts)} events, but at least 2 are needed")
        intervals = [(later - earlier) / _PICOSECONDS for earlier, later in pairwise(starts)]
        measured = aggregates.after_warmup(intervals, self.warmup, source=source)
        return aggregates.aggregate(measured, self.aggregate, source=source)

    def _selected(self, events: Sequence[Any], names: Mapping[int, str], file: str) -> Sequence[Any]:
        """Return the events that `event` selects, or all events. The selected events must have the same name."""
        counts = Counter(names.get(event.metadata_id, "") for event in events)
        selected_names = _matching(counts, self.event)
        if events and not selected_names:
            raise ValueError(f"`{self.line}` of {file} has no event `{self.event}`; the events are {_counted(counts)}")
        # If `event` selects the events, names that differ only in their fingerprint count as one name.
        if len(selected_names if self.event is None else {_without_fingerprint(name) for name in selected_names}) > 1:
            several = _counted(Counter({name: counts[name] for name in selected_names}))
            raise ValueError(f"`{self.line}` of {file} has events of several names: select one with `event`: {several}")
        return [event for event in events if names.get(event.metadata_id, "") in selected_names]

    def _profile(self, directory: Path) -> tuple[str, Any]:
        """Return the name and the content of the profile."""
        from google.protobuf.message import DecodeError

        files = [path.relative_to(directory).as_posix() for path in matching(directory, self.file)]
        if len(files) != 1:
            names = f"; {listed(files, 'matching files')}" if files else ""
            raise ValueError(f"{len(files)} files match {self.file}, but exactly 1 must match{names}")
        with readable(directory, files[0]) as path:
            profile = read_document(path, files[0])
        space = _space()()
        try:
            space.ParseFromString(profile)
        except DecodeError as error:
            raise ValueError(f"{files[0]} is not an XSpace profile: {error}") from None
        return files[0], space


def _only(members: Sequence[Any], name: str, plural: str, owner: str) -> Any:
    """Return the plane or line that has this name, and raise ValueError if there is not exactly one."""
    matches = [member for member in members if member.name == name]
    if len(matches) != 1:
        names = f"; {listed((member.name for member in members), plural)}"
        raise ValueError(f"{owner} has {len(matches)} {plural} `{name}`, but must have exactly 1{names}")
    return matches[0]


def _names(plane: Any) -> dict[int, str]:
    """Return the names of the events of a plane, by their metadata ids."""
    return {entry.key: value.name.decode(errors="replace") for entry in plane.event_metadata for value in entry.value}


def _matching(names: Iterable[str], event: str | None) -> set[str]:
    """Return the names that equal `event`, with or without their fingerprints.

    If no name is equal, return the names that match the pattern `event`.
    """
    if event is None:
        return set(names)
    return set(patterns.matching(event, names, lambda name: (name, _without_fingerprint(name))))


def _without_fingerprint(name: str) -> str:
    return _FINGERPRINT.sub("", name)


def _counted(names: Counter[str], most: int = 12) -> str:
    counts = ", ".join(
        f"{name or 'without a name'} ({f'{count} times' if count > 1 else 'once'})"
        for name, count in names.most_common(most)
    )
    return f"{counts} and {len(names) - most} more" if len(names) > most else counts


@cache
def _space() -> Any:
    """Return the message class for XSpace."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
