"""Implements `inference load`: reads its options, runs the load, and shows the figures."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from toolbox.commands import _command_steps
from toolbox.inference import case_files, load_results, load_table, standalone_load
from toolbox.inference.load_steps import Load
from toolbox.inference.local_worker import RunningServer
from toolbox.inference.standalone_load import StandaloneLoad
from toolbox.model.errors import ConfigurationError, ConfigurationFaults, StepError, UsageError
from toolbox.model.events import Note
from toolbox.model.foreign_text import printable_json
from toolbox.model.text import without_kind
from toolbox.model.verdicts import Cause, ExitCode, Verdict
from toolbox.reports.terminal import live_view
from toolbox.system import environ, extras, redaction

_OPTION: Final = re.compile(r"`(\w+)`")


def prepared(
    server: RunningServer, cases: Sequence[Path], *, fields: Mapping[str, Any], timeout: float
) -> StandaloneLoad:
    """Return the load that the options describe.

    Args:
        fields: the fields of the load; those that are None are left out.
        timeout: the time in seconds in which an answer must be complete.

    Raises:
        UsageError: an option is wrong, or a library is missing. The message names every wrong option.
        ConfigurationError: a case file is broken.
    """
    faults = server.faults()
    if server.url is not None and server.grpc is not None:
        faults.append("write either --url or --grpc: a load measures one protocol")
    load = None
    try:
        load = Load.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        faults += [_fault(fault["loc"], fault["msg"]) for fault in error.errors()]
    if faults or load is None:
        raise UsageError(
            "\n  ".join(["inference load:", *faults]) if len(faults) > 1 else f"inference load: {faults[0]}"
        )
    extras.require("inference", "inference load")
    return StandaloneLoad.of(server, load, _read(cases), timeout=timeout)


def run_and_show(load: StandaloneLoad, *, artifact_dir: Path | None, as_json: bool) -> int:
    """Run a load, show the figures of its steps, and return the exit code. An interrupted load shows its first steps.

    Args:
        as_json: print the figures as JSON on stdout, and all other output on stderr.
    """
    redaction.current().add(filter(None, [load.server.api_key]))
    stream = sys.stderr if as_json else sys.stdout
    directory = None
    try:
        with _command_steps.opened("inference__load", artifacts=artifact_dir, stream=stream) as step:
            directory = step.directory
            load.run(directory, say=lambda line: step.recorder.record(Note(step.identity, line)))
            _require_answers(directory)
    finally:
        if directory is not None:
            _show(directory, as_json=as_json)
    return ExitCode.PASSED


def _read(files: Sequence[Path]) -> list[case_files.Case]:
    cases: list[case_files.Case] = []
    faults: list[str] = []
    for file in files:
        try:
            cases += case_files.load(environ.expanded(file), shown=str(file))
        except ConfigurationError as error:
            faults += error.faults
    if faults:
        raise ConfigurationFaults(faults)
    return cases


def _fault(path: tuple[int | str, ...], message: str) -> str:
    """Return a fault of the load with the names of options in place of the names of fields."""
    text = _OPTION.sub(r"--\1", without_kind(message))
    if not path:
        return text
    option, *rest = path
    return f"--{option}{''.join(f'[{part}]' if isinstance(part, int) else f'.{part}' for part in rest)}: {text}"


def _require_answers(directory: Path) -> None:
    """Raise if a step has no figures, because no request of it was answered."""
    try:
        results = load_results.read(directory)
    except ValueError as error:
        raise StepError(str(error), directory=directory) from None
    if empty := [step.name for step in results.steps if step.requests == step.errors + step.refused]:
        message = f"no request was answered in {', '.join(empty)}"
        raise StepError(message, verdict=Verdict.FAILED, cause=Cause.PRODUCT, directory=directory)


def _show(directory: Path, *, as_json: bool) -> None:
    """Show the steps that have ended, if there are any."""
    try:
        results = load_results.read(directory)
    except ValueError:  # the load ended before its first step, or `_require_answers` has raised
        return
    files = {"results": directory / load_results.FILE, "samples": directory / standalone_load.SAMPLES}
    if as_json:
        content = {**results.model_dump(mode="json"), "files": {name: str(file) for name, file in files.items()}}
        print(printable_json(redaction.current()(json.dumps(content, indent=2, ensure_ascii=False))))
    elif results.steps:
        with live_view.view() as view:
            view.line("")
            load_table.show(results, view.console)
            for name, file in files.items():
                view.line(f"{name}: {file}")
