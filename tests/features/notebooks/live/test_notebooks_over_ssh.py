"""The project `notebooks` on a target that is reached with SSH."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.notebooks.functional import notebook_runs
from tests.servers import openssh
from toolbox.testing import Workspace

pytestmark = pytest.mark.live


@pytest.fixture
def server(tmp_path: Path) -> Iterator[openssh.Server]:
    directory = tmp_path / "server"
    directory.mkdir()
    with openssh.serving(directory) as running:
        yield running


def test_both_runtimes_are_tested_on_another_machine(
    workspace: Workspace, server: openssh.Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    notebook_runs.demo_pythons(tmp_path_factory)
    target = {
        "backend": "ssh",
        "labels": ["ssh"],
        "host": openssh.ADDRESS,
        "port": server.port,
        "directory": "~/attempts",
    }
    flag = notebook_runs.overrides(
        workspace,
        notebook_runs.shared_environments(tmp_path_factory),
        targets={"far": target, "kubernetes": {"backend": "kubernetes"}},
        notebooks__python=sys.executable,
    )
    argv = ("project", "run", "notebooks", "--presets=ssh", flag, notebook_runs.ONE_CELL_OF_EACH)
    outcome = workspace.run(*argv, env=server.environment(), timeout=notebook_runs.TIMEOUT)
    assert outcome.exit_code == 1, str(outcome)
    assert notebook_runs.verdicts(workspace) == notebook_runs.ENDS_OF_EACH
    cells = notebook_runs.cells(workspace)
    assert {attempt["target"] for cell in cells.values() for attempt in cell["attempts"]} == {"far"}
    executed = workspace.run_directory().glob("*__test/*/attempt-1/files/executed/*.ipynb")
    assert len(list(executed)) == 2 * 3
    assert list((server.directory / "attempts").iterdir()) == []
