"""
Describe the machine that executes this script, as one JSON document.

The role passes this file to a host's Python on stdin, so it has to be a single file, use only the standard library,
and run on Python 3.8. The request is a JSON object, in the first argument or else on stdin:

    accelerators  whether to search for GPUs and TPUs
    packages      the Python distributions to look up; null for all of them

The answer on stdout is `{"host": document, "raw": {file name: text}}`. If a probe fails, its value in the document is
null, `errors` contains the reason, and the other probes continue. The names of keys contain units. The values of
environment variables and the command lines of processes are never recorded, because both may contain secrets.

    capture.py --write DIRECTORY < TEXTS

On the controller, the role also uses this file to write the results: TEXTS is a JSON object, `{file name: text}`.
"""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

SCHEMA_VERSION = 1
TOOL_TIMEOUT_S = 20.0
# Containers and driver installers put tools here without adding the directories to PATH.
TOOL_DIRECTORIES = ["/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/rocm/bin"]
ROOT = Path("/")
KIB = 1024
MIB = 1024**2


class ProbeError(Exception):
    """A part of the machine could not be described; the message gives the reason."""


# Reading the machine


def read(path: Path) -> str | None:
    """Return the stripped text of a file; None if the file is missing, unreadable or empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0 \t\n") or None
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    text = read(path)
    return int(text) if text and re.fullmatch(r"-?\d+", text) else None


def colon_pairs(text: str) -> dict[str, str]:
    """Return `key : value` lines as a mapping. If a key occurs twice, the first line counts."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator and value.strip():
            pairs.setdefault(key.strip(), value.strip())
    return pairs


def find_tool(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *TOOL_DIRECTORIES]))


def run_tool(argv: list[str], timeout_s: float | None = None) -> str:
    """Return the output of a tool. Raise ProbeError if the tool fails or does not end in time."""
    timeout_s = TOOL_TIMEOUT_S if timeout_s is None else timeout_s
    name = Path(argv[0]).name
    # Use files instead of pipes: a process stuck in a driver ignores even SIGKILL, and its pipes would never close.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=complaints,
            env=dict(os.environ, LC_ALL="C"),
            start_new_session=True,
        )
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            kill_group(process)
            raise ProbeError(f"{name} did not answer within {timeout_s:g} s") from None
        output.seek(0)
        complaints.seek(0)
        text, complaint = (file.read().decode("utf-8", "replace") for file in (output, complaints))
    if status != 0:
        reason = " ".join((complaint + text).split())[:300] or "it printed nothing"
        raise ProbeError(f"{name} exited with {status}: {reason}")
    return text


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children. Don't wait for a process that is stuck in the kernel."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(1)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass


# The machine


def cpu(root: Path = ROOT) -> dict[str, object]:
    system = root / "sys/devices/system"
    cores = {path.parent.parent.name: path.parent for path in system.glob("cpu/cpu[0-9]*/topology/core_id")}
    sockets = {read(core / "physical_package_id") for core in cores.values()}
    # CPUs of the same core have the same list of siblings. The core_id is not unique: each die has the same ids.
    siblings = {read(core / "thread_siblings_list") for core in cores.values()}
    frequencies_khz = [read_int(path) for path in system.glob("cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq")]
    governors = {read(path) for path in system.glob("cpu/cpu[0-9]*/cpufreq/scaling_governor")}
    return {
        "model": cpu_model(root),
        "sockets": len(sockets) or None,
        "physical_cores": len(siblings) or None,
        "logical_cpus": os.cpu_count(),
        "usable_logical_cpus": usable_cpus(),
        "max_frequency_mhz": max((khz for khz in frequencies_khz if khz), default=0) / 1000 or None,
        "governors": sorted(governor for governor in governors if governor),
        "numa_nodes": len(list(system.glob("node/node[0-9]*"))) or None,
    }


def cpu_model(root: Path) -> str | None:
    """Return the CPU model from the kernel, or from lscpu on Arm, because the Arm kernel reports only model numbers."""
    model = colon_pairs(read(root / "proc/cpuinfo") or "").get("model name")
    lscpu = find_tool("lscpu")
    if model is None and lscpu:
        model = colon_pairs(run_tool([lscpu])).get("Model name")
    return model or platform.processor() or None


