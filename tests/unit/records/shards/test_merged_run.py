"""Runs of shards are merged into one run with one verdict."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.history import Tried
from tests.fakes.shards import CELLS, Shard, failed
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.verdicts import Cause, ExitCode, Verdict
from toolbox.records.runs import layout, run_reader
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState
from toolbox.records.shards import merged_run, shard_run

THREE = (Shard(1), Shard(2), Shard(3))


def merge(tmp_path: Path, *shards: Shard) -> RunState:
    """Write the shards, merge them, and return the state of the merged run."""
    return merge_directories(tmp_path, [shard.write(tmp_path / "shards") for shard in shards])


def merge_directories(tmp_path: Path, directories: Sequence[Path], jobs_fault: str = "") -> RunState:
    runs = shard_run.current(map(shard_run.read, directories))
    prepared = merged_run.prepare(runs, tmp_path / "merged", jobs_fault=jobs_fault)
    return run_reader.read(merged_run.write(prepared).directory)


def end(run: RunState) -> tuple[str, str | None, int]:
    assert run.finished is not None
    return run.finished.verdict, run.finished.cause, run.finished.exit_code


def message(run: RunState) -> str:
    assert run.finished is not None
    return run.finished.message


def verdicts(run: RunState) -> dict[str, str | None]:
    return {cell.name: cell.verdict for cell in run.cells}


def change(file: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a file with a JSON object."""
    content = json.loads(file.read_text())
    edit(content)
    file.write_text(json.dumps(content))


def test_each_cell_is_in_the_merged_run_once(tmp_path: Path) -> None:
    run = merge(tmp_path, *THREE)
    assert verdicts(run) == dict.fromkeys(CELLS, "passed")
    assert (end(run), run.planned_cells, run.damage) == (("passed", None, 0), 6, ())
    assert [cell["name"] for cell in RunDirectory(run.directory).read_plan()["cells"]] == list(CELLS)


def test_steps_keep_their_files_and_get_numbers_of_their_own(tmp_path: Path) -> None:
    run = merge(tmp_path, *THREE)
    assert [name for name in run.steps if "/" not in name] == ["000__test", "001__test", "002__test"]
    for name in run.steps:
        number = int(name[:3])
        original = f"000__test{name.removeprefix(f'{number:03d}__test')}"
        assert (run.directory / name / "run.log").read_text() == f"{original} of shard {number + 1}\n"


@pytest.mark.parametrize(
    ("verdict", "cause", "expected"),
    [
        (Verdict.FAILED, Cause.CHECK, ("failed", None, 1)),
        (Verdict.XPASSED, Cause.CHECK, ("xpassed", None, 1)),
        (Verdict.ERROR, Cause.CAPACITY, ("error", None, 3)),
        (Verdict.XFAILED, Cause.CHECK, ("xfailed", None, 0)),
        (Verdict.SKIPPED, None, ("passed", None, 0)),
    ],
)
def test_the_worst_shard_decides(
    tmp_path: Path, verdict: Verdict, cause: Cause, expected: tuple[str, None, int]
) -> None:
    cells = {"x=b": [Tried(verdict, cause)], "x=e": [Tried(verdict, cause)]}
    assert end(merge(tmp_path, Shard(1), Shard(2, ended=cells), Shard(3))) == expected


def test_a_failure_is_worse_than_an_unexpected_pass_of_another_shard(tmp_path: Path) -> None:
    one = Shard(1, ended={"x=a": failed(Cause.CHECK, Verdict.XPASSED)})
    run = merge(tmp_path, one, Shard(2, ended={"x=b": failed(Cause.PRODUCT)}), Shard(3))
    assert end(run)[0] == "failed"
    assert "shard 1/3: " in message(run)
    assert message(run).startswith("shard 2/3: ")


@pytest.mark.parametrize("code", [ExitCode.DEADLINE, ExitCode.SIGINT, ExitCode.SIGTERM])
def test_an_interrupted_shard_keeps_its_exit_code(tmp_path: Path, code: ExitCode) -> None:
    directories = [
        shard.write(tmp_path / "shards")
        for shard in (replace(THREE[0], ended={"x=a": failed(Cause.PRODUCT)}), *THREE[1:])
    ]
    edit_end(directories[1], verdict="cancelled", cause="interrupted", exit_code=int(code))
    assert end(merge_directories(tmp_path, directories)) == ("cancelled", "interrupted", code)


