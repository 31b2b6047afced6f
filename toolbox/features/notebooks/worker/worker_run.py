"""The worker: prepares the runtime, runs its tests one after the other, and records their results.

It runs in the working directory of the attempt, and writes there `results.jsonl`, `notebook_worker.json` and
`environment.log`. A test that failed does not change the exit status.

    0    each test has a result
    2    the settings are invalid, or the libraries of the worker cannot be installed
    74   the results cannot be written
    75   the package index or the Jupyter server does not answer, so that no test could run
    130, 143   a signal ended the worker
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TextIO

from toolbox.ground.kit import process_tree, safe_files, streams
from toolbox.ground.kit.exit_codes import SIGNALLED

from . import (
    check_execution,
    environments,
    execution,
    local_place,
    own_libraries,
    requirement_lines,
)
from .environment_log import EnvironmentLog
from .environments import Environment, EnvironmentStore
from .execution_place import Place, PlaceError
from .failure_texts import one_line
from .notebook_results import (
    CANNOT_WRITE,
    ENVIRONMENT_LOG,
    INVALID_SETTINGS,
    REPORT,
    RESULTS,
    TESTED,
    UNAVAILABLE,
    Fault,
    TestKind,
    TestOutcome,
    TestResult,
    WorkerReport,
)
from .notebook_settings import CheckSettings, NotebookSettings, Settings

_LIBRARIES: Final = ("papermill", "nbclient", "nbformat", "jupyter_client", "nvidia-ml-py")


def main(arguments: Sequence[str]) -> int:
    """Run the worker with the path of its settings, and return its exit status."""
    streams.print_escapes()
    if len(arguments) != 1:
        print("usage: notebook_worker SETTINGS.json", file=sys.stderr)
        return INVALID_SETTINGS
    path = Path(arguments[0]).absolute()
    try:
        settings = Settings.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        return _say_error(f"{path.name}: {error}", INVALID_SETTINGS)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    process_tree.adopt_orphans()
    try:
        return WorkerRun(settings, sources=path.parent, directory=Path.cwd()).run()
    except OSError as error:
        return _say_error(f"the results cannot be written: {error.strerror or error}", CANNOT_WRITE)


def _end(number: int, frame: object) -> None:
    """End the worker, and all kernels and programs that it has started."""
    del frame
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the shutdown of the kernels
    raise SystemExit(SIGNALLED + number)


@dataclass
class WorkerRun:
    """The work of one attempt.

    Args:
        sources: the directory to which the files of the settings are relative.
        directory: where the results are written.
    """

    settings: Settings
    sources: Path
    directory: Path
    report: WorkerReport = field(default_factory=lambda: WorkerReport(_versions()))

    def run(self) -> int:
        """Run all tests, and return the exit status."""
        store = EnvironmentStore(
            environments.directory(self.settings.environments),
            EnvironmentLog(self.directory / ENVIRONMENT_LOG, _say),
            self.settings.environment_timeout,
            own_libraries.started(),
        )
        self._write_report()
        try:
            own_libraries.ensure(store, [str(Path(__file__).parent), *sys.argv[1:]])
        except PlaceError as error:
            self._write_report(fault=f"the libraries of the worker: {error}")
            return _say_error(str(error), UNAVAILABLE if error.fault is Fault.SERVER else INVALID_SETTINGS)
        status = self._test(store)
        with suppress(OSError):  # the next worker tries again
            store.prune(self.settings.keep_days)
        return status

    def _test(self, store: EnvironmentStore) -> int:
        with ExitStack() as resources:
            try:
                place = self._place(store, resources)
            except PlaceError as error:
                self._test_without_runtime(error)
                self._write_report(fault=one_line(str(error)))
                return UNAVAILABLE if error.fault is Fault.SERVER else TESTED
            for check in self._checks():
                self._check(check, place)
            for notebook in self.settings.notebooks:
                self._execute(notebook, place)
        self._write_report(is_finished=True)
        return TESTED

    def _place(self, store: EnvironmentStore, resources: ExitStack) -> Place:
        """Return the place of the tests, with the environment of the runtime."""
        if self.settings.uses_server:
            from . import (
                server_place,
            )  # `own_libraries` may have installed jupyter_client, which this module imports, only now

            return resources.enter_context(server_place.opened(self.settings, os.environ))
        requirements = self.settings.runtime.requirements
        environment = None
        if requirements is not None:
            environment = self._environment(store, requirements, resources)
            self._write_report(environment=environment.digest, environment_seconds=environment.seconds)
        path = environment.path if environment else None
        return resources.enter_context(local_place.opened(self.settings, path, self.directory))

    def _environment(self, store: EnvironmentStore, requirements: Sequence[str], resources: ExitStack) -> Environment:
        """Prepare the environment, which is the first test."""
        test = TestResult(
            TestKind.ENVIRONMENT,
            "environment",
            TestOutcome.PASSED,
            started=time.time(),
            seconds=0.0,
            checked="the requirements of the runtime can be installed",
            expected=one_line(", ".join(line for line in requirements if line.strip())),
        )
        clock = time.monotonic()
        try:
            lines = requirement_lines.with_kernel(requirements)
            environment = resources.enter_context(store.prepared(lines, self.settings.runtime.python))
        except PlaceError as error:
            outcome = TestOutcome.ERROR if error.fault is Fault.SERVER else TestOutcome.FAILED
            message = one_line(str(error))
            seconds = time.monotonic() - clock
            self._record(replace(test, outcome=outcome, fault=error.fault, message=message, seconds=seconds))
            raise
        origin = "from the cache" if environment.seconds is None else "installed"
        found = f"{len(environment.packages)} packages, {origin}"
        self._record(replace(test, seconds=time.monotonic() - clock, found=found))
        return environment

    def _checks(self) -> list[CheckSettings]:
        """Return the checks in the order of their execution: shell checks, then Python checks."""
        return sorted(self.settings.checks, key=lambda check: check_execution.kind(check) is TestKind.PYTHON)

    def _check(self, check: CheckSettings, place: Place) -> None:
        for result in check_execution.run(check, self.sources, self.settings.promises, place):
            self._record(result)

    def _execute(self, notebook: NotebookSettings, place: Place) -> None:
        result = execution.run(
            notebook,
            place,
            sources=self.sources,
            directory=self.directory,
            limits=self.settings.limits,
            sample_seconds=self.settings.sample_seconds,
        )
        self._record(result)

    def _test_without_runtime(self, error: PlaceError) -> None:
        """Record that the tests cannot run. If the environment could not be made, the tests are skipped.

        Checks that need no environment are executed even then, except if the attempt will be repeated.
        """
        has_environment = self.settings.uses_server or bool(self.report.environment)
        is_skipped = self.settings.runtime.requirements is not None and not has_environment
        outcome, fault = (TestOutcome.SKIPPED, None) if is_skipped else (TestOutcome.ERROR, error.fault)
        message = one_line(f"the runtime could not be prepared: {error}")
        empty = TestResult(TestKind.NOTEBOOK, "", outcome, time.time(), 0.0, fault, message=message)
        is_repeated = error.fault is Fault.SERVER
        for check in self._checks():
            if is_skipped and not is_repeated and check_execution.needs_no_environment(check, self.sources):
                with local_place.opened(self.settings, None, self.directory) as place:
                    self._check(check, place)
            else:
                self._record(replace(empty, kind=check_execution.kind(check), name=check.name))
        for notebook in self.settings.notebooks:
            self._record(replace(empty, name=notebook.name))

    def _record(self, result: TestResult) -> None:
        """Append a result, and sync the file, so that the result is not lost if the worker is killed."""
        with (self.directory / RESULTS).open("ab", buffering=0) as file:
            line = f"{json.dumps(result.as_json())}\n".encode()
            if file.write(line) != len(line):
                raise OSError("the disk is full")
            os.fsync(file.fileno())
        reason = f": {result.message}" if result.message else ""
        _say(f"{result.kind.value} {result.name}: {result.outcome.value} ({result.seconds:.1f} s){reason}")

    def _write_report(self, **changes: Any) -> None:
        self.report = replace(self.report, **changes)
        content = f"{json.dumps(self.report.as_json())}\n".encode()
        safe_files.replace(str(self.directory / REPORT), content, mode=0o666)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _say_error(text: str, status: int) -> int:
    _say(f"notebook_worker: {text}", sys.stderr)
    return status


def _say(text: str, stream: TextIO | None = None) -> None:
    """Print a line, by default to stdout. The text may come from a target."""
    print(one_line(text), file=stream or sys.stdout, flush=True)
