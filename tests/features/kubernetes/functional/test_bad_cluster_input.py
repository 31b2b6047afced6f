"""Bad input of commands for clusters leads to exit code 2 and one message on stderr, and nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functional.grid import Grid
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from tests.functional.test_bad_input import refuse
from tests.functional.test_hostile_text import hostile as hostile  # noqa: PLC0414  # re-exports the fixture
from toolbox.testing import Workspace

COMMAND_LINES = {
    "timeout that is not a number": (["cluster", "wait_ready", "--timeout=nan"], "--timeout must be a finite number"),
    "lease without a length": (["cluster", "take_lease", "x", "--ttl=0"], "--ttl must be a number above 0"),
    "duration in words": (
        ["kubernetes", "fetch_logs", "--since=yesterday"],
        "--since must be a duration, in seconds or",
    ),
    "manifests that do not exist": (["cluster", "apply", "nofile.yaml"], "--manifests: "),
    "manifests of another kind": (["cluster", "apply", "config/small.yaml"], "config/small.yaml: a manifest has no `"),
    "kubeconfig that does not exist": (["cluster", "wait_ready", "--kubeconfig=nofile"], "nofile does not exist"),
    "credentials that do not exist": (
        ["cluster", "prepare_namespace", "x", "--image_pull_secret=pull", "--docker_config_file=nofile"],
        "--docker_config_file: ",
    ),
}


@pytest.mark.parametrize(("argv", "expected"), COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_a_bad_command_line_is_refused(small: Workspace, argv: list[str], expected: str) -> None:
    outcome = refuse(small, *argv)
    assert expected in outcome.stderr
    assert len(outcome.stderr.splitlines()) <= 5


def test_a_node_pool_of_gke_needs_gcloud(small: Workspace, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    argv = ("cluster", "set_scale", "--kind=gke", "--name=pool", "--cluster=c", "--replicas=1")
    outcome = refuse(small, *argv, env={"PATH": str(tmp_path / "empty")})
    assert "needs the program gcloud, which is not installed on this machine" in outcome.stderr


def test_a_target_on_a_cluster_that_is_misspelt_starts_nothing(grid: Grid) -> None:
    create = {"command": "touch made", "destroy": "true"}
    target = {"backend": "kubernetes", "cluster": "sutt", "pod": {"image": "any"}}
    grid.configure("a", target="there", blocks={"clusters": {"sut": {"create": create}}, "targets": {"there": target}})
    outcome = refuse(grid.workspace, "project", "run", "grid")
    assert "no cluster `sutt` in the block `clusters`: did you mean sut?" in outcome.stderr
    assert (grid.phases, (grid.root / "made").exists()) == ([], False)


@pytest.mark.parametrize("name", ["--flags-file=x", "a,b=c", "A", "a b", ""])
def test_an_invalid_name_of_a_node_pool_is_refused(hostile: Workspace, name: str) -> None:
    outcome = hostile.run("cluster", "set_scale", "--kind=gke", f"--name={name}", "--replicas=1", "--cluster=c")
    assert outcome.exit_code == 2
    assert "use only lower-case letters, digits, `.` and `-`" in outcome.stderr
    assert list(hostile.artifacts.glob("toolbox/*")) == []


def test_an_image_pull_secret_without_a_docker_config_is_wrong_usage(hostile: Workspace) -> None:
    outcome = hostile.run("cluster", "prepare_namespace", "x", "--image_pull_secret=pull")
    assert outcome.exit_code == 2
    assert "--docker_config_file or as --docker_config" in outcome.stderr