def edit_end(directory: Path, **values: Any) -> None:
    """Change the last event of a journal."""
    journal = directory / "journal.jsonl"
    *lines, last = journal.read_text().splitlines()
    journal.write_text("".join(f"{line}\n" for line in [*lines, json.dumps({**json.loads(last), **values})]))


@pytest.mark.parametrize("code", [0, 1, 99, -1])
def test_the_exit_code_in_a_journal_is_not_trusted(tmp_path: Path, code: int) -> None:
    directories = [shard.write(tmp_path / "shards") for shard in THREE]
    edit_end(directories[1], verdict="error", cause="infrastructure", exit_code=code)
    assert end(merge_directories(tmp_path, directories)) == ("error", "infrastructure", 3)


def test_nothing_ran_if_nothing_ran_in_all_shards(tmp_path: Path) -> None:
    skipped = {name: [Tried(Verdict.SKIPPED)] for name in CELLS}
    assert end(merge(tmp_path, *(replace(shard, ended=skipped) for shard in THREE))) == ("skipped", None, 4)


def test_more_shards_than_cells(tmp_path: Path) -> None:
    shards = [Shard(number, 4, all_cells=("x=a", "x=b")) for number in (1, 2, 3, 4)]
    run = merge(tmp_path, *shards)
    assert (end(run), verdicts(run)) == (("passed", None, 0), {"x=a": "passed", "x=b": "passed"})


def test_a_missing_shard_is_an_error_that_names_its_cells(tmp_path: Path) -> None:
    run = merge(tmp_path, Shard(1), Shard(3))
    assert end(run) == ("error", "infrastructure", 3)
    assert "there is no run of shard 2/3" in message(run)
    assert "2 cells not run: x=b, x=e" in message(run)
    assert (run.planned_cells, len(run.cells)) == (6, 4)
    assert [step.name for step in run.failures] == ["shard 2/3"]


def test_a_shard_that_was_killed_is_an_error_and_has_no_open_step(tmp_path: Path) -> None:
    killed = Shard(2, ended={"x=b": [Tried(verdict=None)]}, begun=1, is_over=False)
    run = merge(tmp_path, Shard(1), killed, Shard(3, ended={"x=c": failed(Cause.PRODUCT)}))
    assert end(run) == ("error", "infrastructure", 3)
    assert "shard 2/3 has not ended" in message(run)
    assert "2 cells not run: x=b, x=e" in message(run)
    assert verdicts(run)["x=b"] == "cancelled"
    assert all(step.verdict is not None for step in run.steps.values() if step.step.startswith("001__test"))
    assert run.open_attempts == []
    assert {step.name for step in run.failures} == {"shard 2/3", "x=c"}


def test_a_shard_that_was_run_again_counts_by_its_later_run(tmp_path: Path) -> None:
    broken = Shard(2, ended={"x=b": failed(Cause.PRODUCT)})
    for shards in ((broken, Shard(2, later=5)), (Shard(2, later=5), broken)):
        run = merge(tmp_path / str(shards[0].later), Shard(1), *shards, Shard(3))
        assert end(run) == ("passed", None, 0)
    run = merge(tmp_path / "broken", Shard(1), Shard(2), replace(broken, later=5), Shard(3))
    assert end(run)[0] == "failed"


def test_a_damaged_journal_is_no_basis_for_a_verdict(tmp_path: Path) -> None:
    directories = [shard.write(tmp_path / "shards") for shard in THREE]
    lines = (directories[1] / "journal.jsonl").read_text().splitlines(keepends=True)
    (directories[1] / "journal.jsonl").write_text("".join([*lines[:2], "garbage\n", *lines[2:]]))
    run = merge_directories(tmp_path, directories)
    assert end(run) == ("error", "infrastructure", 3)
    assert "the journal of the run" in message(run)
    assert "journal.jsonl:3" in message(run)


