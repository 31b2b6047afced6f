"""The orchestrator of a workflow is killed while it waits for a TPU: the step `Clean up` deletes the TPU."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.ci.fakes.github_actions import Job, Runner
from tests.features.ci.servers import github
from tests.features.tpu.servers import tpu
from toolbox.ground.system import places
from toolbox.testing import Workspace

TIMEOUT_SECONDS = 120.0
PROJECT = {
    "projects/chips/orchestration.py": '''
        """Runs its cells on a TPU."""
        from toolbox.orchestration import matrix

        def test():
            matrix.run()
    ''',
    "config/chips.yaml": """
        ci_presets: {{to_apply: null, names: null}}
        ci:
          github: {{command: ./toolbox, install: ["test -x toolbox"]}}
          workflows:
            nightly: {{schedule: "17 2 * * *", google: true}}
        targets:
          tpu:
            backend: tpu_vm
            project: my-project
            zone: us-central1-a
            accelerator_type: v5litepod-8
            runtime_version: v2-alpha-tpuv5-lite
            api_endpoint: {endpoint}
        matrix:
          axes: {{}}
          target: tpu
          timeouts: {{wait: 600, run: 600}}
          workload: {{command: ["true"]}}
    """,
    # Notes the process of the run.
    "toolbox": """
        #!/bin/sh
        [ "$1" != project ] || echo $$ >"$HOME/run.pid"
        exec {python} {program} "$@"
    """,
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tpu.Server]:
    """Yield a server whose TPUs have no machines, so that runs wait for them."""
    with tpu.serving(tmp_path / "server", has_workers=False) as running:
        yield running


@pytest.fixture
def api() -> Iterator[github.Server]:
    """Yield the API of GitHub."""
    with github.serving() as running:
        yield running


def test_a_killed_run_is_cleaned_up_and_reported(
    workspace: Workspace, server: tpu.Server, api: github.Server, tmp_path: Path
) -> None:
    program = shlex.quote(str(places.builtin_root() / "run_toolbox.py"))
    values = {"endpoint": server.endpoint, "python": shlex.quote(sys.executable), "program": program}
    workspace.write({name: text.format(**values) for name, text in PROJECT.items()})
    (workspace.directory / "toolbox").chmod(0o755)
    assert workspace.run("ci", "workflows", "chips").exit_code == 0
    runner = Runner(workspace.directory, tmp_path / "runner", api)
    jobs: dict[str, Job] = {}
    workflow = workspace.directory / ".github/workflows/chips-nightly.yml"
    thread = threading.Thread(target=lambda: jobs.update(runner.run(workflow, "schedule")))
    thread.start()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not server.nodes():  # the server has no event for a new node
        assert time.monotonic() < deadline
        thread.join(0.05)
    os.kill(int((runner.home / "run.pid").read_text()), signal.SIGKILL)
    thread.join(TIMEOUT_SECONDS)

    run = jobs["run"]
    assert run.steps["Run the project"].outcome == "failure"
    assert run.steps["Clean up"].outcome == "success", run.steps["Clean up"].output
    assert "deleted tpu_" in run.steps["Clean up"].output
    assert server.nodes() == []
    assert "::error title=chips did not end::" in run.steps["Report"].output
    assert run.steps["Export the run directory"].outcome == "success"
    (issue,) = api.repository.issues.values()
    assert (issue.title, issue.state) == ("chips: the workflow nightly fails", "open")
