"""The script that describes a machine reads the output of tools and files, and reports their failures."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "roles/host_capture_state/files/capture.py"

H100 = (
    "0, NVIDIA H100 80GB HBM3, 81559, 550.54.15, GPU-3f1c9d2e-7a52-4d57-9f0e-0c8b6c1f2a11, "
    "00000000:19:00.0, 9.0, Disabled, 700.00, 345, 1980, 2619, 2619\n"
)
SPARSE = (
    "1, NVIDIA GB10, [N/A], 580.95.05, GPU-1, 0000000F:01:00.0, 12.1, [N/A], [Not Supported], "
    "[Unknown Error], N/A, [N/A], [N/A]\n"
)

FakeTool = Callable[..., None]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("capture", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


capture = load()


@pytest.fixture
def fake_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTool:
    """Return a function that adds a shell script to an otherwise empty PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setattr(capture, "TOOL_DIRECTORIES", [])

    def write(name: str, body: str) -> None:
        (directory / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{body}\n")
        (directory / name).chmod(0o755)

    return write


def write_files(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


# The output of nvidia-smi


def test_an_h100_is_described_with_numbers_and_units() -> None:
    (gpu,) = capture.parse_nvidia_csv(H100)
    assert gpu == {
        "kind": "gpu",
        "vendor": "nvidia",
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "memory_total_bytes": 81559 * 1024**2,
        "driver_version": "550.54.15",
        "cuda_driver_version": None,
        "uuid": "GPU-3f1c9d2e-7a52-4d57-9f0e-0c8b6c1f2a11",
        "pci_bus_id": "00000000:19:00.0",
        "compute_capability": "9.0",
        "mig_mode": "Disabled",
        "power_limit_w": 700.0,
        "sm_clock_mhz": 345,
        "sm_clock_max_mhz": 1980,
        "memory_clock_mhz": 2619,
        "memory_clock_max_mhz": 2619,
    }


def test_values_that_a_gpu_does_not_report_are_null() -> None:
    _, gpu = capture.parse_nvidia_csv(H100 + SPARSE)
    assert (gpu["index"], gpu["compute_capability"]) == (1, "12.1")
    unknown = {"memory_total_bytes", "mig_mode", "power_limit_w", "sm_clock_mhz", "sm_clock_max_mhz"}
    assert {gpu[key] for key in unknown} == {None}


def test_a_warning_after_the_rows_is_not_a_gpu() -> None:
    assert len(capture.parse_nvidia_csv(H100 + "WARNING: infoROM is corrupted at gpu 0000:19:00.0\n")) == 1


def test_a_row_with_too_few_fields_is_an_error_that_quotes_the_row() -> None:
    with pytest.raises(capture.ProbeError, match="2 of 13 fields: 0, NVIDIA T4"):
        capture.parse_nvidia_csv("0, NVIDIA T4\n")


def test_a_value_of_the_wrong_type_is_an_error_that_names_the_field() -> None:
    with pytest.raises(capture.ProbeError, match=r"'lots' for memory\.total"):
        capture.parse_nvidia_csv(H100.replace("81559", "lots"))


@pytest.mark.parametrize("line", ["CUDA Version       : 12.4", "CUDA UMD Version   : 13.1"])
def test_the_cuda_version_is_read_from_the_report(line: str) -> None:
    report = f"Driver Version   : 550.54.15\n{line}\nAttached GPUs   : 1\n"
    assert capture.cuda_driver_version(report) in ("12.4", "13.1")


def test_a_gpu_gets_its_cuda_version_and_the_report_is_kept(fake_tool: FakeTool) -> None:
    fake_tool("nvidia-smi", f'[ "$1" = -q ] && echo "CUDA Version : 12.4" || echo "{H100.strip()}"')
    answer = capture.capture({"packages": []})
    assert [gpu["cuda_driver_version"] for gpu in answer["host"]["accelerators"]] == ["12.4"]
    assert answer["host"]["reason"] is None
    assert answer["raw"]["nvidia-smi.txt"] == "CUDA Version : 12.4\n"


def test_a_query_is_repeated_without_the_field_that_an_old_driver_refuses(fake_tool: FakeTool) -> None:
    without = H100.strip().replace(" 9.0,", "")
    refuse = 'echo "Field \\"compute_cap\\" is not a valid field to query."; exit 2'
    fake_tool("nvidia-smi", f'case "$1" in *compute_cap*) {refuse};; esac\necho "{without}"')
    (gpu,) = capture.nvidia_gpus()
    assert (gpu["compute_capability"], gpu["mig_mode"]) == (None, "Disabled")


@pytest.mark.usefixtures("fake_tool")  # the PATH is empty
def test_a_machine_without_tools_has_a_reason_for_its_missing_accelerators() -> None:
    host = capture.capture({"packages": []})["host"]
    assert host["accelerators"] == []
    assert "nvidia-smi and rocm-smi are missing" in host["reason"]
    assert "nvidia" not in host["errors"]


@pytest.mark.parametrize("status", [0, 6])
def test_a_driver_without_devices_is_not_an_error(fake_tool: FakeTool, status: int) -> None:
    fake_tool("nvidia-smi", f"echo No devices were found; exit {status}")
    assert capture.nvidia_gpus() == []


def test_a_driver_mismatch_is_an_error_and_the_other_values_are_read(fake_tool: FakeTool) -> None:
    fake_tool("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    host = capture.capture({"packages": []})["host"]
    assert host["errors"]["nvidia"] == (
        "nvidia-smi exited with 18: Failed to initialize NVML: Driver/library version mismatch"
    )
    assert host["reason"] == "the search for accelerators failed, see `errors`: nvidia"
    assert host["memory"]["total_bytes"] > 0


def test_a_tool_that_hangs_is_killed_with_its_children(
    fake_tool: FakeTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survived = tmp_path / "survived"
    fake_tool("nvidia-smi", f"(sleep 1; touch {survived}) & sleep 60")
    monkeypatch.setattr(capture, "TOOL_TIMEOUT_S", 0.2)
    with pytest.raises(capture.ProbeError, match=r"nvidia-smi did not answer within 0\.2 s"):
        capture.nvidia_gpus()
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["/bin/sh", "-c", f"until [ -e {survived} ]; do sleep 0.1; done"], check=False, timeout=1.5)


def test_accelerators_are_queried_only_on_request(fake_tool: FakeTool) -> None:
    fake_tool("nvidia-smi", "exit 1")
    host = capture.capture({"accelerators": False, "packages": []})["host"]
    assert (host["accelerators"], host["reason"], host["tpu"]) == ([], "not requested", None)
    assert "nvidia" not in host["errors"]


# Accelerators of AMD and Google


def test_the_fields_of_an_amd_gpu_are_read_in_any_case() -> None:
    card = {
        "Card Series": "AMD Instinct MI300X",
        "VRAM Total Memory (B)": "206141652992",
        "PCI Bus": "0000:05:00.0",
    }
    text = "WARNING: low power\n" + json.dumps({"card0": card, "system": {"Driver version": "6.8.5"}})
    (gpu,) = capture.parse_rocm_json(text)
    assert (gpu["name"], gpu["memory_total_bytes"]) == ("AMD Instinct MI300X", 206141652992)
    assert (gpu["driver_version"], gpu["pci_bus_id"]) == ("6.8.5", "0000:05:00.0")


def pci(address: str, **files: str) -> dict[str, str]:
    return {f"sys/bus/pci/devices/{address}/{name}": f"{text}\n" for name, text in files.items()}


def test_tpus_are_distinguished_from_other_devices_of_google(tmp_path: Path) -> None:
    root = write_files(
        tmp_path,
        {
            **pci("0000:00:04.0", vendor="0x1ae0", device="0x0063"),
            **pci("0000:00:05.0", vendor="0x1ae0", device="0x0027", subsystem_device="0x004f"),
            **pci(
                "0000:00:06.0", vendor="0x1ae0", device="0x0042", **{"class": "0x020000"}
            ),  # this device is a network card
            **pci("0000:00:07.0", vendor="0x1ae0", device="0x0999", **{"class": "0x120000"}),
            **pci("0000:00:08.0", vendor="0x10de", device="0x0063"),
        },
    )
    names = ["TPU v5e", "TPU v3", "unknown Google device 0x0999"]
    assert [(chip["index"], chip["name"]) for chip in capture.tpus(root)] == list(enumerate(names))


def test_environment_variables_are_named_and_never_quoted(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"dev/accel0": "", "dev/vfio/0": ""})
    access = capture.tpu_access(root, {"TPU_NAME": "secret", "HF_TOKEN": "secret"})
    assert access == {"device_nodes": ["/dev/accel0", "/dev/vfio/0"], "environment_names": ["TPU_NAME"]}


# The limits of cgroups


def test_cgroup_2_limits_are_the_tightest_of_the_ancestors(tmp_path: Path) -> None:
    root = write_files(
        tmp_path,
        {
            "proc/self/cgroup": "0::/jobs/one\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            "sys/fs/cgroup/jobs/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/jobs/memory.max": "2147483648\n",
            "sys/fs/cgroup/jobs/one/cpu.max": "max 100000\n",
            "sys/fs/cgroup/jobs/one/memory.max": "4294967296\n",
        },
    )
    assert capture.cgroup(root) == {"version": 2, "cpu_limit_cores": 1.5, "memory_limit_bytes": 2**31}


def test_cgroup_2_max_is_no_limit(tmp_path: Path) -> None:
    group = {"cgroup.controllers": "cpu", "cpu.max": "max 100000\n", "memory.max": "max\n"}
    root = write_files(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in group.items()})
    assert capture.cgroup(root) == {"version": 2, "cpu_limit_cores": None, "memory_limit_bytes": None}


def test_cgroup_1_limits_are_read_if_the_path_of_the_host_is_hidden(tmp_path: Path) -> None:
    root = write_files(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert capture.cgroup(root) == {"version": 1, "cpu_limit_cores": 2.0, "memory_limit_bytes": None}


# Processors and memory


def test_physical_cores_are_counted_by_their_siblings(tmp_path: Path) -> None:
    files = {}
    for number, (package, siblings) in enumerate([(0, "0,2"), (1, "1,3"), (0, "0,2"), (1, "1,3")]):
        topology = f"sys/devices/system/cpu/cpu{number}/topology"
        files[f"{topology}/core_id"] = "0"
        files[f"{topology}/physical_package_id"] = str(package)
        files[f"{topology}/thread_siblings_list"] = siblings
    cpu = capture.cpu(write_files(tmp_path, {**files, "proc/cpuinfo": "model name\t: Fast One\n"}))
    assert (cpu["model"], cpu["sockets"], cpu["physical_cores"]) == ("Fast One", 2, 2)


def test_memory_is_in_bytes_and_null_if_the_kernel_does_not_report_it(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"proc/meminfo": "MemTotal:  16 kB\nMemAvailable:   8 kB\n"})
    expected = {
        "total_bytes": 16384,
        "available_bytes": 8192,
        "swap_total_bytes": None,
        "swap_free_bytes": None,
    }
    assert capture.memory(root) == expected


# Packages and the request


def test_all_packages_are_recorded_unless_some_are_named() -> None:
    assert capture.packages(None)["pytest"] == pytest.__version__


def test_a_package_that_is_missing_is_null() -> None:
    assert capture.packages(["pytest", "no-such"]) == {"pytest": pytest.__version__, "no-such": None}
    assert capture.packages([]) == {}


def test_a_probe_that_raises_is_reported_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise PermissionError("no")

    monkeypatch.setattr(capture, "disks", broken)
    host = capture.capture({"accelerators": False, "packages": []})["host"]
    assert host["disks"] is None
    assert host["errors"] == {"disks": "PermissionError: no"}


def test_the_script_runs_from_standard_input_as_in_the_role() -> None:
    argv = [sys.executable, "-", '{"accelerators": false, "packages": ["pytest"]}']
    done = subprocess.run(argv, input=SCRIPT.read_text(), capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert answer["host"]["packages"] == {"pytest": pytest.__version__}
    assert answer["host"]["python"]["executable"] == sys.executable


def test_the_script_writes_private_files_with_exactly_the_given_text(tmp_path: Path) -> None:
    texts = {"host.json": '{"a": 1}\n', "lscpu.txt": "one\r\ntwo\u00e9\ud800"}
    subprocess.run([sys.executable, SCRIPT, "--write", tmp_path], input=json.dumps(texts).encode(), check=True)
    assert {file.name for file in tmp_path.iterdir()} == texts.keys()
    assert (tmp_path / "host.json").read_bytes() == b'{"a": 1}\n'
    assert (tmp_path / "lscpu.txt").read_bytes() == "one\r\ntwo\u00e9\\ud800".encode()
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_the_script_is_valid_python_3_8() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 8))
