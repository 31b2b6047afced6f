"""The project `notebooks` tests runtimes on this machine, and names the runtime that fails."""

from __future__ import annotations

import pytest

from tests.features.notebooks.functional import notebook_runs
from toolbox.testing import Workspace


def test_the_demo_passes_except_for_a_notebook_on_a_runtime_which_the_report_names(
    workspace: Workspace, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*notebook_runs.NO_BYTECODE)
    flag = notebook_runs.overrides(workspace, notebook_runs.shared_environments(tmp_path_factory))
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
