"""A run ends with the pages of its executed notebooks, in which no secret is, and `results report` makes them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolbox.testing import Outcome, Workspace

SECRET = "correct-horse-battery"
# Executes a notebook that prints a secret as text, as HTML and in an exception, as the notebook worker would.
WORKLOAD = """
import os, pathlib, nbformat
from nbclient import NotebookClient
print_it = "import os; print(os.environ['TOKEN'])"
show_it = "from IPython.display import HTML; HTML('<b>' + os.environ['TOKEN'] + '</b>')"
raise_it = "import base64; t = os.environ['TOKEN']; raise ValueError(t + base64.b64encode(t.encode()).decode())"
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in (print_it, show_it, raise_it)])
NotebookClient(notebook, kernel_name="python3", allow_errors=True).execute()
pathlib.Path("executed").mkdir()
nbformat.write(notebook, "executed/leaky.ipynb")
"""
FILES = {
    "projects/leaky/orchestration.py": '''
        """Runs a matrix."""
        from toolbox.orchestration import matrix


        def prepare():
            pass


        def test():
            matrix.run()


        def post_cleanup():
            pass
    ''',
    "command_args/leaky.yaml.j2": "",
    "work.py": WORKLOAD,
    "config/leaky.yaml": """
        secrets: {dir: {name: the vault, env_key: VAULT}, token: token}
        matrix:
          axes: {runtime: [a]}
          workload:
            command: [python3, ../src/work.py]
            files: {work.py: work.py}
            env: {TOKEN: "*$@secrets.token"}
    """,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Outcome]:
    """Return a workspace with a run whose notebook prints a secret."""
    vault = tmp_path_factory.mktemp("vault")
    (vault / "token").write_text(SECRET)
    workspace = Workspace(tmp_path_factory.mktemp("leaky"), FILES)
    return workspace, workspace.run("project", "run", "leaky", env={"VAULT": str(vault)})


def page_of(workspace: Workspace) -> Path:
    """Return the page of the only notebook."""
    (page,) = workspace.run_directory().glob("*__test/*/attempt-1/notebooks/leaky.html")
    return page


def test_no_file_of_a_run_has_the_secret_that_a_notebook_prints(run: tuple[Workspace, Outcome]) -> None:
    workspace, outcome = run
    assert outcome.exit_code == 0, str(outcome)
    text = page_of(workspace).read_text()
    assert "***\n" in text
    assert "<b>***</b>" in text
    assert "ValueError" in text
    assert workspace.holding(SECRET) == []
    assert workspace.holding("Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"[:24]) == []


def test_results_report_makes_only_missing_pages(run: tuple[Workspace, Outcome]) -> None:
    workspace, _ = run
    page = page_of(workspace)
    text, made = page.read_text(), page.stat().st_mtime_ns
    assert workspace.run("results", "report", str(workspace.run_directory())).exit_code == 0
    assert page.stat().st_mtime_ns == made
    page.unlink()
    assert workspace.run("results", "report", str(workspace.run_directory())).exit_code == 0
    assert page.read_text() == text
    assert "notebooks/leaky.html" in (workspace.run_directory() / "report.html").read_text()
