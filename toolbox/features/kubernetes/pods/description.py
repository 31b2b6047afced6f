"""The configuration of a cell's pods: the field `pod` of its target, overridden by the field `pod` of the cell.

`toolbox/features/kubernetes/pods/manifests.py` builds manifests from this configuration.
"""

from __future__ import annotations

import functools
import json
import math
import posixpath
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    StrictBool,
    ValidationError,
    model_validator,
)

from toolbox.features.kubernetes.api.objects import JOB, JOB_SET, MANAGED_BY, Kind
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.pod_resources import SUBDOMAIN, TPU, WORD, Count, Nulls, Part, Quantity, Resources, matching
from toolbox.ground.model.quantities import MAX_SECONDS, Duration, Range
from toolbox.ground.model.text import abbreviated, without_kind

ROOT: Final = "/topgallant"
"""The directory in a pod for all of Topgallant's files."""
VOLUMES: Final = ("attempt", "agent", "sources", "shared-memory")
"""The names of Topgallant's volumes, which a configuration may not use."""
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  # where PyTorch expects it
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"

_SYSTEM: Final = ("/usr", "/lib", "/lib64")
_SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _is_free(label: str) -> str:
    if label == QUEUE_LABEL:
        raise ValueError(f"`{label}` is set by the field `queue`")
    if label == MANAGED_BY or label.startswith("topgallant.dev/"):
        raise ValueError(f"the label `{label}` is reserved: choose another one")
    return label


def _is_variable(name: str) -> str:
    if name.startswith("TOPGALLANT_"):
        raise ValueError(f"the variable `{name}` is reserved: choose another one")
    return name


def _mount_path(path: str) -> str:
    if not path.startswith("/") or path == "/" or ":" in path or posixpath.normpath(path) != path:
        raise ValueError(f"must be an absolute path without `..`, `:` and a slash at its end, not {abbreviated(path)}")
    if path == ROOT or path.startswith(f"{ROOT}/"):
        raise ValueError(f"{path} is reserved, like all paths below {ROOT}: choose another path")
    return path


def _sub_path(path: str) -> str:
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"must be a relative path without `..`, not {abbreviated(path)}")
    return path


Text = Annotated[str, Field(min_length=1, pattern=r"^\S+$")]
Seconds = Annotated[int, Field(strict=True), Range(least=0, most=MAX_SECONDS), Duration()]
User = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Name = Annotated[str, matching("a name: lower-case letters, digits, `-` and `.`", SUBDOMAIN, 253)]
Label = Annotated[str, matching("a name: lower-case letters, digits and `-`", r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63)]
Key = Annotated[str, matching("a key: `name` or `domain/name`", rf"({SUBDOMAIN}/)?{WORD}", 317)]
Value = Annotated[str, matching("a value of a label: letters, digits, `-`, `_` and `.`", rf"({WORD})?", 63)]
DataKey = Annotated[str, matching("a key of a Secret: letters, digits, `-`, `_` and `.`", r"(?!\.\.|\.$)[-\w.]+", 253)]
Variable = Annotated[
    str, matching("a name of a variable: letters, digits and `_`", r"[A-Za-z_]\w*", 253), AfterValidator(_is_variable)
]
MountPath = Annotated[str, AfterValidator(_mount_path)]
HostPath = Annotated[str, Field(pattern=r"^/")]
SubPath = Annotated[str, AfterValidator(_sub_path)]
Topology = Annotated[str, matching("a topology such as 2x4 or 4x4x4", r"[1-9]\d*(x[1-9]\d*){1,2}", 63)]


class SecretKey(Part):
    """A value in a Secret of the cluster.

    Args:
        name: the name of the Secret.
        key: the key of the value in the Secret.
    """

    name: Name
    key: DataKey


class Volume(Part):
    """A volume in the container of the workload, from exactly one source.

    Args:
        name: the name of the volume, by which a cell can change a volume of its target.
        mount_path: the path of the volume in the container.
        sub_path: the path in the volume to mount; by default the whole volume is mounted.
        host_path: a path of the node.
        claim: the name of a PersistentVolumeClaim.
        config_map: the name of a ConfigMap.
        secret: the name of a Secret.
        empty_dir: a new directory: `{}`, or Kubernetes' fields `medium` and `sizeLimit`.
        source: any other source in Kubernetes' own form: {nfs: {server: S, path: /P}}.
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
            raise ValueError(f"set exactly one of {', '.join(kinds)}, not {' and '.join(given) or 'none of them'}")
        if self.name in VOLUMES:
            raise ValueError(f"the volume `{self.name}` is reserved: choose another name")
        return self


class Toleration(Part):
    """A toleration in Kubernetes' own form. `Pod.unreachable_seconds` adds the tolerations of lost nodes."""

    key: Key | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: Value | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: Seconds | None = Field(default=None, alias="tolerationSeconds")


class Tpu(Part):
    """A TPU slice of GKE.

    Args:
        accelerator: the kind of TPU, such as tpu-v5-lite-podslice.
        topology: the arrangement of the chips, such as 2x4.
        chips: the number of chips per host.
    """

    accelerator: Value
    topology: Topology
    chips: Count

    @property
    def all_chips(self) -> int:
        """The number of chips in the whole slice."""
        return math.prod(int(number) for number in self.topology.split("x"))


