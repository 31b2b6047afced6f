"""A sample holds what the descendants of a process use; values that cannot be read or written are left out."""

import sys
from pathlib import Path

import pytest

from tests.unit.conftest import Script

BURN = """
import os, sys, time
from toolbox.ground.kit import process_tree
from toolbox.targets.agent.sampler import Sampler
for _ in range(2):
    if os.fork() == 0:
        process_tree.die_with_parent()
        while True:
            pass
sampler = Sampler(sys.argv[1], 0.5)
for _ in range(3):
    time.sleep(0.3)
    sampler.sample()
sampler.close()
"""


def rows(file: Path) -> list[list[float]]:
    """Return the numbers of a CSV file without its header."""
    return [[float(part) for part in line.split(",")] for line in file.read_text().splitlines()[1:]]


def test_two_busy_processes_use_at_most_two_processors(script: Script, tmp_path: Path) -> None:
    script(BURN, str(tmp_path))
    samples = rows(tmp_path / "samples.csv")
    assert (tmp_path / "samples.csv").read_text().startswith("seconds,cpu_percent,memory_bytes,processes\n")
    assert [processes for *_, processes in samples] == [2, 2, 2]
    assert 0 < max(percent for _, percent, _, _ in samples) < 400  # a busy machine leaves the processes little time
    assert all(memory > 1_000_000 for _, _, memory, _ in samples)


def test_a_missing_directory_is_not_an_error(script: Script, tmp_path: Path) -> None:
    assert script(BURN + "print('done')", str(tmp_path / "nowhere")) == "done\n"


@pytest.fixture
def gpus(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which `nvidia-smi` is a program that the test writes."""
    (tmp_path / "nvidia-smi").touch(mode=0o755)
    return {"PATH": f"{tmp_path}:/usr/bin:/bin"}


GPUS = """
import os, sys, time
from toolbox.targets.agent.sampler import Sampler
sampler = Sampler(".", 0.1)
reader = sampler.gpu_reader
while os.path.getsize("gpu_samples.csv") < int(sys.argv[1]):
    time.sleep(0.05)
    sampler.sample()
if len(sys.argv) > 2:
    time.sleep(0.3)
    sampler.sample()
sampler.close()
try:
    os.kill(reader, 0)
except ProcessLookupError:
    print("gone")
"""


FAKE = f"""#!{sys.executable}
import time
while True:
    print("0, 97, 40536\\n1, ", end="", flush=True)
    print("3, 17", flush=True)
    time.sleep(0.1)
"""


def test_the_gpu_reader_is_not_part_of_the_workload_and_ends_with_the_sampler(
    script: Script, gpus: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "nvidia-smi").write_text(FAKE)
    assert script(GPUS, "100", env=gpus) == "gone\n"
    lines = (tmp_path / "gpu_samples.csv").read_text().splitlines()
    assert lines[0] == "seconds,gpu,utilization_percent,memory_mib"
    assert {line.partition(",")[2] for line in lines[1:]} == {"0,97,40536", "1,3,17"}
    assert rows(tmp_path / "samples.csv") == []  # the only child is the GPU reader, which is not sampled


def test_without_gpus_there_are_no_gpu_samples(script: Script, gpus: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    assert script(GPUS, "1", "once", env=gpus) == "gone\n"
    assert (tmp_path / "gpu_samples.csv").read_text() == "seconds,gpu,utilization_percent,memory_mib\n"
