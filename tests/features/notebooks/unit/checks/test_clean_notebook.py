"""The check `clean_notebook` has a row for each notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.features.notebooks.unit.notebook_documents import code, executed, write
from tests.features.notebooks.unit.worker_files import result, write_results, write_settings
from toolbox.features.notebooks.checks import clean_notebook
from toolbox.features.notebooks.checks.clean_notebook import Check
from toolbox.features.notebooks.worker.notebook_results import Fault, TestOutcome
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs import junit_files


def judge(directory: Path, **fields: Any) -> Judgement:
    return Check.model_validate(fields).judge(Evidence(directory))


def test_clean_notebooks_pass(tmp_path: Path) -> None:
    write(tmp_path / "src/notebooks/a.ipynb", code())
    write(tmp_path / "src/notebooks/sub/b.ipynb", code())
    write(tmp_path / "src/notebooks/.ipynb_checkpoints/a-checkpoint.ipynb", executed(1))
    judgement = judge(tmp_path)
    assert (judgement.passed, judgement.message) == (True, "2 notebooks clean")
    rows = [row.title for row in junit_files.read(tmp_path, clean_notebook.RESULTS)]
    assert rows == ["clean.src/notebooks/a.ipynb", "clean.src/notebooks/sub/b.ipynb"]


def test_the_message_names_file_and_cell(tmp_path: Path) -> None:
    write(tmp_path / "src/notebooks/a.ipynb", code(), executed(1))
    write(tmp_path / "src/notebooks/b.ipynb", code())
    judgement = judge(tmp_path)
    assert (judgement.passed, judgement.cause) == (False, None)
    assert judgement.message.splitlines() == [
        "src/notebooks/a.ipynb: code cell 2: has outputs: clear them before you commit (and 1 more)",
        "1 of 2 notebooks are not clean",
    ]
    row = next(iter(junit_files.read(tmp_path, clean_notebook.RESULTS)))
    assert row.text.splitlines()[1] == "code cell 2: has an execution count: clear it before you commit"


def test_a_notebook_whose_outputs_are_compared_keeps_them(tmp_path: Path) -> None:
    write(tmp_path / "src/notebooks/a.ipynb", executed(1))
    assert judge(tmp_path, keep_outputs=["src/notebooks/a.*"]).passed is True
    assert judge(tmp_path, keep_outputs=["src/notebooks/b.*"]).passed is False


def test_without_notebooks_the_check_fails(tmp_path: Path) -> None:
    assert judge(tmp_path).message == "no notebook matches src/notebooks/**/*.ipynb"


FAILED = result("failed", TestOutcome.FAILED, fault=Fault.CODE, message="code cell 1: ValueError")


def test_a_notebook_must_have_been_executed_from_top_to_bottom(tmp_path: Path) -> None:
    names = ("passed", "failed", "lost", "manual")
    for name in (*names, "data"):
        write(tmp_path / f"src/notebooks/{name}.ipynb", code())
    write_settings(tmp_path, notebooks=names[:3], manual="mount the data")
    write_results(tmp_path, result("passed"), FAILED, result("manual", TestOutcome.SKIPPED))
    judgement = judge(tmp_path)
    assert judgement.message.splitlines() == [
        "src/notebooks/failed.ipynb: was not executed from top to bottom: code cell 1: ValueError",
        "src/notebooks/lost.ipynb: was not executed",
        "2 of 5 notebooks are not clean",
    ]


def test_results_of_the_worker_that_cannot_be_read_fail_the_check(tmp_path: Path) -> None:
    write(tmp_path / "src/notebooks/a.ipynb", code())
    write_settings(tmp_path, notebooks=("a",))
    assert judge(tmp_path) == Judgement(False, "files/results.jsonl does not exist")


def test_too_many_notebooks_are_not_read(tmp_path: Path) -> None:
    for number in range(1001):
        (tmp_path / f"{number}.ipynb").touch()
    assert judge(tmp_path, glob="*.ipynb").message.startswith("1001 notebooks match *.ipynb, but at most 1000")


def test_results_that_cannot_be_written_are_an_error_of_the_infrastructure(tmp_path: Path) -> None:
    write(tmp_path / "src/notebooks/a.ipynb", code())
    (tmp_path / clean_notebook.RESULTS).mkdir()
    assert judge(tmp_path).cause is Cause.INFRASTRUCTURE