class Pod(Part):
    """The pods of a cell.

    Args:
        image: the image of the workload, which needs Python 3.8 or later.
        image_pull_secrets: the names of Secrets.
        python: the interpreter in the image that runs the agent.
        host_python: run the agent and the workload with this process's own Python and its packages, mounted from the
            node. This requires that the nodes are this machine; `image` then needs no Python.
        resources: the requests and limits of the pod; null for neither.
        secrets: environment variables whose values are in Secrets of the cluster.
        shared_memory_gb: the size of /dev/shm in 10^9 bytes, which PyTorch's workers need. It counts as memory.
        scratch_gb: the maximum size of an attempt's directory, in 10^9 bytes.
        tolerations: tolerations in Kubernetes' own form.
        service_account: the service account whose token the pod gets; by default the pod gets no token.
        run_as_user: the numeric user id in the containers; by default the user of the image. Namespaces with the Pod
            Security Standard `restricted` don't accept root.
        queue: the LocalQueue of Kueue in which the cell waits for its start.
        tpu: the TPU slice to request; the pod then requests no GPU.
        hosts: the number of pods that run the cell together. Each has its index in TOPGALLANT_HOST_INDEX.
        slices: the number of TPU slices, of `hosts` pods each, that run the cell together.
        unreachable_seconds: the time after which a cell is given up if its node is lost.
        keep_seconds: how long a pod waits after its end until its files are fetched.
        ttl_seconds: the time after which Kubernetes removes an ended cell that was not removed.
        patch: merged last into the whole manifest: a Job, or a JobSet if there are several slices. Mappings are
            merged, lists are merged by the `mountPath`, `name` or `key` of their entries, and null removes an entry.
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
    def kind(self) -> Kind:
        """The kind of the object that creates the pods: a JobSet for several slices, else a Job."""
        return JOB_SET if self.slices > 1 else JOB

    @property
    def needs_service(self) -> bool:
        """Whether the pods need a Service to find one another. A JobSet creates its own Service."""
        return self.hosts > 1 and self.slices == 1

    @property
    def interpreter(self) -> str:
        """The interpreter that runs the agent."""
        return sys.executable if self.host_python else self.python

    @property
    def search_path(self) -> str | None:
        """The PATH of the workload; None to use the PATH of the image."""
        return f"{PurePosixPath(sys.executable).parent}:{_SEARCH_PATH}" if self.host_python else None

    @property
    def all_volumes(self) -> list[Volume]:
        """The volumes, including those with the node's Python."""
        folders = dict.fromkeys((*_SYSTEM, sys.base_prefix, sys.prefix)) if self.host_python else ()
        inside = [folder for folder in folders if not any(_is_below(folder, other) for other in folders)]
        ours = [
            Volume(name=f"host-python-{number}", mount_path=folder, host_path=folder, read_only=True)
            for number, folder in enumerate(inside)
        ]
        return [*ours, *self.volumes]

    @property
    def devices(self) -> dict[str, int]:
        """The number of accelerators and other countable resources that each pod requests, by resource."""
        others = self.resources.extended if self.resources else {}
        if self.tpu:
            return {TPU: self.tpu.chips, **others}
        return {**self.resources.gpus(), **others} if self.resources else {}

    @property
    def hides_gpus(self) -> bool:
        """Whether to hide the GPUs of the node from the workload."""
        return self.resources is not None and self.resources.gpu is None


def parse(target: Mapping[str, Any], cell: Mapping[str, Any]) -> Pod:
    """Return the description of a cell's pods: the fields of the target, overridden by those of the cell.

    Raises:
        ValueError: a field is wrong; the message names all wrong fields.
    """
    for block in (target, cell):
        if not isinstance(block, Mapping):
            raise ValueError(  # noqa: TRY004  # all mistakes in a configuration are a ValueError
                f"{abbreviated(block)} does not describe a pod: a mapping was expected"
            )
    try:
        return _parsed(json.dumps([target, cell]))
    except (TypeError, ValidationError):  # validate the values themselves for a better message
        pass
    try:
        return Pod.model_validate(merged(target, cell))
    except ValidationError as error:
        raise ValueError("; ".join(_fault(dict(detail)) for detail in error.errors())) from None


@functools.lru_cache(maxsize=256)
def _parsed(both: str) -> Pod:
    """Return the description of a cell's pods. `both` is the target and the cell in JSON, as the key of the cache."""
    target, cell = json.loads(both)
    return Pod.model_validate(merged(target, cell))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping `base`, overridden by `over`.

    Nested mappings are merged. Two lists are merged if all their entries have a unique `mountPath`, `name` or `key`.
    Every other value is replaced. Nulls are kept.
    """
    return {**base, **{key: _merged(base.get(key), value) for key, value in over.items()}}


def _merged(base: Any, over: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return merged(base, over)
    # As in Kubernetes, mounts are matched by path, because a volume can have several mounts.
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


def _fault(detail: dict[str, Any]) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"] if part != "[key]")
    field, rule = f"`{where.removeprefix('.')}`", without_kind(detail["msg"])
    if detail["type"] == "extra_forbidden":
        *parents, name = detail["loc"]
        hint = did_you_mean(str(name), _fields_at(parents), label="fields")
        return f"{field} is an unknown field: {hint}"
    if detail["type"] not in {"value_error", "missing"}:
        return f"{field} {rule}, not {abbreviated(detail['input'])}"
    return f"{field}: {rule}" if where else rule


def _fields_at(parts: list[str | int]) -> list[str]:
    """Return the names of the fields that the mapping at a path in the description may have."""
    fields = Pod.fields()
    for part in parts:
        if field := fields.get(str(part)):
            fields = next((kind.fields() for kind in _parts_of(field.annotation)), fields)
    return list(fields)


def _parts_of(annotation: Any) -> Iterator[type[Part]]:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield annotation
    for argument in get_args(annotation):
        yield from _parts_of(argument)