@pytest.mark.parametrize("lost", [('"x=b"', '"StepFinished"'), ("__x=b",), ("000__",)], ids=str)
def test_a_shard_that_says_passed_without_the_end_of_a_cell_is_an_error(tmp_path: Path, lost: Sequence[str]) -> None:
    directories = [shard.write(tmp_path / "shards") for shard in THREE]
    lines = (directories[1] / "journal.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not all(text in line for text in lost)]
    (directories[1] / "journal.jsonl").write_text("".join(kept))
    run = merge_directories(tmp_path, directories)
    assert end(run) == ("error", "infrastructure", 3)
    assert "shard 2/3" in message(run)
    assert run.open_attempts == []


def test_failed_jobs_without_failed_runs_are_an_error(tmp_path: Path) -> None:
    directories = [shard.write(tmp_path / "shards") for shard in THREE]
    run = merge_directories(tmp_path, directories, jobs_fault="a job failed")
    assert (end(run), message(run)) == (("error", "infrastructure", 3), "jobs: a job failed")


def test_what_failed_cells_have_in_common_is_found_over_all_shards(tmp_path: Path) -> None:
    cells = [f"m={model},b={batch}" for batch in range(1, 7) for model in "ab"]
    broken = {name: failed(Cause.PRODUCT) for name in cells if name.startswith("m=b")}
    directories = [Shard(number, 4, broken, all_cells=cells).write(tmp_path / "shards") for number in (1, 2, 3, 4)]
    for directory in directories:
        change(directory / "plan.json", _add_labels)
        assert not run_reader.read(directory).attribution
    run = merge_directories(tmp_path, directories)
    assert "m=b" in str(run.attribution[0])


def _add_labels(plan: dict[str, Any]) -> None:
    for cell in plan["cells"]:
        cell["labels"] = cell["settings"] = dict(part.split("=") for part in cell["name"].split(","))


def test_a_run_is_baseline_only_if_all_of_its_shards_are(tmp_path: Path) -> None:
    run = merge(tmp_path, Shard(1), Shard(2, request={"baseline": False}), Shard(3))
    assert RunDirectory(run.directory).read_request()["baseline"] is False


# Runs that do not belong together


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Shard(2, 2), "the number of shards: 3 and 2"),
        (Shard(2, all_cells=("x=a", "x=b", "x=c")), "differ in their plans"),
        (Shard(2, request={"revision": "b" * 40}), "differ in `revision`"),
        (Shard(2, request={"configuration_revision": "b" * 40}), "differ in `configuration_revision`"),
        (Shard(2, request={"presets": ["smoke"]}), "differ in `presets`"),
        (Shard(2, request={"changes": [{"path": "a", "value": "1"}]}), "differ in `changes`"),
        (Shard(2, request={"resolved": {"a": 1}}), "differ in `resolved`"),
        (Shard(1), "is given twice"),
    ],
)
def test_other_runs_are_refused(tmp_path: Path, other: Shard, words: str) -> None:
    directories = [Shard(1).write(tmp_path / "one"), other.write(tmp_path / "two")]
    with pytest.raises(UsageError, match=words) as error:
        merge_directories(tmp_path, directories)
    assert len(str(error.value).splitlines()) <= 5
    assert not (tmp_path / "merged").exists()


def test_an_earlier_run_of_a_shard_must_belong_to_the_others_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="differ in `revision`"):
        merge(tmp_path, Shard(1, later=-5, request={"revision": "b" * 40}), *THREE)


def test_a_merged_run_is_not_merged_again_and_no_other_run_is_replaced(tmp_path: Path) -> None:
    directories = [shard.write(tmp_path / "shards") for shard in THREE]
    merged = merge_directories(tmp_path, directories).directory
    with pytest.raises(UsageError, match="is a merged run"):
        shard_run.read(merged)
    (merged / "journal.jsonl").write_text((directories[0] / "journal.jsonl").read_text())
    with pytest.raises(UsageError, match="is not a merged run"):
        merge_directories(tmp_path, directories)


