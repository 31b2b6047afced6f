"""Finds the run that `/retest` repeats in a terminal, and makes the request that repeats what did not pass.

The overrides of the earlier run are checked again as overrides of a comment: a person may have started the run by hand
with overrides that a comment may not use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.config import document
from toolbox.config.contracts.ci import Contract, NamedCluster, NamedJob
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.text import counted
from toolbox.ground.system import places
from toolbox.matrix.plan import Selection
from toolbox.orchestration.launch_presets import TARGET
from toolbox.orchestration.request import RunRequest
from toolbox.records.runs import layout, run_reader
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState, State

_ID: Final = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """A run that did not pass.

    Args:
        cells: the ids of the cells that did not pass; None if the project has no matrix.
    """

    name: str
    request: RunRequest
    cells: tuple[str, ...] | None

    @property
    def project(self) -> str:
        """The name of the project."""
        return self.request.project

    def chosen_presets(self, given: Sequence[str], block: Contract) -> list[str]:
        """Return the presets that neither the caller gives nor a job or a cluster of the configuration lists."""
        entries: list[NamedJob | NamedCluster] = [*block.named_jobs.values(), *block.clusters.values()]
        listed = {preset for entry in entries for preset in entry.presets}
        return [name for name in self.request.presets if name not in given and name not in listed]

    def repeated(
        self, block: Contract, given: Sequence[str], files: Sequence[Path], replaced: Mapping[str, str]
    ) -> RunRequest:
        """Return the request that repeats the run.

        Args:
            block: the block `ci` of the configuration. The target of one of its jobs may be used again.
            given: the presets of the caller, which are applied first.
            files: the files of the caller with overrides. Other files of the run count as overrides of a comment.
            replaced: trusted overrides of the caller, which replace those of the run.

        Raises:
            UsageError: a file with overrides cannot be read.
        """
        past = tuple(self.request.presets)
        overrides = {path: value for path, value in self._overrides(files) if path not in replaced}
        targets = {job.target for job in block.named_jobs.values() if job.target}
        is_trusted = isinstance(overrides.get(TARGET), str) and overrides[TARGET] in targets
        trusted = {**replaced, **({TARGET: overrides.pop(TARGET)} if is_trusted else {})}
        return RunRequest(
            self.project,
            past if past[: len(given)] == tuple(given) else (*given, *past),
            override_files=files,
            overrides=overrides,
            is_from_outside=True,
            trusted_overrides=trusted,
            phases=self.request.phases,
            selection=Selection(None if self.cells is None else " ".join(self.cells)),
        )

    def _overrides(self, files: Sequence[Path]) -> Iterator[tuple[str, Any]]:
        given = {file.absolute() for file in files}
        for file in self.request.override_files:
            if file.absolute() not in given:
                root = document.load(file, what="the override file").root
                yield from ((str(path), value) for path, value in root.items())
        yield from self.request.overrides.items()


def newest(project: str | None, artifact_dir: Path | None) -> EarlierRun:
    """Return the newest run in the directory of artifacts.

    Args:
        project: the project of the run; None for any project.
        artifact_dir: the directory of artifacts; None for the default directory.

    Raises:
        UsageError: there is no run, the newest run has not ended, or nothing in it is to be repeated.
    """
    base = artifact_dir or places.artifacts()
    runs = [run for run in layout.runs(base) if project is None or run.parent.name == project]
    if not runs:
        whose = f" of {project}" if project else ""
        raise UsageError(f"/retest: {base} has no run{whose} to repeat: /test {project or 'PROJECT'} starts one")
    state = run_reader.read(runs[-1])
    if state.state is State.RUNNING:
        raise UsageError(f"/retest: the run {state.run} has not ended: wait for its end")
    if (past := of(state)) is None:
        raise UsageError(f"/retest: {_all_passed(state)}: /test {state.project} runs everything again")
    return past


def of(state: RunState) -> EarlierRun | None:
    """Return what did not pass in a run; None if everything passed.

    Raises:
        DamagedFile: the request of the run cannot be read.
    """
    plan = RunDirectory(state.directory).read_plan()
    cells, lost = plan.get("cells"), plan.get("lost", [])
    if not isinstance(cells, list) or not isinstance(lost, list):
        has_passed = state.finished is not None and state.finished.verdict.is_pass
        return None if has_passed else EarlierRun(state.directory.name, RunRequest.read(state.directory), None)
    passed = {step.identity for step in state.cells if step.verdict is not None and step.verdict.is_pass}
    planned = (*_ids(cells), *_ids([{"id": identity} for identity in lost]))  # a lost shard has run no cell
    unpassed = tuple(identity for identity in planned if identity not in passed)
    return EarlierRun(state.directory.name, RunRequest.read(state.directory), unpassed) if unpassed else None


def _all_passed(state: RunState) -> str:
    cells = RunDirectory(state.directory).read_plan().get("cells")
    if isinstance(cells, list):
        return f"no cell failed of the {counted(len(cells), 'cell')} of {state.run}, so there is nothing to repeat"
    return f"the run {state.run} passed, so there is nothing to repeat"


def _ids(cells: Sequence[object]) -> Iterator[str]:
    """Yield the ids of the cells of a plan that the run executes."""
    for cell in cells:
        identity = cell.get("id") if isinstance(cell, Mapping) and not cell.get("skip") else None
        if isinstance(identity, str) and _ID.fullmatch(identity):
            yield identity
