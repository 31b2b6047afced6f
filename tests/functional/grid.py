"""The project `grid`: its cells record their progress in files, and wait or fail if a test creates certain files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolbox.ground.system import processes
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
# A cell records its beginning and its end. It waits while `hold-NAME` exists, and fails if `fail-NAME` exists.
WORKLOAD = """
    echo begin {@cell.x} >>{@root}/cells
    while [ -e {@root}/hold-{@cell.x} ]; do sleep 0.02; done
    echo end {@cell.x} >>{@root}/cells
    [ ! -e {@root}/fail-{@cell.x} ]
"""
TIMEOUT_SECONDS = 120.0


class Grid:
    """The project `grid` in a workspace."""

    def __init__(self, workspace: Workspace, orchestration: str = ORCHESTRATION) -> None:
        self.workspace = workspace
        self.root = workspace.directory
        workspace.write({"projects/grid/orchestration.py": orchestration, "command_args/grid.yaml.j2": ""})
        self.configure()

    def configure(self, x: str = "abc", **matrix: Any) -> Grid:
        """Write the configuration, as JSON, which is also YAML.

        Args:
            x: values of the axis, one per letter.
            matrix: further keys of the matrix. `blocks` holds further blocks of the configuration.
        """
        blocks = matrix.pop("blocks", {})
        block = {"axes": {"x": list(x)}, "jobs": 3, "workload": {"command": WORKLOAD, "sample_seconds": None}, **matrix}
        text = json.dumps({"root": str(self.root), **blocks, "matrix": block}, indent=2)
        self.workspace.write({"config/grid.yaml": text})
        return self

    def mark(self, *names: str) -> Grid:
        """Make cells wait or fail, for example with `mark("hold-a", "fail-b")`."""
        for name in names:
            (self.root / name).touch()
        return self

    def unmark(self, *names: str) -> None:
        """Undo `mark`."""
        for name in names:
            (self.root / name).unlink()

    def run(self, *flags: str) -> Outcome:
        """Run the project until the run ends."""
        return self.workspace.run("project", "run", "grid", *flags)

    def start(self, *flags: str) -> Running:
        """Start a run, and return without waiting for its end."""
        return self.workspace.start("project", "run", "grid", *flags)

    def resume(self, *flags: str) -> Outcome:
        """Resume the only run of the workspace."""
        return self.workspace.run("project", "resume", str(self.directory), *flags)

    @property
    def directory(self) -> Path:
        """Directory of the only run of the workspace."""
        return self.workspace.run_directory()

    @property
    def lines(self) -> list[str]:
        """Lines that the cells have written, such as `begin a` and `end a`."""
        return self._lines("cells")

    @property
    def phases(self) -> list[str]:
        """Phases that have run, except `test`, which is not recorded."""
        return self._lines("phases")

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdicts of the cells, by value of `x`."""
        steps = self.workspace.summary()["steps"]
        return {step["name"].removeprefix("x="): step["verdict"] for step in steps if step["kind"] == "cell"}

    def wait_for(self, *lines: str) -> None:
        """Wait until the cells have written these lines."""
        wait(lambda: set(lines) <= set(self.lines), f"{lines} in {self.lines}")

    def alive(self) -> list[int]:
        """Return the ids of the living processes of the workspace."""
        return processes.marked(self.root)

    def _lines(self, name: str) -> list[str]:
        file = self.root / name
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def grid(workspace: Workspace) -> Iterator[Grid]:
    """Yield the project, and kill all its processes after the test."""
    yield Grid(workspace)
    processes.end_marked(workspace.directory)


def wait(condition: Callable[[], object], what: str, seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until a condition holds, and fail the test if that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.02)
