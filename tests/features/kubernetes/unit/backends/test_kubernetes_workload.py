"""The Kubernetes backend adds the field `pod` to the block `matrix.workload`."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.config.configuration import Configuration, Request
from toolbox.ground.model.errors import ConfigurationError
from toolbox.matrix import plan, planner, targets
from toolbox.matrix.plan import Cell, Selection

TODAY = dt.date(2026, 11, 22)


def planned(directory: Path, pod: Any, target: str = "gpus", blocks: Any = None, **fields: Any) -> Cell:
    """Return the only cell of a matrix whose workload has these fields of `pod`. `blocks` are further blocks."""
    gpus = {"backend": "kubernetes", "pod": {"image": "a:1"}}
    workload = {"command": "true", "pod": pod, **fields}
    matrix = {"axes": {"x": ["a"]}, "target": target, "workload": workload}
    file = directory / "config.yaml"
    file.write_text(yaml.safe_dump({"targets": {"gpus": gpus}, "matrix": matrix, **(blocks or {})}, sort_keys=False))
    configuration = Configuration.load(Request(file, contracts=(plan.CONTRACTS,)))
    configuration.check()
    (cell,) = planner.make(configuration, targets.read(configuration), Selection(), root=directory, today=TODAY).cells
    return cell


def test_a_cell_has_its_own_pod(tmp_path: Path) -> None:
    cell = planned(tmp_path, {"image": "b:{@cell.x}", "resources": {"gpu": None}})
    assert cell.workload.backend_fields == {"pod": {"image": "b:a", "resources": {"gpu": None}}}


def test_the_whole_pod_may_be_a_reference(tmp_path: Path) -> None:
    cell = planned(tmp_path, "@pods.{@cell.x}", blocks={"pods": {"a": {"image": "b:1"}, "b": {}}})
    assert cell.workload.backend_fields == {"pod": {"image": "b:1"}}
    with pytest.raises(ConfigurationError, match=r"`matrix\.workload\.pod` must"):
        planned(tmp_path, "image")


def test_other_backends_ignore_the_field(tmp_path: Path) -> None:
    assert planned(tmp_path, {"no such field": 1}, target="local").targets == ("local",)


@pytest.mark.parametrize(
    ("pod", "fingerprint"),
    [
        ({}, "d30ace60473b"),
        ({"image": "b:2", "labels": {"x": "{@cell.x}"}}, "42774d34b912"),
        ({"image": "b:2", "resources": {"gpu": None}}, "7266d867661a"),
    ],
)
def test_the_fingerprints_of_cells_stay_the_same(tmp_path: Path, pod: Any, fingerprint: str) -> None:
    """A resumed run would execute cells with other fingerprints again."""
    assert planned(tmp_path, pod).fingerprint == fingerprint


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (3, ":13: `matrix.workload.pod` must be a mapping, not 3"),
        ({1: 2}, ":14: `matrix.workload.pod[1]` must be a valid string, not 1"),
        ({"imag": "a"}, "the target `gpus` cannot run the workload: `imag` is an unknown field: did you mean image?"),
    ],
)
def test_a_wrong_pod_is_refused_with_its_line(tmp_path: Path, pod: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        planned(tmp_path, pod)
    (fault,) = caught.value.faults
    assert message in fault


def test_all_faults_of_a_workload_are_listed_with_a_hint_for_each_unknown_field(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        planned(tmp_path, [], log_bytes=1, pods={}, zzzz=1)
    faults = [fault.partition("`matrix.workload.")[2] for fault in caught.value.faults]
    fields = "collect, command, cwd, env, files, log_bytes, pod, sample_seconds, server, write"
    assert sorted(faults) == [
        "log_bytes` must be greater than or equal to 4096, not 1",
        "pod` must be a mapping, not []",
        "pods` is an unknown field: did you mean pod?",
        f"zzzz` is an unknown field: the fields are {fields}",
    ]
