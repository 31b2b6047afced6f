"""What a target, and over it a cell, says of the pods of a cell on Kubernetes.

`toolbox/kubernetes/pods/manifests.py` makes manifests of it.
"""

from __future__ import annotations

import functools
import json
import math
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainValidator,
    StrictBool,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from toolbox.model.nearest import did_you_mean
from toolbox.model.quantities import MOST_SECONDS
from toolbox.model.text import shown

ROOT: Final = "/topgallant"
"""The directory in a pod below which everything of ours is."""
VOLUMES: Final = ("attempt", "agent", "sources", "shared-memory")
"""The names of our own volumes."""
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  # where PyTorch expects it
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
TPU: Final = "google.com/tpu"

_GPU: Final = "nvidia.com/gpu"
_SYSTEM: Final = ("/usr", "/lib", "/lib64")
_SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MIG: Final = re.compile(r"mig_(\d+c_)?\d+g_\d+gb(_[a-z]+)*")
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WORD: Final = r"[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?"


def _matching(what: str, pattern: str, longest: int) -> AfterValidator:
    """Hold a text against what Kubernetes accepts, so that a slip is found before anything has started."""
    regex = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if len(text) > longest or not regex.fullmatch(text):
            raise ValueError(f"{shown(text)} is not {what}, of at most {longest} characters")
        return text

    return AfterValidator(check)


