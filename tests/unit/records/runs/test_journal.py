"""The journal has one writer and whole lines, and only a torn last line is lost in a crash."""

import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.model.events import (
    AttemptSubmitted,
    CheckJudged,
    ClusterChosen,
    ConfigurationChanged,
    JournalEvent,
    MetricMeasured,
    RunFinished,
    RunStarted,
    StepFinished,
    StepKind,
    StepStarted,
)
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system.redaction import Redactor
from toolbox.records.runs import journal
from toolbox.records.runs.journal import Journal
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.recorder import Recorder

EVENTS: list[JournalEvent] = [
    RunStarted("r", "p", "/runs/r", ("small", "fast")),
    StepStarted("000__prepare", "prepare", StepKind.PHASE, "./run_toolbox.py a b"),
    ConfigurationChanged("a.b", "'☃ \n\u2028'", "set_config"),
    CheckJudged("000__prepare", "metric", passed=False, message="too slow", cause=Cause.TIMEOUT),
    StepFinished("000__prepare", "prepare", StepKind.PHASE, Verdict.FAILED, Cause.CHECK, "why", 1.5, counts=False),
    RunFinished(Verdict.FAILED, Cause.CHECK, 1, "why", 2.0),
]


def write(directory: Path, *events: JournalEvent) -> Path:
    with Journal(directory) as opened:
        for event in events:
            opened.append(event)
    return RunDirectory(directory).journal


def read(directory: Path) -> list[JournalEvent]:
    return [entry.event for entry in journal.read(directory)]


def test_every_event_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path, *EVENTS)
    assert read(tmp_path) == EVENTS


def test_an_event_is_one_line_of_json_with_its_time(tmp_path: Path) -> None:
    lines = write(tmp_path, *EVENTS).read_text().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line)["event"] for line in lines] == [type(event).__name__ for event in EVENTS]
    times = [entry.time for entry in journal.read(tmp_path)]
    assert times == sorted(times)
    assert all(time.utcoffset() is not None for time in times)


def test_the_file_is_private(tmp_path: Path) -> None:
    assert write(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_torn_last_line_is_dropped_before_the_next_append(tmp_path: Path) -> None:
    content = write(tmp_path, *EVENTS).read_bytes()
    start = content.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(content)):
        RunDirectory(tmp_path).journal.write_bytes(content[:cut])
        is_whole = cut == len(content) - 1  # the line lacks only its line end
        assert read(tmp_path) == EVENTS[: 6 if is_whole else 5], cut
        write(tmp_path, EVENTS[0])
        assert read(tmp_path) == [*EVENTS[: 6 if is_whole else 5], EVENTS[0]], cut


TIME = '"time": "2026-01-01T00:00:00+00:00"'
DAMAGED = {
    f'{{{TIME}, "event": "MadeUpLater", "x": 1}}': "the event 'MadeUpLater' is not known to this version",
    f'{{{TIME}, "event": "StepStarted"}}': "StepStarted: `step, name, kind` is missing",
    f'{{{TIME}, "event": ["StepStarted"]}}': "the event ['StepStarted'] is not known to this version",
    f'{{{TIME}, "event": "StepStarted", "step": "s", "name": "n", "kind": "splendid"}}': "`kind` is 'splendid'",
    f'{{{TIME}, "event": "AttemptReleased", "step": 7, "attempt": 1}}': "AttemptReleased: `step` is 7",
    f'{{{TIME}, "event": "AttemptReleased", "step": "s", "attempt": true}}': "AttemptReleased: `attempt` is true",
    f'{{{TIME}, "event": "RunStarted", "run": "r", "project": "p", "directory": "d", "presets": "ab"}}': "`presets`",
    '{"time": "yesterday", "event": "ConfigurationChanged", "path": "a"}': "the time of the event is 'yesterday'",
    '{"time": "2026-01-01T00:00:00", "event": "ConfigurationChanged", "path": "a"}': "the time of the event is '20",
    '{"event": "ConfigurationChanged", "path": "a", "value": "1", "by": "x"}': "the time of the event is null",
    "[]": "the line is not a JSON object",
    "null": "the line is not a JSON object",
    "": "the line is not JSON",
    "}": "the line is not JSON",
    "[" * 100_000: "the line is not JSON",
    f'{{{TIME}, "event": "RunFini}}': "the line is not JSON",
    "\udcff\udcfe{": "the line is not UTF-8",
}


def insert(file: Path, line: bytes, number: int) -> None:
    """Insert a line that gets this line number."""
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[: number - 1], line + b"\n", *lines[number - 1 :]]))