def usable_cpus() -> int | None:
    """Return the number of CPUs that this process may use, which taskset or a cpuset can restrict."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def memory(root: Path = ROOT) -> dict[str, object]:
    kib = colon_pairs(read(root / "proc/meminfo") or "")
    fields = {
        "total_bytes": "MemTotal",
        "available_bytes": "MemAvailable",
        "swap_total_bytes": "SwapTotal",
        "swap_free_bytes": "SwapFree",
    }
    return {key: int(kib[name].split()[0]) * KIB if name in kib else None for key, name in fields.items()}


def operating_system(root: Path = ROOT) -> dict[str, object]:
    text = read(root / "etc/os-release") or read(root / "usr/lib/os-release") or ""
    release = dict(item.split("=", 1) for item in shlex.split(text, comments=True) if "=" in item)
    return {
        "name": release.get("NAME") or platform.system(),
        "version": release.get("VERSION_ID"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "hostname": socket.gethostname(),
        "container": container(root, os.environ),
        "virtual_machine": virtual_machine(root),
        "vendor": read(root / "sys/class/dmi/id/sys_vendor"),
        "product": read(root / "sys/class/dmi/id/product_name"),
    }


def container(root: Path, environment: Mapping[str, str]) -> str | None:
    """Return the kind of container that this process runs in; None if no container is detected."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    return "docker" if (root / ".dockerenv").exists() else None


def virtual_machine(root: Path) -> bool | None:
    """Return whether this is a virtual machine; None if unknown, as on all processors but x86."""
    flags = colon_pairs(read(root / "proc/cpuinfo") or "").get("flags")
    return "hypervisor" in flags.split() if flags else None


def load_average() -> dict[str, object]:
    """Return the average number of runnable processes over the last 1, 5 and 15 minutes."""
    last_1_min, last_5_min, last_15_min = os.getloadavg()
    return {"last_1_min": last_1_min, "last_5_min": last_5_min, "last_15_min": last_15_min}


def disks() -> list[dict[str, object]]:
    usage = {path: shutil.disk_usage(path) for path in dict.fromkeys(["/", tempfile.gettempdir()])}
    return [{"path": path, "total_bytes": space.total, "free_bytes": space.free} for path, space in usage.items()]


# Limits of the control group: https://docs.kernel.org/admin-guide/cgroup-v2.html


def cgroup(root: Path = ROOT) -> dict[str, object]:
    """Return the tightest limits of this process's control group and its ancestors; None means no limit."""
    mount = root / "sys/fs/cgroup"
    groups = own_groups(read(root / "proc/self/cgroup") or "")
    unified = (mount / "cgroup.controllers").exists()
    if unified:
        own = list(ancestry(mount, groups.get("", "/")))
        cpus = [cpu_max(read(group / "cpu.max")) for group in own]
        sizes = [read_int(group / "memory.max") for group in own]
    else:
        cpus = [cpu_quota(group) for group in ancestry(mount / "cpu", groups.get("cpu", "/"))]
        memory_groups = ancestry(mount / "memory", groups.get("memory", "/"))
        sizes = [memory_limit_v1(group) for group in memory_groups]
    return {
        "version": 2 if unified else 1 if mount.exists() else None,
        "cpu_limit_cores": min((cores for cores in cpus if cores is not None), default=None),
        "memory_limit_bytes": min((size for size in sizes if size is not None), default=None),
    }


def own_groups(text: str) -> dict[str, str]:
    """Return the paths in /proc/self/cgroup by controller. In version 2, the name of the controller is empty."""
    lines = (line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2)
    return {name: path for _, controllers, path in lines for name in controllers.split(",")}