def _without_nulls(value: Any) -> Any:
    """Take away what a cell has set to null."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, Mapping) else value


def _is_free(label: str) -> str:
    if label == QUEUE_LABEL:
        raise ValueError(f"`{label}` is set by the field `queue`")
    if label == "app.kubernetes.io/managed-by" or label.startswith("topgallant.dev/"):
        raise ValueError(f"the label `{label}` is reserved: choose another one")
    return label


def _is_variable(name: str) -> str:
    if name.startswith("TOPGALLANT_"):
        raise ValueError(f"the variable `{name}` is reserved: choose another one")
    return name


def _mount_path(path: str) -> str:
    if not path.startswith("/") or path == "/" or ":" in path or posixpath.normpath(path) != path:
        raise ValueError(f"{shown(path)} is not an absolute path without `..`, `:` and a slash at its end")
    if path == ROOT or path.startswith(f"{ROOT}/"):
        raise ValueError(f"{path} is reserved, like all paths below {ROOT}: choose another path")
    return path


def _sub_path(path: str) -> str:
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{shown(path)} is not a relative path without `..`")
    return path


def _gpu(value: Any) -> int | dict[str, int] | None:
    value = _without_nulls(value)
    counts = value.values() if isinstance(value, dict) else [value]
    if value is not None and (not counts or any(type(count) is not int or count < 0 for count in counts)):
        raise ValueError(f"{shown(value)} is not a number of GPUs, null, or MIG slices such as {{mig_1g_10gb: 1}}")
    if isinstance(value, dict) and (wrong := [name for name in value if not _MIG.fullmatch(str(name))]):
        raise ValueError(f"{shown(wrong[0])} is not a MIG slice such as mig_1g_10gb")
    return value  # type: ignore[no-any-return]  # it has just been looked at


def _milli(value: float) -> float:
    if not math.isclose(value * 1000, round(value * 1000), rel_tol=1e-9):
        raise ValueError(f"{value} has more than three decimal places")
    return value


Text = Annotated[str, Field(min_length=1, pattern=r"^\S+$")]
Count = Annotated[int, Field(strict=True, ge=1)]
Seconds = Annotated[int, Field(strict=True, ge=0, le=MOST_SECONDS)]
User = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Quantity = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), AfterValidator(_milli)]
Name = Annotated[str, _matching("a name: lower-case letters, digits, `-` and `.`", _SUBDOMAIN, 253)]
Label = Annotated[str, _matching("a name: lower-case letters, digits and `-`", r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63)]
Key = Annotated[str, _matching("a key: `name` or `domain/name`", rf"({_SUBDOMAIN}/)?{_WORD}", 317)]
Value = Annotated[str, _matching("a value of a label: letters, digits, `-`, `_` and `.`", rf"({_WORD})?", 63)]
ResourceName = Annotated[str, _matching("a resource such as nvidia.com/gpu", rf"{_SUBDOMAIN}/{_WORD}", 317)]
DataKey = Annotated[str, _matching("a key of a Secret: letters, digits, `-`, `_` and `.`", r"(?!\.\.|\.$)[-\w.]+", 253)]
Variable = Annotated[
    str, _matching("a name of a variable: letters, digits and `_`", r"[A-Za-z_]\w*", 253), AfterValidator(_is_variable)
]
MountPath = Annotated[str, AfterValidator(_mount_path)]
HostPath = Annotated[str, Field(pattern=r"^/")]
SubPath = Annotated[str, AfterValidator(_sub_path)]
Gpu = Annotated[int | dict[str, int] | None, PlainValidator(_gpu)]
Topology = Annotated[str, _matching("a topology such as 2x4 or 4x4x4", r"[1-9]\d*(x[1-9]\d*){1,2}", 63)]
Nulls = BeforeValidator(_without_nulls)


class _Part(BaseModel):
    """A mapping in the description of a pod. A null, where the field knows none, is as if nothing was said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, said: Any) -> Any:
        if not isinstance(said, Mapping):
            return said
        kept = {name for name, field in cls.fields().items() if type(None) in get_args(field.annotation)}
        return {name: value for name, value in said.items() if value is not None or name in kept}

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """Return the fields by the names that a configuration gives them."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}


class Resources(_Part):
    """What the workload asks of a node, and what it may use; null for a part that is not to be said.

    Where only one of a request and its limit is said, the default of the other gives way: `limit_cpu: 2` also
    requests 2, and `request_cpu: 32` also has the limit 32.

    Args:
        request_cpu: cores, also parts of one: 0.5.
        request_memory_gb: in units of 10^9 bytes, as is `limit_memory_gb`.
        gpu: how many whole GPUs; null for CPU only, which also hides GPUs (CUDA_VISIBLE_DEVICES=-1), while 0 hides
            none; or MIG slices: {mig_1g_10gb: 1}, to which a cell adds, and of which it takes away by a null.
        gpu_resource: what the cluster calls its GPUs.
        extended: how many of other resources of nodes, by their names.
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
        said = self.model_fields_set
        for part in ("cpu", "memory_gb"):
            names = {f"request_{part}", f"limit_{part}"}
            request, limit = self._range(part)
            if names <= said and request is not None and limit is not None and request > limit:
                raise ValueError(f"`request_{part}` {request:g} is more than `limit_{part}` {limit:g}")
        for name in self.extended:
            if name in {_GPU, self.gpu_resource} or name.startswith("nvidia.com/mig-"):
                raise ValueError(f"`{name}` is set by `gpu`, not in `extended`")
            if name == TPU:
                raise ValueError(f"`{name}` is set by the field `tpu` of the pod, not in `extended`")
        return self

    def requests(self) -> dict[str, str]:
        """Return the requests for CPU and memory as Kubernetes writes them."""
        return _quantities(self._range("cpu")[0], self._range("memory_gb")[0])

    def limits(self) -> dict[str, str]:
        """Return the limits of CPU and memory as Kubernetes writes them."""
        return _quantities(self._range("cpu")[1], self._range("memory_gb")[1])

    def gpus(self) -> dict[str, int]:
        """Return how many of which resource make up the GPUs."""
        if isinstance(self.gpu, dict):
            return {f"nvidia.com/{name.replace('_', '-', 1).replace('_', '.')}": n for name, n in self.gpu.items() if n}
        return {self.gpu_resource: self.gpu} if self.gpu else {}

    def _range(self, part: str) -> tuple[float | None, float | None]:
        """Return a request and its limit, of which a default gives way to what somebody has said."""
        request, limit = getattr(self, f"request_{part}"), getattr(self, f"limit_{part}")
        if request is not None and limit is not None and request > limit:
            if f"request_{part}" not in self.model_fields_set:
                return limit, limit
            if f"limit_{part}" not in self.model_fields_set:
                return request, request
        return request, limit


