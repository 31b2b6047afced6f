"""The layout of a run directory. No other module of the orchestrator knows its file names or builds its paths.

    artifacts/PROJECT/RUN/                      `RunDirectory`
      journal.jsonl  ledger.jsonl  run.json  ...
      000__prepare/000__host__setup/            `StepDirectory`: a phase, a command or a cell, with a number
      001__test/000__model=small/attempt-1/     `AttemptDirectory`: written by the agent or a backend
      .targets/NAME                             the mark of the processes that serve a target; no file has this path

The names of the files that the agent writes come from `toolbox.ground.kit.attempt_files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, overload

from toolbox.ground.kit.attempt_files import EXIT_CODE, LOCK, OUTCOME, RESULTS, SOURCES, STARTED, STREAMS, log_name
from toolbox.ground.model.errors import UsageError
from toolbox.ground.system import filesystem, places


def attempt_name(number: int) -> str:
    """Return the name of the directory of an attempt in the directory of its cell."""
    return f"attempt-{number}"


class _Entry:
    """A file or folder: `RunDirectory(path).journal` returns its path, and `RunDirectory.journal` its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, directory: None, kind: type[object]) -> str: ...
    @overload
    def __get__(self, directory: _Directory, kind: type[object]) -> Path: ...
    def __get__(self, directory: _Directory | None, kind: type[object]) -> str | Path:
        return self._name if directory is None else directory.path / self._name


@dataclass(frozen=True, slots=True)
class _Directory:
    path: Path


@dataclass(frozen=True, slots=True)
class AttemptDirectory(_Directory):
    """The directory of an attempt.

    Args:
        outcome: the file that says how the workload ended.
        exit_code: the file with the exit code; the agent writes this file last.
        sources: the files that were sent with the workload.
        results: the working directory of the workload, with the files that the workload left.
        archive: the archive of the collected files, until it has been extracted.
        notebooks: the executed notebooks as HTML and PDF, which reports make from files of `results`.
    """

    stdout = _Entry(log_name("stdout"))
    stderr = _Entry(log_name("stderr"))
    outcome = _Entry(OUTCOME)
    exit_code = _Entry(EXIT_CODE)
    started = _Entry(STARTED)
    lock = _Entry(LOCK)
    sources = _Entry(SOURCES)
    results = _Entry(RESULTS)
    archive = _Entry(".collected.tar")
    notebooks = _Entry("notebooks")

    def log(self, stream: str) -> Path:
        """Return the log of a stream of the workload."""
        return self.path / log_name(stream)

    def logs(self) -> dict[str, Path]:
        """Return the logs of the workload, by stream."""
        return {stream: self.log(stream) for stream in STREAMS}

    def host(self, index: int) -> AttemptDirectory:
        """Return the directory for the files of one host. The first host uses the directory of the attempt itself."""
        return self if index == 0 else AttemptDirectory(self.path / "hosts" / str(index))

    @property
    def first_host(self) -> AttemptDirectory:
        """The directory for the outcome of the first host, if it is not the outcome of the attempt."""
        return AttemptDirectory(self.path / "hosts" / "0")


@dataclass(frozen=True, slots=True)
class StepDirectory(_Directory):
    """The directory of a phase, a toolbox command or a cell.

    Args:
        record: what the step is and how it ended.
        failure: why the step did not pass.
        checks: the judgements of checks that the orchestration calls.
        program_log: the output of the programs that the orchestration runs.
        command: the command line of a toolbox command.
        sources: the files that a role rendered.
        state: the files that a role collected.
    """

    record = _Entry("step.json")
    failure = _Entry("FAILURE")
    settings = _Entry("settings.yaml")
    checks = _Entry("checks.json")
    program_log = _Entry("run.log")
    command = _Entry("_python.cmd")
    arguments = _Entry("_python.args.yaml")
    play = _Entry("_ansible.play.yaml")
    role_log = _Entry("_ansible.log")
    role_events = _Entry("_ansible.events.jsonl")
    sources = _Entry(SOURCES)
    state = _Entry("artifacts")

    def attempt(self, number: int) -> AttemptDirectory:
        """Return the directory of an attempt of a cell."""
        return AttemptDirectory(self.path / attempt_name(number))


