"""The CPUs, the memory and the GPUs that a pod requests, and what the models of other settings of pods share with them.

Workloads of the backend `kubernetes` have such requests. Test suites read them to compute what fits on the GPUs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator
from pydantic.fields import FieldInfo

from toolbox.ground.model.text import abbreviated

TPU: Final = "google.com/tpu"
_GPU: Final = "nvidia.com/gpu"
_MIG: Final = re.compile(r"mig_(\d+c_)?\d+g_\d+gb(_[a-z]+)*")
SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
WORD: Final = r"[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?"


def matching(what: str, pattern: str, longest: int) -> AfterValidator:
    """Return a validator of texts that Kubernetes accepts, to report mistakes before anything has started."""
    regex = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if len(text) > longest or not regex.fullmatch(text):
            raise ValueError(f"{abbreviated(text)} is not {what}, of at most {longest} characters")
        return text

    return AfterValidator(check)


def _without_nulls(value: Any) -> Any:
    """Remove the entries that a cell has set to null."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, Mapping) else value


def _gpu(value: Any) -> int | dict[str, int] | None:
    value = _without_nulls(value)
    counts = value.values() if isinstance(value, dict) else [value]
    if value is not None and (not counts or any(type(count) is not int or count < 0 for count in counts)):
        text = abbreviated(value)
        raise ValueError(f"{text} is not a number of GPUs, null, or MIG slices such as {{mig_1g_10gb: 1}}")
    if isinstance(value, dict) and (wrong := [name for name in value if not _MIG.fullmatch(str(name))]):
        raise ValueError(f"{abbreviated(wrong[0])} is not a MIG slice such as mig_1g_10gb")
    return value  # type: ignore[no-any-return]  # the type has just been checked


def _milli(value: float) -> float:
    if not math.isclose(value * 1000, round(value * 1000), rel_tol=1e-9):
        raise ValueError(f"{value} has more than three decimal places")
    return value


Count = Annotated[int, Field(strict=True, ge=1)]
Quantity = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), AfterValidator(_milli)]
ResourceName = Annotated[str, matching("a resource such as nvidia.com/gpu", rf"{SUBDOMAIN}/{WORD}", 317)]
Gpu = Annotated[int | dict[str, int] | None, PlainValidator(_gpu)]
Nulls = BeforeValidator(_without_nulls)


class Part(BaseModel):
    """A mapping in the description of a pod. A null counts as absent for fields that don't accept null."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, block: Any) -> Any:
        if not isinstance(block, Mapping):
            return block
        kept = {name for name, field in cls.fields().items() if type(None) in get_args(field.annotation)}
        return {name: value for name, value in block.items() if value is not None or name in kept}

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """Return the fields by their names in a configuration."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}


class Resources(Part):
    """The requests and limits of a workload; null leaves a request or limit out of the manifest.

    If only a request or only its limit is set, the default of the other one adapts: `limit_cpu: 2` also requests 2,
    and `request_cpu: 32` also sets the limit 32.

    Args:
        request_cpu: the requested number of cores, which may be a fraction: 0.5.
        request_memory_gb: the requested memory in units of 10^9 bytes.
        limit_cpu: the limit in cores.
        limit_memory_gb: the limit of memory in units of 10^9 bytes.
        gpu: the number of whole GPUs, or the number of each kind of MIG slice: {mig_1g_10gb: 1}. A cell may add kinds
            of slices, and removes a kind by null. 0 requests no GPU; null also hides the GPUs of the node
            (CUDA_VISIBLE_DEVICES=-1).
        gpu_resource: the name of the cluster's GPU resource.
        extended: the number of other resources of nodes, by their names.
    """

    request_cpu: Quantity | None = 4
    request_memory_gb: Quantity | None = 32
    limit_cpu: Quantity | None = 8
    limit_memory_gb: Quantity | None = 128
    gpu: Gpu = 1
    gpu_resource: ResourceName = _GPU
    extended: Annotated[dict[ResourceName, Count], Nulls] = {}

    @model_validator(mode="after")
    def _is_possible(self) -> Resources:
        given = self.model_fields_set
        for part in ("cpu", "memory_gb"):
            names = {f"request_{part}", f"limit_{part}"}
            request, limit = self._range(part)
            if names <= given and request is not None and limit is not None and request > limit:
                raise ValueError(f"`request_{part}` {request:g} is more than `limit_{part}` {limit:g}")
        for name in self.extended:
            if name in {_GPU, self.gpu_resource} or name.startswith("nvidia.com/mig-"):
                raise ValueError(f"`{name}` is set by `gpu`, not in `extended`")
            if name == TPU:
                raise ValueError(f"`{name}` is set by the field `tpu` of the pod, not in `extended`")
        return self

    def requests(self) -> dict[str, str]:
        """Return the requests for CPU and memory as Kubernetes quantities."""
        return _quantities(self._range("cpu")[0], self._range("memory_gb")[0])

    def limits(self) -> dict[str, str]:
        """Return the limits of CPU and memory as Kubernetes quantities."""
        return _quantities(self._range("cpu")[1], self._range("memory_gb")[1])

    def gpus(self) -> dict[str, int]:
        """Return the number of each GPU resource that a pod requests, by the name of the resource."""
        if isinstance(self.gpu, dict):
            return {f"nvidia.com/{name.replace('_', '-', 1).replace('_', '.')}": n for name, n in self.gpu.items() if n}
        return {self.gpu_resource: self.gpu} if self.gpu else {}

    def _range(self, part: str) -> tuple[float | None, float | None]:
        """Return a request and its limit. If they conflict, the value that was set replaces the default."""
        request, limit = getattr(self, f"request_{part}"), getattr(self, f"limit_{part}")
        if request is not None and limit is not None and request > limit:
            if f"request_{part}" not in self.model_fields_set:
                return limit, limit
            if f"limit_{part}" not in self.model_fields_set:
                return request, request
        return request, limit


def gigabytes(value: float) -> str:
    """Return a number of 10^9 bytes as a Kubernetes quantity: `32G`."""
    return _quantity(value, "G", "M")


def _quantities(cpu: float | None, memory: float | None) -> dict[str, str]:
    cores = {} if cpu is None else {"cpu": _quantity(cpu, "", "m")}
    return cores if memory is None else {**cores, "memory": gigabytes(memory)}


def _quantity(value: float, unit: str, thousandth: str) -> str:
    return f"{value:.0f}{unit}" if value == int(value) else f"{round(value * 1000)}{thousandth}"
