"""Records the resource use of a workload over time: `samples.csv` for CPU and memory, `gpu_samples.csv` for GPUs."""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import Iterable

from toolbox.ground.kit import process_tree, safe_files
from toolbox.ground.kit.attempt_files import GPU_SAMPLES, SAMPLES
from toolbox.ground.kit.process_tree import UseMeter

_COLUMNS = "seconds,cpu_percent,memory_bytes,processes\n"
_GPU_COLUMNS = "seconds,gpu,utilization_percent,memory_mib\n"
# `nvidia-smi --help-query-gpu` describes these options.
_GPU_QUERY = ("--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits")
_GPU_FIELDS = 3


class Sampler:
    """Samples the resource use of all descendants of this process.

    CPU use and resident memory are summed over the descendants.

    Args:
        seconds: the interval between two samples.
    """

    def __init__(self, directory: str, seconds: float) -> None:
        self._directory = directory
        self._seconds = seconds
        self._began = self._last = time.monotonic()
        self._meter = UseMeter()
        self._files: dict[str, int] = {}
        self._gpu_text = b""
        self._gpu_output = -1
        self.gpu_reader = 0
        self._append(SAMPLES, _COLUMNS)
        if program := shutil.which("nvidia-smi"):
            self._start_gpu_reader(program)
            self._append(GPU_SAMPLES, _GPU_COLUMNS)

    @property
    def due(self) -> float:
        """The monotonic time of the next sample."""
        return self._last + self._seconds

    def sample(self) -> None:
        """Write one sample of CPU and memory, and the GPU samples since the last call."""
        now = time.monotonic()
        # Skip processes that have exited: the system may still list them, but they have no memory.
        members = {
            pid: process
            for pid, process in process_tree.descendants(os.getpid()).items()
            if pid != self.gpu_reader and process.memory
        }
        self._last = now
        use = self._meter.measure(members)
        if members:
            self._append(SAMPLES, f"{now - self._began:.3f},{use.percent:.1f},{use.memory},{len(members)}\n")
        for line in self._gpu_lines():
            self._append(GPU_SAMPLES, f"{now - self._began:.3f},{line}\n")

    def close(self) -> None:
        """Close the files, and end the process that reads the GPUs."""
        while self._files:
            os.close(self._files.popitem()[1])
        if self.gpu_reader:
            process_tree.send(self.gpu_reader, signal.SIGKILL)
            try:
                os.waitpid(self.gpu_reader, 0)
            except ChildProcessError:
                pass
        if self._gpu_output >= 0:
            os.close(self._gpu_output)

    def _start_gpu_reader(self, program: str) -> None:
        """Start an nvidia-smi that prints continuously. Starting nvidia-smi for each sample would take too long."""
        self._gpu_output, write = os.pipe()
        os.set_blocking(self._gpu_output, False)
        self.gpu_reader = os.fork()
        if self.gpu_reader == 0:
            try:
                process_tree.die_with_parent()
                os.dup2(write, 1)
                os.execv(program, [program, *_GPU_QUERY, f"--loop-ms={max(100, int(self._seconds * 1000))}"])
            finally:
                os._exit(127)
        os.close(write)

    def _gpu_lines(self) -> Iterable[str]:
        if self._gpu_output < 0:
            return
        try:
            self._gpu_text += os.read(self._gpu_output, 1 << 16)
        except BlockingIOError:
            return
        *lines, self._gpu_text = self._gpu_text.split(b"\n")
        for line in lines:
            parts = [part.strip() for part in line.decode("ascii", "replace").split(",")]
            if len(parts) == _GPU_FIELDS and parts[0].isdigit():  # other lines are error messages
                yield ",".join(parts)

    def _append(self, name: str, text: str) -> None:
        """Append to a file. The file stays open, because the workload could replace its path."""
        try:
            if name not in self._files:
                path = os.path.join(self._directory, name)
                self._files[name] = safe_files.open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(self._files[name], text.encode("ascii"))
        except OSError:
            pass  # the disk may be full: this sample is lost
