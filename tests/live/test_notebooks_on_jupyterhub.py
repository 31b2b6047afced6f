"""The project `notebooks` on a real JupyterHub, with two kernels that have different packages."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.functional import notebook_runs
from tests.functional.grid import wait
from tests.servers import jupyterhub
from tests.servers.jupyterhub import Hub
from toolbox.system import processes
from toolbox.testing import Workspace

pytestmark = pytest.mark.live
MACHINES = ("small", "large")
VERSION = "import paint; print(paint.__version__)"
STABLE = "assert paint.__version__ == '1.0', paint.__version__"
TIMES = {"wait": 120}


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with jupyterhub.serving() as found:
        yield found


class Project:
    """The project `notebooks` with two runtimes, which are kernels of the hub.

    Args:
        environments: the directory for the environments of workers.
    """

    def __init__(self, workspace: Workspace, hub: Hub, environments: Path) -> None:
        self.workspace = workspace
        self.hub = hub
        self.env = {"NOTEBOOKS_SECRETS": str(workspace.directory / "secrets")}
        workspace.write(
            {
                "secrets/hub_token": hub.token,
                "notebooks/version.ipynb": notebook_runs.notebook(VERSION),
                "notebooks/stable.ipynb": notebook_runs.notebook("import paint", STABLE),
            }
        )
        target = {"backend": "jupyterhub", "url": hub.url, "token": "*$@secrets.hub_token"}
        notebooks = [
            {"file": f"{workspace.directory}/notebooks/{name}.ipynb", "timeout": 120} for name in ("version", "stable")
        ]
        self.flag = notebook_runs.overrides(
            workspace,
            environments,
            targets={f"hub-{profile}": {**target, "profile": profile} for profile in MACHINES},
            machines={profile: {"target": f"hub-{profile}"} for profile in MACHINES},
            runtimes={name: {"kernel": name, "notebooks": notebooks} for name in jupyterhub.KERNELS},
            notebooks__python=sys.executable,
            notebooks__checks=[],
            matrix__checks=[{"check": "notebooks"}],
            matrix__timeouts=TIMES,
        )

    @property
    def verdicts(self) -> Mapping[str, str]:
        """The verdicts of the cells."""
        return notebook_runs.verdicts(self.workspace)

    def results(self, cell: str) -> dict[str, Any]:
        """Return the results of a cell."""
        return notebook_runs.results(self.workspace, cell)


@pytest.fixture
def project(workspace: Workspace, hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    yield Project(workspace, hub, notebook_runs.shared_environments(tmp_path_factory))
    hub.clear()
    processes.end_marked(workspace.directory)


def test_two_kernels_are_tested_with_two_profiles(project: Project) -> None:
    argv = ("project", "run", "notebooks", project.flag)
    outcome = project.workspace.run(*argv, env=project.env, timeout=notebook_runs.TIMEOUT)
    assert outcome.exit_code == 1, str(outcome)
    assert project.verdicts == {
        "paint-stable on small": "passed",
        "paint-stable on large": "passed",
        "paint-next on small": "failed",
        "paint-next on large": "failed",
    }
    failed = project.results("paint-next on small")["notebook.stable"]
    assert (failed["outcome"], failed["fault"]) == ("failed", "code")
    assert "AssertionError: 2.0" in failed["message"]
    executed = project.workspace.run_directory().glob("*__test/*/attempt-1/files/executed/version.ipynb")
    outputs = [json.loads(file.read_text())["cells"][0]["outputs"][0]["text"] for file in executed]
    printed = {"".join(text) for text in outputs}
    assert printed == {"1.0\n", "2.0\n"}
    assert project.hub.servers() == {}
    assert project.workspace.holding(project.hub.token) == []


def test_a_killed_run_is_resumed_and_leaves_no_server(project: Project) -> None:
    with project.workspace.start("project", "run", "notebooks", project.flag, "--jobs=2", env=project.env) as running:
        wait(
            lambda: list(project.workspace.artifacts.glob("*/*/*__test/*/attempt-1/files/results.jsonl")),
            "a result",
            240,
        )
        running.send(signal.SIGKILL)
        running.wait()
    directory = str(project.workspace.run_directory())
    argv = ("project", "resume", directory, "--jobs=2")
    outcome = project.workspace.run(*argv, env=project.env, timeout=notebook_runs.TIMEOUT)
    assert outcome.exit_code == 1, str(outcome)
    assert sorted(project.verdicts.values()) == ["failed", "failed", "passed", "passed"]
    cells = notebook_runs.cells(project.workspace)
    assert [len(cell["attempts"]) for cell in cells.values()] == [1, 1, 1, 1]
    assert project.hub.servers() == {}
