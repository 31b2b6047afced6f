"""The plan of the project `notebooks` shows the combinations, and names everything that is wrong or impossible."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import yaml

from toolbox.ground.system import places
from toolbox.testing import Workspace

SHIPPED = places.builtin_root()
RUNTIMES: dict[str, Any] = {
    "torch-2.9": {"image": "torch:2.9", "promises": {"device": "cuda"}, "owner": "ada"},
    "plain": {"requirements": ["numpy"], "notebooks": [{"file": "books/*.ipynb", "timeout": 60}]},
}
MACHINES: dict[str, Any] = {
    "laptop": {"target": "local", "cpus": 2},
    "gpu": {"target": "pods", "cpus": 8, "gpus": 1, "runtimes": ["torch-2.9"]},
}


@pytest.fixture
def team(workspace: Workspace) -> Workspace:
    """Return a workspace with a copy of the project, a configuration of its own, and a notebook."""
    shutil.copytree(SHIPPED / "projects/notebooks", workspace.directory / "projects/notebooks")
    config = yaml.safe_load((SHIPPED / "config/notebooks.yaml").read_text())
    config["targets"]["kubernetes"] |= {"labels": ["pods"], "capacity": {"jobs": 2, "gpu": 4}, "cost_per_hour": 3}
    config |= {"runtimes": RUNTIMES, "machines": MACHINES}
    config["notebooks"] |= {"checks": [], "environment_timeout": 600}
    template = (SHIPPED / "command_args/notebooks.yaml.j2").read_text()
    files = {"command_args/notebooks.yaml.j2": template, "books/one.ipynb": "{}"}
    return workspace.write({**files, "config/notebooks.yaml": yaml.safe_dump(config, sort_keys=False)})


def change(team: Workspace, path: str, value: Any) -> None:
    """Change a field of the workspace's configuration."""
    config = yaml.safe_load((team.directory / "config/notebooks.yaml").read_text())
    *parents, last = path.split(".")
    block = config
    for key in parents:
        block = block[key]
    block[last] = value
    team.write({"config/notebooks.yaml": yaml.safe_dump(config, sort_keys=False)})


def test_the_plan_shows_the_combinations_their_times_and_costs_and_what_is_left_out(team: Workspace) -> None:
    outcome = team.run("project", "plan", "notebooks")
    assert outcome.exit_code == 0, str(outcome)
    rows = [line.split() for line in outcome.stdout.splitlines()]
    shown = {(row[1], row[2]): " ".join(row[3:]) for row in rows[1:5]}
    assert shown == {
        ("torch-2.9", "laptop"): "local - 840 s - - skipped",
        ("torch-2.9", "gpu"): "kubernetes 1 gpu 840 s at most 14 min 0 s at most 0.7 USD passes",
        ("plain", "laptop"): "local - 1270 s at most 21 min 10 s 0.00 USD passes",
        ("plain", "gpu"): "kubernetes 1 gpu 1270 s - - skipped",
    }
    assert [line for line in outcome.stdout.splitlines() if line.startswith("left out")] == [
        "left out: runtime=torch-2.9,machine=laptop: torch-2.9 promises a GPU, and the machine has none",
        "left out: runtime=plain,machine=gpu: the machine gpu is only for other runtimes",
    ]
    assert outcome.stdout.splitlines()[-1] == "4 cells: 2 to run, 2 skipped"


def test_a_cell_keeps_its_identity_when_its_description_changes(team: Workspace) -> None:
    before = team.run("project", "plan", "notebooks", "--format=json").json["cells"]
    change(team, "runtimes.plain.requirements", ["numpy", "scipy"])
    change(team, "machines.laptop.cpus", 1)
    after = team.run("project", "plan", "notebooks", "--format=json").json["cells"]
    assert [cell["id"] for cell in before] == [cell["id"] for cell in after]
    assert [cell["fingerprint"] for cell in before] != [cell["fingerprint"] for cell in after]


def test_many_combinations_must_be_allowed_on_purpose(team: Workspace) -> None:
    change(team, "machines", {f"m{number}": {"target": "local"} for number in range(21)})
    change(team, "runtimes", {"plain": RUNTIMES["plain"]})
    outcome = team.run("project", "run", "notebooks")
    assert outcome.exit_code == 2, str(outcome)
    assert "`matrix.max_cells`" in outcome.stderr
    assert not team.artifacts.exists()


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("machines.gpu.runtimes", ["torch"], "`machines.gpu.runtimes[0]`: no runtime `torch`: did you mean torch-2.9?"),
        ("machines.laptop.target", "loca", "`machines.laptop.target`: no target `loca`: did you mean local?"),
        (
            "runtimes.plain.notebooks",
            ["books/two.ipynb"],
            "`runtimes.plain.notebooks[0]`: books/two.ipynb does not exist",
        ),
        ("machines.laptop.timeouts", {"run": 60}, "`machines.laptop.timeouts.run`: ends a cell after 60 s"),
        ("notebooks.checks", ["disc.sh"], "`notebooks.checks`: no check `disc.sh`"),
        ("runtimes.plain.kernel", "ir", "`requirements` make an environment with a kernel of its own: remove `kernel`"),
    ],
)
def test_a_fault_is_named_with_its_line_before_anything_starts(
    team: Workspace, path: str, value: Any, fault: str
) -> None:
    change(team, path, value)
    outcome = team.run("project", "run", "notebooks")
    assert outcome.exit_code == 2, str(outcome)
    (line,) = [line for line in outcome.stderr.splitlines() if fault in line]
    file, number, _ = line.strip().split(":", 2)
    lines = (team.directory / file).read_text().splitlines()
    assert any(key in "\n".join(lines[int(number) - 2 : int(number)]) for key in (path.rsplit(".", 1)[-1], "plain:"))
    assert not team.artifacts.exists()
