"""A run whose phases are executed by several command lines, for example by the steps of a CI job.

`project run --phases=prepare --keep_open` begins such a run, and `project resume --phases=NAME` continues it, in other
processes and perhaps on other machines. The run ends with the phase `post_cleanup`, which then deletes what the run has
created. `project_run` calls this module to decide what a session executes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from toolbox.config.configuration import Configuration
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.events import ConfigurationChanged
from toolbox.ground.model.secrets import MASK
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import environ
from toolbox.orchestration import projects
from toolbox.orchestration.request import RunRequest
from toolbox.records.runs.layout import CLEANUP, RunDirectory
from toolbox.records.runs.run_state import RunState, StepState
from toolbox.records.runs.steps import Outcome

_PREPARE: Final = "prepare"
_REPEATED: Final = (None, Verdict.ERROR, Verdict.CANCELLED)  # the verdicts of a phase that may be repeated

Phases = Mapping[str, Callable[[], object]]


@dataclass(frozen=True, slots=True)
class SessionPhases:
    """What one session of a run executes.

    Args:
        phases: the phases of the session.
        is_last: whether the run ends with the session.
        others: the names of the phases of the run that the session does not execute.
    """

    phases: Phases
    is_last: bool = True
    others: tuple[str, ...] = ()


def first(available: Phases, request: RunRequest) -> SessionPhases:
    """Return what the first session of a run executes.

    Raises:
        UsageError: the phases cannot be the first ones of a run.
    """
    if request.first_phases is None:
        return SessionPhases(available)
    if CLEANUP in request.first_phases:
        raise UsageError(f"--keep_open: the run ends with the phase {CLEANUP}: leave the flag or the phase out")
    return _part(available, RunState(), request.first_phases, "RUN")


def following(available: Phases, past: RunState, names: Sequence[str] | None, request: RunRequest) -> SessionPhases:
    """Return what a later session executes.

    Args:
        names: the phases that the command line names; None for all phases that are left.

    Raises:
        UsageError: the run cannot execute these phases now. The message says what to do.
    """
    if not request.in_steps:
        if names is not None:
            raise UsageError("--phases continues only a run that `project run --keep_open` began: leave the flag out")
        return SessionPhases(available)
    if past.finished is not None:
        if names is not None:
            raise UsageError(f"the run {past.run} has ended ({past.finished.verdict}): start a new run")
        return SessionPhases(available)
    if names is None:
        left = [name for name in available if not _is_over(past, name) and not _is_past(past, name)]
        names = [*left, *([CLEANUP] if CLEANUP not in left else [])]
        return _made(available, names)
    return _part(available, past, names, str(past.directory))


def _part(available: Phases, past: RunState, names: Sequence[str], run: str) -> SessionPhases:
    known = {**available, CLEANUP: available.get(CLEANUP, _nothing)}
    chosen = projects.select(known, names)
    if not chosen:
        raise UsageError(f"--phases names no phase: {', '.join(known)}")
    for name in chosen:
        _check_order(available, past, name, chosen, run)
    return _made(available, list(chosen))


def _nothing() -> None:
    """The phase `post_cleanup` of a project that does not define it: only resources and leases are left to clean up."""


def _made(available: Phases, names: Collection[str]) -> SessionPhases:
    phases = {name: function for name, function in available.items() if name in names}
    return SessionPhases(phases, CLEANUP in names, tuple(name for name in available if name not in phases))


def _check_order(available: Phases, past: RunState, name: str, chosen: Collection[str], run: str) -> None:
    command = f"{environ.program()} project resume {run}"
    if name == CLEANUP:
        return
    if _state(past, CLEANUP) is not None:
        raise UsageError(f"the phase {CLEANUP} has begun: only `{command} --phases={CLEANUP}` can follow")
    if _is_over(past, name):
        hint = f"continue with the next phase, or start a new run ({', '.join(missing(past, available))} have not run)"
        raise UsageError(f"the phase {name} has already run: {hint}")
    if _is_past(past, name):
        raise UsageError(f"the phase {name} must run before {_PREPARE}, which has begun: start a new run")
    prepared = _state(past, _PREPARE)
    is_prepared = prepared is not None and prepared.verdict is not None and prepared.verdict.is_pass
    if name == projects.TESTS and _PREPARE in available and _PREPARE not in chosen and not is_prepared:
        state = "has not passed" if prepared is not None else "has not run"
        hint = f"first use --phases={_PREPARE}" if run == "RUN" else f"first use `{command} --phases={_PREPARE}`"
        raise UsageError(f"the phase {name} needs {_PREPARE}, which {state}: {hint}")


def _state(past: RunState, name: str) -> StepState | None:
    return past.latest.get(f"/{name}")


def _is_over(past: RunState, name: str) -> bool:
    """Return whether a phase has a verdict that another execution must not change."""
    state = _state(past, name)
    return state is not None and state.verdict not in _REPEATED


def _is_past(past: RunState, name: str) -> bool:
    """Return whether a phase was left out, and must not run any more."""
    if name != projects.PRE_CLEANUP or _state(past, name) is not None:
        return False
    return any(_state(past, later) is not None for later in (_PREPARE, projects.TESTS))


def missing(past: RunState, names: Collection[str]) -> list[str]:
    """Return the phases that have not run."""
    return [name for name in names if _state(past, name) is None and not _is_past(past, name)]


def earlier_outcomes(past: RunState, part: SessionPhases) -> Iterator[Outcome]:
    """Yield the outcomes of the phases that earlier sessions executed, in their order.

    Args:
        past: the state of the run before the last session.
    """
    for name in part.others:
        state = _state(past, name)
        if state is None:
            if name == projects.TESTS:
                yield Outcome(Verdict.SKIPPED, None, f"the phase {name} has not run")
        elif state.verdict is None:
            text = f"the phase {name} did not end: its process was killed"
            yield Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, text)
        else:
            yield Outcome(state.verdict, state.cause, state.message)


def changes(past: RunState) -> list[ConfigurationChanged]:
    """Return the fields that all phases have replaced, in the order of the phases."""
    return [change for phase in past.phase_changes.values() for change in phase]


def restored(configuration: Configuration, past: RunState, part: SessionPhases) -> Configuration:
    """Return the configuration with the fields that earlier phases have replaced.

    Raises:
        UsageError: a phase put a secret into a field, which no record of the run contains.
    """
    for name in part.others:
        for change in past.phase_changes.get(name, ()):
            if MASK in change.value:
                text = f"the phase {name} put a secret into `{change.path}`, which another step cannot read"
                raise UsageError(f"{text}: run this phase and the next one in one step")
            configuration = configuration.replaced(change.path, yaml.safe_load(change.value), layer=change.by)
    return configuration


def refuse_other_revision(directory: Path, revision: str | None) -> None:
    """Check that a later step uses the same revision of the project as the first one.

    Args:
        revision: the revision of the configuration now; None if it is not in a checkout.

    Raises:
        UsageError: the revisions differ.
    """
    began_with = RunDirectory(directory).read_request().get("configuration_revision")
    if began_with and revision and began_with != revision:
        raise UsageError(
            f"the run {directory.name} began with the revision {began_with} of the project, but here is {revision}\n"
            f"  check out {str(began_with).removesuffix('+')}, or start a new run"
        )


def refuse_missing_clusters(past: RunState, created: Collection[str]) -> None:
    """Check that the clusters that the run has created can be reached from this machine.

    Args:
        created: the names of the clusters that a command of the configuration creates.

    Raises:
        UsageError: a kubeconfig is not on this machine.
    """
    for name in created:
        cluster = past.clusters.get(name)
        chosen = cluster.chosen if cluster is not None else None
        if chosen is not None and chosen.kubeconfig is not None and not Path(chosen.kubeconfig).exists():
            raise UsageError(
                f"the cluster {name} of the run was created on another machine, and {chosen.kubeconfig} is not here\n"
                f"  run this step there; `{environ.program()} resources reap` there removes the cluster"
            )
