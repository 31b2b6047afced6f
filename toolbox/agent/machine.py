"""What machine this is, as far as that can be told without starting a program: for the records of an attempt."""

from __future__ import annotations

import glob
import os

_NVIDIA = "/proc/driver/nvidia/gpus"  # of the driver: a directory a GPU


def host() -> str:
    """Return the name of the machine."""
    return os.uname().nodename


def boot() -> str:
    """Return the id of the machine's present boot; an empty text where the system does not tell it."""
    try:
        # As UTF-8: each supervisor would load the codec for ASCII.
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def accelerators(folder: str = _NVIDIA) -> str:
    """Return the GPUs of the machine, `8x NVIDIA H200`; empty where none can be seen."""
    models = [model for file in sorted(glob.glob(os.path.join(folder, "*", "information"))) for model in _models(file)]
    return ", ".join(f"{models.count(model)}x {model}" for model in sorted(set(models)))


def _models(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            return [line.partition(":")[2].strip() for line in stream if line.startswith("Model:")]
    except OSError:
        return []