# Data from outside


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("run.json", {"project": "../x"}),
        ("run.json", {"project": "other"}),
        ("run.json", {"shard": [4, 3]}),
        ("run.json", {"shard": [1, 100_000]}),
        ("run.json", {"shard": "1/3"}),
        ("run.json", {"presets": [1]}),
        ("run.json", {"changes": "x" * 200}),
        ("plan.json", {"shards": []}),
        ("plan.json", {"shards": [{"id": "../..", "name": "x", "shard": 1}]}),
        ("plan.json", {"cells": [{"id": "abc"}]}),
        ("plan.json", {"cells": [1]}),
        ("plan.json", {"total": -1}),
        ("plan.json", {"targets": {"a": 1}}),
    ],
)
def test_wrong_records_are_refused(tmp_path: Path, file: str, values: dict[str, Any]) -> None:
    directory = Shard(1).write(tmp_path)
    change(directory / file, lambda content: content.update(values))
    with pytest.raises(UsageError) as error:
        shard_run.read(directory)
    assert len(str(error.value)) < 700


@pytest.mark.parametrize("name", ["journal.jsonl", "run.json", "plan.json"])
def test_records_must_be_plain_files(tmp_path: Path, name: str) -> None:
    directory = Shard(1).write(tmp_path)
    (directory / name).rename(tmp_path / name)
    (directory / name).symlink_to(tmp_path / name)
    with pytest.raises(UsageError, match=f"has no {name}"):
        shard_run.read(directory)


def test_records_are_limited_in_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Shard(1).write(tmp_path)
    for limit, name in (("_MAX_JOURNAL", "journal.jsonl"), ("_MAX_RECORD", "run.json")):
        with monkeypatch.context() as patch:
            patch.setattr(shard_run, limit, 10)
            with pytest.raises(UsageError, match=f"{name} has .* at most 10"):
                shard_run.read(directory)


@pytest.mark.parametrize(("limit", "value"), [("_MAX_FILES", 3), ("_MAX_BYTES", 30)])
def test_the_files_of_all_shards_together_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(merged_run, limit, value)
    with pytest.raises(UsageError, match="not allowed"):
        merge(tmp_path, *THREE)
    assert layout.runs(tmp_path / "merged") == []


def test_a_name_of_a_cell_cannot_control_the_message(tmp_path: Path) -> None:
    cells = ("x=a", "\x1b[31m\n::error::" + "y" * 5000, "x=c")
    run = merge(tmp_path, Shard(1, all_cells=cells), Shard(3, all_cells=cells))
    assert len(message(run)) < 400
    assert len(message(run).splitlines()) == 2


# A merge that is killed

KILLED = """
import os, signal, sys
from pathlib import Path
from toolbox.records.shards import merged_run, shard_run

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

owner, name = {"copy": (merged_run, "_write_records"), "journal": (merged_run.journal, "write"),
               "replace": (Path, "rename")}[sys.argv[1]]
runs = shard_run.current(shard_run.read(Path(text)) for text in sys.argv[3:])
prepared = merged_run.prepare(runs, Path(sys.argv[2]))
original = getattr(owner, name)
calls = []
def patched(*arguments, **options):
    calls.append(1)
    if sys.argv[1] != "replace" or len(calls) == 2:
        kill()
    return original(*arguments, **options)
setattr(owner, name, patched)
merged_run.write(prepared)
"""


@pytest.mark.parametrize("moment", ["copy", "journal", "replace"])
def test_a_merge_that_was_killed_leaves_nothing_that_looks_whole(tmp_path: Path, moment: str) -> None:
    directories = [shard.write(tmp_path / "shards") for shard in THREE]
    if moment == "replace":
        merge_directories(tmp_path, directories)
    command = [sys.executable, "-c", KILLED, moment, str(tmp_path / "merged"), *map(str, directories)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4])
    assert completed.returncode == -signal.SIGKILL, completed.stderr
    assert layout.runs(tmp_path / "merged") == []
    run = merge_directories(tmp_path, directories)
    assert layout.runs(tmp_path / "merged") == [run.directory]
    assert end(run) == ("passed", None, 0)
    assert not list(run.directory.parent.glob(".*"))


def test_a_shard_of_which_only_the_records_are_left_can_be_merged(tmp_path: Path) -> None:
    directories = [shard.write(tmp_path / "shards") for shard in THREE]
    shutil.rmtree(directories[1] / "000__test")
    assert verdicts(merge_directories(tmp_path, directories)) == dict.fromkeys(CELLS, "passed")
