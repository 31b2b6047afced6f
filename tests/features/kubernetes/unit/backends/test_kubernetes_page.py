"""The examples and tables of docs/kubernetes.md agree with the code."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.features.kubernetes.unit.backends.kubernetes_page import PAGE, examples, role
from toolbox.config.configuration import Configuration, Request
from toolbox.features.kubernetes.api.permissions import Permission
from toolbox.features.kubernetes.backends.kubernetes import (
    HOST_PERMISSIONS,
    REQUIRED_PERMISSIONS,
    SLICE_PERMISSIONS,
    Target,
)
from toolbox.features.kubernetes.pods import description
from toolbox.features.kubernetes.pods.description import Pod
from toolbox.ground.model.pod_resources import Resources
from toolbox.matrix import plan, planner, targets
from toolbox.matrix.plan import Plan, Selection

PROJECTS = [each for each in examples() if isinstance(each, dict) and "matrix" in each]


def allowed(rules: Iterable[Mapping[str, list[str]]]) -> list[Permission]:
    """Return the permissions that the rules of a Role grant, sorted."""
    found = [
        Permission(verb, resource, group)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    return sorted(found, key=str)


def planned(project: dict[str, Any], directory: Path) -> Plan:
    """Return the plan of an example project; the files that the project names are created."""
    for name in project["matrix"]["workload"].get("files", {}).values():
        (directory / name).parent.mkdir(parents=True)
        (directory / name).touch()
    file = directory / "config.yaml"
    file.write_text(yaml.safe_dump(project, sort_keys=False))
    configuration = Configuration.load(Request(file, contracts=(plan.CONTRACTS,)))
    configuration.check()
    today = dt.date(2026, 11, 21)
    return planner.make(configuration, targets.read(configuration), Selection(), root=directory, today=today)


def pods(project: dict[str, Any], directory: Path) -> list[Pod]:
    """Return the pods of the cells of an example project."""
    made, found = planned(project, directory), []
    for cell in made.cells:
        (target,) = (made.targets[name].description for name in cell.targets)
        assert isinstance(target, Target)
        found.append(target.pod_of(cell.workload))
    return found


def test_the_role_grants_exactly_the_required_permissions() -> None:
    assert allowed(role()["rules"]) == sorted(REQUIRED_PERMISSIONS, key=str)


def test_the_additional_rules_are_those_for_hosts_and_for_slices() -> None:
    (rules,) = (each for each in examples() if isinstance(each, list))
    services, job_sets = rules
    assert allowed([services]) == sorted(HOST_PERMISSIONS, key=str)
    assert allowed([job_sets]) == sorted(SLICE_PERMISSIONS, key=str)


def test_the_binding_gives_the_role_to_the_account() -> None:
    by_kind = {each["kind"]: each for each in examples() if isinstance(each, dict) and "kind" in each}
    binding, account = by_kind["RoleBinding"], by_kind["ServiceAccount"]["metadata"]
    assert binding["roleRef"]["name"] == role()["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert {each["metadata"]["namespace"] for each in by_kind.values()} == {"perf"}


@pytest.mark.parametrize("index", range(len(PROJECTS)))
def test_the_example_projects_have_a_plan_without_notes(index: int, tmp_path: Path) -> None:
    assert planned(PROJECTS[index], tmp_path).notes == []


def test_the_cells_of_the_gpu_example_have_their_gpus(tmp_path: Path) -> None:
    found = pods(PROJECTS[1], tmp_path)
    gpu, mig = {"nvidia.com/gpu": 1}, {"nvidia.com/mig-1g.10gb": 1}
    assert [pod.devices for pod in found] == [gpu, {"nvidia.com/gpu": 2}, mig, {}, gpu, {"nvidia.com/gpu": 2}]
    assert [pod.hides_gpus for pod in found] == [False, False, False, True, False, False]


def test_the_matrix_on_tpus_has_one_slice_and_two(tmp_path: Path) -> None:
    found = pods(PROJECTS[2], tmp_path)
    assert [(pod.slices, pod.hosts, pod.queue, pod.devices) for pod in found] == [
        (1, 2, "tpu-v5e", {"google.com/tpu": 4}),
        (2, 2, "tpu-v5e", {"google.com/tpu": 4}),
    ]


def test_every_example_of_a_patch_is_valid() -> None:
    patches = [each for each in examples() if isinstance(each, dict) and "patch" in each]
    assert patches
    assert [description.parse({"image": "a", **each}, {}).patch for each in patches] == [
        each["patch"] for each in patches
    ]


def test_every_field_of_a_pod_is_in_its_table_with_its_default() -> None:
    section = PAGE.read_text().partition("## The fields of `pod`")[2].partition("\nThe defaults of `resources`")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == sorted(Pod.model_fields)
    numbers = {
        name: int(value)
        for row in rows
        for name, value in zip(re.findall(r"`(\w+)`", row[0]), row[1].split(", "), strict=False)
        if value.isdigit()
    }
    assert numbers == {name: getattr(Pod(), name) for name in numbers}
    assert {"hosts", "slices", "unreachable_seconds", "keep_seconds", "ttl_seconds"} == {*numbers}


def test_the_documented_resources_are_the_defaults() -> None:
    documented = re.findall(
        r"`((?:request|limit)_\w+|gpu): (\d+)`",
        PAGE.read_text().partition("The defaults of `resources`")[2].partition("\n\n")[0],
    )
    defaults = Resources()
    assert {name: int(value) for name, value in documented} == {name: getattr(defaults, name) for name, _ in documented}
    assert len(documented) == 5
