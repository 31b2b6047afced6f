"""Each executed notebook of a run has a page, which is made once, and never leads out of the run directory."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.browser.runs import Run
from tests.features.notebooks.fakes import notebook_results
from tests.features.notebooks.fakes.notebook_results import code, notebook, stream
from toolbox.features.notebooks import notebook_pages
from toolbox.features.notebooks.executed_notebooks import ExecutedNotebook
from toolbox.features.notebooks.worker.notebook_results import FailedCell, TestOutcome
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import processes, redaction
from toolbox.ground.system.redaction import Redactor
from toolbox.records.runs.run_state import RunState
from toolbox.reports import run_page

FAILED = FailedCell(2, "1 / 0", "ZeroDivisionError: division by zero", "Traceback ...")


def run_of(directory: Path, *texts: str) -> tuple[RunState, Path]:
    """Write a run with a cell whose notebooks `n0`, `n1` and so on print these texts; return its attempt too."""
    run = Run(directory / "r-1")
    attempt = run.cell(runtime="a", machine="b")
    for number, text in enumerate(texts):
        notebook_results.write(attempt, f"n{number}", notebook(code("1", stream(text))))
    return run.write(), attempt


def test_each_notebook_has_a_page_beside_the_files_of_its_attempt(tmp_path: Path) -> None:
    summary, attempt = run_of(tmp_path, "first", "second")
    notebook_pages.make_missing(summary)
    pages = sorted((attempt / "notebooks").iterdir())
    assert [page.name for page in pages] == ["n0.html", "n1.html"]
    assert "first" in pages[0].read_text()


def test_the_links_of_a_page_lead_to_the_report_and_to_the_notebook(tmp_path: Path) -> None:
    summary, attempt = run_of(tmp_path, "first")
    report = run_page.write(summary)
    links = re.findall(r'<a href="([^"#]+)', (attempt / "notebooks/n0.html").read_text())
    found = [(attempt / "notebooks" / link.replace("%3D", "=").replace("%2C", ",")).resolve() for link in links]
    assert found == [report.resolve(), (attempt / "files/executed/n0.ipynb").resolve()]


def test_the_report_links_to_pages_and_notebooks(tmp_path: Path) -> None:
    summary, _ = run_of(tmp_path, "first")
    text = run_page.write(summary).read_text()
    assert 'attempt-1/notebooks/n0.html">n0</a>' in text
    assert 'attempt-1/files/executed/n0.ipynb">.ipynb</a>' in text


def test_only_missing_and_outdated_pages_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary, attempt = run_of(tmp_path, "first", "second")
    notebook_pages.make_missing(summary)
    pages = [attempt / "notebooks" / name for name in ("n0.html", "n1.html")]
    made = [page.stat().st_mtime_ns for page in pages]
    source = attempt / "files/executed/n1.ipynb"
    source.write_text(json.dumps(notebook(code("1", stream("newer")))))
    os.utime(source, ns=(made[1] + 1, made[1] + 1))
    converted: list[str] = []
    convert = notebook_pages._convert

    def recorded(run: RunState, notebooks: Sequence[ExecutedNotebook]) -> None:
        converted.extend(each.name for each in notebooks)
        convert(run, notebooks)

    monkeypatch.setattr(notebook_pages, "_convert", recorded)
    notebook_pages.make_missing(summary)
    assert converted == ["n1"]
    assert pages[0].stat().st_mtime_ns == made[0]
    assert "newer" in pages[1].read_text()


def test_a_file_that_is_not_a_notebook_gets_a_page_that_says_so(tmp_path: Path) -> None:
    summary, attempt = run_of(tmp_path)
    notebook_results.write(attempt, "bad", "{", outcome=TestOutcome.FAILED, failed=FAILED)
    notebook_pages.make_missing(summary)
    assert "cannot show the notebook" in (attempt / "notebooks/bad.html").read_text()


def test_a_notebook_of_ten_thousand_cells_and_fifty_megabytes_has_a_page(tmp_path: Path) -> None:
    summary, attempt = run_of(tmp_path)
    cells = [code(f"print({number})", stream("x" * 5000)) for number in range(10_000)]
    notebook_results.write(attempt, "large", json.dumps(notebook(*cells)))
    notebook_pages.make_missing(summary)
    assert "8000 cells are not shown" in (attempt / "notebooks/large.html").read_text()


@pytest.mark.parametrize("missing", ["nbconvert", "nh3"])
def test_without_a_library_a_remark_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    summary, attempt = run_of(tmp_path, "first")
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == missing else found(name))
    assert "n0" in run_page.write(summary).read_text()
    assert f"because {missing} is not installed" in caplog.text
    assert "[notebooks]" in caplog.text
    assert not (attempt / "notebooks").exists()


def test_a_run_without_notebooks_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook_pages, "_convert", lambda *_: pytest.fail("nothing is to be converted"))
    summary, _ = run_of(tmp_path)
    notebook_pages.make_missing(summary)


def test_links_of_a_target_are_not_followed(tmp_path: Path) -> None:
    summary, attempt = run_of(tmp_path, "first")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.ipynb").write_text(json.dumps(notebook(code("1", stream("outside")))))
    (attempt / "files/executed/link.ipynb").symlink_to(outside / "secret.ipynb")
    (attempt / "notebooks").symlink_to(outside)
    notebook_pages.make_missing(summary)
    assert [each.name for each in outside.iterdir()] == ["secret.ipynb"]


def test_a_notebook_with_a_secret_that_could_not_be_masked_is_left_out(tmp_path: Path) -> None:
    summary, attempt = run_of(tmp_path, "first")
    file = str((attempt / "files/executed/n0.ipynb").relative_to(summary.directory))
    notebook_pages.make_missing(replace(summary, secrets_left=frozenset({file})))
    assert not (attempt / "notebooks").exists()


def test_a_secret_that_the_conversion_joins_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    redactor = Redactor()
    redactor.add(["hunter22hunter22"])
    monkeypatch.setattr(redaction._Process, "redactor", redactor)
    summary, attempt = run_of(tmp_path)
    split = code("1", {"output_type": "stream", "name": "stdout", "text": ["hunter22", "hunter22"]})
    notebook_results.write(attempt, "split", notebook(split))
    notebook_pages.make_missing(summary)
    text = (attempt / "notebooks/split.html").read_text()
    assert "hunter22" not in text
    assert "***" in text


def test_the_converter_gets_no_secrets_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    assert "MY_TOKEN" not in notebook_pages._environment(tmp_path)


def test_the_end_of_a_slow_converter_ends_no_cell_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    summary, attempt = run_of(tmp_path, "first")
    monkeypatch.setattr(notebook_pages, "_PROGRAM", ("sleep", "60"))
    monkeypatch.setattr(notebook_pages, "MAX_SECONDS", 0.2)
    with subprocess.Popen(["sleep", "60"], env=processes.environment(attempt)) as cell:
        notebook_pages.make_missing(summary)
        assert cell.poll() is None
        cell.kill()
    assert "not all executed notebooks could be converted to HTML" in caplog.text


@pytest.mark.parametrize("name", ["javascript:alert(1)", "<script>", "a b%20c#d?e", "ünï", "x" * 240])
def test_odd_names_of_notebooks_have_pages_and_links(tmp_path: Path, name: str) -> None:
    run = Run(tmp_path / "r-1")
    attempt = run.cell(Verdict.FAILED, runtime="a", machine="b")
    notebook_results.write(attempt, name, notebook(code("1")))
    text = run_page.write(run.write(Verdict.FAILED)).read_text()
    assert (attempt / "notebooks" / f"{name}.html").is_file()
    assert (
        len(re.findall(r'href="\./000__test/[^"]*/notebooks/[^":#?<]*\.html"', text)) == 2
    )  # of the grid and of the details
