"""Writes what was understood from a comment, and the command line that repeats a run by hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from toolbox.features.ci.comment_runs import CommentRun
from toolbox.features.ci.refusals import escaped
from toolbox.ground.model import yaml_text
from toolbox.ground.model.foreign_text import printable
from toolbox.ground.model.text import counted, first_of, truncate
from toolbox.ground.system import environ
from toolbox.orchestration import cell_limit, spending
from toolbox.orchestration import request as run_requests
from toolbox.orchestration.request import PreparedRun, RunRequest
from toolbox.records.runs.layout import RunDirectory

_MAX_OVERRIDES: Final = 5
_LONGEST_VALUE: Final = 80


def understood(run: CommentRun, *, needs_secrets: bool = True) -> list[str]:
    """Return a few lines that say what a run will do: presets, overrides, phases, cells, time and cost.

    Args:
        needs_secrets: whether it is a fault that a secret cannot be read here.

    Raises:
        UsageError: the configuration is wrong, or the plan exceeds a limit.
    """
    loaded = run_requests.load(run.request, needs_secrets=needs_secrets)
    return [printable(escaped(line)) for line in _lines(run, loaded)]


def repeat_command(request: RunRequest, directory: Path) -> str:
    """Return the command line that repeats a run, with quoted words.

    Args:
        directory: the run directory, which contains the overrides of the comment.
    """
    words = [environ.program(), "project", "run", request.project]
    if request.presets:
        words.append(f"--presets={_list_text(request.presets)}")
    files = [*request.override_files, *([RunDirectory(directory).overrides] if request.note else [])]
    if files:
        words.append(f"--overrides={','.join(map(str, files))}")
    if request.phases is not None:
        words.append(f"--phases={_list_text(request.phases)}")
    if request.selection.cells is not None:
        words.append(f"--cells={request.selection.cells}")
    if request.selection.shard is not None:
        words.append("--shard={}/{}".format(*request.selection.shard))
    if request.deadline is not None:
        words.append(f"--deadline={round(request.deadline)}")
    if request.artifact_dir is not None:
        words.append(f"--artifact_dir={request.artifact_dir}")
    return shlex.join(words)


def _lines(run: CommentRun, loaded: PreparedRun) -> Iterator[str]:
    request = run.request
    phases = "all" if request.phases is None else ", ".join(request.phases) or "none"
    yield f"{run.description} (line {run.line})"
    yield f"  presets: {', '.join(request.presets) or 'none'}; phases: {phases}"
    overrides = [
        truncate(f"{path}: {yaml_text.dump_line(value)}", _LONGEST_VALUE)
        for path, value in request.all_overrides.items()
    ]
    if overrides:
        yield f"  overrides: {'; '.join(first_of(overrides, _MAX_OVERRIDES))}"
    if loaded.plan is not None:
        cell_limit.verify(loaded.configuration, loaded.plan)
        costs = spending.expected(loaded.configuration, request.project, loaded.plan)
        if (limit := spending.limit(request.options, loaded.plan)) is not None:
            spending.verify(costs, limit)
        count, total = len(loaded.plan.to_execute), len(loaded.plan.combinations)
        known = f"; {costs.summary()}" if costs.cells else ""
        yield f"  cells: {counted(count, 'cell')} to run, of {total} in the matrix{known}"


def _list_text(names: object) -> str:
    """Return names as the value of a flag, which separates names by commas."""
    texts = [str(name) for name in names] if isinstance(names, list | tuple) else []
    is_plain = all(text and text == text.strip() and "," not in text and text[0] != "[" for text in texts)
    return ",".join(texts) if is_plain and texts else json.dumps(texts)