@dataclass(frozen=True, slots=True)
class RunDirectory(_Directory):
    """The directory of a run.

    Args:
        request: the request of the run. This file is written after all other files that a resumed run needs.
        changes: the changes that presets and overrides made to the configuration.
        overrides: the overrides that a comment on a pull request contained.
        owners: the directory of the pages of the owners of cells, whose names `owner_pages` returns.
        since_last_run: the comparison with earlier runs in the store, made when the run ended.
        targets: the directory of the paths that `target` returns.
    """

    journal = _Entry("journal.jsonl")
    ledger = _Entry("ledger.jsonl")
    request = _Entry("run.json")
    configuration = _Entry("config.yaml")
    changes = _Entry("presets_applied")
    overrides = _Entry("variable_overrides.yaml")
    plan = _Entry("plan.json")
    summary = _Entry("summary.json")
    junit = _Entry("junit.xml")
    html = _Entry("report.html")
    since_last_run = _Entry("since_last_run.json")
    owners = _Entry("owners")
    targets = _Entry(".targets")

    def step(self, identity: str) -> StepDirectory:
        """Return the directory of a step."""
        return StepDirectory(self.path / identity)

    def attempt(self, step: str, number: int) -> AttemptDirectory:
        """Return the directory of an attempt of a cell."""
        return self.step(step).attempt(number)

    def target(self, name: str) -> Path:
        """Return the path that identifies the processes that serve a target. No file has this path."""
        return self.targets / name

    def read_request(self) -> dict[str, Any]:
        """Return the contents of `run.json`; empty if the file is missing or damaged."""
        return _read_object(self.request)

    def read_plan(self) -> dict[str, Any]:
        """Return the contents of `plan.json`; empty if the file is missing or damaged."""
        return _read_object(self.plan)


