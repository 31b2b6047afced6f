"""The page of an owner of cells links to the executed notebooks of failed cells."""

from __future__ import annotations

from urllib.parse import unquote

from tests.browser.runs import Run
from tests.unit.reports.test_owner_pages import hrefs, owned, pages
from tests.unit.reports.test_owner_pages import run as run  # noqa: PLC0414  # re-exports the fixture
from toolbox.features.notebooks.worker import notebook_results
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.runs.layout import RunDirectory
from toolbox.reports import run_page


def test_a_failure_links_to_its_executed_notebooks(run: Run) -> None:
    attempt = owned(run, "ada", Verdict.FAILED, x="a")
    executed = attempt / "files" / notebook_results.EXECUTED
    executed.mkdir(parents=True)
    for name in ("fit.ipynb", "javascript:alert(1).ipynb", "no_notebook.txt"):
        (executed / name).write_text("{")
    (executed / "secret.ipynb").symlink_to("/etc/passwd")
    summary = run.write(Verdict.FAILED)
    run_page.write(summary)
    (page,) = pages(run).values()
    links = [link for link in hrefs(page) if "report.html" not in link]
    assert len(links) == 2
    folder = RunDirectory(run.directory).owners
    for link in links:
        assert link.startswith("../000__test/")
        assert (folder / unquote(link)).resolve().is_relative_to(run.directory)
        assert (folder / unquote(link)).is_file()
