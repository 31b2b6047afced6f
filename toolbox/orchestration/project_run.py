"""One run of a project: its directory, its phases in their order, its end.

`post_cleanup` runs whatever ended the phases before it. The first error is the one that is reported; what goes
wrong afterwards is added to it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import getpass
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import yaml

from toolbox.config import paths
from toolbox.config.contracts.results import Contract as Results
from toolbox.config.document import Change
from toolbox.matrix import abandoned, targets
from toolbox.model import patterns
from toolbox.model.errors import (
    Cancelled,
    DamagedFile,
    InfrastructureError,
    Interrupted,
    ToolboxError,
    UsageError,
    describe,
    exit_code_of,
    outcome_of,
)
from toolbox.model.events import AttemptAbandoned, Note, RunFinished, RunStarted, StepKind
from toolbox.model.nearest import did_you_mean
from toolbox.model.secrets import MASK
from toolbox.model.verdicts import Cause, Verdict, exit_code
from toolbox.orchestration import clusters, projects, session, storing
from toolbox.orchestration import request as request_module
from toolbox.orchestration.clusters import Reservation
from toolbox.orchestration.request import Loaded, RunRequest
from toolbox.orchestration.session import Session
from toolbox.runs import layout, run_state, steps, summary
from toolbox.runs.journal import Entry, Journal
from toolbox.runs.journal import read as read_journal
from toolbox.runs.layout import RunDirectory
from toolbox.runs.recorder import Listener, Recorder
from toolbox.runs.run_state import CLEANUP, CellAttempt, RunState, StepState
from toolbox.runs.steps import Outcome, Step
from toolbox.system import cancellation, environ, filesystem, places, processes, signals
from toolbox.system.redaction import Redactor

_TESTS: Final = "test"
_NOTHING: Final = f"nothing ran: the orchestration has none of the functions {', '.join(projects.PHASES)}"
_NOTHING_LEFT: Final = "there is nothing to do: everything has finished (--failed repeats what did not pass)"
_Tried = tuple[StepState, CellAttempt]
_VERSIONS: Final = ("topgallant", "ansible-core", "ansible-runner")


def execute(request: RunRequest, listeners: Sequence[Listener], redactor: Redactor) -> tuple[RunState, int]:
    """Run a project, and return the summary of the run and the exit code of the command line.

    Raises:
        UsageError: something is wrong with what was asked. Nothing was started, and there is no run directory.
    """
    loaded = request_module.load(request)
    phases = _phases(loaded)
    redactor.add(loaded.configuration.secret_values())
    reservation = Reservation(loaded.configuration, request.project)
    _verify(loaded, phases)
    directory = _create(request)
    with signals.shielded(), Journal(directory, redactor) as journal:
        recorder = Recorder(directory, redactor, listeners, journal)
        _write_request(loaded, directory, redactor)
        return _run(loaded, phases, recorder, reservation)


def resume(
    directory: Path,
    listeners: Sequence[Listener],
    redactor: Redactor,
    *,
    failed: bool = False,
    jobs: int | None = None,
    ignore_damage: bool = False,
    abandon: str | None = None,
) -> tuple[RunState, int]:
    """Go on with a run after any end: what has finished is not done again, and what still runs is adopted.

    The run has its own workspace and working directory again, from wherever it is resumed.

    Args:
        failed: run again also the cells that did not pass.
        jobs: how many cells at once, if not as many as before.
        ignore_damage: resume although lines of the journal cannot be read; the work that they record may be repeated.
        abandon: a pattern for the names or ids of cells whose open attempts a person gives up.

    Raises:
        UsageError: it is no run, its journal is damaged, its configuration has changed since, or no attempt to be
            given up is open. Nothing was started.
        InfrastructureError: the run is going on.
    """
    directory = directory.absolute()
    before = run_state.read(directory)
    if before.damage and not ignore_damage:
        hint = "to resume the run all the same, add --damaged=ignore: the work that these lines record may be repeated"
        raise UsageError(f"{before.damage_warning}\n{hint}")
    began = before.started.date() if before.started is not None else None
    with request_module.where_it_began(directory):
        return _resume(directory, began, listeners, redactor, failed=failed, jobs=jobs, abandon=abandon)


def _resume(
    directory: Path,
    began: dt.date | None,
    listeners: Sequence[Listener],
    redactor: Redactor,
    *,
    failed: bool,
    jobs: int | None,
    abandon: str | None,
) -> tuple[RunState, int]:
    request = RunRequest.read(directory)
    options = dataclasses.replace(request.options, rerun_failed=failed, jobs=jobs or request.options.jobs)
    request = dataclasses.replace(request, options=options)
    loaded = request_module.load(request, today=began, resumed=directory)
    redactor.add(loaded.configuration.secret_values())
    phases = _phases(loaded)
    reservation = Reservation(loaded.configuration, request.project)
    storing.verify(loaded.configuration)
    with signals.shielded(), Journal(directory, redactor) as journal:
        past, given_up = _past(directory, abandon)
        _refuse_changes(loaded, past, directory, redactor)
        if past.finished is not None and not _has_work(past.finished, past, failed=failed):
            for listener in listeners:
                listener(Note("", _NOTHING_LEFT))
            _remove_abandoned(loaded, Recorder(directory, redactor, listeners, journal, past))
            return summary.refresh(directory), past.finished.exit_code
        layout.reserve(directory, past.directories)
        reservation.recall(past)
        _end_orphans(past, directory, reservation.marks(directory))
        recorder = Recorder(directory, redactor, listeners, journal, past)
        # From here on the orchestration makes its changes again.
        session.write_configuration(loaded.configuration, RunDirectory(directory).configuration, redactor)
        return _run(loaded, phases, recorder, reservation, given_up)


def _past(directory: Path, abandon: str | None) -> tuple[RunState, list[_Tried]]:
    """Return the state of a run before it goes on, and the open attempts that a person gives up.

    Raises:
        UsageError: a pattern names no open attempt.
    """
    entries = read_journal(directory)
    past = run_state.fold(entries, directory)
    if abandon is None:
        return past, []
    given_up = _chosen(past, abandon)
    now = dt.datetime.now(dt.UTC)
    abandoned = [Entry(now, AttemptAbandoned(step.step, attempt.attempt)) for step, attempt in given_up]
    return run_state.fold([*entries, *abandoned], directory), given_up


def _chosen(past: RunState, pattern: str) -> list[_Tried]:
    """Return the open attempts of the cells that a pattern names.

    Raises:
        UsageError: there is no such attempt.
    """
    found = {(step.name, step.identity): (step, attempt) for step, attempt in past.open_attempts}
    chosen = [found[names] for names in patterns.matching(pattern, found, lambda names: names)]
    if not chosen:
        hint = did_you_mean(pattern, [name for name, _ in found], label="open attempts are those of")
        raise UsageError(f"--abandon={pattern}: no such cell has an open attempt: {hint}")
    return chosen


def _remove_abandoned(loaded: Loaded, recorder: Recorder) -> None:
    """Remove what attempts have left that were given up, after the run has ended."""
    if loaded.plan is not None and recorder.abandoned_attempts():
        access = {name: found for name, found in clusters.known(loaded.configuration).items() if found is not None}
        abandoned.remove(loaded.plan, recorder, access)


def _verify(loaded: Loaded, phases: Mapping[str, Callable[[], object]]) -> None:
    """See that the cells can be run and that the run can be recorded, before there is a run."""
    storing.verify(loaded.configuration)
    if loaded.plan is not None and _TESTS in phases:
        targets.verify(loaded.plan.targets, clusters.known(loaded.configuration), loaded.plan.workloads())


def _phases(loaded: Loaded) -> dict[str, Callable[[], object]]:
    wanted = loaded.request.phases
    return projects.select(projects.phases(loaded.files), list(wanted) if wanted is not None else None)


def _run(
    loaded: Loaded,
    phases: Mapping[str, Callable[[], object]],
    recorder: Recorder,
    reservation: Reservation,
    given_up: Sequence[_Tried] = (),
) -> tuple[RunState, int]:
    directory, request = recorder.root, loaded.request
    recorder.record(
        RunStarted(
            directory.name,
            request.project,
            str(directory),
            tuple(request.presets),
            os.getpid(),
            socket.gethostname(),
            _revision(loaded.files.config.parent, directory) or "",
        )
    )
    for step, attempt in given_up:
        recorder.record(AttemptAbandoned(step.step, attempt.attempt))
        recorder.record(Note(step.step, f"attempt {attempt.attempt} on {attempt.target} is given up"))
    top = Step(directory, recorder, request.project)
    work = Session(
        request.project,
        loaded.configuration,
        loaded.files.command_args,
        RunDirectory(directory).configuration,
        loaded.plan,
        request.options,
    )
    deadline = request.deadline or (loaded.plan.deadline if loaded.plan is not None else None)
    with session.opened(work, top), signals.deadline(deadline):
        outcomes: dict[str, Outcome] = {}
        errors = _run_phases(phases, top, reservation, outcomes)
        finished = _finish(top, errors, outcomes.get(_TESTS))
    try:
        recorder.record(finished)
    except (OSError, InfrastructureError) as error:
        raise InfrastructureError(
            f"the run ended as {finished.verdict}, but this cannot be recorded: {describe(error)}\n"
            f"  {finished.message}\n"
            f"  when the disk has room again, continue it with `{environ.program()} project resume {directory}`"
        ) from error
    found = summary.refresh(directory)
    storing.record(loaded.configuration, directory)
    return found, finished.exit_code


def _refuse_changes(loaded: Loaded, past: RunState, directory: Path, redactor: Redactor) -> None:
    """Hold the configuration against the one with which the run began.

    Its orchestration may have changed it since, and the file tells of a change after the journal does: it holds the
    configuration after some of the changes.
    """
    was = _configuration_at_start(RunDirectory(directory).configuration)
    configuration = loaded.configuration
    now = yaml.safe_load(session.resolved_text(configuration, redactor))
    for change in past.session_changes:
        if was == now:
            break
        value = change.value if MASK in change.value else yaml.safe_load(change.value)
        configuration = configuration.replaced(change.path, value, layer=change.by)
        now = yaml.safe_load(session.resolved_text(configuration, redactor))
    request_module.refuse_changes(directory, was, now, loaded.plan)


def _configuration_at_start(file: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DamagedFile(file, describe(error)) from None
    if not isinstance(found, dict):
        raise DamagedFile(file, "it is not a mapping")
    return found


def _has_work(end: RunFinished, past: RunState, *, failed: bool) -> bool:
    is_final = end.verdict not in {Verdict.ERROR, Verdict.CANCELLED}
    return not is_final or past.is_unfinished or (failed and not end.verdict.is_pass)


def _end_orphans(past: RunState, directory: Path, clusters: Sequence[Path] = ()) -> None:
    """End what a killed orchestrator has left running, but for clusters, and the workloads of its cells: both go on."""
    workloads = [RunDirectory(directory).step(step.step).path for step in past.cells]
    processes.end_marked(directory, keep=[*workloads, RunDirectory(directory).targets, *clusters])


def _create(request: RunRequest) -> Path:
    base = request.artifact_dir or places.artifacts()
    runs = session.artifact_directory(base / request.project)
    while True:
        directory = runs / layout.run_id()
        try:
            directory.mkdir(mode=filesystem.PRIVATE_DIRECTORY)
        except FileExistsError:
            continue
        filesystem.sync_directory(runs)
        return directory


def _write_request(loaded: Loaded, directory: Path, redactor: Redactor) -> None:
    """Write what was asked. Only values are masked: a resumed run needs the names as they are."""
    request, configuration = loaded.request, loaded.configuration
    overrides = redactor.redact_nested(dict(request.overrides), keep_keys=True)
    run = {
        "run": directory.name,
        **request.as_json(),
        "overrides": overrides,
        # JSON has fewer types than a configuration.
        "overrides_text": filesystem.dump_yaml(overrides),
        "config_file": configuration.source,
        "directory": str(Path.cwd()),
        "workspace": str(workspace) if (workspace := places.workspace()) is not None else None,
        "revision": _revision(loaded.files.config.parent, directory),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _VERSIONS}},
        "host": socket.gethostname(),
        "user": _user(),
        "currency": configuration.block(storing.BLOCK, Results).currency,
        "argv": redactor.redact_nested(sys.argv),
        "changes": [_change_json(change, redactor) for change in configuration.changes],
    }
    changes = "".join(f"{_applied(change, redactor)}\n" for change in configuration.changes)
    filesystem.write_text(RunDirectory(directory).changes, changes)
    for name, value in request.note.items():
        masked = redactor.redact_nested(value, keep_keys=True)
        filesystem.write_text(directory / name, masked if isinstance(masked, str) else filesystem.dump_yaml(masked))
    if loaded.plan is not None:
        loaded.plan.write(directory)
    session.write_configuration(configuration, RunDirectory(directory).configuration, redactor)
    # The last of the files that a resumed run reads: where it is there, so are the others.
    filesystem.write_json(RunDirectory(directory).request, run, durable=True)


def _applied(change: Change, redactor: Redactor) -> str:
    where = f"  ({change.location})" if change.location else ""
    return f"{change.layer}: {paths.render(change.path)} --> {redactor(repr(change.value))}{where}"


def _change_json(change: Change, redactor: Redactor) -> dict[str, str]:
    """Return a change as `run.json` holds it: values as YAML on a line, places as `file:line`."""
    return {
        "path": paths.render(change.path),
        "value": redactor(filesystem.dump_yaml_line(change.value)),
        "by": change.layer,
        "where": str(change.location or ""),
        "replaced": redactor(filesystem.dump_yaml_line(change.replaced)),
        "replaced_where": str(change.replaced_location or ""),
    }


def _run_phases(
    phases: Mapping[str, Callable[[], object]], top: Step, reservation: Reservation, outcomes: dict[str, Outcome]
) -> list[BaseException]:
    """Run the phases, put how they ended into `outcomes`, and return what ended the run."""
    errors: list[BaseException] = []
    try:
        work = session.current()
        reservation.acquire(work, top)
        if work.clusters and work.plan is not None and _TESTS in phases:
            targets.verify(work.plan.targets, work.clusters, work.plan.workloads())
    except BaseException as error:  # noqa: BLE001  # it becomes the end of the run
        errors.append(error)
        _end_abandoned(top)
    for name, function in phases.items():
        if errors and not (name == CLEANUP and reservation.is_ours):
            continue
        try:
            outcomes[name] = _run_phase(name, function, reservation)
        except BaseException as error:  # noqa: BLE001  # each becomes the end of the run, in order
            errors.append(error)
            _end_abandoned(top)
            processes.end_marked(top.directory, keep=reservation.marks(top.directory))
    errors += reservation.release(compare=CLEANUP in phases)
    if (number := signals.first()) is not None and not any(isinstance(error, Interrupted) for error in errors):
        errors.append(Interrupted(number))
    if left := processes.end_marked(top.directory, keep=reservation.marks(top.directory)):
        top.recorder.record(Note("", f"{left} processes were left running, and were ended"))
    return errors


def _end_abandoned(top: Step) -> None:
    """End the workloads that a resumed run has not come to: whoever ends them by force would pass for their failure."""
    work = session.current()
    if work.plan is None or work.matrix_has_run:
        return
    try:
        abandoned.end(work.plan, top.recorder, work.clusters)
    except ToolboxError as error:  # what is released after this matters more
        top.recorder.record(Note("", f"workloads may be running still: {describe(error)}"))


def _run_phase(name: str, function: Callable[[], object], reservation: Reservation) -> Outcome:
    failure = (Verdict.FAILED, Cause.PRODUCT) if name == _TESTS else (Verdict.ERROR, Cause.INFRASTRUCTURE)
    # A signal does not stop the cleanup, which is what a signal asks for.
    gate = contextlib.nullcontext() if name == CLEANUP else signals.exposed()
    around = session.step()
    place = around.place(name, StepKind.PHASE)
    is_replayed = place.before is not None and place.before.changed_configuration
    if name != CLEANUP and not is_replayed and around.answered(place):
        return Outcome(Verdict.PASSED)
    with cancellation.opened_by_process() as scope, contextlib.ExitStack() as stack:
        try:
            step = stack.enter_context(steps.opened(name, kind=StepKind.PHASE, failure=failure, place=place))
        except Exception:
            # The step cannot be recorded (a full disk): what is to be cleaned up matters more than its record.
            if name == CLEANUP:
                function()
            raise
        try:
            # Threads that the project starts by itself belong to the phase too.
            with steps.entered_by_process(step), gate, reservation.guarding(scope):
                function()
        finally:
            scope.cancel(f"the phase {name} has ended")
            steps.sweep(step)
    return step.outcome() or Outcome(Verdict.PASSED)


def _finish(top: Step, errors: Sequence[BaseException], tested: Outcome | None) -> RunFinished:
    """Return how the run ended: as the first of its phases that did not pass. A later error is added to that."""
    seconds = round(time.monotonic() - top.started, 3)
    if not errors:
        outcome = top.outcome() or Outcome(Verdict.SKIPPED, None, _NOTHING)
        if outcome.verdict is Verdict.PASSED and tested is not None and tested.verdict is Verdict.SKIPPED:
            outcome = tested  # to prepare and clean up for nothing is no pass
        # What is to be said of a cell that passed is said of that cell.
        message = "" if outcome.verdict is Verdict.PASSED else outcome.message
        return RunFinished(outcome.verdict, outcome.cause, exit_code(outcome.verdict), message, seconds)
    first, *others = sorted(errors, key=lambda error: not isinstance(error, Interrupted))
    texts = [describe(first), *(f"and then: {describe(error)}" for error in others)]
    if isinstance(first, Cancelled):
        message = top.recorder.redactor("\n".join(texts))
        return RunFinished(Verdict.CANCELLED, first.cause, exit_code_of(first), message, seconds)
    outcome = top.first_failure() or Outcome(*outcome_of(first))
    if (outcome.verdict, outcome.cause) != outcome_of(first):
        texts.insert(0, outcome.message)  # the cause of the run stands beside the message that explains it
    message = top.recorder.redactor("\n".join(filter(None, texts)))
    return RunFinished(outcome.verdict, outcome.cause, exit_code(outcome.verdict), message, seconds)


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container with a user id that nobody named
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _revision(folder: Path, run_directory: Path) -> str | None:
    """Return the revision of the checkout that holds the configuration, with `+` where it has changes."""
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    try:
        done = processes.run(
            command,
            env=processes.environment(run_directory),
            on_line=lambda _: None,
            capture_stdout=True,
            capture_stderr=True,
        )
    except OSError:
        return None
    return (done.stdout or "").strip() or None