class SecretKey(_Part):
    """A value in a Secret of the cluster.

    Args:
        name: of the Secret.
        key: of the value in it.
    """

    name: Name
    key: DataKey


class Volume(_Part):
    """A volume in the container of the workload, from exactly one source.

    Args:
        name: of the volume; a cell changes a volume of its target by its name.
        mount_path: where it is in the container.
        sub_path: the part of it that is there; all of it when left out.
        host_path: a path of the node.
        claim: the name of a PersistentVolumeClaim.
        config_map: the name of a ConfigMap.
        secret: the name of a Secret.
        empty_dir: a new directory: `{}`, or `medium` and `sizeLimit` as Kubernetes has them.
        source: anything else as Kubernetes writes it: {nfs: {server: S, path: /P}}.
    """

    name: Label
    mount_path: MountPath
    read_only: StrictBool = False
    sub_path: SubPath | None = None
    host_path: HostPath | None = None
    claim: Name | None = None
    config_map: Name | None = None
    secret: Name | None = None
    empty_dir: dict[Literal["medium", "sizeLimit"], str] | None = None
    source: Annotated[dict[str, JsonValue], Field(min_length=1, max_length=1)] | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> Volume:
        kinds = ("host_path", "claim", "config_map", "secret", "empty_dir", "source")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of {', '.join(kinds)} was expected, not {' and '.join(given) or 'none'}")
        if self.name in VOLUMES:
            raise ValueError(f"the volume `{self.name}` is reserved: choose another name")
        return self


class Toleration(_Part):
    """A taint of nodes that the pod bears, as Kubernetes writes it. For how long it bears a lost node, see `Pod`."""

    key: Key | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: Value | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: Seconds | None = Field(default=None, alias="tolerationSeconds")


class Tpu(_Part):
    """A TPU slice of GKE.

    Args:
        accelerator: its kind, such as tpu-v5-lite-podslice.
        topology: how its chips are arranged, such as 2x4.
        chips: of one host.
    """

    accelerator: Value
    topology: Topology
    chips: Count

    @property
    def all_chips(self) -> int:
        """How many chips the whole slice has."""
        return math.prod(int(number) for number in self.topology.split("x"))


