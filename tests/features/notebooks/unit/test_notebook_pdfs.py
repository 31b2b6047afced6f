"""Pages of executed notebooks are printed only where the configuration says so, with limits and without a network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.browser.runs import Run
from tests.features.notebooks.fakes import notebook_results
from tests.features.notebooks.fakes.notebook_results import code, notebook, stream
from toolbox.features.notebooks import notebook_pdfs
from toolbox.records.runs.run_state import RunState
from toolbox.reports import run_page

# A program in place of Chromium: it writes its arguments into the file that it is to print.
FAKE = """#!/bin/sh
for argument; do case $argument in --print-to-pdf=*) file=${argument#*=};; esac; done
{ echo %PDF; echo "$@"; env; } > "$file"
"""


def run_of(directory: Path, configuration: str = "notebooks: {pdf: true}\n") -> tuple[RunState, Path]:
    """Write a run with a page of a notebook and this configuration; return where the PDF file is to be."""
    run = Run(directory / "r-1")
    attempt = run.cell(runtime="a", machine="b")
    notebook_results.write(attempt, "fit", notebook(code("1", stream("out"))))
    (attempt / "notebooks").mkdir()
    (attempt / "notebooks/fit.html").write_text("<!doctype html><p>a page</p>")
    (directory / "r-1/config.yaml").write_text(configuration)
    return run.write(), attempt / "notebooks/fit.pdf"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in place of Chromium."""
    program = tmp_path / "bin/chromium"
    program.parent.mkdir()
    program.write_text(FAKE)
    program.chmod(0o700)
    monkeypatch.setattr(notebook_pdfs, "_PROGRAMS", (str(program),))
    return program


@pytest.mark.parametrize(
    "configuration",
    ["notebooks: {pdf: false}\n", "notebooks: {pdf: 'yes'}\n", "{}\n", "notebooks: [pdf]\n", "- x\n", "{", "\x00"],
)
@pytest.mark.usefixtures("fake")
def test_nothing_is_printed_unless_the_configuration_says_so(tmp_path: Path, configuration: str) -> None:
    summary, file = run_of(tmp_path, configuration)
    notebook_pdfs.make_missing(summary)
    assert not file.exists()


def test_a_page_is_printed_once_without_a_network_and_without_secrets(
    tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    summary, file = run_of(tmp_path)
    notebook_pdfs.make_missing(summary)
    text = file.read_text()
    assert "--host-resolver-rules=MAP * ~NOTFOUND" in text
    assert (tmp_path / "r-1").as_uri() in text
    assert "MY_TOKEN" not in text
    fake.write_text("#!/bin/sh\nexit 1\n")
    notebook_pdfs.make_missing(summary)
    assert file.read_text() == text


@pytest.mark.parametrize("script", ["exit 1", "sleep 60", "echo text > ${0%/*}/x"], ids=["fails", "hangs", "no file"])
def test_a_failure_is_a_warning(
    tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, script: str
) -> None:
    monkeypatch.setattr(notebook_pdfs, "MAX_SECONDS", 1.0)
    fake.write_text(f"#!/bin/sh\n{script}\n")
    summary, file = run_of(tmp_path)
    notebook_pdfs.make_missing(summary)
    assert not file.exists()
    assert "fit could not be converted to PDF" in caplog.text


def test_without_chromium_a_warning_names_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notebook_pdfs, "_PROGRAMS", ("no-such-browser",))
    summary, file = run_of(tmp_path)
    notebook_pdfs.make_missing(summary)
    assert not file.exists()
    assert "no-such-browser" in caplog.text


@pytest.mark.live
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed: apt-get install chromium")
def test_chromium_prints_the_page_and_the_report_links_to_it(tmp_path: Path) -> None:
    summary, file = run_of(tmp_path)
    text = run_page.write(summary).read_text()
    assert file.read_bytes().startswith(b"%PDF")
    assert 'attempt-1/notebooks/fit.pdf">.pdf</a>' in text
