"""The project `inference` on a target that is reached with SSH, which needs no model on the machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import openssh
from toolbox.testing import Workspace

pytestmark = pytest.mark.live


@pytest.fixture
def server(tmp_path: Path) -> Iterator[openssh.Server]:
    directory = tmp_path / "server"
    directory.mkdir()
    with openssh.serving(directory) as running:
        yield running


def test_a_config_is_served_and_judged_on_another_machine(workspace: Workspace, server: openssh.Server) -> None:
    target = {"backend": "ssh", "host": openssh.ADDRESS, "port": server.port, "directory": "~/attempts"}
    values = {
        "targets": {"far": target},
        "matrix.target": "far",
        "inference.python": sys.executable,
        "host.capture_state.enabled": False,
    }
    argv = ("project", "run", "inference", "--cells=*config=two-shards,*", f"--overrides={json.dumps(values)}")
    outcome = workspace.run(*argv, env=server.environment(), timeout=300)
    assert outcome.exit_code == 0, str(outcome)
    cells = [step for step in workspace.summary()["steps"] if step["kind"] == "cell"]
    assert [(cell["verdict"], cell["attempts"][0]["target"]) for cell in cells] == [("passed", "far")]
    assert list((server.directory / "attempts").iterdir()) == []
