"""The shell checks compare a machine with what it promises, and are skipped where it promises nothing."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.features.notebooks.unit.projects.notebooks.conftest import CHECKS, RunCheck
from toolbox.features.notebooks.worker.notebook_results import TestOutcome

Program = Callable[[str, str], None]
PASSED, FAILED, SKIPPED = TestOutcome.PASSED, TestOutcome.FAILED, TestOutcome.SKIPPED


@pytest.mark.parametrize("path", sorted(CHECKS.glob("*.sh")), ids=lambda path: path.name)
def test_shellcheck_finds_no_fault(path: Path) -> None:
    program = shutil.which("shellcheck", path=Path(sys.executable).parent)
    assert program
    done = subprocess.run([program, "--shell=bash", path], capture_output=True, text=True, check=False)
    assert done.stdout == ""


@pytest.mark.parametrize("path", sorted(CHECKS.glob("*.sh")), ids=lambda path: path.name)
def test_a_check_without_promises_is_skipped_with_a_reason(run_check: RunCheck, path: Path) -> None:
    (result,) = run_check(path.name)
    assert result.outcome is SKIPPED
    assert "promises" in result.message
    assert result.checked


@pytest.mark.parametrize(("promised", "outcome"), [(0.001, PASSED), (1, PASSED), (10**9, FAILED)])
def test_disk_compares_the_free_space(run_check: RunCheck, promised: float, outcome: TestOutcome) -> None:
    (result,) = run_check("disk.sh", disk_gb=promised)
    assert result.outcome is outcome
    assert result.expected == f"at least {promised} GB"
    assert float(result.found.removesuffix(" GB")) > 0


def test_disk_is_an_error_where_df_is_broken(run_check: RunCheck, program: Program) -> None:
    program("df", "exit 1")
    (result,) = run_check("disk.sh", disk_gb=1)
    assert result.outcome is TestOutcome.ERROR


TWO_GPUS = "echo '550.54.14, NVIDIA H100'; echo '550.54.14, NVIDIA H100'"


@pytest.mark.parametrize(
    ("gpus", "driver", "outcome"),
    [
        (2, None, PASSED),
        (1, ">=550", PASSED),
        (2, "550", PASSED),
        (2, ">=535,<560", PASSED),
        (2, ">=550.54.15", FAILED),
        (2, "535", FAILED),
        (2, ">=535, <550", FAILED),
        (4, None, FAILED),
    ],
)
def test_driver_compares_gpus_and_driver(
    run_check: RunCheck, program: Program, gpus: int, driver: str | None, outcome: TestOutcome
) -> None:
    program("nvidia-smi", TWO_GPUS)
    (result,) = run_check("driver.sh", gpus=gpus, driver=driver)
    assert (result.outcome, result.found) == (outcome, "2 GPUs (NVIDIA H100), driver 550.54.14")


def test_driver_tells_why_nvidia_smi_failed(run_check: RunCheck, program: Program) -> None:
    program("nvidia-smi", "echo 'NVIDIA-SMI has failed: no driver'; exit 9")
    (result,) = run_check("driver.sh", gpus=1)
    assert (result.outcome, result.found) == (FAILED, "nvidia-smi failed: NVIDIA-SMI has failed: no driver")


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has GPUs")
def test_driver_fails_where_a_promised_gpu_is_missing(run_check: RunCheck) -> None:
    (result,) = run_check("driver.sh", gpus=1)
    assert (result.outcome, result.message) == (FAILED, "expected 1 GPU, found no program nvidia-smi")


@pytest.fixture(name="port")
def _port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def test_network_reaches_a_host_and_a_port(run_check: RunCheck, port: int) -> None:
    (result,) = run_check("network.sh", network=["localhost", f"127.0.0.1:{port}"])
    assert (result.outcome, result.message) == (PASSED, "")
    assert result.found == f"localhost can be reached; 127.0.0.1:{port} can be reached"


def test_network_names_each_host_that_cannot_be_reached(run_check: RunCheck, port: int) -> None:
    with socket.socket() as closed:  # a bound port that does not listen
        closed.bind(("127.0.0.1", 0))
        number = closed.getsockname()[1]
        hosts = ["host.invalid", f"127.0.0.1:{number}", f"127.0.0.1:{port}"]
        (result,) = run_check("network.sh", network=hosts)
    assert result.outcome is FAILED
    assert "host.invalid has no address; 127.0.0.1 does not accept connections on port" in result.found


def test_network_takes_a_host_as_data(run_check: RunCheck, tmp_path: Path) -> None:
    (result,) = run_check("network.sh", network=[f"$(touch {tmp_path}/executed):80", f"x;touch {tmp_path}/executed"])
    assert result.outcome is FAILED
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("text", "promised", "outcome"),
    [
        ("tool version 3.9.2 (release)", ">=3.9", PASSED),
        ("tool version 3.9.2", ">=3.10", FAILED),
        ("tool version 3.10", "<3.9", FAILED),
        ("3.10.1", "3.10", PASSED),
        ("3.10.1", "!=3.10", FAILED),
        ("3.10.1", ">3.10,<=3.10.1", PASSED),
        ("no number", None, PASSED),
        ("no number", ">=1", FAILED),
    ],
)
def test_versions_compares_a_program(
    run_check: RunCheck, program: Program, text: str, promised: str | None, outcome: TestOutcome
) -> None:
    program("tool", f"echo '{text}'")
    (result,) = run_check("versions.sh", versions={"tool": promised})
    assert result.outcome is outcome


def test_versions_asks_a_program_in_several_ways(run_check: RunCheck, program: Program) -> None:
    program("tool", '[ "$1" = version ] && echo 2.5.1 || exit 1')
    (result,) = run_check("versions.sh", versions={"tool": "==2.5", "bash": ">=3"})
    assert result.outcome is PASSED
    assert result.found.startswith("tool 2.5.1; bash ")


def test_versions_names_a_missing_program(run_check: RunCheck) -> None:
    (result,) = run_check("versions.sh", versions={"program-nowhere": ">=1"})
    assert (result.outcome, result.found) == (FAILED, "no program program-nowhere")


def test_versions_is_an_error_with_an_unknown_operator(run_check: RunCheck) -> None:
    (result,) = run_check("versions.sh", versions={"bash": "~=5"})
    assert result.outcome is TestOutcome.ERROR
    assert "the operator of ~=5 is not one of" in result.message
