"""Runs the project `notebooks` in a workspace, with environments that all tests of a session share."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.features.notebooks.worker import requirement_lines
from toolbox.features.notebooks.worker.environment_log import EnvironmentLog
from toolbox.features.notebooks.worker.environments import EnvironmentStore
from toolbox.ground.system import places
from toolbox.testing import Workspace

TIMEOUT = 600.0
# pip reads 0 as `--no-compile`. Without bytecode, an environment takes half of the time.
NO_BYTECODE = ("PIP_NO_COMPILE", "0")
# Both runtimes and both machines of the demo, in two of its four cells, with the verdicts of these cells.
ONE_CELL_OF_EACH = "--cells=*classic,machine=small *current,machine=large"
ENDS_OF_EACH = {"classic on small": "passed", "current on large": "failed"}


def shared_environments(factory: pytest.TempPathFactory) -> Path:
    """Return a directory for environments. Workers of pytest-xdist share the directory, in which Topgallant locks."""
    base = factory.getbasetemp()
    return (base.parent if base.name.startswith("popen-") else base) / "environments"


def demo_pythons(factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the Python of each runtime of the demo. Only the first test that asks makes the environments."""
    directory = shared_environments(factory)
    shipped = yaml.safe_load((places.builtin_root() / "config/notebooks.yaml").read_text())
    pythons = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*NO_BYTECODE)
        for name, runtime in shipped["runtimes"].items():
            log = EnvironmentLog(factory.mktemp("environment") / "log", print)
            lines = requirement_lines.with_kernel(runtime["requirements"])
            with EnvironmentStore(directory, log, TIMEOUT).prepared(lines, sys.executable) as environment:
                pythons[name] = str(environment.python)
    return pythons


def overrides(workspace: Workspace, environments: Path, **changes: Any) -> str:
    """Write overrides in which `__` stands for a dot, and return the flag that names them."""
    values = {
        "host.capture_state.enabled": False,
        "notebooks.environments": str(environments),
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    workspace.write({"overrides.yaml": yaml.safe_dump(values)})
    return "--overrides=overrides.yaml"


def cells(workspace: Workspace) -> dict[str, dict[str, Any]]:
    """Return the cells of the only run, by their runtime and machine: `classic on small`."""
    steps = [step for step in workspace.summary()["steps"] if step["kind"] == "cell"]
    return {_name(step["name"]): step for step in steps}


def verdicts(workspace: Workspace) -> dict[str, str]:
    """Return the verdicts of the cells."""
    return {name: cell["verdict"] for name, cell in cells(workspace).items()}


def results(workspace: Workspace, cell: str, attempt: int = 1) -> dict[str, dict[str, Any]]:
    """Return the results of the worker in an attempt of a cell, by kind and name: `notebook.fit`."""
    lines = (_files(workspace, cell, attempt) / "results.jsonl").read_text().splitlines()
    return {f"{record['kind']}.{record['name']}": record for record in map(json.loads, lines)}


def report(workspace: Workspace, cell: str, attempt: int = 1) -> dict[str, Any]:
    """Return the report of the worker in an attempt of a cell."""
    content: dict[str, Any] = json.loads((_files(workspace, cell, attempt) / "notebook_worker.json").read_text())
    return content


def notebook(*sources: str, tags: Sequence[str] = ()) -> str:
    """Return a notebook with these code cells. The first cell has `tags`."""
    code: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"cell-{number}",
            "metadata": {"tags": list(tags)} if tags and number == 0 else {},
            "outputs": [],
            "source": source,
        }
        for number, source in enumerate(sources)
    ]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": code, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def busy_while_sampled(samples: Path, *, seconds: float) -> str:
    """Return code for a cell, which computes between two samples of its resource use. The sampler may start late.

    Args:
        samples: the file of the samples.
        seconds: the CPU time.
    """
    return f"""
import os, time
def lines():
    return open({str(samples)!r}).read().count("\\n") if os.path.exists({str(samples)!r}) else 0
def wait(count):
    while lines() < count:
        time.sleep(0.01)
wait(2)  # the heading and a sample
end = time.process_time() + {seconds}
while time.process_time() < end:
    pass
wait(lines() + 1)
"""


def _files(workspace: Workspace, cell: str, attempt: int) -> Path:
    runtime, machine = cell.split(" on ")
    (directory,) = workspace.run_directory().glob(f"*__test/*__runtime={runtime},machine={machine}")
    return directory / f"attempt-{attempt}" / "files"


def _name(step: str) -> str:
    runtime, machine = (part.partition("=")[2] for part in step.split(","))
    return f"{runtime} on {machine}"
