"""The preset `ssh` of `training_e2e`, on two targets, which are two names of one OpenSSH server on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import openssh
from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live

TARGETS = ("ssh-1", "ssh-2")
ALIASES = ("topgallant-1", "topgallant-2")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[openssh.Server]:
    """Yield a server whose PATH begins with the Python of the tests, which has numpy."""
    directory = tmp_path / "server"
    directory.mkdir()
    with openssh.serving(directory) as running:
        yield running


def run(workspace: Workspace, server: openssh.Server) -> Outcome:
    """Run the project with some of its cells, and with the aliases of its targets in the configuration of `ssh`."""
    env = server.environment()
    config = server.known_hosts.with_suffix(".bin") / "config"
    alias = f"Host {' '.join(ALIASES)}\n  HostName {openssh.ADDRESS}\n  Port {server.port}\n"
    config.write_text(alias + config.read_text())
    values = {f"targets.{name}.directory": f"~/{name}" for name in TARGETS}
    flags = ("--presets=smoke,ssh", "--cells=model=tiny,batch=8,*", f"--overrides={json.dumps(values)}")
    argv = ("project", "run", "training_e2e", *flags)
    return workspace.run(*argv, env=env, timeout=300)


def test_the_same_cells_run_on_two_targets_and_leave_only_the_text_there(
    workspace: Workspace, server: openssh.Server
) -> None:
    outcome = run(workspace, server)
    assert outcome.exit_code == 0, str(outcome)
    directory, home = workspace.run_directory(), server.directory
    cells = [step for step in workspace.summary()["steps"] if step["kind"] == "cell"]
    assert [cell["verdict"] for cell in cells] == ["passed"] * 2
    assert {attempt["target"] for cell in cells for attempt in cell["attempts"]} == set(TARGETS)
    for cell in cells:
        attempt = directory / cell["step"] / "attempt-1"
        assert "Finished training run" in (attempt / "stdout.log").read_text()
        assert json.loads((attempt / "files/train_metrics.json").read_text())["step_time_seconds"] > 0
        assert len(list(attempt.glob("files/profile/**/*.xplane.pb"))) == 1
    states = directory.glob("000__prepare/*__host__capture_state/artifacts/*/host.json")
    assert sorted(state.parent.name for state in states) == list(ALIASES)
    assert [list((home / name).iterdir()) for name in TARGETS] == [[], []]
    text = home / ".cache/topgallant/training_e2e"
    assert sorted(path.name for path in text.iterdir()) == [".topgallant-training", "corpus.txt"]
