"""The project `notebooks` tests runtimes on this machine, names the runtime that fails, and survives a kill."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.functional import notebook_runs
from tests.functional.grid import wait
from toolbox.system import processes
from toolbox.testing import Workspace

# A notebook and a check that take part in counting: they append to a file outside of the attempt.
COUNT = """
import os
with open(os.environ["LOG"], "a") as lines:
    lines.write(f"{word} {os.environ['COMBINATION']}\\n")
"""
CHECK = 'echo "check $COMBINATION" >>"$LOG"'
_MACHINES = [f"m{number}" for number in range(20)]
_RUNTIMES = ["left", "right"]


@pytest.fixture
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return notebook_runs.shared_environments(tmp_path_factory)


def test_the_demo_passes_except_for_a_notebook_on_a_runtime_which_the_report_names(
    workspace: Workspace, environments: Path
) -> None:
    flag = notebook_runs.overrides(workspace, environments)
    outcome = workspace.run("project", "run", "notebooks", flag, timeout=notebook_runs.TIMEOUT)
    assert outcome.exit_code == 1, str(outcome)
    assert notebook_runs.verdicts(workspace) == {
        "classic on small": "passed",
        "classic on large": "passed",
        "current on small": "failed",
        "current on large": "failed",
    }
    for machine in ("small", "large"):
        found = {
            name: record["outcome"]
            for name, record in notebook_runs.results(workspace, f"current on {machine}").items()
        }
        assert [name for name, outcome in found.items() if outcome not in {"passed", "skipped"}] == ["notebook.energy"]
        assert {"environment.environment", "notebook.fit", "notebook.matrix_product"} <= found.keys()
    failed = notebook_runs.results(workspace, "current on small")["notebook.energy"]
    assert failed["fault"] == "code"
    assert failed["notebook"]["failed_cell"]["exception"].startswith("AttributeError")
    assert "np.trapz" in failed["notebook"]["failed_cell"]["source"]
    assert "failed cells have in common: runtime=current: 2 of 2 failed; elsewhere 0 of 2" in outcome.stdout
    page = (workspace.run_directory() / "report.html").read_text()
    assert "elsewhere 0 of 2" in page  # the attribution, which names the runtime
    # The second machine takes the environment of the first one from the cache.
    assert notebook_runs.report(workspace, "classic on large")["environment_seconds"] is None


def test_a_run_of_forty_combinations_loses_and_repeats_nothing_when_it_is_killed(
    workspace: Workspace, environments: Path
) -> None:
    log = workspace.directory / "log"
    workspace.write(
        {
            "books/count.ipynb": notebook_runs.notebook(f"word = 'begin'{COUNT}", f"word = 'end'{COUNT}"),
            "projects/notebooks/checks/count.sh": CHECK,
        }
    )
    book = {"file": str(workspace.directory / "books/count.ipynb")}
    flag = notebook_runs.overrides(
        workspace,
        environments,
        # One runtime without notebooks, because kernels take most of the time of the test.
        runtimes={"left": {"kernel": "python3", "notebooks": [book]}, "right": {"kernel": "python3"}},
        machines={name: {"target": "local", "memory_gb": 1} for name in _MACHINES},
        notebooks__checks=["count.sh"],
        notebooks__python=sys.executable,
        matrix__max_cells=40,
        matrix__workload__env={"COMBINATION": "{@cell.runtime} on {@cell.machine}", "LOG": str(log)},
    )

    def ended() -> int:
        return log.read_text().count("end ") if log.exists() else 0

    with workspace.start("project", "run", "notebooks", "--jobs=2", flag) as running:
        wait(lambda: ended() >= 5, "the first combinations", seconds=notebook_runs.TIMEOUT)
        running.send(signal.SIGKILL)
        assert running.wait().exit_code == -signal.SIGKILL
    try:
        resume = ("project", "resume", str(workspace.run_directory()), "--jobs=2")
        outcome = workspace.run(*resume, timeout=notebook_runs.TIMEOUT)
    finally:
        left = processes.marked(workspace.directory)
        processes.end_marked(workspace.directory)
    assert outcome.exit_code == 0, str(outcome)
    names = [f"{runtime} on {machine}" for runtime in _RUNTIMES for machine in _MACHINES]
    assert notebook_runs.verdicts(workspace) == dict.fromkeys(names, "passed")
    assert Counter(log.read_text().splitlines()) == Counter(
        [f"check {name}" for name in names]
        + [f"{word} {name}" for word in ("begin", "end") for name in names if name.startswith("left")]
    )
    assert {len(cell["attempts"]) for cell in notebook_runs.cells(workspace).values()} == {1}
    assert left == []
