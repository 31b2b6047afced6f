"""Runs on a JupyterHub: each cell has a server, and none is left, whatever ends the run or fails on the hub."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.features.notebooks.servers.jupyterhub import Hub
from tests.functional.grid import Grid, wait
from toolbox.ground.system import processes
from toolbox.testing import Outcome, Running, Workspace

pytestmark = pytest.mark.live
TIMES = {"wait": 60, "run": 300, "grace": 1}


class Runs:
    """The project `grid` with a server for each cell."""

    def __init__(self, grid: Grid, hub: Hub) -> None:
        self.grid = grid
        self.hub = hub
        secrets = grid.workspace.directory / "secrets"
        secrets.mkdir()
        (secrets / "hub-token").write_text(hub.token)
        self.env = {"GRID_SECRETS": str(secrets)}

    def configure(self, x: str, profile: str = "bare", **matrix: Any) -> Runs:
        """Write the configuration with these cells."""
        target = {"backend": "jupyterhub", "url": self.hub.url, "token": "*$@secrets.hub", "profile": profile}
        blocks = {
            "secrets": {"dir": {"env_key": "GRID_SECRETS"}, "hub": "hub-token"},
            "targets": {"hub": target},
        }
        retries = {"infrastructure": 0, "capacity": 0}
        settings = {"target": "hub", "timeouts": TIMES, "retries": retries, **matrix}
        self.grid.configure(x, blocks=blocks, **settings)
        return self

    def run(self, *flags: str) -> Outcome:
        """Run the project until the run ends."""
        return self.grid.workspace.run("project", "run", "grid", *flags, env=self.env)

    def start(self, *flags: str) -> Running:
        """Start a run."""
        return self.grid.workspace.start("project", "run", "grid", *flags, env=self.env)

    def resume(self, *flags: str) -> Outcome:
        """Resume the only run of the workspace."""
        return self.grid.workspace.run("project", "resume", str(self.grid.directory), *flags, env=self.env)

    def cell(self, x: str = "a") -> dict[str, Any]:
        """Return the step of a cell."""
        steps = self.grid.workspace.summary()["steps"]
        return next(step for step in steps if step["kind"] == "cell" and step["name"] == f"x={x}")

    def journal(self) -> str:
        """Return the journal of the only run."""
        found = list(self.grid.workspace.artifacts.glob("*/*/journal.jsonl"))
        return found[0].read_text() if found else ""

    def check_clean(self) -> None:
        """Check that no server is left, and that no file of the run contains the token."""
        assert self.hub.servers() == {}
        assert self.grid.workspace.holding(self.hub.token) == []


@pytest.fixture
def runs(workspace: Workspace, shared_hub: Hub) -> Iterator[Runs]:
    begin = shared_hub.log.stat().st_size
    yield Runs(Grid(workspace), shared_hub)
    sys.stdout.write(shared_hub.log.read_text()[begin:][-5000:])  # pytest shows it if the test failed
    shared_hub.clear()
    processes.end_marked(workspace.directory)


def test_each_cell_has_a_server_and_none_is_left(runs: Runs) -> None:
    before = runs.hub.requested()
    outcome = runs.configure("abc").run()
    assert outcome.exit_code == 0, str(outcome)
    assert runs.grid.verdicts == dict.fromkeys("abc", "passed")
    assert sorted((runs.hub.requested() - before).values()) == [1, 1, 1]
    runs.check_clean()


def test_a_server_is_deleted_when_its_cell_has_ended(runs: Runs) -> None:
    runs.configure("ab").grid.mark("hold-b")
    with runs.start() as running:
        runs.grid.wait_for("end a", "begin b")
        wait(lambda: len(runs.hub.servers()) == 1, "the deletion of the first server")
        runs.grid.unmark("hold-b")
        outcome = running.wait()
    assert outcome.exit_code == 0, str(outcome)
    runs.check_clean()


def test_a_workload_knows_the_address_of_its_server_and_the_token(runs: Runs) -> None:
    script = """
        python3 - <<'END'
        import os, urllib.request
        url, token = os.environ["TOPGALLANT_JUPYTER_URL"], os.environ["TOPGALLANT_JUPYTER_TOKEN"]
        request = urllib.request.Request(url + "/api", headers={"Authorization": "token " + token})
        print("status", urllib.request.urlopen(request).status, "token", token)
        END
    """
    lines = "\n".join(line.strip() for line in script.strip().splitlines())
    outcome = runs.configure("a", workload={"command": lines, "sample_seconds": None}).run()
    assert outcome.exit_code == 0, str(outcome)
    (log,) = runs.grid.directory.glob("*__test/*/attempt-1/stdout.log")
    assert log.read_text() == "status 200 token ***\n"
    runs.check_clean()


def test_a_server_that_is_starting_shows_the_message_of_the_hub(runs: Runs) -> None:
    with runs.configure("a", "slow").start() as running:
        wait(lambda: "waiting for a node" in runs.journal(), "the message in the journal")
        status = runs.grid.workspace.run("project", "status", str(runs.grid.directory)).stdout
        assert "waiting for a node" in status
        running.send(signal.SIGINT)
        outcome = running.wait()
    assert outcome.exit_code == 130, str(outcome)
    runs.check_clean()


@pytest.mark.parametrize(
    ("profile", "cause", "message"),
    [
        ("slow", "infrastructure", "is not ready after 5 s: waiting for a node"),
        ("full", "capacity", "Insufficient memory"),
        ("fail", "infrastructure", "the image no-such-image cannot be pulled"),
    ],
)
def test_a_server_that_does_not_start_is_an_error_and_is_deleted(
    runs: Runs, profile: str, cause: str, message: str
) -> None:
    outcome = runs.configure("a", profile, timeouts={**TIMES, "wait": 5}).run()
    assert outcome.exit_code == 3, str(outcome)
    cell = runs.cell()
    assert (cell["verdict"], cell["cause"]) == ("error", cause)
    assert message in cell["message"]
    runs.check_clean()


def test_a_hub_that_answers_503_for_a_while_delays_the_run(runs: Runs) -> None:
    faults = [runs.hub.front.fail(f"{method} .*/servers/tg-", 503, times=2) for method in ("POST", "DELETE")]
    outcome = runs.configure("a").run()
    assert outcome.exit_code == 0, str(outcome)
    assert [fault.used for fault in faults] == [2, 2]
    runs.check_clean()


def test_a_hub_that_answers_503_is_an_error_of_the_infrastructure(runs: Runs) -> None:
    runs.hub.front.fail("POST .*/servers/tg-", 503)
    outcome = runs.configure("a", timeouts={**TIMES, "wait": 4}).run()
    assert outcome.exit_code == 3, str(outcome)
    cell = runs.cell()
    assert (cell["verdict"], cell["cause"]) == ("error", "infrastructure")
    assert "503" in cell["message"]
    runs.check_clean()


def test_a_wrong_token_is_found_before_anything_starts(runs: Runs) -> None:
    (runs.grid.workspace.directory / "secrets/hub-token").write_text("0123456789abcdef")
    outcome = runs.configure("a").run()
    assert outcome.exit_code == 2, str(outcome)
    assert "the target `hub`" in outcome.stderr
    assert "scopes" in outcome.stderr


def test_a_failed_deletion_stays_on_the_ledger_until_it_is_reaped(runs: Runs) -> None:
    runs.hub.front.fail("DELETE .*/servers/tg-", 403)
    outcome = runs.configure("a").run()
    assert outcome.exit_code == 3, str(outcome)
    assert runs.grid.verdicts == {"a": "passed"}
    assert len(runs.hub.servers()) == 1
    runs.hub.front.clear()
    workspace = runs.grid.workspace
    (entry,) = workspace.run("resources", "list", "grid", "--format=json", env=runs.env).json
    assert entry["kind"] == "jupyterhub_server"
    reaped = workspace.run("resources", "reap", env={"JUPYTERHUB_API_TOKEN": runs.hub.token})
    assert reaped.exit_code == 0, str(reaped)
    runs.check_clean()


def test_a_killed_run_is_resumed_without_repetition_and_without_servers(runs: Runs) -> None:
    cells = "abcdefgh"
    runs.configure(cells)
    runs.grid.mark("hold-c")
    with runs.start("--jobs=2") as running:
        runs.grid.wait_for("end a", "end b", "begin c", "begin d")
        running.send(signal.SIGKILL)
        running.wait()
    runs.grid.unmark("hold-c")
    outcome = runs.resume("--jobs=2")
    assert outcome.exit_code == 0, str(outcome)
    assert sorted(runs.grid.lines) == sorted(f"{word} {x}" for word in ("begin", "end") for x in cells)
    runs.check_clean()


def test_a_run_that_was_killed_while_a_server_starts_continues_to_wait_for_it(runs: Runs) -> None:
    runs.hub.front.fail("GET .*/progress", 503)
    runs.configure("a", "progress")
    with runs.start() as running:
        wait(runs.hub.servers, "the server")
        running.send(signal.SIGKILL)
        running.wait()
    runs.hub.front.clear()
    outcome = runs.resume()
    assert outcome.exit_code == 0, str(outcome)
    assert runs.grid.lines == ["begin a", "end a"]
    runs.check_clean()
