"""Writes the directories of the runs of shards that never ran."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.fakes.history import START, Past, Tried, identity
from toolbox.ground.model.verdicts import Verdict

CELLS = ("x=a", "x=b", "x=c", "x=d", "x=e", "x=f")


@dataclass(frozen=True)
class Shard:
    """The run of a shard of a matrix, whose cells are dealt to the shards in turn.

    Args:
        ended: the attempts of cells that did not just pass, by the name of the cell.
        begun: how many cells of the shard have begun.
        later: how many minutes later than other shards the run began.
        request: other fields of `run.json`.
    """

    number: int
    shards: int = 3
    ended: Mapping[str, Sequence[Tried]] = field(default_factory=dict)
    begun: int | None = None
    is_over: bool = True
    later: float = 0
    all_cells: Sequence[str] = CELLS
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> Sequence[str]:
        """The names of the cells of the shard."""
        return self.all_cells[self.number - 1 :: self.shards]

    def write(self, parent: Path) -> Path:
        """Write the run directory below `parent`, and return it."""
        started = START + timedelta(minutes=self.later, seconds=self.number)
        cells = {name: self.ended.get(name, [Tried()]) for name in self.cells[: self.begun]}
        run = f"{started:%Y%m%d-%H%M%S}-{self.number}"
        directory = Past(cells, "grid", run, started, is_over=self.is_over).write(parent)
        request = json.loads((directory / "run.json").read_text())
        request |= {"presets": [], "phases": None, "cells": None, "shard": [self.number, self.shards]}
        request |= {"configuration_revision": None, "changes": [], "position": 1, "resolved": {}, **self.request}
        (directory / "run.json").write_text(json.dumps(request))
        plan = json.loads((directory / "plan.json").read_text())
        plan["cells"] = [{"id": identity(name), "name": name, "settings": {}, "labels": {}} for name in self.cells]
        plan |= {"total": len(self.all_cells), "notes": [], "files": {}}
        plan["shards"] = [
            {"id": identity(name), "name": name, "shard": index % self.shards + 1}
            for index, name in enumerate(self.all_cells)
        ]
        (directory / "plan.json").write_text(json.dumps(plan))
        for step in ("000__test", *(f"000__test/{number:03d}__{name}" for number, name in enumerate(cells))):
            (directory / step).mkdir()
            (directory / step / "run.log").write_text(f"{step} of shard {self.number}\n")
        return directory


def failed(cause: Any, verdict: Verdict = Verdict.FAILED) -> list[Tried]:
    """Return the attempts of a cell that did not pass."""
    return [Tried(verdict, cause, "it broke")]
