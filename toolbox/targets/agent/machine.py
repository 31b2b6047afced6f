"""Describes this machine for the records of an attempt, without starting a program."""

from __future__ import annotations

import functools
import glob
import os

_NVIDIA = "/proc/driver/nvidia/gpus"  # the driver has one directory per GPU here


def host() -> str:
    """Return the name of the machine."""
    return os.uname().nodename


@functools.lru_cache(maxsize=1)
def boot() -> str:
    """Return an id that changes with each start of the machine; empty if the system does not provide it."""
    try:
        # Read the ASCII text as UTF-8: Python has already loaded its UTF-8 codec, and loading another codec takes time.
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def accelerators(folder: str = _NVIDIA) -> str:
    """Return the GPUs of the machine, such as `8x NVIDIA H200`; empty if none are visible."""
    models = [model for file in sorted(glob.glob(os.path.join(folder, "*", "information"))) for model in _models(file)]
    return ", ".join(f"{models.count(model)}x {model}" for model in sorted(set(models)))


def _models(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            return [line.partition(":")[2].strip() for line in stream if line.startswith("Model:")]
    except OSError:
        return []
