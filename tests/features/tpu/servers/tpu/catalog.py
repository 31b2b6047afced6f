"""The accelerator types, zones and runtime versions that the test server offers, and the number of VMs of each type.

Sizes, topologies and numbers of VMs are those of https://cloud.google.com/tpu/docs/v5e, /v6e, /v5p, /v4, /v3 and /v2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from google.cloud.tpu_v2 import types

_CHIPS_PER_VM: Final = 4
_SINGLE_VM_CHIPS: Final = 8  # a v5e or v6e slice of up to 8 chips has one VM; larger slices have 4 chips per VM

ZONES: Final = (
    "asia-northeast1-b",
    "asia-southeast1-b",
    "europe-west4-a",
    "europe-west4-b",
    "southamerica-west1-a",
    "us-central1-a",
    "us-central1-b",
    "us-central1-c",
    "us-central1-f",
    "us-central2-b",
    "us-east1-c",
    "us-east1-d",
    "us-east5-a",
    "us-east5-b",
    "us-south1-a",
    "us-west1-c",
    "us-west4-a",
    "us-west4-b",
)
RUNTIME_VERSIONS: Final = (
    "tpu-ubuntu2204-base",
    "tpu-vm-base",
    "tpu-vm-tf-2.17.0-pjrt",
    "tpu-vm-tf-2.17.0-pod-pjrt",
    "tpu-vm-v4-base",
    "v2-alpha-tpuv4",
    "v2-alpha-tpuv5",
    "v2-alpha-tpuv5-lite",
    "v2-alpha-tpuv6e",
)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator type.

    Args:
        name: for example `v5litepod-16`. The number counts chips for v5e and v6e, and TensorCores for the others.
        quota: part of the name of the quota, between `TPU` and `PerProjectPerZoneForTPUAPI`.
        preemptible_quota: the same for spot and preemptible nodes.
    """

    name: str
    generation: types.AcceleratorConfig.Type
    topology: str
    quota: str
    preemptible_quota: str

    @property
    def chips(self) -> int:
        """Number of chips."""
        return math.prod(int(length) for length in self.topology.split("x"))

    @property
    def size(self) -> int:
        """Number at the end of the name, which is what the quota counts."""
        return int(self.name.rpartition("-")[2])

    @property
    def workers(self) -> int:
        """Number of VMs."""
        one_vm = _SINGLE_VM_CHIPS if self.name.startswith(("v5litepod-", "v6e-")) else _CHIPS_PER_VM
        return 1 if self.chips <= one_vm else self.chips // _CHIPS_PER_VM

    def quota_name(self, *, is_spot: bool) -> str:
        """Return the name of the quota that the type counts for."""
        return f"TPU{self.preemptible_quota if is_spot else self.quota}PerProjectPerZoneForTPUAPI"

    @property
    def config(self) -> types.AcceleratorConfig:
        """The type and topology, as an alternative to the name."""
        return types.AcceleratorConfig(type_=self.generation, topology=self.topology)


_CUBES: Final = "8:2x2x1 16:2x2x2 32:2x2x4 64:2x4x4 128:4x4x4 256:4x4x8 512:4x8x8 1024:8x8x8 1536:8x8x12 2048:8x8x16"
_SQUARES: Final = "1:1x1 4:2x2 8:2x4 16:4x4 32:4x8 64:8x8 128:8x16 256:16x16"
_Type: Final[Any] = types.AcceleratorConfig.Type
_FAMILIES: Final = (
    ("v2", _Type.V2, "8:2x2 32:4x4 128:8x8 256:8x16 512:16x16", "V2", "V2Preemptible"),
    ("v3", _Type.V3, "8:2x2 32:4x4 64:4x8 128:8x8 256:8x16 512:16x16 1024:16x32 2048:32x32", "V3", "V3Preemptible"),
    ("v4", _Type.V4, f"{_CUBES} 3072:8x12x16 4096:8x16x16", "V4sPod", "V4sPreemptiblePod"),
    ("v5litepod", _Type.V5LITE_POD, _SQUARES, "V5sLitepod", "V5sPreemptibleLitepod"),
    ("v5p", _Type.V5P, f"{_CUBES} 3072:8x12x16 4096:8x16x16 6144:12x16x16", "V5P", "V5PPreemptible"),
    ("v6e", _Type.V6E, _SQUARES, "V6E", "V6EPreemptible"),
)


def _catalog() -> Mapping[str, Accelerator]:
    found = {}
    for family, generation, sizes, quota, preemptible_quota in _FAMILIES:
        for size, topology in (entry.split(":") for entry in sizes.split()):
            name = f"{family}-{size}"
            found[name] = Accelerator(name, generation, topology, quota, preemptible_quota)
    return MappingProxyType(found)


CATALOG: Final = _catalog()
