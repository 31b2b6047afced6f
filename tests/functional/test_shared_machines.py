"""Runs that share a machine by a lock file. `tests/features/kubernetes/live/test_cluster_runs.py` tests runs that share
a cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.grid import wait
from tests.functional.team import Team
from toolbox.ground.system import processes


def team_on(directory: Path, lock_file: Path, **lease: Any) -> Team:
    """Return a team that works on a machine with the name `dgx`."""
    dgx = {"machine": {"lock_file": str(lock_file)}, "lease": {"ttl": 60, "wait": 60, **lease}}
    return Team.of(directory).configure(dgx, name="dgx")


@pytest.fixture
def teams(tmp_path: Path) -> Iterator[tuple[Team, Team]]:
    lock = tmp_path / "lock"
    yield team_on(tmp_path / "one", lock, purpose="nightly"), team_on(tmp_path / "other", lock)
    processes.end_marked(tmp_path, grace=0.1)  # processes of a killed run


def test_a_second_run_waits_until_the_first_has_ended(teams: tuple[Team, Team]) -> None:
    first, second = teams
    first.hold()
    with first.start() as holder:
        wait(lambda: first.lines == ["begin"], "the start of the first run")
        with second.start() as waiter:
            assert "for 'team: nightly' (run " in waiter.wait_for("waiting for the lease of dgx: held by ")
            first.let_go()
            assert (holder.wait().exit_code, waiter.wait().exit_code) == (0, 0)
    assert first.lines == second.lines == ["begin", "end", "cleanup"]


def test_a_run_of_a_ci_system_is_named_by_its_address(teams: tuple[Team, Team]) -> None:
    first, second = teams
    first.hold()
    env = {"JOB_NAME": "nightly", "BUILD_URL": "https://ci.lab/job/7"}
    with first.workspace.start("project", "run", "team", env=env) as holder:
        wait(lambda: first.lines == ["begin"], "the start of the first run")
        run = first.workspace.run_directory().name
        expected = f"waiting for the lease of dgx: held by https://ci.lab/job/7 for 'team: nightly' (run {run}) since "
        with second.start() as waiter:
            waiter.wait_for("held by https://ci.lab/job/7")
            summary = second.workspace.run("project", "status", "--format=json").json
            assert summary["clusters"]["dgx"].startswith(expected)
            first.let_go()
            assert (holder.wait().exit_code, waiter.wait().exit_code) == (0, 0)


STEPS = "--phases=test", "--keep_open"


def test_a_run_in_steps_keeps_its_lease_between_them(teams: tuple[Team, Team]) -> None:
    first, second = map(without_prepare, teams)
    assert first.run(*STEPS).exit_code == 0
    with second.start() as waiter:
        waiter.wait_for("waiting for the lease of dgx")
        run = str(first.workspace.run_directory())
        outcome = first.workspace.run("project", "resume", run, "--phases=post_cleanup")
        assert outcome.exit_code == 0, str(outcome)
        assert "waiting" not in outcome.stdout
        assert waiter.wait().exit_code == 0
    assert first.lines == second.lines == ["begin", "end", "cleanup"]


def test_the_lease_of_a_run_in_steps_that_never_continues_ends_at_its_time(tmp_path: Path) -> None:
    first = without_prepare(team_on(tmp_path / "one", tmp_path / "lock", between_steps=3))
    second = team_on(tmp_path / "other", tmp_path / "lock")
    assert first.run(*STEPS).exit_code == 0
    assert second.run().exit_code == 0
    assert second.lines == ["begin", "end", "cleanup"]


def without_prepare(team: Team) -> Team:
    file = team.workspace.directory / "projects/team/orchestration.py"
    file.write_text(file.read_text().replace("def prepare()", "def _prepare()"))
    return team


def test_the_machine_of_a_killed_run_is_free_at_once(teams: tuple[Team, Team]) -> None:
    first, second = teams
    first.hold()
    with first.start() as killed:
        wait(lambda: first.lines == ["begin"], "the start of the first run")
        killed.send(signal.SIGKILL)
        killed.wait()
        outcome = second.workspace.run("project", "run", "team", timeout=50)
    assert outcome.exit_code == 0, str(outcome)
    assert "waiting" not in outcome.stdout


def test_a_run_that_lost_its_machine_ends_without_using_it(tmp_path: Path) -> None:
    team = team_on(tmp_path / "one", tmp_path / "lock", ttl=3)
    team.hold()
    with team.start() as running:
        wait(lambda: team.lines == ["begin"], "the start of the test phase")
        (tmp_path / "lock").write_text("{}\n")  # as a forced release does
        outcome = running.wait(30)
    assert outcome.exit_code == 3, str(outcome)
    assert team.workspace.summary()["cause"] == "infrastructure"
    assert "the lease of dgx is lost: it was released by force, and is free now" in outcome.stdout
    assert team.lines == ["begin"]


def test_an_unwritable_lock_file_is_named(tmp_path: Path) -> None:
    team = team_on(tmp_path / "one", tmp_path / "none" / "lock")
    outcome = team.run()
    assert outcome.exit_code == 3, str(outcome)
    assert f"dgx: the lock file {tmp_path}/none/lock cannot be used: No such file or directory" in outcome.stdout
    assert team.lines == []


def test_a_faulty_clusters_block_is_named_with_its_line(tmp_path: Path) -> None:
    team = Team.of(tmp_path / "one")
    team.workspace.write({"config/team.yaml": "clusters:\n  dgx: {machine: {lockfile: x}}\n"})
    outcome = team.run()
    assert outcome.exit_code == 2
    assert (
        "config/team.yaml:2: `clusters.dgx.machine.lockfile` is an unknown field: did you mean lock_file?"
        in outcome.stderr
    )
    assert team.workspace.runs() == []
