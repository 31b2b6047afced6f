"""Failures name lines of the repository. Only files that the tested revision has are used, whatever a log says."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reports.forge.test_github import HOSTILE, cell, summary
from toolbox.ground.model.cases import CaseOutcome, CaseReport, CaseResult
from toolbox.ground.model.forge_data import NamedLine
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.runs.run_state import RunState
from toolbox.reports.forge import source_locations, workflow_annotations
from toolbox.reports.forge.source_locations import RepositoryFiles

FILES = RepositoryFiles(
    frozenset({"model.py", "src/kernel.c", "tests/test_loss.py", "yaml/__init__.py"}), ("/builds/it",)
)


def failing(directory: Path, message: str = "", log: str = "", **fields: Any) -> RunState:
    """Return a run whose only cell failed with a message and a log."""
    failed = replace(cell("x=a", Verdict.FAILED, message), **fields)
    file = directory / failed.step / "attempt-1" / "stderr.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(log)
    return summary(failed, directory=directory)


def named(run: RunState) -> list[tuple[str, int]]:
    return [(line.path, line.line) for line in source_locations.find(run, FILES)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('  File "/home/runner/work/name/name/tests/test_loss.py", line 12, in test_it', ("tests/test_loss.py", 12)),
        ("tests/test_loss.py:12: AssertionError", ("tests/test_loss.py", 12)),
        ("E   (tests/test_loss.py:7)", ("tests/test_loss.py", 7)),
        ("src/kernel.c:3:5: error: expected ';'", ("src/kernel.c", 3)),
        ("./src/kernel.c:3:5: error: expected ';'", ("src/kernel.c", 3)),
        ("/builds/it/model.py:9: DeprecationWarning", ("model.py", 9)),
        ("see model.py:5, please", ("model.py", 5)),
    ],
)
def test_the_form_of_each_tool_is_read(tmp_path: Path, text: str, place: tuple[str, int]) -> None:
    assert named(failing(tmp_path / "message", text)) == [place]
    assert named(failing(tmp_path / "log", log=f"first\n{text}\nlast\n")) == [place]


@pytest.mark.parametrize(
    "text",
    [
        "/etc/passwd:1: x",
        "../model.py:1: x",
        "src/../model.py:1: x",
        "/builds/it/../model.py:1: x",
        "/somewhere/else/model.py:1: x",
        "/venv/lib/python3.12/site-packages/yaml/__init__.py:4: x",
        "https://evil.example/src/kernel.c:3",
        "mod\u0435l.py:1: x",
        "model.py\u202e:1: x",
        'File "model.py\x00", line 1',
        "model.py:0: x",
        "model.py:99999999: x",
        "model.py:1x",
        "C:\\model.py:1: x",
        "@model.py:1 -model.py:1",
    ],
)
def test_other_files_and_forged_paths_are_never_named(tmp_path: Path, text: str) -> None:
    assert named(failing(tmp_path, text, text)) == []


def test_the_lines_of_failed_test_cases_are_named(tmp_path: Path) -> None:
    failure = CaseResult("s", "t", CaseOutcome.FAILED, 0.1, "tests/test_loss.py:3: too large")
    report = CaseReport("*.xml", {CaseOutcome.FAILED: 1}, failures=(failure,))
    assert named(failing(tmp_path, cases=(report,))) == [("tests/test_loss.py", 3)]


def test_the_innermost_frame_of_a_traceback_is_first(tmp_path: Path) -> None:
    log = 'File "/builds/it/model.py", line 1\n  f()\nFile "/builds/it/src/kernel.c", line 2\nValueError: x\n'
    assert named(failing(tmp_path, log=log)) == [("src/kernel.c", 2), ("model.py", 1)]


def test_a_line_that_many_cells_name_is_listed_once(tmp_path: Path) -> None:
    cells = [cell(f"x={number}", Verdict.FAILED, "model.py:5: broken", number) for number in range(1000)]
    (line,) = source_locations.find(summary(*cells, directory=tmp_path), FILES)
    assert (line.path, line.line, line.text) == ("model.py", 5, "model.py:5: broken")
    assert line.title == "1000 failed steps: x=0, x=1, x=2, and 997 more"


def test_the_number_of_lines_is_limited(tmp_path: Path) -> None:
    cells = [
        cell(
            f"x={number}",
            Verdict.FAILED,
            "\n".join(f"model.py:{number * 50 + line}: x" for line in range(1, 50)),
            number,
        )
        for number in range(30)
    ]
    found = source_locations.find(summary(*cells, directory=tmp_path), FILES)
    assert len(found) == source_locations.MOST
    assert [line.line for line in found[:11]] == [*range(1, 11), 51]


def test_a_remark_is_a_warning(tmp_path: Path) -> None:
    ignored = cell("x=a", Verdict.FAILED, "model.py:5: x", counts=False)
    (line,) = source_locations.find(summary(ignored, directory=tmp_path), FILES)
    assert line.is_failure is False


def test_the_lines_of_several_runs_are_merged() -> None:
    first, second = (NamedLine("model.py", 5, "x", (name,), is_failure=name == "b") for name in "ab")
    assert source_locations.merged([[first], [second]]) == [NamedLine("model.py", 5, "x", ("a", "b"), is_failure=True)]


def test_logs_with_a_secret_are_not_read(tmp_path: Path) -> None:
    run = failing(tmp_path, log="model.py:5: x")
    withheld = f"{run.failures[0].step}/attempt-1/stderr.log"
    assert named(replace(run, secrets_left=frozenset({withheld}))) == []


@pytest.mark.parametrize("piece", ["a/", "model.py:", "/" * 50, 'File "', ".py:1", "a" * 100 + "/"])
def test_a_log_of_megabytes_is_read_quickly(tmp_path: Path, piece: str) -> None:
    run = failing(tmp_path, log=piece * (1 << 21) + "\nmodel.py:5: x\n")
    began = time.monotonic()
    assert named(run)[-1:] == [("model.py", 5)]
    assert time.monotonic() - began < 20


@given(st.text(st.sampled_from('model.py:1/\\"File ,line\n\x1b[\u202e%0A::error')))
def test_no_text_names_a_file_that_the_revision_does_not_have(text: str) -> None:
    run = summary(cell("a", Verdict.FAILED, text), directory=Path("/nowhere"))
    assert {line.path for line in source_locations.find(run, FILES)} <= set(FILES.paths)


def test_an_annotation_of_a_workflow_has_the_place_of_the_failure(tmp_path: Path) -> None:
    run = failing(tmp_path, "tests/test_loss.py:12: AssertionError")
    assert workflow_annotations.lines(run, FILES) == [
        "::error file=tests/test_loss.py,line=12,title=failed (check)%3A x=a::tests/test_loss.py:12: AssertionError"
    ]


def test_hostile_file_names_stay_inside_an_annotation(tmp_path: Path) -> None:
    path = "a,b::error/x%0A.py"
    files = RepositoryFiles({path})
    (line,) = workflow_annotations.lines(failing(tmp_path, f'File "{path}", line 3\n{HOSTILE}'), files)
    assert line.startswith("::error file=a%2Cb%3A%3Aerror/x%250A.py,line=3,title=failed (check)%3A x=a::")
    assert "\n" not in line