@pytest.mark.parametrize("line", DAMAGED)
def test_an_unreadable_line_is_reported_as_damage(tmp_path: Path, line: str) -> None:
    insert(write(tmp_path, *EVENTS), line.encode(errors="surrogateescape"), 3)
    assert read(tmp_path) == EVENTS
    (damage,) = journal.load(tmp_path).damage
    assert str(damage).startswith("journal.jsonl:3: ")
    assert DAMAGED[line] in str(damage)


def test_a_too_long_line_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_LONGEST_LINE", 1000)
    insert(write(tmp_path, *EVENTS), b"x" * 1500, 2)
    assert read(tmp_path) == EVENTS
    assert str(journal.load(tmp_path).damage[0]) == "journal.jsonl:2: the line is longer than 1000 bytes"


TORN = [b'{"time": "2026-01-01T00:00:00+00:00", "event": "StepFi', b'{"ti', b"\0\0\0", b"\0" * 5000 + b'", "x": 1}']


@pytest.mark.parametrize("torn", TORN)
def test_a_resumed_run_cuts_off_the_torn_tail(tmp_path: Path, torn: bytes) -> None:
    file = write(tmp_path, *EVENTS)
    whole = file.read_bytes()
    for tail in (torn, torn + b"\n", torn + b"\n" + torn):
        file.write_bytes(whole + tail)
        assert (read(tmp_path), journal.load(tmp_path).damage) == (EVENTS, ())
        with Journal(tmp_path):
            assert file.read_bytes() == whole


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_line_in_the_middle_is_damage(tmp_path: Path, torn: bytes) -> None:
    insert(write(tmp_path, *EVENTS), torn, 3)
    assert [damage.line for damage in journal.load(tmp_path).damage] == [3]


def test_an_event_that_occurs_twice_counts_once(tmp_path: Path) -> None:
    file = write(tmp_path, *EVENTS)
    file.write_bytes(file.read_bytes() * 2)
    assert (read(tmp_path), journal.load(tmp_path).damage) == (EVENTS, ())


def test_a_resumed_run_keeps_damaged_lines(tmp_path: Path) -> None:
    insert(write(tmp_path, *EVENTS), b"damage", 2)
    write(tmp_path, EVENTS[0])
    assert (len(read(tmp_path)), [damage.line for damage in journal.load(tmp_path).damage]) == (7, [2])


def test_a_number_that_is_not_finite_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path, MetricMeasured("s", "loss", math.inf))
    assert read(tmp_path) == [MetricMeasured("s", "loss", math.inf)]


def test_unknown_fields_of_an_event_are_ignored(tmp_path: Path) -> None:
    file = write(tmp_path, EVENTS[0])
    file.write_text(json.dumps({**json.loads(file.read_text()), "added_later": 1}) + "\n")
    assert read(tmp_path) == EVENTS[:1]


def test_text_with_surrogates_is_read_unchanged(tmp_path: Path) -> None:
    event = StepStarted("000__x", "caf\udce9", StepKind.GROUP)
    write(tmp_path, event)
    assert read(tmp_path) == [event]


def test_a_directory_without_a_journal_has_no_events(tmp_path: Path) -> None:
    assert read(tmp_path) == []


def record(directory: Path, secret: str, event: JournalEvent) -> None:
    """Record an event of a run that has a secret."""
    redactor = Redactor()
    redactor.add([secret])
    with Journal(directory) as opened:
        Recorder(directory, redactor, journal=opened).record(event)


def test_secrets_are_masked(tmp_path: Path) -> None:
    record(tmp_path, 'hunter"2', ConfigurationChanged("token", 'is hunter"2', "me"))
    assert read(tmp_path) == [ConfigurationChanged("token", "is ***", "me")]


@pytest.mark.parametrize("secret", ["202", "passed", "PHASE", "true", "StepFinished", "1.2", "000", "seconds"])
def test_a_secret_equal_to_a_part_of_a_record_keeps_the_record_readable(tmp_path: Path, secret: str) -> None:
    record(tmp_path, secret, StepFinished("s", "n", StepKind.PHASE, Verdict.PASSED, None, f"<{secret}>", 1.2))
    assert read(tmp_path) == [StepFinished("s", "n", StepKind.PHASE, Verdict.PASSED, None, "<***>", 1.2)]