def _read_object(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        content: object = filesystem.read_json(file)
        return content if isinstance(content, dict) else {}
    return {}


CLEANUP: Final = "post_cleanup"
"""The name of the last phase of a run, which runs even if the other phases fail."""
DELETION: Final = "delete_resources"
"""The name of the top-level step that deletes the remote resources of a run at its end."""
RUN_FORMAT: Final = 1
"""The format of the records in a run directory. A change that makes this version misread a record increments it."""
_NUMBERS: Final = ".numbers"
_ALPHABET: Final = string.digits + string.ascii_lowercase  # in the order of the sorted characters
_DIGEST: Final = 16  # hexadecimal digits at the end of the file name of an owner whose name is not unique
_WITH_DIGEST = re.compile(r"-[0-9a-fA-F]{16}$")
_STEM: Final = 40  # characters before such a digest
_LONGEST_NAME: Final = 120  # bytes, of the 255 that a file system allows
_LONGEST_PART: Final = 255  # bytes
_LONGEST_PATH: Final = 2000  # characters of the path of a step, of the 4,096 bytes that a system call takes
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_ATTEMPT = re.compile(r"attempt-\d+")
# `Recorder.sweep` must not change these files: programs read them, and a secret may be equal to a name in them. Their
# texts are already masked when they are written.
_RECORDS: Final = frozenset(
    {
        *(StepDirectory.record, StepDirectory.failure, StepDirectory.settings, StepDirectory.checks),
        *(AttemptDirectory.outcome, AttemptDirectory.exit_code, AttemptDirectory.started),
    }
)
_DIRECTORY = re.compile(r"(?P<number>\d{3,})__(?P<name>.+)")


def runs(artifacts: Path) -> list[Path]:
    """Return the directories of all runs below a directory of artifacts, oldest first."""
    return sorted((file.parent for file in artifacts.glob(f"*/*/{RunDirectory.journal}")), key=lambda run: run.name)


def newest_run() -> Path:
    """Return the directory of the newest run in the directory of artifacts.

    Raises:
        UsageError: there is no run.
    """
    base = places.artifacts()
    if not (found := runs(base)):
        raise UsageError(f"{base} has no runs: give the directory of a run")
    return found[-1]


def runs_below(directory: Path) -> list[Path]:
    """Return the directories of runs in a directory of artifacts, or in several such directories beside one another.

    The directory of a run itself is returned as the only one.
    """
    if RunDirectory(directory).journal.exists():
        return [directory]
    return [*runs(directory), *(run for folder in sorted(directory.glob("*/")) for run in runs(folder))]


def run_id(now: datetime | None = None) -> str:
    """Return a name for a new run: the time in UTC, `20261121-011343-0h2s`. Names sort in the order of their times.

    The last four characters are the microsecond in base 36.
    """
    now = now or datetime.now(UTC)
    tail, rest = "", now.microsecond
    for _ in range(4):
        rest, digit = divmod(rest, len(_ALPHABET))
        tail = _ALPHABET[digit] + tail
    return f"{now:%Y%m%d-%H%M%S}-{tail}"


def next_directory(parent: Path, name: str, *, after: int | None = None) -> Path:
    """Create the next numbered directory in `parent`: `003__name`.

    The number is reserved by creating `.numbers/NUMBER`, which is atomic: two threads or processes never get the same
    number, even for different names.

    Args:
        after: a reserved number: the search for a free number begins after this number. None to begin with the count
            of reserved numbers.
    """
    numbers = parent / _NUMBERS
    number = sum(1 for _ in filesystem.make_directory(numbers).iterdir()) if after is None else after + 1
    while True:
        try:
            (numbers / f"{number:03d}").mkdir(mode=filesystem.PRIVATE_DIRECTORY)
        except FileExistsError:
            number += 1
        except FileNotFoundError:
            filesystem.make_directory(numbers)
        else:
            break
    return filesystem.make_directory(parent / f"{number:03d}__{safe_name(name)}")


def reserve(root: Path, steps: Iterable[str]) -> None:
    """Reserve the numbers of the steps in a journal again: a power cut may have removed the reservations.

    Args:
        steps: the directories of the steps, relative to `root`.
    """
    for step in steps:
        parent, _, name = step.rpartition("/")
        if (match := _DIRECTORY.fullmatch(name)) is not None:
            filesystem.make_directory(root / parent / _NUMBERS / match["number"])


def number_of(name: str) -> int:
    """Return the number in the name of a numbered directory."""
    return int(name.partition("__")[0])


def owner_pages(owners: Iterable[str]) -> dict[str, str]:
    """Return the file name of the page of each owner: `ada.html`.

    Two owners never have the same file, also on a file system that ignores case. A name that is not unique after
    unsafe characters have been replaced gets a digest of the whole name.
    """
    stems = {owner: safe_name(owner, empty="owner") for owner in dict.fromkeys(owners)}
    shared = Counter(map(_folded, stems.values()))
    return {
        owner: f"{stem}.html"
        if shared[_folded(stem)] == 1 and not _WITH_DIGEST.search(stem)
        else f"{stem[:_STEM]}-{hashlib.sha256(filesystem.encode(owner)).hexdigest()[:_DIGEST]}.html"
        for owner, stem in stems.items()
    }


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def safe_name(name: str, *, empty: str = "step") -> str:
    """Return a name for a file or directory: not too long, and without separators and control characters.

    Args:
        empty: the name if no character remains.
    """
    cleaned = re.sub(r"[^\w.,=@+-]+", "_", name).strip("._") or empty
    return cleaned.encode()[:_LONGEST_NAME].decode(errors="ignore")


def is_record(file: Path) -> bool:
    """Return whether Topgallant itself wrote a file, given relative to the run directory."""
    return file.name in _RECORDS and all(
        _DIRECTORY.fullmatch(part) or _ATTEMPT.fullmatch(part) for part in file.parts[:-1]
    )


def is_step(identity: str) -> bool:
    """Return whether a text is a path that consists of numbered directories, as the identity of a step does."""
    return all(_DIRECTORY.fullmatch(part) for part in identity.split("/"))


def is_plain_path(path: str) -> bool:
    """Return whether a text can be the path of a step: relative, without `..`, and possible on a file system."""
    parts = path.split("/")
    return (
        len(path) <= _LONGEST_PATH
        and not _UNFIT.search(path)
        and all(part and part != ".." and len(part.encode()) <= _LONGEST_PART for part in parts)
    )


def renumbered(name: str, number: int) -> str:
    """Return the name of a numbered directory with another number."""
    return f"{number:03d}__{name.partition('__')[2]}"


def steps(parent: Path) -> list[Path]:
    """Return the numbered directories in `parent`, in the order of their numbers."""
    numbered = [(match, path) for path in parent.iterdir() if (match := _DIRECTORY.fullmatch(path.name))]
    return [path for match, path in sorted(numbered, key=lambda item: int(item[0]["number"]))]