def ancestry(mount: Path, path: str) -> Iterator[Path]:
    """Yield the directories of a group and of its ancestors, up to the mount. In a container, some may be missing."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:depth])


def cpu_max(text: str | None) -> float | None:
    """Return the number of cores for `QUOTA PERIOD` in microseconds; None for `max`."""
    quota, _, period = (text or "max").partition(" ")
    return None if quota == "max" else int(quota) / int(period or 100_000)


def cpu_quota(group: Path) -> float | None:
    quota, period = read_int(group / "cpu.cfs_quota_us"), read_int(group / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def memory_limit_v1(group: Path) -> int | None:
    """Return a memory limit of version 1, which represents "no limit" as the largest number of pages in 63 bits."""
    limit = read_int(group / "memory.limit_in_bytes")
    return limit if limit is not None and limit < 2**62 else None


# Python


def python() -> dict[str, object]:
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
    }


def packages(names: Iterable[str] | None) -> dict[str, str | None]:
    """Return the versions of Python distributions, or of all if `names` is None. A missing one has the version null."""
    if names is not None:
        return {name: package_version(name) for name in names}
    versions: dict[str, str | None] = {}
    for distribution in importlib.metadata.distributions():
        if "Name" in distribution.metadata:  # a half-removed distribution has no name
            # Python imports the first distribution of a name on sys.path.
            versions.setdefault(distribution.metadata["Name"], distribution.version)
    return dict(sorted(versions.items(), key=lambda item: item[0].lower()))


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


# Accelerators


def accelerator(kind: str, vendor: str, **values: object) -> dict[str, object]:
    """Return the description of an accelerator. The keys are the same for all vendors; unknown values are null."""
    return {
        "kind": kind,
        "vendor": vendor,
        "index": None,
        "name": None,
        "memory_total_bytes": None,
        "driver_version": None,
        "cuda_driver_version": None,
        "uuid": None,
        "pci_bus_id": None,
        "compute_capability": None,
        "mig_mode": None,
        "power_limit_w": None,
        "sm_clock_mhz": None,
        "sm_clock_max_mhz": None,
        "memory_clock_mhz": None,
        "memory_clock_max_mhz": None,
        **values,
    }


def mebibytes(text: str) -> int:
    return int(text) * MIB


# The field of nvidia-smi and its type, by the key in the document. `nvidia-smi --help-query-gpu` describes the fields.
NVIDIA_FIELDS: dict[str, tuple[str, Callable[[str], object]]] = {
    "index": ("index", int),
    "name": ("name", str),
    "memory_total_bytes": ("memory.total", mebibytes),
    "driver_version": ("driver_version", str),
    "uuid": ("uuid", str),
    "pci_bus_id": ("pci.bus_id", str),
    "compute_capability": ("compute_cap", str),
    "mig_mode": ("mig.mode.current", str),
    "power_limit_w": ("power.limit", float),
    "sm_clock_mhz": ("clocks.current.sm", int),
    "sm_clock_max_mhz": ("clocks.max.sm", int),
    "memory_clock_mhz": ("clocks.current.memory", int),
    "memory_clock_max_mhz": ("clocks.max.memory", int),
}


def nvidia_gpus() -> list[dict[str, object]]:
    nvidia_smi = find_tool("nvidia-smi")
    if nvidia_smi is None:
        return []
    return query_nvidia(nvidia_smi, list(NVIDIA_FIELDS))


def query_nvidia(nvidia_smi: str, keys: list[str]) -> list[dict[str, object]]:
    """Return the GPUs with the values of these keys. A key that an older driver does not support has the value null."""
    query = ",".join(NVIDIA_FIELDS[key][0] for key in keys)
    try:
        text = run_tool([nvidia_smi, f"--query-gpu={query}", "--format=csv,noheader,nounits"])
    except ProbeError as error:
        if "No devices were found" in str(error):
            return []
        refused = re.search(r'Field "([^"]+)" is not a valid field', str(error))
        supported = [key for key in keys if not refused or NVIDIA_FIELDS[key][0] != refused.group(1)]
        if supported in (keys, []):
            raise
        return query_nvidia(nvidia_smi, supported)
    return parse_nvidia_csv(text, keys)


def parse_nvidia_csv(text: str, keys: list[str] | None = None) -> list[dict[str, object]]:
    """Return the GPUs from the rows that nvidia-smi prints, whose columns are the keys."""
    keys = list(NVIDIA_FIELDS) if keys is None else keys
    # A GPU in need of repair adds "WARNING: infoROM is corrupted at ..." after the rows.
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    if lines[:1] == ["No devices were found"]:
        return []
    gpus = []
    for row in csv.reader(lines, skipinitialspace=True):
        if len(row) != len(keys):
            raise ProbeError(f"nvidia-smi answered {len(row)} of {len(keys)} fields: {', '.join(row)[:200]}")
        values = {key: nvidia_value(key, row[column].strip()) for column, key in enumerate(keys)}
        gpus.append(accelerator("gpu", "nvidia", **values))
    return gpus


def nvidia_value(key: str, cell: str) -> object:
    """Return the value of a cell; null for `[N/A]`, `[Not Supported]`, `[Unknown Error]` and similar texts."""
    if not cell or cell.startswith("[") or cell in ("N/A", "ERR!"):
        return None
    try:
        return NVIDIA_FIELDS[key][1](cell)
    except ValueError:
        raise ProbeError(f"nvidia-smi answered {cell!r} for {NVIDIA_FIELDS[key][0]}") from None


def nvidia_report() -> str | None:
    """Return nvidia-smi's long report, without the list of processes, whose names may contain arguments."""
    nvidia_smi = find_tool("nvidia-smi")
    sections = "MEMORY,ECC,TEMPERATURE,POWER,CLOCK,COMPUTE,PERFORMANCE"
    return run_tool([nvidia_smi, "-q", "-d", sections]) if nvidia_smi else None