@pytest.mark.parametrize(
    "event",
    [
        RunStarted("test-1", "test", "/test/test-1", ("test",)),
        StepStarted("000__test", "test", StepKind.PHASE, "", "/test", "test"),
        StepFinished("000__test", "test", StepKind.PHASE, Verdict.PASSED, None, "", 1.0),
        AttemptSubmitted("001__test", 1, "test-1", "test"),
        CheckJudged("001__test", "test", passed=True, message="", file="test.log", metric="test"),
        ConfigurationChanged("test.steps", "3", "me"),
        ClusterChosen("test", "test", "/test", "test", "test"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_identities_are_not_masked(tmp_path: Path, event: JournalEvent) -> None:
    record(tmp_path, "test", event)
    assert read(tmp_path) == [event]


def test_several_threads_append_whole_lines(tmp_path: Path, journal: Journal) -> None:
    def append(number: int) -> None:
        for count in range(20):
            journal.append(ConfigurationChanged(f"{number}.{count}", "x" * 500, "me"))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(append, range(8)))
    assert len(read(tmp_path)) == 160


def test_a_second_writer_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    with Journal(tmp_path) as first:
        with pytest.raises(InfrastructureError, match="still running"):
            Journal(tmp_path)
        first.append(EVENTS[0])
    write(tmp_path, EVENTS[1])
    assert read(tmp_path) == EVENTS[:2]


def test_the_journal_is_locked_while_its_writer_lives(tmp_path: Path) -> None:
    assert not journal.is_locked(tmp_path)
    with Journal(tmp_path):
        assert journal.is_locked(tmp_path)
        assert journal.is_locked(tmp_path)
    assert not journal.is_locked(tmp_path)


def test_a_killed_writer_releases_the_lock(tmp_path: Path) -> None:
    source = (
        "import os, sys; from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from toolbox.records.runs.journal import Journal\n"
        "journal = Journal(Path(sys.argv[2])); print('held', flush=True); sys.stdin.read()"
    )
    args = [sys.executable, "-c", source, str(Path(__file__).parents[4]), str(tmp_path)]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        assert journal.is_locked(tmp_path)
        writer.kill()
    assert not journal.is_locked(tmp_path)


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with Journal(tmp_path):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    assert not journal.is_locked(tmp_path)
    child.communicate()


def test_after_a_full_disk_the_next_line_is_whole(tmp_path: Path) -> None:
    source = (
        "import resource, sys; from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from toolbox.ground.model.errors import InfrastructureError\n"
        "from toolbox.ground.model.events import ConfigurationChanged as Event\n"
        "from toolbox.records.runs.journal import Journal\n"
        "journal = Journal(Path(sys.argv[2]))\n"
        "journal.append(Event('before', '', ''))\n"
        "_, most = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, most))\n"
        "try: journal.append(Event('lost', 'x' * 500, ''))\n"
        "except InfrastructureError as error: print(error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))\n"
        "journal.append(Event('after', '', ''))\n"
    )
    args = [sys.executable, "-c", source, str(Path(__file__).parents[4]), str(tmp_path)]
    done = subprocess.run(args, capture_output=True, text=True, check=True, timeout=60)
    assert "cannot be written" in done.stdout
    assert read(tmp_path) == [ConfigurationChanged(name, "", "") for name in ("before", "after")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("step", path) for path in ("", "/etc", "a/../b", "a//b", "a\0b", "\ud800", 256 * "x", "x/" * 1001 + "x")),
        *(("attempt", number) for number in (0, -1, 10**7, 10**400)),
        *(("seconds", number) for number in (10**400, 1e300, float("inf"), float("nan"))),
    ],
    ids=ascii,
)
def test_a_field_that_is_no_possible_path_or_number_is_damage(tmp_path: Path, name: str, value: object) -> None:
    event = {"time": "2026-11-21T01:02:03+00:00", "event": "AttemptEnded", "step": "000__x", "attempt": 1}
    event |= {"target": "t", "verdict": "passed", "cause": None, "message": "", "seconds": 1}
    (tmp_path / "journal.jsonl").write_text(f"{json.dumps(event)}\n{json.dumps(event | {name: value})}\n")
    contents = journal.load(tmp_path)
    assert (len(contents.entries), [damage.line for damage in contents.damage]) == (1, [2])


def test_a_value_that_no_number_of_a_computer_can_be_is_damage(tmp_path: Path) -> None:
    event = {"time": "2026-11-21T01:02:03+00:00", "event": "MetricMeasured", "step": "000__x", "metric": "m"}
    lines = [json.dumps(event | {"value": value}) for value in (10**20, float("nan"), 10**400)]
    (tmp_path / "journal.jsonl").write_text("\n".join(lines) + "\n")
    contents = journal.load(tmp_path)
    assert (len(contents.entries), [damage.line for damage in contents.damage]) == (2, [3])
