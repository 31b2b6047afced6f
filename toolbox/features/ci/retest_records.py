"""Keeps what did not pass in the comment of a run, so that `/retest` finds it where no run directory is left.

The record is JSON in a Markdown comment, in the first line of the text. It is only read from comments of the own
account, and only trusted as far as a comment of a person: the presets, the overrides and the cells are checked again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from toolbox.features.ci import slash
from toolbox.features.ci.earlier_runs import EarlierRun
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import UsageError
from toolbox.orchestration.request import RunRequest

LONGEST: Final = 12_000
"""The largest number of characters of a record."""
_UNFINISHED: Final = "null"
_TOO_LARGE: Final = '"too large"'
_LINE = re.compile(r"<!-- topgallant-retest: (?P<json>.*) -->")
_MAX_RUNS: Final = 20
# These characters could end the Markdown comment.
_UNSAFE: Final = str.maketrans({character: f"\\u{ord(character):04x}" for character in "-<>&"})

_Text = Annotated[str, StringConstraints(max_length=300)]
_Cell = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]


class _Run(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    run: _Text
    project: _Text
    presets: list[_Text]
    overrides: Annotated[str, StringConstraints(max_length=LONGEST)]  # YAML; empty for no overrides
    phases: list[_Text] | None
    cells: list[_Cell] | None


_RUNS: Final = TypeAdapter(Annotated[list[_Run], Field(max_length=_MAX_RUNS)])


def line(runs: Sequence[EarlierRun] | None) -> str:
    """Return the first line of a comment about runs of which some did not pass.

    Args:
        runs: what did not pass; None if the runs have not ended.
    """
    text = _UNFINISHED if runs is None else encoded(runs)
    return f"<!-- topgallant-retest: {text if len(text) <= LONGEST else _TOO_LARGE} -->"


def encoded(runs: Sequence[EarlierRun]) -> str:
    """Return what did not pass as one line of JSON."""
    return json.dumps([_encoded(run).model_dump() for run in runs]).translate(_UNSAFE)


def find(text: str) -> str | None:
    """Return the record in a comment: one line of JSON; None if the comment is not about runs."""
    second = "\n".join(text.splitlines()[1:2])  # the first line is the marker of the comment
    match = _LINE.fullmatch(second)
    return match["json"] if match else None


def decoded(text: str) -> list[EarlierRun]:
    """Return what did not pass.

    Raises:
        UsageError: the record is damaged, or the runs have not ended.
    """
    if text == _UNFINISHED:
        raise UsageError("/retest: the newest run has not ended, or left no results: use /test")
    if text == _TOO_LARGE:
        raise UsageError("/retest: too many cells of the newest run did not pass: use /test")
    try:
        return [_decoded(run) for run in _RUNS.validate_json(text)]
    except (ValidationError, ValueError):
        raise UsageError("/retest: the record of the newest run is damaged: use /test") from None


def _encoded(past: EarlierRun) -> _Run:
    overrides = past.request.overrides
    phases = past.request.phases
    return _Run(
        run=past.name,
        project=past.project,
        presets=list(past.request.presets),
        overrides=yaml_text.dump(dict(overrides)) if overrides else "",
        phases=None if phases is None else list(phases),
        cells=None if past.cells is None else list(past.cells),
    )


def _decoded(run: _Run) -> EarlierRun:
    try:
        overrides = slash.overrides(run.overrides) if run.overrides else {}
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    request = RunRequest(run.project, run.presets, overrides=overrides, phases=run.phases)
    return EarlierRun(run.run, request, None if run.cells is None else tuple(run.cells))