def cuda_driver_version(report: str) -> str | None:
    """Return the newest version of CUDA that the driver supports, which need not be installed."""
    match = re.search(r"^CUDA(?: UMD)? Version\s*:\s*(\d[\d.]*)", report, re.MULTILINE)
    return match.group(1) if match else None


def amd_gpus() -> list[dict[str, object]]:
    rocm_smi = find_tool("rocm-smi")
    if rocm_smi is None:
        return []
    flags = ["--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--showuniqueid", "--showbus"]
    return parse_rocm_json(run_tool([rocm_smi, *flags, "--json"]))


def parse_rocm_json(text: str) -> list[dict[str, object]]:
    start = text.find("{")  # skip warnings before the JSON
    answer = json.JSONDecoder().raw_decode(text, start)[0] if start >= 0 else {}
    # Releases differ in upper and lower case: "Card series", "Card Series".
    parts = {name: {key.lower(): value for key, value in part.items()} for name, part in answer.items()}
    driver = parts.get("system", {}).get("driver version")
    cards = {int(name[4:]): card for name, card in parts.items() if re.fullmatch(r"card\d+", name)}
    return [
        accelerator(
            "gpu",
            "amd",
            index=index,
            name=card.get("card series"),
            memory_total_bytes=int(card["vram total memory (b)"]),
            driver_version=driver,
            uuid=card.get("unique id"),
            pci_bus_id=card.get("pci bus"),
        )
        for index, card in sorted(cards.items())
    ]


GOOGLE_PCI_VENDOR = "0x1ae0"
# The generation by PCI device id, or by device id and subsystem id. The same table is in jax and in tpu-info.
TPU_NAMES = {
    ("0x0027", "0x004e"): "TPU v2",
    ("0x0027", "0x004f"): "TPU v3",
    "0x005e": "TPU v4",
    "0x0062": "TPU v5p",
    "0x0063": "TPU v5e",
    "0x006f": "TPU v6e",
    "0x0076": "TPU7x",
}


def tpus(root: Path = ROOT) -> list[dict[str, object]]:
    """Return the TPU chips on the PCI bus, without Google's network and storage devices of the same vendor id."""
    chips: list[dict[str, object]] = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        if read(device / "vendor") != GOOGLE_PCI_VENDOR:
            continue
        model, subsystem = read(device / "device") or "", read(device / "subsystem_device") or ""
        name = TPU_NAMES.get(model) or TPU_NAMES.get((model, subsystem))
        # A generation that is not in the table is recognized by its class: unassigned, or processing accelerator.
        if name or (read(device / "class") or "").startswith(("0xff", "0x12")):
            name = name or f"unknown Google device {model}"
            chips.append(accelerator("tpu", "google", index=len(chips), name=name, pci_bus_id=device.name))
    return chips


