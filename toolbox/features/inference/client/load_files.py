"""Writes the files of a load: `load.json` with the figures of the steps, and `load_samples.csv` with the requests.

The errors of requests must not contain the API key any more. `toolbox/features/inference/load_results.py` reads
`load.json`.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from toolbox.ground.kit import safe_files

from .load_generator import Sample, Step
from .load_summary import Distribution, Figures, Objectives
from .worker_results import LOAD, LOAD_SAMPLES

COLUMNS: Final = ("step", "case", "arrived", "sent", "first_token", "ended", "tokens", "error")
MAX_BYTES: Final = 64 << 20
_CELL_CHARACTERS: Final = 200
# A spreadsheet reads a cell that begins with one of these characters as a formula. The last four are full-width forms.
_FORMULA: Final = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


class LoadJsonWriter:
    """The results of the steps that have ended, in `load.json`. The file is complete at any time."""

    def __init__(self, directory: Path, objectives: Objectives) -> None:
        self._path = directory / LOAD
        self._objectives = objectives
        self._steps: list[dict[str, Any]] = []
        self._write()

    def add(self, step: Step, figures: Figures) -> None:
        """Add a step that has ended."""
        has_objectives = self._objectives != Objectives()
        self._steps.append(as_json(step, figures, has_objectives=has_objectives))
        self._write()

    def _write(self) -> None:
        content = {"objectives": vars(self._objectives), "steps": self._steps}
        safe_files.replace(str(self._path), f"{json.dumps(content, allow_nan=False)}\n".encode(), mode=0o666)


def as_json(step: Step, figures: Figures, *, has_objectives: bool) -> dict[str, Any]:
    """Return a step in `load.json`."""
    return {
        "name": step.name,
        "rate": step.rate,
        "concurrency": step.concurrency,
        "seconds": step.seconds,
        "warm_up": step.warm_up_seconds,
        "arrivals": step.arrivals,
        "requests": figures.requests,
        "errors": figures.errors,
        "error_messages": [
            {"message": message, "requests": number} for message, number in figures.error_messages.items()
        ],
        "refused": figures.refused,
        "resent": figures.resent,
        "offered_rate": figures.offered_rate,
        "completed_rate": figures.completed_rate,
        "goodput": figures.goodput if has_objectives else None,
        "tokens_per_second": figures.tokens_per_second,
        "first_token": _times(figures.first_token),
        "between_tokens": _times(figures.between_tokens),
        "per_token": _times(figures.per_token),
        "end_to_end": _times(figures.end_to_end),
        "client_delay": _times(figures.client_delay),
    }


def _times(times: Distribution) -> dict[str, Any]:
    percentiles = {f"p{percent}": value for percent, value in times.percentiles.items()}
    return {"samples": times.samples, "mean": times.mean, "max": times.largest, **percentiles}


class LoadCsvWriter:
    """The requests of all steps, in `load_samples.csv`, in the order in which they ended.

    Args:
        steps: the number of steps. Each of them gets the same part of the size of the file.
    """

    def __init__(self, directory: Path, steps: int, *, most_bytes: int = MAX_BYTES) -> None:
        self._file = (directory / LOAD_SAMPLES).open("w", encoding="utf-8", newline="")
        self._share = most_bytes // steps
        self._left = 0
        self.left_out = 0
        self._file.write(_row(COLUMNS))

    def begin(self, step: Step) -> None:
        """Let the following requests belong to a step."""
        self._step = step.name
        self._left = self._share
        self.left_out = 0

    def add(self, sample: Sample) -> None:
        """Add a request, unless the step has used its part of the file."""
        times = (sample.arrived, sample.sent, sample.tokens[0].time if sample.tokens else None, sample.ended)
        row = _row(
            [
                self._step,
                safe_cell(sample.case),
                *("" if time is None else f"{max(time, 0.0):.6f}" for time in times),
                str(sum(tokens.number for tokens in sample.tokens)),
                safe_cell(sample.error or ""),
            ]
        )
        self._left -= len(row.encode())
        if self._left < 0:
            self.left_out += 1
        else:
            self._file.write(row)

    def flush(self) -> None:
        """Let everything be in the file."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def safe_cell(text: str) -> str:
    """Return a text for a cell of a CSV file: in one line, short, and not a formula for a spreadsheet."""
    line = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:_CELL_CHARACTERS]
    )
    return f"'{line}" if _FORMULA.match(text) else line


def _row(cells: Sequence[str]) -> str:
    row = io.StringIO()
    csv.writer(row, lineterminator="\n").writerow(cells)
    return row.getvalue()
