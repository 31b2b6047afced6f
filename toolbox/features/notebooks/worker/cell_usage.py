"""The CPU time and the memory of each cell, from the samples of the kernel's processes."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from toolbox.features.notebooks.worker.notebook_results import CellRecord

MAX_BYTES: Final = 64 * 2**20
_MAX_LINE: Final = 10_000


@dataclass(frozen=True)
class Sample:
    """A sample of the kernel's processes. The CPU percentage covers the time since the previous sample."""

    time: float
    cpu_percent: float | None
    memory_bytes: float | None


def read(path: Path) -> list[Sample]:
    """Return the samples of a file in their order. Rows that cannot be read are left out."""
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            lines = file.read(MAX_BYTES).splitlines()
    except OSError:
        return []
    rows = csv.DictReader(line for line in lines if len(line) <= _MAX_LINE)
    samples = [
        Sample(time, _number(row.get("cpu_percent")), _number(row.get("memory_bytes")))
        for row in rows
        if (time := _number(row.get("time"))) is not None
    ]
    return sorted(samples, key=lambda sample: sample.time)


def with_usage(records: Iterable[CellRecord], samples: list[Sample]) -> tuple[CellRecord, ...]:
    """Return the records with the CPU time and the peak memory of each cell.

    Both are None for a cell without samples. The CPU time is also None if a sample does not contain it.
    """
    return tuple(_with_usage(record, samples) for record in records)


def _with_usage(record: CellRecord, samples: list[Sample]) -> CellRecord:
    if record.started is None or record.seconds is None:
        return record
    begin, end = record.started, record.started + record.seconds
    cpu_seconds, memory = [], []
    for previous, sample in zip([None, *samples], samples):  # noqa: B905 - the last sample has no successor
        since = previous.time if previous else sample.time
        overlap = min(end, sample.time) - max(begin, since)
        if overlap > 0:
            cpu_seconds.append(None if sample.cpu_percent is None else overlap * sample.cpu_percent / 100)
        is_first_after = (previous is None or previous.time < end) and end <= sample.time
        if (begin <= sample.time <= end or is_first_after) and sample.memory_bytes is not None:
            memory.append(sample.memory_bytes)
    return replace(
        record,
        cpu_seconds=None if not cpu_seconds or None in cpu_seconds else sum(filter(None, cpu_seconds)),
        peak_memory_bytes=int(max(memory)) if memory else None,
    )


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except (TypeError, ValueError):  # csv.DictReader makes a list of the surplus columns of a row
        return None
    return number if math.isfinite(number) and number >= 0 else None
