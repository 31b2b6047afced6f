"""The project `notebooks` on a real JupyterHub: each combination has a server, which tests a kernel with a profile."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.features.notebooks.functional import notebook_runs
from tests.features.notebooks.servers.jupyterhub import Hub
from tests.functional.grid import wait
from toolbox.ground.system import places, processes
from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live
MACHINES = [f"m{number}" for number in range(4)]
NOTED = MACHINES[1:3]
# A check and a notebook append lines to a file outside of the attempt. The check of the first combination is held.
CHECK = """
echo "check $PROMISE_RUNTIME on $PROMISE_MACHINE" >>{log}
echo "server $JUPYTERHUB_SERVER_NAME" >>{log}
while [ "$PROMISE_RUNTIME on $PROMISE_MACHINE" = "paint-stable on m0" ] && [ -e {log}.hold ]; do sleep 0.05; done
"""
COUNT = """
import os
with open({log!r}, "a") as lines:
    lines.write(f"{word} {{os.environ['JUPYTERHUB_SERVER_NAME']}}\\n")
"""


class Project:
    """The project `notebooks` with a hub."""

    def __init__(self, workspace: Workspace, hub: Hub, environments: Path) -> None:
        self.workspace = workspace
        self.hub = hub
        self.environments = environments
        self.env = {"NOTEBOOKS_SECRETS": str(workspace.directory / "secrets")}
        self.target = {"backend": "jupyterhub", "url": hub.url, "token": "*$@secrets.hub_token"}
        self._requested, self._started = hub.requested(), hub.started()
        workspace.write({"secrets/hub_token": hub.token})

    def configure(self, **changes: Any) -> str:
        """Write overrides, and return the flag that names them."""
        return notebook_runs.overrides(self.workspace, self.environments, notebooks__python=sys.executable, **changes)

    def run(self, *argv: str) -> Outcome:
        """Run or resume the project."""
        return self.workspace.run("project", *argv, env=self.env, timeout=notebook_runs.TIMEOUT)

    @property
    def requested(self) -> Counter[str]:
        """How often each server of the test was requested."""
        return self.hub.requested() - self._requested

    @property
    def started(self) -> Counter[str]:
        """How often the hub has started each server of the test."""
        return self.hub.started() - self._started

    def check_clean(self) -> None:
        """Check that no server is left, and that no file contains the token."""
        assert self.hub.servers() == {}
        secret = self.workspace.directory / "secrets/hub_token"
        assert [file for file in self.workspace.holding(self.hub.token) if Path(file) != secret] == []


@pytest.fixture
def project(workspace: Workspace, shared_hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    yield Project(workspace, shared_hub, notebook_runs.shared_environments(tmp_path_factory))
    shared_hub.clear()
    processes.end_marked(workspace.directory)


def documented(hub: Hub) -> dict[str, Any]:
    """Return the configuration of the demo on a hub that the page shows, with the address of the hub."""
    page = (places.builtin_root() / "docs/jupyterhub.md").read_text()
    block = page.partition("## The demo on a hub")[2].partition("```yaml\n")[2].partition("```")[0]
    configuration: dict[str, Any] = yaml.safe_load(block.replace("https://hub.example.org", hub.url))
    return configuration


def test_the_demo_runs_with_two_kernels_and_two_profiles(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for runtime, python in notebook_runs.demo_pythons(tmp_path_factory).items():
        project.hub.add_kernel(runtime, python)
    configuration = documented(project.hub)
    usable = len(os.sched_getaffinity(0))
    configuration["machines"]["large"]["cpus"] = usable
    outcome = project.run("run", "notebooks", project.configure(**configuration), notebook_runs.ONE_CELL_OF_EACH)
    assert outcome.exit_code == 1, str(outcome)
    assert notebook_runs.verdicts(project.workspace) == notebook_runs.ENDS_OF_EACH
    for name in notebook_runs.ENDS_OF_EACH:
        results = notebook_runs.results(project.workspace, name)
        failed = [test for test, record in results.items() if record["outcome"] not in {"passed", "skipped"}]
        assert failed == (["notebook.energy"] if name.startswith("current") else [])
        assert {"notebook.fit", "notebook.matrix_product", "python.packages:numpy"} <= results.keys()
        processors = 1 if name.endswith("small") else usable
        assert results["python.threads:cpus"]["found"].startswith(f"{processors} processors")
    assert list(project.requested.values()) == [1] * 2
    project.check_clean()


def test_a_server_gets_the_image_of_its_runtime_and_the_profile_of_its_target(project: Project) -> None:
    project.workspace.write({"projects/notebooks/checks/seen.sh": 'echo "found: $SERVER_PROFILE $SERVER_IMAGE"'})
    flag = project.configure(
        targets={"hub": {**project.target, "profile": "small"}},
        machines={"only": {"target": "hub"}},
        runtimes={"imaged": {"image": "registry.example.org/paint:1", "kernel": "paint-stable"}},
        notebooks__checks=["seen.sh"],
        matrix__checks=[{"check": "notebooks"}],
    )
    outcome = project.run("run", "notebooks", flag)
    assert outcome.exit_code == 0, str(outcome)
    found = notebook_runs.results(project.workspace, "imaged on only")["shell.seen"]["found"]
    assert found == "small registry.example.org/paint:1"
    project.check_clean()


def test_a_run_of_eight_combinations_loses_and_repeats_nothing_when_it_is_killed(project: Project) -> None:
    workspace, log = project.workspace, project.workspace.directory / "log"
    cells = [COUNT.format(log=str(log), word=word) for word in ("begin", "end")]
    workspace.write(
        {
            "books/count.ipynb": notebook_runs.notebook(*cells),
            "projects/notebooks/checks/count.sh": CHECK.format(log=log),
            "log.hold": "",
        }
    )
    book = {"file": str(workspace.directory / "books/count.ipynb"), "timeout": 300}
    runtimes: dict[str, dict[str, Any]] = {
        "paint-stable": {"kernel": "paint-stable"},
        "paint-next": {"kernel": "paint-next"},
        "noted": {"kernel": "paint-next", "notebooks": [book]},  # on few machines, because kernels take time
    }
    valid = {name: ["paint-stable", "noted" if name in NOTED else "paint-next"] for name in MACHINES}
    flag = project.configure(
        targets={"hub": {**project.target, "profile": "large"}},
        machines={name: {"target": "hub", "runtimes": valid[name], "promises": {"machine": name}} for name in MACHINES},
        runtimes={name: {**runtime, "promises": {"runtime": name}} for name, runtime in runtimes.items()},
        notebooks__checks=["count.sh"],
        matrix__checks=[{"check": "notebooks"}],
    )

    def lines() -> list[str]:
        return log.read_text().splitlines() if log.exists() else []

    with workspace.start("project", "run", "notebooks", "--jobs=2", flag, env=project.env) as running:
        wait(lambda: len(lines()) >= 8 and "check paint-stable on m0" in lines(), "the first combinations", 300)
        running.send(signal.SIGKILL)
        assert running.wait().exit_code == -signal.SIGKILL
    Path(f"{log}.hold").unlink()
    outcome = project.run("resume", str(workspace.run_directory()), "--jobs=2")
    assert outcome.exit_code == 0, str(outcome)
    names = [f"{runtime} on {machine}" for machine in MACHINES for runtime in valid[machine]]
    executed = {name: cell for name, cell in notebook_runs.cells(workspace).items() if cell["verdict"] != "skipped"}
    assert {name: cell["verdict"] for name, cell in executed.items()} == dict.fromkeys(names, "passed")
    assert {len(cell["attempts"]) for cell in executed.values()} == {1}
    counted = Counter(line for line in lines() if line.startswith("check "))
    assert counted == Counter(f"check {name}" for name in names)
    servers = {
        word: [line.split()[1] for line in lines() if line.startswith(word)] for word in ("server", "begin", "end")
    }
    assert sorted(servers["server"]) == sorted(project.started)
    assert sorted(servers["begin"]) == sorted(servers["end"])
    assert len(set(servers["end"])) == len(servers["end"]) == len(NOTED)
    assert set(servers["end"]) < set(servers["server"])
    assert list(project.started.values()) == [1] * 8
    assert project.requested.keys() == project.started.keys()
    assert processes.marked(workspace.directory) == []
    project.check_clean()
