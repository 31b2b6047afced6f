"""The tiers of tpu_ci are presets of one configuration, and their targets are valid."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from toolbox.features.tpu.backends import tpu_vm
from toolbox.ground.extensions.protocols import IdentifiableTarget
from toolbox.ground.model.workloads import Workload
from toolbox.matrix.plan import Plan
from toolbox.orchestration import request
from toolbox.orchestration.request import RunRequest

CONFIG = Path(__file__).parents[6] / "config/tpu_ci.yaml"


def plan(*presets: str) -> Plan:
    made = request.load(RunRequest("tpu_ci", presets)).plan
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("presets", "cells"),
    [
        (["cpu"], {"local static", "local unit"}),
        (["nightly"], {"v6e-1 full", "v5e-16 full"}),
        (["nightly", "multislice"], {"v6e-1 full", "v5e-16 full", "v6e-4x2 full"}),
        (["on_demand"], {"v6e-1 full", "v5e-16 full"}),
    ],
)
def test_a_tier_runs_its_suites_on_its_targets(presets: list[str], cells: set[str]) -> None:
    assert {f"{cell.labels['target']} {cell.labels['suite']}" for cell in plan(*presets).cells} == cells


def test_tiers_on_tpus_run_the_same_cells_so_that_they_share_their_history() -> None:
    assert [cell.id for cell in plan("nightly").cells] == [cell.id for cell in plan("on_demand").cells]


@pytest.mark.parametrize(("presets", "is_baseline"), [(["nightly"], True), (["on_demand"], False)])
def test_a_pull_request_does_not_change_the_bounds_of_the_nightly_runs(presets: list[str], is_baseline: bool) -> None:
    _, configuration = request.configure(RunRequest("tpu_ci", presets))
    assert configuration.get("results.baseline") is is_baseline


def test_only_the_suite_with_coverage_has_the_metric() -> None:
    assert {tuple(cell.expectations.sources) for cell in plan("cpu").cells} == {("test_seconds",)}
    assert {tuple(cell.expectations.sources) for cell in plan("nightly").cells} == {("test_seconds", "coverage")}


def test_the_targets_have_the_described_workers() -> None:
    targets = {name: target.description for name, target in plan("nightly", "multislice").targets.items()}
    shapes = {
        name: (target.tpu_type.hosts, target.slices)
        for name, target in targets.items()
        if isinstance(target, tpu_vm.Target)
    }
    assert shapes == {"v6e-1": (1, 1), "v5e-16": (4, 1), "v6e-4x2": (1, 2)}


def test_a_target_is_identified_by_its_type_and_runtime() -> None:
    targets = plan("nightly", "multislice").targets
    texts = set()
    for name, target in targets.items():
        assert isinstance(target.description, IdentifiableTarget)
        texts.add(target.description.identity(name, Workload(("true",))))
    assert len(texts) == 3
    assert all(text and '"runtime_version"' in text for text in texts)


def test_the_startup_script_is_a_valid_script() -> None:
    script = yaml.safe_load(CONFIG.read_text())["tpu"]["startup_script"]
    checked = subprocess.run(
        [Path(sys.executable).parent / "shellcheck", "-"], input=script, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


def mount_disk(
    tmp_path: Path, content: bytes, *, is_read_only: bool = False, programs: dict[str, str] | None = None
) -> list[str]:
    """Execute the startup script with a file as its disk, and return the programs that would have changed the disk."""
    disk, log, folder = tmp_path / "disk", tmp_path / "log", tmp_path / "bin"
    disk.write_bytes(content)
    os.truncate(disk, 1 << 25)
    folder.mkdir()
    record = f'#!/bin/sh\necho "${{0##*/}} $*" >>{log}\n'
    stubs = {"blockdev": f"#!/bin/sh\necho {int(is_read_only)}\n", **dict.fromkeys(("mkfs.ext4", "mount"), record)}
    for name, text in {**stubs, **(programs or {})}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    script = yaml.safe_load(CONFIG.read_text())["tpu"]["startup_script"]
    script = script.replace("/dev/disk/by-id/google-persistent-disk-1", str(disk)).replace("[ -b", "[ -e")
    script = script.replace("/mnt/disks/cache", str(tmp_path / "mounted")).replace("apt-get", "true")
    path = f"{folder}:{os.environ['PATH']}:/usr/sbin:/sbin"
    subprocess.run(["bash", "-c", script], env={**os.environ, "PATH": path}, check=True, capture_output=True)
    return log.read_text().replace(f" {disk}", "").replace(f" {tmp_path}/mounted", "").splitlines()


def test_an_empty_disk_is_formatted(tmp_path: Path) -> None:
    assert mount_disk(tmp_path, b"") == ["mkfs.ext4 -q -m 0", "mount -o discard"]


@pytest.mark.parametrize(
    "content",
    [b"\x7fdata without a file system", b"XFSB" + bytes(8), bytes(1 << 20) + b"data that begins later"],
)
def test_a_disk_with_data_is_never_formatted(tmp_path: Path, content: bytes) -> None:
    assert mount_disk(tmp_path, content) == ["mount -o discard"]


@pytest.mark.parametrize("program", ["blkid", "cmp"])
@pytest.mark.parametrize("status", [1, 4, 8])
def test_a_disk_that_cannot_be_examined_is_never_formatted(tmp_path: Path, program: str, status: int) -> None:
    assert mount_disk(tmp_path, b"", programs={program: f"#!/bin/sh\nexit {status}\n"}) == ["mount -o discard"]


def test_a_read_only_disk_is_mounted_read_only(tmp_path: Path) -> None:
    assert mount_disk(tmp_path, b"", is_read_only=True) == ["mount -o ro"]
