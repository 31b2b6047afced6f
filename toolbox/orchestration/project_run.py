"""Executes one run of a project: creates its directory, runs its phases in order, and records its end.

`post_cleanup` runs even if an earlier phase failed or was interrupted. The run reports the first error, and appends
later errors to its message.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import logging
import os
import platform
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import yaml

from toolbox.config import paths
from toolbox.config.contracts.results import Contract as Results
from toolbox.config.document import Change
from toolbox.ground.model import patterns, yaml_text
from toolbox.ground.model.errors import (
    DamagedFile,
    InfrastructureError,
    Interrupted,
    ToolboxError,
    UsageError,
    describe,
)
from toolbox.ground.model.events import (
    AttemptAbandoned,
    ConfigurationChanged,
    Note,
    RunFinished,
    RunPaused,
    RunStarted,
    StepKind,
)
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.secrets import MASK
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import cancellation, environ, filesystem, git, places, processes, signals
from toolbox.ground.system.redaction import Redactor
from toolbox.matrix import targets, unattended_attempts
from toolbox.orchestration import (
    cell_limit,
    clusters,
    leftovers,
    notifying,
    projects,
    remote_resources,
    run_steps,
    session,
    spending,
    storing,
)
from toolbox.orchestration import request as request_module
from toolbox.orchestration.clusters import Reservation
from toolbox.orchestration.created_clusters import creation_steps
from toolbox.orchestration.request import PreparedRun, RunRequest
from toolbox.orchestration.run_steps import SessionPhases
from toolbox.orchestration.session import Session
from toolbox.records.runs import layout, ledger, run_reader, run_verdict, steps, summary
from toolbox.records.runs.journal import Entry, Journal
from toolbox.records.runs.journal import read as read_journal
from toolbox.records.runs.layout import CLEANUP, RunDirectory
from toolbox.records.runs.recorder import Listener, Recorder
from toolbox.records.runs.run_state import CellAttempt, RunState, StepState
from toolbox.records.runs.steps import Outcome, Step

log = logging.getLogger(__name__)

_NOTHING_RAN: Final = f"no phase ran: orchestration.py defines none of the functions {', '.join(projects.PHASES)}"
_NOTHING_TO_DO: Final = (
    "there is nothing to do: every step of the run has finished (--failed repeats the cells that did not pass)"
)
_CellAttempt = tuple[StepState, CellAttempt]
_VERSIONS: Final = ("topgallant", "ansible-core", "ansible-runner")


def execute(request: RunRequest, listeners: Sequence[Listener], redactor: Redactor) -> tuple[RunState, int]:
    """Run a project, and return the state of the run and the exit code of the command line.

    Raises:
        UsageError: the request is wrong. Nothing was started, and no run directory was created.
    """
    loaded = request_module.load(request_module.resolve(request))
    phases = projects.select(projects.phases(loaded.files), loaded.request.phases)
    part = run_steps.first(phases, loaded.request)
    redactor.add(loaded.configuration.secret_values())
    reservation = Reservation(loaded.configuration, request.project)
    _verify(loaded, phases)
    directory = _create(request)
    with signals.shielded(), Journal(directory) as journal:
        resources = ledger.of_run(directory, request.project, redactor)
        recorder = Recorder(directory, redactor, listeners, journal, ledger=resources)
        revision = git.revision_of(loaded.files.config.parent, directory)
        _write_request(loaded, directory, redactor, list(phases), revision)
        return _run(loaded, part, recorder, reservation, revision)


def resume(
    directory: Path,
    listeners: Sequence[Listener],
    redactor: Redactor,
    *,
    failed: bool = False,
    jobs: int | None = None,
    max_cost: float | None = None,
    ignore_damage: bool = False,
    abandon: str | None = None,
    phases: Sequence[str] | None = None,
) -> tuple[RunState, int]:
    """Continue a run that has ended in any way. Finished steps are not repeated, and running workloads are adopted.

    The workspace and the working directory are those that the run began with.

    Args:
        directory: the directory of the run.
        failed: also repeat the cells that did not pass.
        jobs: how many cells run at the same time; by default, the number in the request of the run.
        max_cost: the highest cost of the run in all of its sessions; by default, the limit in the request of the run.
        ignore_damage: resume even if lines of the journal cannot be read. The work that these lines record may be
            repeated.
        abandon: a pattern for the names or ids of cells whose open attempts are to be abandoned.
        phases: the phases to execute of a run that is executed in steps; None for all phases that are left.

    Raises:
        UsageError: the directory is not a run, its journal is damaged, the configuration of the run has changed, or
            `abandon` matches no cell with an open attempt. Nothing was started.
        InfrastructureError: another process is executing the run.
    """
    directory = directory.absolute()
    state = run_reader.read(directory)
    if state.shards:
        raise UsageError(f"{directory} was merged from shards: resume the runs of the shards, and merge them again")
    if state.damage and not ignore_damage:
        hint = "to resume the run anyway, add --damaged=ignore: the work that these lines record may be repeated"
        raise UsageError(f"{state.damage_warning}\n{hint}")
    start_date = state.started.date() if state.started is not None else None
    with request_module.original_location(directory):
        request = RunRequest.read(directory)
        options = dataclasses.replace(request.options, rerun_failed=failed, jobs=jobs or request.options.jobs)
        options = dataclasses.replace(options, max_cost=options.max_cost if max_cost is None else max_cost)
        request = dataclasses.replace(request, options=options)
        loaded = request_module.load(request, today=start_date, resumed=directory)
        redactor.add(loaded.configuration.secret_values())
        available = projects.select(projects.phases(loaded.files), loaded.request.phases)
        reservation = Reservation(loaded.configuration, request.project)
        storing.verify(loaded.configuration)
        notifying.verify(loaded.configuration, loaded.request)
        with signals.shielded(), Journal(directory) as journal:
            past, to_abandon = _state_before(directory, abandon)
            part = run_steps.following(available, past, phases, request)
            is_in_steps = request.in_steps and past.finished is None
            revision = git.revision_of(loaded.files.config.parent, directory)
            if is_in_steps:
                run_steps.refuse_other_revision(directory, revision)
            changes = run_steps.changes(past) if is_in_steps else past.session_changes
            _refuse_changes(loaded, changes, directory, redactor)
            if is_in_steps:
                run_steps.refuse_missing_clusters(past, reservation.created)
                loaded = dataclasses.replace(loaded, configuration=run_steps.restored(loaded.configuration, past, part))
            resources = ledger.of_run(directory, request.project, redactor)
            recorder = Recorder(directory, redactor, listeners, journal, past, resources)
            if past.finished is not None and not _has_work(past.finished, past, failed=failed):
                recorder.record(Note("", _NOTHING_TO_DO))
                _remove_abandoned(loaded, recorder)
                top = Step(directory, recorder, request.project)
                with steps.entered(top):
                    remote_resources.delete_at_end(top, partial(leftovers.labelled, loaded.configuration))
                return summary.refresh(directory), past.finished.exit_code
            layout.reserve(directory, past.directories)
            reservation.restore(recorder)
            _end_orphans(past, directory, creation_steps(recorder.ledger))
            # Write the initial configuration again, because the orchestration will repeat its changes.
            session.write_configuration(loaded.configuration, RunDirectory(directory).configuration, redactor)
            return _run(loaded, part, recorder, reservation, revision, to_abandon)


def _state_before(directory: Path, abandon: str | None) -> tuple[RunState, list[_CellAttempt]]:
    """Return the state of a run before it is resumed, and the open attempts that the pattern `abandon` matches."""
    entries = read_journal(directory)
    past = run_reader.fold(entries, directory)
    if abandon is None:
        return past, []
    to_abandon = _attempts_to_abandon(past, abandon)
    now = dt.datetime.now(dt.UTC)
    new_entries = [Entry(now, AttemptAbandoned(step.step, attempt.attempt)) for step, attempt in to_abandon]
    return run_reader.fold([*entries, *new_entries], directory), to_abandon


def _attempts_to_abandon(past: RunState, pattern: str) -> list[_CellAttempt]:
    """Return the open attempts of the cells whose name or id matches a pattern, or raise a `UsageError`."""
    attempts = {(step.name, step.identity): (step, attempt) for step, attempt in past.open_attempts}
    matches = [attempts[names] for names in patterns.matching(pattern, attempts, lambda names: names)]
    if not matches:
        hint = did_you_mean(pattern, [name for name, _ in attempts], label="cells with open attempts")
        raise UsageError(f"--abandon={pattern}: no matching cell has an open attempt: {hint}")
    return matches


def _remove_abandoned(loaded: PreparedRun, recorder: Recorder) -> None:
    """Remove the files and objects of abandoned attempts from the targets of a run that has ended."""
    if loaded.plan is not None and recorder.abandoned_attempts():
        existing = {
            name: access for name, access in clusters.known_access(loaded.configuration).items() if access is not None
        }
        unattended_attempts.remove(loaded.plan, recorder, existing)


def _verify(loaded: PreparedRun, phases: Mapping[str, Callable[[], object]]) -> None:
    """Check that the targets can run the cells and that the run can be recorded, before the run directory exists."""
    storing.verify(loaded.configuration)
    notifying.verify(loaded.configuration, loaded.request)
    if loaded.plan is not None and projects.TESTS in phases:
        cell_limit.verify(loaded.configuration, loaded.plan)
        if (limit := spending.limit(loaded.request.options, loaded.plan)) is not None:
            spending.verify(spending.expected(loaded.configuration, loaded.request.project, loaded.plan), limit)
        targets.verify(loaded.plan.targets, clusters.known_access(loaded.configuration), loaded.plan.workloads())


def _run(
    loaded: PreparedRun,
    part: SessionPhases,
    recorder: Recorder,
    reservation: Reservation,
    revision: str | None,
    to_abandon: Sequence[_CellAttempt] = (),
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
            _revision_under_test(loaded, revision) or "",
        )
    )
    for preset, reason in request.preset_reasons.items():
        recorder.record(Note("", f"preset {preset}: {reason}"))
    for step, attempt in to_abandon:
        recorder.record(AttemptAbandoned(step.step, attempt.attempt))
        recorder.record(Note(step.step, f"attempt {attempt.attempt} on {attempt.target} is abandoned"))
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
        errors = _run_phases(part, top, reservation, outcomes)
        is_shard = request.selection.shard is not None
        session_end = run_verdict.of_session(top, errors, tested=outcomes.get(projects.TESTS), is_shard=is_shard)
    if not part.is_last:
        recorder.record(RunPaused(*dataclasses.astuple(session_end)))
        return summary.refresh(directory), session_end.exit_code
    finished = run_verdict.of_phases(session_end, list(run_steps.earlier_outcomes(recorder.past, part)))
    try:
        recorder.record(finished)
    except (OSError, InfrastructureError) as error:
        raise InfrastructureError(
            f"the verdict of the run is `{finished.verdict}`, but cannot be recorded: {describe(error)}\n"
            f"  {finished.message}\n"
            f"  when the disk has room again, continue the run with `{environ.program()} project resume {directory}`"
        ) from error
    state = summary.refresh(directory)
    storing.record(loaded.configuration, state)
    notifying.at_end(loaded.configuration, request, recorder, state)
    if state.contradiction and state.finished is not None:
        return state, state.finished.exit_code  # a cell has no verdict, although no phase has failed
    return state, session_end.exit_code


def _refuse_changes(
    loaded: PreparedRun, changes: Sequence[ConfigurationChanged], directory: Path, redactor: Redactor
) -> None:
    """Raise if the configuration or the plan differs from those that the run began with.

    The orchestration may have changed the configuration during the run. Such a change is recorded in the journal before
    the configuration file is written, so the file may equal the configuration after any number of those changes.

    Args:
        changes: the changes of the run, in their order.
    """
    written = _written_configuration(RunDirectory(directory).configuration)
    configuration = loaded.configuration
    expected = yaml.safe_load(session.resolved_text(configuration, redactor))
    for change in changes:
        if written == expected:
            break
        value = change.value if MASK in change.value else yaml.safe_load(change.value)
        configuration = configuration.replaced(change.path, value, layer=change.by)
        expected = yaml.safe_load(session.resolved_text(configuration, redactor))
    request_module.refuse_changes(directory, written, expected, loaded.plan)


def _written_configuration(file: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(filesystem.read_record(file))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DamagedFile(file, describe(error)) from None
    if not isinstance(document, dict):
        raise DamagedFile(file, "the document is not a mapping")
    return document


def _has_work(end: RunFinished, past: RunState, *, failed: bool) -> bool:
    is_final = end.verdict not in {Verdict.ERROR, Verdict.CANCELLED}
    return not is_final or past.is_unfinished or (failed and not end.verdict.is_pass)


def _end_orphans(past: RunState, directory: Path, cluster_steps: Sequence[Path] = ()) -> None:
    """End processes that a killed orchestrator left, except those of the clusters, cells and targets of the run."""
    workloads = [RunDirectory(directory).step(step.step).path for step in past.cells]
    processes.end_marked(directory, keep=[*workloads, RunDirectory(directory).targets, *cluster_steps])


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


def _write_request(
    loaded: PreparedRun, directory: Path, redactor: Redactor, phases: Sequence[str], revision: str | None
) -> None:
    """Write the files that record the request. Names are not masked, because a resumed run needs them."""
    request, configuration = loaded.request, loaded.configuration
    results = configuration.block(storing.BLOCK, Results)
    overrides = redactor.redact_nested(request.all_overrides, keep_keys=True)
    run = {
        "format": layout.RUN_FORMAT,
        "run": directory.name,
        **request.as_json(),
        "project_phases": list(phases),
        "overrides": overrides,
        # A resumed run reads the overrides from this YAML text, because JSON does not keep all of their types.
        "overrides_text": yaml_text.dump(overrides),
        "config_file": configuration.source,
        "directory": str(Path.cwd()),
        "workspace": str(workspace) if (workspace := places.workspace()) is not None else None,
        "revision": _revision_under_test(loaded, revision),
        "configuration_revision": revision,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _VERSIONS}},
        "host": socket.gethostname(),
        "user": environ.user_name(),
        "currency": results.currency,
        "baseline": storing.is_baseline(configuration, is_from_outside=request.is_from_outside),
        "argv": redactor.redact_nested(sys.argv),
        "changes": [_change_json(change, redactor) for change in configuration.changes],
    }
    changes = "".join(f"{_change_line(change, redactor)}\n" for change in configuration.changes)
    filesystem.write_text(RunDirectory(directory).changes, changes)
    for name, value in request.note.items():
        masked = redactor.redact_nested(value, keep_keys=True)
        filesystem.write_text(directory / name, masked if isinstance(masked, str) else yaml_text.dump(masked))
    if loaded.plan is not None:
        loaded.plan.write(directory)
    session.write_configuration(configuration, RunDirectory(directory).configuration, redactor)
    # This file is written last: if it exists, so do the other files that a resumed run reads.
    filesystem.write_json(RunDirectory(directory).request, run, durable=True)


def _change_line(change: Change, redactor: Redactor) -> str:
    where = f"  ({change.location})" if change.location else ""
    return f"{change.layer}: {paths.render(change.path)} --> {redactor(repr(change.value))}{where}"


def _change_json(change: Change, redactor: Redactor) -> dict[str, str]:
    """Return a change in the form of `run.json`: values as one line of YAML, locations as `file:line`."""
    return {
        "path": paths.render(change.path),
        "value": redactor(yaml_text.dump_line(change.value)),
        "by": change.layer,
        "where": str(change.location or ""),
        "replaced": redactor(yaml_text.dump_line(change.replaced)),
        "replaced_where": str(change.replaced_location or ""),
    }


def _run_phases(
    part: SessionPhases, top: Step, reservation: Reservation, outcomes: dict[str, Outcome]
) -> list[BaseException]:
    """Acquire the clusters, run the phases, delete the remote resources, and return the errors in order.

    `outcomes` receives the outcome of each phase. If the run does not end with this session, the remote resources and
    the leases are kept for the next one.
    """
    phases = part.phases
    errors: list[BaseException] = []
    try:
        work = session.current()
        reservation.acquire(work, top)
        if work.clusters and work.plan is not None and projects.TESTS in phases:
            targets.verify(work.plan.targets, work.clusters, work.plan.workloads())
    except BaseException as error:  # noqa: BLE001  # `of_session` reports the error
        errors.append(error)
        _cancel_unadopted(top)
    if part.is_last and projects.TESTS in part.others:
        _cancel_unadopted(top)  # an earlier session was killed in its phase `test`
    if not phases and not errors:  # with other phases, the session only ends the run
        top.add(Outcome(Verdict.PASSED) if part.others else Outcome(Verdict.SKIPPED, None, _NOTHING_RAN))
    _run_each(part.phases, top, reservation, outcomes, errors)
    if part.is_last:
        errors += _delete_resources(top, reservation)
        errors += reservation.release(compare=CLEANUP in phases and not signals.cleanup_has_ended())
    else:
        reservation.suspend()
    if (signal_number := signals.first()) is not None and not any(isinstance(error, Interrupted) for error in errors):
        errors.append(Interrupted(signal_number))
    if count := processes.end_marked(top.directory, keep=creation_steps(top.recorder.ledger)):
        top.recorder.record(Note("", f"processes of the run that were still running, and were ended: {count}"))
    return errors


def _run_each(
    phases: Mapping[str, Callable[[], object]],
    top: Step,
    reservation: Reservation,
    outcomes: dict[str, Outcome],
    errors: list[BaseException],
) -> None:
    """Run the phases. After an error, only `post_cleanup` runs. `outcomes` and `errors` receive what happens."""
    for name, function in phases.items():
        if signals.cleanup_has_ended() or (errors and not (name == CLEANUP and reservation.is_held)):
            continue
        if name == projects.PRE_CLEANUP and reservation.has_only_new_clusters:
            top.recorder.record(Note("", f"the phase {name} is not needed, because the run creates all its clusters"))
            top.add(Outcome(Verdict.PASSED))
            continue
        try:
            outcomes[name] = _run_phase(name, function, reservation)
        except BaseException as error:  # noqa: BLE001  # `of_session` reports the errors
            errors.append(error)
            _cancel_unadopted(top)
            processes.end_marked(top.directory, keep=creation_steps(top.recorder.ledger))


def _delete_resources(top: Step, reservation: Reservation) -> list[BaseException]:
    """Delete the remote resources of the run, and return the errors."""
    errors: list[BaseException] = []
    lost_servers = reservation.lost_servers
    find = partial(leftovers.labelled, session.current().configuration)
    if not signals.cleanup_has_ended():
        try:
            remote_resources.delete_at_end(top, find, lost_servers=lost_servers)
        except BaseException as error:  # noqa: BLE001  # the caller reports the error
            errors.append(error)
    if signals.cleanup_has_ended() and (entries := remote_resources.to_delete(top, lost_servers=lost_servers)):
        errors.append(remote_resources.NotDeleted(len(entries)))
    return errors


def _cancel_unadopted(top: Step) -> None:
    """Cancel the workloads that a resumed run has not adopted because its matrix did not run.

    Without the cancellation, the cells would be recorded as failed when the run kills their processes or pods.
    """
    work = session.current()
    if work.plan is None or work.matrix_has_run or signals.cleanup_has_ended():
        return
    try:
        unattended_attempts.end(work.plan, top.recorder, work.clusters)
    except ToolboxError as error:  # this error must not prevent the cleanup and the release of the clusters
        top.recorder.record(Note("", f"workloads may still be running: {describe(error)}"))


def _run_phase(name: str, function: Callable[[], object], reservation: Reservation) -> Outcome:
    failure = (Verdict.FAILED, Cause.PRODUCT) if name == projects.TESTS else (Verdict.ERROR, Cause.INFRASTRUCTURE)
    # A signal does not interrupt `post_cleanup`.
    signal_context = contextlib.nullcontext() if name == CLEANUP else signals.exposed()
    parent = session.step()
    located = parent.locate(name, StepKind.PHASE)
    # A phase that changed the configuration runs again, because the resumed run needs the changes.
    must_repeat = located.earlier is not None and located.earlier.changed_configuration
    if name != CLEANUP and not must_repeat and parent.replayed(located):
        return Outcome(Verdict.PASSED)
    with cancellation.opened_by_process() as scope, contextlib.ExitStack() as stack:
        try:
            step = stack.enter_context(steps.opened(name, kind=StepKind.PHASE, failure=failure, located=located))
        except Exception:
            # The step cannot be recorded, for example because the disk is full: clean up all the same.
            if name == CLEANUP:
                function()
            raise
        try:
            # `entered_by_process` also makes the phase the current step in threads that the project itself starts.
            with steps.entered_by_process(step), signal_context, reservation.guarding(scope):
                function()
        finally:
            scope.cancel(f"the phase {name} has ended")
            step.recorder.sweep(step.identity, step.directory)
    return step.outcome() or Outcome(Verdict.PASSED)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _revision_under_test(loaded: PreparedRun, revision: str | None) -> str | None:
    """Return the revision that the project tests: `results.revision`, or else that of the configuration."""
    return loaded.configuration.block(storing.BLOCK, Results).revision or revision