class Pod(_Part):
    """The pods of a cell.

    Args:
        image: of the workload; it has Python 3.8 or later.
        image_pull_secrets: the names of Secrets.
        python: the interpreter of the agent in the image.
        host_python: take the Python that runs us, with what it has installed, from the disk of the node, for the agent
            and for the workload: where the nodes are this machine. `image` needs nothing then.
        resources: what the pod asks for and may use; null for neither requests nor limits.
        secrets: environment variables whose values are in Secrets of the cluster.
        shared_memory_gb: the size of /dev/shm, in 10^9 bytes: PyTorch's workers want some. It counts as memory.
        scratch_gb: how large the directory of an attempt may become, in 10^9 bytes.
        tolerations: as Kubernetes has them.
        service_account: the pod has its token; without one, it has none.
        run_as_user: the number of the user in the containers; the user of the image when left out. A namespace with
            the Pod Security Standard `restricted` accepts no root.
        queue: Kueue's LocalQueue, which lets the cell start.
        tpu: asks for a TPU slice, and then for no GPU.
        hosts: how many pods run the cell together, each with its index in TOPGALLANT_HOST_INDEX.
        slices: how many TPU slices of so many hosts run the cell together.
        unreachable_seconds: after which a cell is given up whose node is lost; fewer notice it sooner.
        keep_seconds: how long an ended pod waits for its files to be fetched.
        ttl_seconds: after which Kubernetes removes an ended cell that nobody has removed.
        patch: what is merged last into the whole manifest: a Job, or a JobSet where there are several slices.
            Mappings are merged, lists by the `mountPath`, `name` or `key` of their entries, and null takes away.
    """

    image: Text | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: list[Name] = []
    python: Annotated[str, Field(min_length=1)] = "python3"
    host_python: StrictBool = False
    resources: Resources | None = Resources()
    secrets: Annotated[dict[Variable, SecretKey], Nulls] = {}
    volumes: list[Volume] = []
    shared_memory_gb: Quantity | None = None
    scratch_gb: Quantity | None = None
    node_selector: Annotated[dict[Key, Value], Nulls] = {}
    tolerations: list[Toleration] = []
    service_account: Name | None = None
    run_as_user: User | None = None
    priority_class: Name | None = None
    labels: Annotated[dict[Annotated[Key, AfterValidator(_is_free)], Value], Nulls] = {}
    annotations: Annotated[dict[Key, str], Nulls] = {}
    queue: Label | None = None
    tpu: Tpu | None = None
    hosts: Count = 1
    slices: Count = 1
    unreachable_seconds: Seconds = 300
    keep_seconds: Seconds = 3600
    ttl_seconds: Seconds = 3600
    patch: dict[str, JsonValue] = {}

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Pod:
        if faults := [*self._mount_faults(), *self._accelerator_faults()]:
            raise ValueError("; ".join(faults))
        return self

    def _mount_faults(self) -> Iterator[str]:
        paths = [volume.mount_path for volume in self.volumes]
        paths += [SHARED_MEMORY] if self.shared_memory_gb else []
        for what, values in (("name", [volume.name for volume in self.volumes]), ("mount_path", paths)):
            yield from (f"`volumes`: two have the {what} {value}" for value in _repeated(values))

    def _accelerator_faults(self) -> Iterator[str]:
        if self.tpu is None:
            if self.slices > 1:
                yield "`slices` needs a `tpu`: without one, set the number of pods with `hosts`"
            return
        if self.resources and "gpu" in self.resources.model_fields_set and self.resources.gpus():
            yield "`tpu` and `resources.gpu` are both set: set one of them to null"
        if self.tpu.all_chips != self.hosts * self.tpu.chips:
            needed = f"`hosts` {self.hosts} with `tpu.chips` {self.tpu.chips} each have {self.hosts * self.tpu.chips}"
            yield f"`tpu.topology` {self.tpu.topology} has {self.tpu.all_chips} chips, but {needed}"

    @property
    def interpreter(self) -> str:
        """The interpreter of the agent."""
        return sys.executable if self.host_python else self.python

    @property
    def search_path(self) -> str | None:
        """Where the workload looks for programs; None where its image says so."""
        return f"{PurePosixPath(sys.executable).parent}:{_SEARCH_PATH}" if self.host_python else None

    @property
    def all_volumes(self) -> list[Volume]:
        """The volumes, with those that Python is on."""
        folders = dict.fromkeys((*_SYSTEM, sys.base_prefix, sys.prefix)) if self.host_python else ()
        inside = [folder for folder in folders if not any(_is_below(folder, other) for other in folders)]
        ours = [
            Volume(name=f"host-python-{number}", mount_path=folder, host_path=folder, read_only=True)
            for number, folder in enumerate(inside)
        ]
        return [*ours, *self.volumes]

    @property
    def devices(self) -> dict[str, int]:
        """How many accelerators, and other resources that a node has a number of, each pod asks for."""
        others = self.resources.extended if self.resources else {}
        if self.tpu:
            return {TPU: self.tpu.chips, **others}
        return {**self.resources.gpus(), **others} if self.resources else {}

    @property
    def hides_gpus(self) -> bool:
        """Whether the workload is to see no GPU, also where its node has some."""
        return self.resources is not None and self.resources.gpu is None