def tpu_access(root: Path, environment: Mapping[str, str]) -> dict[str, object]:
    """Return the device nodes of TPUs, and the names (never the values) of environment variables about TPUs."""
    nodes = [*(root / "dev").glob("accel[0-9]*"), *(root / "dev/vfio").glob("*")]
    prefixes = ("TPU_", "LIBTPU_", "CLOUD_TPU_", "PJRT_DEVICE")
    return {
        "device_nodes": sorted("/" + str(node.relative_to(root)) for node in nodes),
        "environment_names": sorted(name for name in environment if name.startswith(prefixes)),
    }


# The document


class Capture:
    """Runs probes one by one, and records the errors of those that fail."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}
        self.raw: dict[str, str] = {}

    def attempt(self, name: str, probe: Callable[[], object]) -> object:
        try:
            return probe()
        except ProbeError as error:
            self.errors[name] = str(error)
        except Exception as error:  # an unusual machine may break a probe, but the other probes continue
            self.errors[name] = f"{type(error).__name__}: {error}"
        return None

    def keep(self, file_name: str, probe: Callable[[], str | None]) -> str:
        """Store and return the unprocessed output of a tool."""
        text = str(self.attempt(file_name, probe) or "")
        if text:
            self.raw[file_name] = text
        return text

    def accelerators(self) -> list[dict[str, object]]:
        accelerators: list[dict[str, object]] = []
        for name, probe in {"nvidia": nvidia_gpus, "amd": amd_gpus, "tpu": tpus}.items():
            chips = self.attempt(name, probe)
            accelerators += chips if isinstance(chips, list) else []
        if any(chip["vendor"] == "nvidia" for chip in accelerators):
            version = cuda_driver_version(self.keep("nvidia-smi.txt", nvidia_report))
            for chip in accelerators:
                if chip["vendor"] == "nvidia":
                    chip["cuda_driver_version"] = version
        return accelerators

    def why_no_accelerators(self) -> str:
        failed = [name for name in ("nvidia", "amd", "tpu") if name in self.errors]
        if failed:
            return f"the search for accelerators failed, see `errors`: {', '.join(failed)}"
        return "nvidia-smi and rocm-smi are missing or found no GPU, and there is no TPU on the PCI bus"


def lscpu_report() -> str | None:
    lscpu = find_tool("lscpu")
    return run_tool([lscpu]) if lscpu else None


def capture(request: Mapping[str, object]) -> dict[str, object]:
    """Return the answer to a request. The top of this file describes both."""
    run = Capture()
    requested = request.get("packages")
    names = [str(name) for name in requested] if isinstance(requested, list) else None
    host: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "captured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "os": run.attempt("os", operating_system),
        "cpu": run.attempt("cpu", cpu),
        "memory": run.attempt("memory", memory),
        "cgroup": run.attempt("cgroup", cgroup),
        "disks": run.attempt("disks", disks),
        "load_average": run.attempt("load_average", load_average),
        "accelerators": [],
        "reason": "not requested",
        "tpu": None,
        "python": run.attempt("python", python),
        "packages": run.attempt("packages", lambda: packages(names)),
    }
    if request.get("accelerators", True):
        accelerators = run.accelerators()
        host["accelerators"] = accelerators
        host["reason"] = None if accelerators else run.why_no_accelerators()
        host["tpu"] = run.attempt("tpu_access", lambda: tpu_access(ROOT, os.environ))
    run.keep("lscpu.txt", lscpu_report)
    return {"host": {**host, "errors": run.errors}, "raw": run.raw}


def write_files(directory: Path, texts: Mapping[str, str]) -> None:
    """Write private text files. The role checks the names, which come from a host."""
    for name, text in texts.items():
        with open(directory / name, "wb", opener=private_opener) as file:
            file.write(text.encode("utf-8", "backslashreplace"))


def private_opener(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--write"]:
        write_files(Path(arguments[1]), json.load(sys.stdin))
        return
    request = json.loads(arguments[0] if arguments else sys.stdin.read())
    json.dump(capture(request), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
