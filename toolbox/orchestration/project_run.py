"""One run of a project: its directory, its phases in their order, its end.

`post_cleanup` runs whatever ended the phases before it. The first error is the one that is reported; what goes
wrong afterwards is added to it.
"""

from __future__ import annotations

import contextlib
import getpass
import platform
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from toolbox.config import paths
from toolbox.config.configuration import Configuration, Request
from toolbox.config.document import Change
from toolbox.model.errors import Cancelled, Interrupted, describe, exit_code_of, outcome_of
from toolbox.model.events import Note, RunFinished, RunStarted, StepKind
from toolbox.model.verdicts import Cause, Verdict, exit_code
from toolbox.orchestration import projects, session
from toolbox.orchestration.projects import ProjectFiles
from toolbox.orchestration.session import Session
from toolbox.runs import directories, steps, summary
from toolbox.runs.journal import Journal
from toolbox.runs.recorder import Listener, Recorder
from toolbox.runs.steps import Outcome, Step
from toolbox.runs.summary import RunSummary
from toolbox.system import cancellation, environ, files, processes, signals
from toolbox.system.redaction import Redactor

_TESTS: Final = "test"
_CLEANUP: Final = "post_cleanup"
_NOTHING: Final = f"nothing ran: the orchestration has none of the functions {', '.join(projects.PHASES)}"
_VERSIONS: Final = ("topgallant", "ansible-core", "ansible-runner")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is asked of a run.

    Args:
        phases: the phases to run; all that the project has when left out.
        artifact_dir: where runs go; `$ARTIFACT_DIR` or `artifacts` when left out.
        note: files to keep in the run directory, by name: what a comment asked, say.
    """

    project: str
    presets: Sequence[str] = ()
    override_files: Sequence[Path] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    overrides_source: str = "--overrides"
    phases: Sequence[str] | None = None
    artifact_dir: Path | None = None
    note: Mapping[str, str] = field(default_factory=dict)


def load(request: RunRequest) -> tuple[ProjectFiles, Configuration]:
    """Find a project and put its configuration together.

    Raises:
        UsageError: the project, a preset or an override is wrong.
    """
    found = projects.find(request.project)
    configuration = Configuration.load(
        Request(
            found.config,
            tuple(request.presets),
            tuple(request.override_files),
            request.overrides,
            (found.contracts,),
            request.overrides_source,
        )
    )
    return found, configuration


def execute(request: RunRequest, listeners: Sequence[Listener], redactor: Redactor) -> tuple[RunSummary, int]:
    """Run a project, and return the summary of the run and the exit code of the command line.

    Raises:
        UsageError: something is wrong with what was asked. Nothing was started, and there is no run directory.
    """
    found, configuration = load(request)
    configuration.check()
    configuration.check_secrets()
    phases = projects.select(projects.phases(found), list(request.phases) if request.phases is not None else None)
    redactor.add(configuration.secret_values())
    directory = _create(request)
    with signals.shielded(), Journal(directory, redactor) as journal:
        recorder = Recorder(directory, redactor, listeners, journal)
        config_file = _write_request(request, directory, configuration, redactor)
        started = RunStarted(directory.name, request.project, str(directory), tuple(request.presets))
        recorder.record(started)
        top = Step(directory, recorder, request.project)
        work = Session(request.project, configuration, found.command_args, config_file)
        with session.opened(work, top):
            finished = _finish(top, _run_phases(phases, top))
        recorder.record(finished)
    return summary.write(directory), finished.exit_code


def _create(request: RunRequest) -> Path:
    base = request.artifact_dir or environ.get_path(environ.ARTIFACT_DIR) or session.DEFAULT_ARTIFACTS
    runs = session.artifact_directory(base / request.project)
    while True:
        directory = runs / directories.run_id()
        try:
            directory.mkdir(mode=files.PRIVATE_DIRECTORY)
        except FileExistsError:
            continue
        return directory


def _write_request(request: RunRequest, directory: Path, configuration: Configuration, redactor: Redactor) -> Path:
    run = {
        "run": directory.name,
        "project": request.project,
        "presets": list(request.presets),
        "override_files": [str(file) for file in request.override_files],
        "overrides": dict(request.overrides),
        "phases": list(request.phases) if request.phases is not None else None,
        "config_file": configuration.source,
        "revision": _revision(Path(configuration.source).parent, directory),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _VERSIONS}},
        "host": socket.gethostname(),
        "user": _user(),
        "argv": sys.argv,
    }
    files.write_json(directory / "run.json", redactor.texts(run))
    changes = "".join(f"{_applied(change)}\n" for change in configuration.changes)
    files.write_text(directory / "presets_applied", redactor(changes))
    for name, text in request.note.items():
        files.write_text(directory / name, redactor(text))
    return session.write_configuration(configuration, directory / "config.yaml", redactor)


def _applied(change: Change) -> str:
    where = f"  ({change.location})" if change.location else ""
    return f"{change.layer}: {paths.render(change.path)} --> {change.value!r}{where}"


def _run_phases(phases: Mapping[str, Callable[[], object]], top: Step) -> list[BaseException]:
    errors: list[BaseException] = []
    for name, function in phases.items():
        if errors and name != _CLEANUP:
            continue
        try:
            _run_phase(name, function)
        except BaseException as error:  # noqa: BLE001  # each becomes the end of the run, in order
            errors.append(error)
            processes.end_marked(top.directory)
    if (number := signals.first()) is not None and not any(isinstance(error, Interrupted) for error in errors):
        errors.append(Interrupted(number))
    if left := processes.end_marked(top.directory):
        top.recorder.record(Note("", f"{left} processes were left running, and were ended"))
    return errors


def _run_phase(name: str, function: Callable[[], object]) -> None:
    failure = (Verdict.FAILED, Cause.PRODUCT) if name == _TESTS else (Verdict.ERROR, Cause.INFRASTRUCTURE)
    # A signal does not stop the cleanup, which is what a signal asks for.
    gate = contextlib.nullcontext() if name == _CLEANUP else signals.exposed()
    with cancellation.opened_by_process() as scope, contextlib.ExitStack() as stack:
        try:
            step = stack.enter_context(steps.opened(name, kind=StepKind.PHASE, failure=failure))
        except Exception:
            # The step cannot be recorded (a full disk): what is to be cleaned up matters more than its record.
            if name == _CLEANUP:
                function()
            raise
        try:
            # Threads that the project starts by itself belong to the phase too.
            with steps.entered_by_process(step), gate:
                function()
        finally:
            scope.cancel(f"the phase {name} has ended")
            steps.sweep(step)


def _finish(top: Step, errors: Sequence[BaseException]) -> RunFinished:
    """Return how the run ended: as the first of its phases that did not pass. A later error is added to that."""
    seconds = round(time.monotonic() - top.started, 3)
    if not errors:
        outcome = top.outcome() or Outcome(Verdict.SKIPPED, None, _NOTHING)
        return RunFinished(outcome.verdict, outcome.cause, exit_code(outcome.verdict), outcome.message, seconds)
    first, *others = sorted(errors, key=lambda error: not isinstance(error, Interrupted))
    message = top.recorder.redactor("\n".join([describe(first), *(f"and then: {describe(error)}" for error in others)]))
    if isinstance(first, Cancelled):
        return RunFinished(Verdict.CANCELLED, Cause.INTERRUPTED, exit_code_of(first), message, seconds)
    outcome = top.first_failure() or Outcome(*outcome_of(first))
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