def parse(target: Mapping[str, Any], cell: Mapping[str, Any]) -> Pod:
    """Return the pods of a cell: the fields of the cell over those of its target.

    Raises:
        ValueError: it names each field that is wrong.
    """
    for said in (target, cell):
        if not isinstance(said, Mapping):
            raise ValueError(  # noqa: TRY004  # as every other fault of a configuration
                f"{shown(said)} does not describe a pod: a mapping was expected"
            )
    try:
        return _parsed(json.dumps([target, cell]))
    except (TypeError, ValidationError):  # what is no JSON is wrong somewhere, which the model says better
        pass
    try:
        return Pod.model_validate(merged(target, cell))
    except ValidationError as error:
        raise ValueError("; ".join(_fault(dict(detail)) for detail in error.errors())) from None


@functools.lru_cache(maxsize=256)
def _parsed(both: str) -> Pod:
    """Return pods that many cells have, read once for all."""
    target, cell = json.loads(both)
    return Pod.model_validate(merged(target, cell))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with another one over it.

    Mappings are merged, also those in two lists whose entries all have a `mountPath`, a `name` or a `key` of their
    own. Everything else is replaced, and a null stays as one.
    """
    return {**base, **{key: _merged(base.get(key), value) for key, value in over.items()}}


def _merged(base: Any, over: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return merged(base, over)
    # Mounts by their paths, as Kubernetes does: one volume has several.
    for key in ("mountPath", "name", "key"):
        if (old := _by(key, base)) and (new := _by(key, over)):
            return list(merged(old, new).values())
    return over


def _by(key: str, entries: Any) -> dict[str, Any] | None:
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        return None
    named = {entry.get(key): entry for entry in entries if isinstance(entry.get(key), str)}
    return named if len(named) == len(entries) else None


def _repeated(values: list[str]) -> list[str]:
    return sorted({value for value in values if values.count(value) > 1})


def _is_below(folder: str, other: str) -> bool:
    return folder != other and PurePosixPath(folder).is_relative_to(other)


def gigabytes(value: float) -> str:
    """Return a number of 10^9 bytes as Kubernetes writes it: `32G`."""
    return _quantity(value, "G", "M")


def _quantities(cpu: float | None, memory: float | None) -> dict[str, str]:
    cores = {} if cpu is None else {"cpu": _quantity(cpu, "", "m")}
    return cores if memory is None else {**cores, "memory": gigabytes(memory)}


def _quantity(value: float, unit: str, thousandth: str) -> str:
    return f"{value:.0f}{unit}" if value == int(value) else f"{round(value * 1000)}{thousandth}"


def _fault(detail: dict[str, Any]) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"] if part != "[key]")
    message = detail["msg"].removeprefix("Value error, ").partition(" or instance of ")[0]
    if detail["type"] == "extra_forbidden":
        *parents, name = detail["loc"]
        hint = did_you_mean(str(name), _fields_at(parents), what="fields")
        return f"`{where.removeprefix('.')}` is not a field here: {hint}"
    if detail["type"] not in {"value_error", "missing"}:
        message = f"{shown(detail['input'])}: {message[:1].lower()}{message[1:]}"
    return f"`{where.removeprefix('.')}`: {message}" if where else message


def _fields_at(parts: list[str | int]) -> list[str]:
    """Return the names of the fields of the mapping at a place in the description."""
    fields = Pod.fields()
    for part in parts:
        if field := fields.get(str(part)):
            fields = next((kind.fields() for kind in _parts_of(field.annotation)), fields)
    return list(fields)


def _parts_of(annotation: Any) -> Iterator[type[_Part]]:
    if isinstance(annotation, type) and issubclass(annotation, _Part):
        yield annotation
    for argument in get_args(annotation):
        yield from _parts_of(argument)
