"""The preset `gke_tpu_multislice` has a plan without a cluster, and its manifest is compared with a file.

TOPGALLANT_TEST_WRITE_MANIFESTS=1 writes the file again after an intended change; read the difference before you commit
it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.features.kubernetes.unit.pods.test_manifests import Indented
from tests.unit.projects.training_e2e.test_cells import planned
from toolbox.features.kubernetes.backends.kubernetes import Target
from toolbox.features.kubernetes.pods import description, manifests
from toolbox.features.kubernetes.pods.description import Pod
from toolbox.features.kubernetes.pods.manifests import JobRequest
from toolbox.matrix.plan import Cell, Plan

FILE = Path(__file__).parent / "gke_tpu_multislice.yaml"
RUN = "20261121-061700-v8r8"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned("gke_tpu_multislice")


def pod(plan: Plan, cell: Cell) -> Pod:
    """Return the description of a cell's pods from its backend."""
    target = plan.targets["kubernetes"].description
    assert isinstance(target, Target)
    return target.pod_of(cell.workload)


def manifest(plan: Plan, cell: Cell) -> dict[str, Any]:
    """Return the manifest of the first attempt of a cell."""
    attempt, workload = f"{RUN}-{cell.id}-1", cell.workload
    job, owner = manifests.job_name(RUN, attempt), manifests.job_name(RUN, f"topgallant-{RUN}")
    request = JobRequest(
        name=job,
        namespace="tests",
        labels={
            "app.kubernetes.io/managed-by": "topgallant",
            "topgallant.dev/run": RUN,
            "topgallant.dev/cell": f"{cell.id}-1",
            "topgallant.dev/attempt": job,
        },
        owner={"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": "8a9ff5b4-5d1e-4ac4-b17e-3c2bd8f6b2a0"},
        directory=f"{description.ROOT}/{attempt}",
        command=workload.command,
        env={},
        secret_env={},
        limits={"run_seconds": workload.timeouts.run, "silence_seconds": workload.timeouts.silence},
        agent=owner,
        sources=f"{owner}-sources",
        keeps_files=True,
        collect=workload.collect,
        deadline_seconds=5770,  # 1800 to start, 300 to run, 10 to end, 3600 to fetch files, 60 spare
        grace_seconds=workload.timeouts.grace,
    )
    return manifests.manifest(request, pod(plan, cell))


def test_the_preset_has_a_plan_without_a_cluster(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    again = planned("gke_tpu_multislice")
    assert [cell.name for cell in again.cells] == [cell.name for cell in plan.cells]
    assert [note for note in plan.notes if "have no bounds yet" not in note] == []


def test_the_first_cell_has_the_job_set_of_the_file(plan: Plan) -> None:
    found = manifest(plan, plan.cells[0])
    if os.environ.get("TOPGALLANT_TEST_WRITE_MANIFESTS"):
        FILE.write_text(yaml.dump(found, Dumper=Indented, sort_keys=False, width=100))
    assert yaml.safe_load(FILE.read_text()) == found


def test_the_other_cells_differ_only_in_their_names(plan: Plan) -> None:
    def unnamed(cell: Cell) -> str:
        found = manifest(plan, cell)
        return json.dumps(found).replace(found["metadata"]["name"], "NAME").replace(cell.id, "ID")

    assert len(plan.cells) == 8
    assert len({unnamed(cell) for cell in plan.cells}) == 1


def test_the_slices_have_the_chips_of_their_topology(plan: Plan) -> None:
    for cell in plan.cells:
        found = pod(plan, cell)
        assert found.tpu is not None
        assert (found.slices, found.hosts, found.tpu.chips, found.tpu.all_chips) == (2, 2, 4, 8)


def test_an_override_can_set_the_image() -> None:
    image = "registry.example/train:2"
    plan = planned("gke_tpu_multislice", **{"targets.kubernetes.pod.image": image})
    template = manifest(plan, plan.cells[0])["spec"]["replicatedJobs"][0]["template"]
    containers = template["spec"]["template"]["spec"]["containers"]
    assert {container["image"] for container in containers} == {image}


def test_the_preset_can_be_combined_with_another_preset() -> None:
    here, there = planned("smoke"), planned("smoke", "gke_tpu_multislice")
    assert [cell.id for cell in there.cells] == [cell.id for cell in here.cells]
    assert {cell.targets for cell in there.cells} == {("kubernetes",)}
