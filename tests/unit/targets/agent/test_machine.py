"""The agent reports the name and the accelerators of its machine."""

from __future__ import annotations

import platform
from pathlib import Path

from toolbox.targets.agent import machine

INFORMATION = "Model: \t\t {}\nIRQ:   \t\t 16\nGPU UUID: \t GPU-0\nBus Location: \t 0000:00:04.0\n"


def gpus(folder: Path, *models: str) -> Path:
    for number, model in enumerate(models):
        place = folder / f"0000:0{number}:00.0"
        place.mkdir(parents=True)
        (place / "information").write_text(INFORMATION.format(model))
    return folder


def test_a_machine_has_its_own_host_name() -> None:
    assert machine.host() == platform.node()


def test_gpus_are_counted_by_their_model(tmp_path: Path) -> None:
    folder = gpus(tmp_path, "NVIDIA H200", "NVIDIA A100", "NVIDIA H200")
    assert machine.accelerators(str(folder)) == "1x NVIDIA A100, 2x NVIDIA H200"


def test_without_a_driver_there_are_no_accelerators(tmp_path: Path) -> None:
    assert machine.accelerators(str(tmp_path / "none")) == ""


def test_an_unreadable_gpu_is_ignored(tmp_path: Path) -> None:
    folder = gpus(tmp_path, "NVIDIA H200")
    (folder / "broken/information").mkdir(parents=True)
    assert machine.accelerators(str(folder)) == "1x NVIDIA H200"
