"""Records the answers of a server for `inference record_cases`: sends the requests, and writes the case file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from toolbox.features.inference import answer_records, case_files, local_worker
from toolbox.features.inference.answer_records import AnswerRecord
from toolbox.features.inference.client import worker_results
from toolbox.features.inference.extra import EXTRA
from toolbox.features.inference.local_worker import RunningServer, WorkerEnd
from toolbox.features.inference.recorded_cases import CaseFile, Recorded
from toolbox.features.inference.recorded_responses import Keys
from toolbox.ground.model.errors import StepError, ToolboxError, UsageError
from toolbox.ground.model.foreign_text import printable
from toolbox.ground.model.text import counted, first_of, truncate
from toolbox.ground.system import environ, extras, filesystem, redaction
from toolbox.records.runs.evidence_files import RecordFault
from toolbox.records.runs.layout import AttemptDirectory

_MAX_NAMED: Final = 20  # cases in a message


def record(
    server: RunningServer,
    cases: Path,
    output: Path,
    *,
    keys: Keys | None,
    timeout: float,
    may_replace: bool,
    say: Callable[[str], object],
) -> list[str]:
    """Send the requests of a case file to a server, write the file with the answers, and return a report in lines.

    After an error, nothing is written.

    Args:
        keys: how the fields of new responses are written; None for the style of the file.
        timeout: the time in seconds in which an answer must be complete.
        may_replace: whether the output may exist.
        say: called with each line that the worker prints.

    Raises:
        UsageError: an option or a request is wrong.
        StepError: a case has no answer that a case file could expect.
    """
    if faults := server.faults():
        raise UsageError("\n  ".join(["inference record_cases:", *faults]))
    file, target = environ.expanded(cases), environ.expanded(output)
    _refuse_target(target, output, may_replace=may_replace)
    extras.require(EXTRA, "inference record_cases")
    source = CaseFile.read(file, shown=str(cases), keys=keys)
    requests = source.requests(server.protocols)
    redaction.current().add([server.api_key] if server.api_key is not None else [])
    with tempfile.TemporaryDirectory(prefix="topgallant-") as scratch:
        settings = {"server": server.settings(timeout), "timeout": timeout}
        end = local_worker.run(Path(scratch), settings, requests, say=say)
        answers, faults = _read(AttemptDirectory(Path(scratch)).results)
    if (error := end.error()) is not None and not answers:
        raise error if isinstance(error, UsageError) else StepError(str(error))
    recorded = source.recorded(answers, str(output))
    if faults := [*recorded.faults, *faults] or _size_faults(recorded, output):
        raise _error(faults, len(source.cases), end, output)
    _refuse_target(target, output, may_replace=may_replace)
    try:
        filesystem.write_text(target, recorded.text)
    except OSError as error:
        raise UsageError(f"--output: {output} cannot be written: {error.strerror}") from error
    return _report(recorded, output)


def _refuse_target(target: Path, output: Path, *, may_replace: bool) -> None:
    # a directory, a device such as /dev/stdout, or a link to a file that does not exist
    is_other = (target.exists() or target.is_symlink()) and not target.is_file()
    if is_other or not target.parent.is_dir():
        raise UsageError(f"--output: {output} must be a file in an existing directory")
    if target.exists() and not may_replace:
        raise UsageError(f"--output: {output} exists: choose another file, or add --force")


def _read(directory: Path) -> tuple[list[AnswerRecord], list[str]]:
    """Return the answers, and why lines are not answers."""
    answers: list[AnswerRecord] = []
    faults: list[str] = []
    try:
        for answer in answer_records.read(directory, worker_results.ANSWERS):
            if isinstance(answer, RecordFault):
                faults.append(str(answer))
            else:
                answers.append(answer)
    except RecordFault as fault:
        faults.append(str(fault))
    return answers, faults


def _size_faults(recorded: Recorded, output: Path) -> list[str]:
    """Return why the new file could not be read as a whole."""
    if (size := len(recorded.text.encode())) > case_files.LARGEST:
        return [f"the new file would have {size:,} bytes, more than {case_files.LARGEST:,}: split the case file"]
    try:
        case_files.parse(recorded.text, source=str(output), suite=output.stem)
    except UsageError as error:
        return [f"the new file could not be read: {error}: split the case file"]
    return []


def _error(faults: Sequence[str], cases: int, end: WorkerEnd, output: Path) -> ToolboxError:
    lines = [truncate(" ".join(printable(fault).split()), 300) for fault in faults]
    heading = f"{counted(len(faults), 'fault')} in the answers to {counted(cases, 'case')}: {output} was not written"
    message = "\n  ".join([heading, *first_of(lines, _MAX_NAMED)])
    return UsageError(message) if end.status == worker_results.INVALID_SETTINGS else StepError(message)


def _report(recorded: Recorded, output: Path) -> list[str]:
    count = counted(len(recorded.entries), "case")
    lines = [*first_of(recorded.errors, _MAX_NAMED), *first_of(recorded.remarks, _MAX_NAMED)]
    return [
        printable(f"{count} recorded in {output}, {len(recorded.errors)} of them with an error"),
        *(f"  {truncate(' '.join(printable(line).split()), 300)}" for line in lines),
    ]
