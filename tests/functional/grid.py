"""A project with a matrix whose cells tell in files what they do, wait and fail, for the tests of `project`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolbox.system import processes
from toolbox.testing import Outcome, Running, Workspace

ORCHESTRATION = '''
    """Runs a matrix."""
    from toolbox.orchestration import config, matrix, run


    def prepare():
        run.run("echo prepare >>phases")


    def test():
        matrix.run()


    def post_cleanup():
        run.run("echo cleanup >>phases")
'''
# A cell says that it begins and that it ends. Meanwhile it waits while `hold-NAME` is there; `fail-NAME` has it fail.
WORKLOAD = """
    echo begin {@cell.x} >>{@root}/cells
    while [ -e {@root}/hold-{@cell.x} ]; do sleep 0.02; done
    echo end {@cell.x} >>{@root}/cells
    [ ! -e {@root}/fail-{@cell.x} ]
"""
TIMEOUT_SECONDS = 60.0


class Grid:
    """The project `grid` in a workspace."""

    def __init__(self, workspace: Workspace, orchestration: str = ORCHESTRATION) -> None:
        self.workspace = workspace
        self.root = workspace.directory
        workspace.write({"projects/grid/orchestration.py": orchestration, "command_args/grid.yaml.j2": ""})
        self.configure()

    def configure(self, x: str = "abc", **matrix: Any) -> Grid:
        """Write its configuration: JSON is YAML.

        Args:
            x: the values of the axis, one a letter.
            matrix: what else the matrix says.
        """
        blocks = matrix.pop("blocks", {})
        block = {"axes": {"x": list(x)}, "jobs": 3, "workload": {"command": WORKLOAD, "sample_seconds": None}, **matrix}
        text = json.dumps({"root": str(self.root), **blocks, "matrix": block}, indent=2)
        self.workspace.write({"config/grid.yaml": text})
        return self

    def mark(self, *names: str) -> Grid:
        """Have cells wait or fail: `mark("hold-a", "fail-b")`."""
        for name in names:
            (self.root / name).touch()
        return self

    def unmark(self, *names: str) -> None:
        """Have them do so no more."""
        for name in names:
            (self.root / name).unlink()

    def run(self, *flags: str) -> Outcome:
        """Run it to its end."""
        return self.workspace.run("project", "run", "grid", *flags)

    def start(self, *flags: str) -> Running:
        """Start to run it."""
        return self.workspace.start("project", "run", "grid", *flags)

    def resume(self, *flags: str) -> Outcome:
        """Go on with the one run that there is."""
        return self.workspace.run("project", "resume", str(self.directory), *flags)

    @property
    def directory(self) -> Path:
        """The directory of that run."""
        return self.workspace.run_directory()

    @property
    def lines(self) -> list[str]:
        """The lines that the cells have written: `begin a`, `end a`."""
        return self._lines("cells")

    @property
    def phases(self) -> list[str]:
        """The phases that have run."""
        return self._lines("phases")

    @property
    def verdicts(self) -> dict[str, str]:
        """How the cells ended."""
        steps = self.workspace.summary()["steps"]
        return {step["name"].removeprefix("x="): step["verdict"] for step in steps if step["kind"] == "cell"}

    def wait_for(self, *lines: str) -> None:
        """Wait until the cells have written these lines."""
        wait(lambda: set(lines) <= set(self.lines), f"{lines} in {self.lines}")

    def alive(self) -> list[int]:
        """Return the processes of the workspace that are alive."""
        return processes.marked(self.root)

    def _lines(self, name: str) -> list[str]:
        file = self.root / name
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def grid(workspace: Workspace) -> Iterator[Grid]:
    """The project, whose processes are all ended with the test."""
    yield Grid(workspace)
    processes.end_marked(workspace.directory)


def wait(condition: Callable[[], object], what: str, seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.02)
