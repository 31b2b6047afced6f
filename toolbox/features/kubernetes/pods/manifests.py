"""Builds the manifest of a cell on Kubernetes from a `JobRequest` and the description of its pods. Sends no requests.

In the container `workload`, Topgallant's agent runs the workload. A second container, `files`, keeps the pod alive
until the workload's files have been fetched. It is left out if there are no files to fetch.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolbox.features.kubernetes.pods.description import QUEUE_LABEL, ROOT, SHARED_MEMORY, Pod, Volume, merged
from toolbox.features.kubernetes.pods.pod_state import FILES, WORKLOAD
from toolbox.ground.model.pod_resources import gigabytes
from toolbox.ground.model.text import abbreviated
from toolbox.targets.agent.pod import ARCHIVE

AGENT: Final = f"{ROOT}/agent/agent.zip"
"""The path of the agent in a pod."""
SOURCES, SOURCES_ARCHIVE = ARCHIVE.rsplit("/", 1)
"""The path in a pod of the ConfigMap with the sources, and the key of their archive in it."""

_LONGEST_NAME: Final = 40  # a JobSet appends slice and host, and the result may have 63 characters
_HASH: Final = 12
_SLICE: Final = "slice"
_OUR_SECONDS: Final = 5  # time for the agent to finish after the workload was killed
_HOST_INDEX: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_SLICE_INDEX: Final = "metadata.labels['jobset.sigs.k8s.io/job-index']"
_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# A namespace with a quota rejects pods without requests and limits.
_FILES_RESOURCES: Final = {
    "requests": {"cpu": "10m", "memory": "32Mi"},
    "limits": {"cpu": "1", "memory": "512Mi"},
}
# Required by the Pod Security Standard `restricted`. A workload that needs more privileges sets them by `patch`.
_SECURITY: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_SECCOMP: Final = {"type": "RuntimeDefault"}
_BY_ONE_VALUE: Final = {
    "host_path": ("hostPath", "path"),
    "claim": ("persistentVolumeClaim", "claimName"),
    "config_map": ("configMap", "name"),
    "secret": ("secret", "secretName"),
}

_ONCE: Final = (
    "backoffLimit",
    "parallelism",
    "completions",
    "completionMode",
    "podReplacementPolicy",
    "podFailurePolicy",
    "suspend",
)

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request for one attempt of a cell, as its backend makes it.

    Args:
        name: the name of the Job; see `job_name`.
        labels: Topgallant's labels, which identify the run and the cell.
        owner: the reference to the object that owns all objects of the run.
        directory: the directory of the attempt in the pod.
        env: the environment variables of the workload.
        secret_env: the variables whose values are in a Secret: the name of the Secret and the key in it.
        limits: the limits for the agent, which supervises the workload.
        agent: the name of the ConfigMap with the agent.
        sources: the name of the ConfigMap with the workload's sources; None if it has none.
        keeps_files: whether files may have to be fetched in the end.
        collect: the patterns of the files to keep.
        deadline_seconds: the time from its start after which Kubernetes ends the cell; None for no limit.
        grace_seconds: the time between SIGTERM and SIGKILL.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]
    owner: Mapping[str, str] | None
    directory: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    secret_env: Mapping[str, tuple[str, str]]
    limits: Mapping[str, Any]
    agent: str
    sources: str | None
    keeps_files: bool
    collect: tuple[str, ...]
    deadline_seconds: float | None
    grace_seconds: float


def job_name(run: str, attempt: str) -> str:
    """Return the name of an attempt's Job. It is unique, and depends only on the run and the attempt.

    The name is a DNS label that begins with a letter, as the name of a Service must be.
    """
    digest = hashlib.sha256(f"{run}\0{attempt}".encode()).hexdigest()[:_HASH]
    words = re.sub(r"[^a-z0-9]+", "-", attempt.lower()).lstrip("-0123456789")
    return f"{words[: _LONGEST_NAME - _HASH - 1].rstrip('-') or 'cell'}-{digest}"


def manifest(request: JobRequest, pod: Pod) -> dict[str, Any]:
    """Return a Job, or a JobSet if there are several slices, with the user's patch applied.

    Raises:
        ValueError: the image is missing, a text is not valid Unicode, or the patch changes a protected field.
    """
    if pod.image is None:
        raise ValueError("the pod has no `image`: set one in the target or in the cell")
    whole: dict[str, Any] = _without_nulls(_object(request, pod))
    if not pod.patch:
        return whole
    patched: dict[str, Any] = _without_nulls(merged(whole, pod.patch))
    for path in _held(request, ("spec", "replicatedJobs", 0, "template") if pod.slices > 1 else ()):
        if _at(whole, path) != _at(patched, path):
            raise ValueError(f"`patch` must not change `{'.'.join(map(str, path))}`")
    return patched


def service(request: JobRequest, pod: Pod) -> dict[str, Any] | None:
    """Return the headless Service by which the hosts of a cell find one another; None if the cell needs none."""
    if not pod.needs_service:
        return None
    # The hosts look one another up before they are ready.
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": request.name}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _without_nulls(_top(request, {}, {})), "spec": spec}


def document(job: Mapping[str, Any], service: Mapping[str, Any] | None) -> bytes:
    """Return the objects of an attempt as JSON with indentation, which `kubectl apply` accepts.

    Raises:
        ValueError: a number of the patch is too large.
    """
    import orjson

    content = {"apiVersion": "v1", "kind": "List", "items": [service, job]} if service else job
    try:
        # The standard library takes 50 times as long: it indents without its C encoder.
        return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError as error:
        raise ValueError(f"the manifest cannot be written as JSON: {error}") from None


def _object(request: JobRequest, pod: Pod) -> Any:
    """Return the Job or the JobSet."""
    annotations, spec = dict(pod.annotations), _job_spec(request, pod)
    if pod.slices > 1:
        # A slice occupies a whole node pool of GKE.
        annotations["alpha.jobset.sigs.k8s.io/exclusive-topology"] = "cloud.google.com/gke-nodepool"
        template = {"metadata": _metadata(request, pod), "spec": spec}
        jobs = [{"name": _SLICE, "replicas": pod.slices, "template": template}]
        spec = {"failurePolicy": {"maxRestarts": 0}, "replicatedJobs": jobs}
    # Only the Job or JobSet has the label of the queue, or else each pod would be queued.
    labels = {**pod.labels, QUEUE_LABEL: pod.queue} if pod.queue else pod.labels
    return {
        "apiVersion": pod.kind.api_version,
        "kind": pod.kind.name,
        "metadata": _top(request, labels, annotations),
        "spec": {
            "suspend": True if pod.queue else None,  # Kueue lets it start
            "ttlSecondsAfterFinished": pod.ttl_seconds,
            **spec,
        },
    }


def _top(request: JobRequest, labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": request.name,
        "namespace": request.namespace,
        "labels": {**labels, **request.labels},
        "annotations": annotations or None,
        "ownerReferences": [request.owner] if request.owner else None,
    }


def _metadata(request: JobRequest, pod: Pod) -> dict[str, Any]:
    return {"labels": {**pod.labels, **request.labels}, "annotations": pod.annotations or None}


def _job_spec(request: JobRequest, pod: Pod) -> dict[str, Any]:
    several = {"completionMode": "Indexed", "completions": pod.hosts, "parallelism": pod.hosts}
    deadline = request.deadline_seconds
    return {
        "backoffLimit": 0,
        # A pod that is being deleted may still run, and a replacement would run the same cell twice.
        "podReplacementPolicy": "Failed",
        "activeDeadlineSeconds": None if deadline is None else max(1, math.ceil(deadline)),
        **(several if _is_distributed(pod) else {}),
        "template": {"metadata": _metadata(request, pod), "spec": _pod_spec(request, pod)},
    }


def _pod_spec(request: JobRequest, pod: Pod) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(request.grace_seconds) + _OUR_SECONDS,
        "enableServiceLinks": False,
        "automountServiceAccountToken": pod.service_account is not None,
        "serviceAccountName": pod.service_account,
        "priorityClassName": pod.priority_class,
        "imagePullSecrets": [{"name": name} for name in pod.image_pull_secrets] or None,
        "nodeSelector": _node_selector(pod) or None,
        "tolerations": [*_tolerations(pod)],
        "subdomain": request.name if pod.needs_service else None,
        "securityContext": {"seccompProfile": _SECCOMP, **_user(pod)},
        "containers": [_workload(request, pod), *([_files(request, pod)] if request.keeps_files else [])],
        "volumes": [*_volumes(request, pod)],
    }


def _user(pod: Pod) -> dict[str, Any]:
    """Return the security context for `run_as_user`. Without it the image decides the user, which may be root."""
    if pod.run_as_user is None:
        return {}
    return {"runAsUser": pod.run_as_user, "runAsNonRoot": pod.run_as_user != 0 or None, "fsGroup": pod.run_as_user}


def _node_selector(pod: Pod) -> dict[str, str]:
    tpu = pod.tpu and {
        "cloud.google.com/gke-tpu-accelerator": pod.tpu.accelerator,
        "cloud.google.com/gke-tpu-topology": pod.tpu.topology,
    }
    return {**pod.node_selector, **(tpu or {})}


def _tolerations(pod: Pod) -> Iterator[dict[str, Any]]:
    for toleration in pod.tolerations:
        yield toleration.model_dump(by_alias=True, exclude_none=True)
    for taint in _TAINTS:
        how = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": pod.unreachable_seconds}
        yield {"key": taint, **how}


def _workload(request: JobRequest, pod: Pod) -> dict[str, Any]:
    return {
        "name": WORKLOAD,
        "image": pod.image,
        "imagePullPolicy": pod.image_pull_policy,
        "command": _agent(pod, "supervise", request.directory, _compact(request.limits), "--"),
        "args": _literals(request.command),
        "env": _env(request, pod) or None,
        "resources": _resources(pod),
        "securityContext": _SECURITY,
        "terminationMessagePolicy": "File",  # the agent writes the outcome there
        "volumeMounts": [*_mounts(request, pod)],
    }


def _files(request: JobRequest, pod: Pod) -> dict[str, Any]:
    return {
        "name": FILES,
        "image": pod.image,
        "imagePullPolicy": pod.image_pull_policy,
        "command": _agent(pod, "keep", request.directory, str(pod.keep_seconds), _compact(request.collect)),
        "resources": _FILES_RESOURCES,
        "securityContext": _SECURITY,
        "volumeMounts": [*_our_mounts(request), *_their_mounts(pod, read_only=True)],  # Python may be on one of them
    }


def _agent(pod: Pod, *arguments: str) -> list[str]:
    return _literals((pod.interpreter, "-I", "-S", AGENT, *arguments))


def _env(request: JobRequest, pod: Pod) -> list[dict[str, Any]]:
    """Return the variables sorted by name. The cell's variables override the pod's, and Topgallant's override both."""
    variables: dict[str, dict[str, Any]] = {}
    if pod.search_path:
        variables["PATH"] = {"value": pod.search_path}
    if pod.hides_gpus:
        variables["CUDA_VISIBLE_DEVICES"] = {"value": "-1"}
    for name, secret in pod.secrets.items():
        variables[name] = _from_secret(secret.name, secret.key)
    variables |= {name: {"value": _literal(value)} for name, value in request.env.items()}
    variables |= {name: _from_secret(*secret) for name, secret in request.secret_env.items()}
    variables |= _place(request, pod) if _is_distributed(pod) else {}
    return [{"name": name, **variables[name]} for name in sorted(variables)]


def _place(request: JobRequest, pod: Pod) -> dict[str, dict[str, Any]]:
    """Return the variables that give each pod of a cell its index and the address of the first pod."""
    first = f"{request.name}-{_SLICE}-0" if pod.slices > 1 else request.name
    place = {
        "TOPGALLANT_HOSTS": {"value": str(pod.hosts)},
        "TOPGALLANT_HOST_INDEX": _from_field(_HOST_INDEX),
        "TOPGALLANT_COORDINATOR": {"value": f"{first}-0.{request.name}"},
    }
    if pod.slices == 1:
        return place
    return {
        **place,
        "TOPGALLANT_SLICES": {"value": str(pod.slices)},
        "TOPGALLANT_SLICE_INDEX": _from_field(_SLICE_INDEX),
    }


def _from_secret(name: str, key: str) -> dict[str, Any]:
    return {"valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def _from_field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def _resources(pod: Pod) -> dict[str, Any] | None:
    devices = {name: str(count) for name, count in pod.devices.items()}
    if pod.resources is None:
        return {"requests": devices, "limits": devices} if devices else None
    return {"requests": {**pod.resources.requests(), **devices}, "limits": {**pod.resources.limits(), **devices}}


def _our_mounts(request: JobRequest) -> Iterator[dict[str, Any]]:
    yield {"name": "attempt", "mountPath": request.directory}
    yield {"name": "agent", "mountPath": AGENT.rpartition("/")[0], "readOnly": True}


def _mounts(request: JobRequest, pod: Pod) -> Iterator[dict[str, Any]]:
    yield from _our_mounts(request)
    if request.sources:
        yield {"name": "sources", "mountPath": SOURCES, "readOnly": True}
    if pod.shared_memory_gb:
        yield {"name": "shared-memory", "mountPath": SHARED_MEMORY}
    yield from _their_mounts(pod)


def _their_mounts(pod: Pod, *, read_only: bool = False) -> Iterator[dict[str, Any]]:
    for volume in pod.all_volumes:
        yield {
            "name": volume.name,
            "mountPath": volume.mount_path,
            "readOnly": read_only or volume.read_only or None,
            "subPath": volume.sub_path,
        }


def _volumes(request: JobRequest, pod: Pod) -> Iterator[dict[str, Any]]:
    yield {"name": "attempt", "emptyDir": {"sizeLimit": gigabytes(pod.scratch_gb)} if pod.scratch_gb else {}}
    yield {"name": "agent", "configMap": {"name": request.agent}}
    if request.sources:
        yield {"name": "sources", "configMap": {"name": request.sources}}
    if pod.shared_memory_gb:
        size = gigabytes(pod.shared_memory_gb)
        yield {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    for volume in pod.all_volumes:
        yield {"name": volume.name, **_source(volume)}


def _source(volume: Volume) -> dict[str, Any]:
    for field, (kind, key) in _BY_ONE_VALUE.items():
        if value := getattr(volume, field):
            return {kind: {key: value}}
    return {"emptyDir": volume.empty_dir} if volume.source is None else dict(volume.source)


def _is_distributed(pod: Pod) -> bool:
    return pod.hosts > 1 or pod.slices > 1


def _literals(texts: Iterable[str]) -> list[str]:
    return [_literal(text) for text in texts]


def _literal(text: str) -> str:
    """Escape a text for the kubelet, which expands `$(NAME)` and turns `$$` into `$`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        start = abbreviated(text)
        raise ValueError(f"{start} contains bytes that are not UTF-8, which Kubernetes does not accept") from None
    return text.replace("$", "$$")


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _held(request: JobRequest, job: Path) -> Iterator[Path]:
    """Yield the paths of the fields that Topgallant relies on, and that a patch may therefore not change."""
    template: Path = (*job, "spec", "template")
    yield from (("apiVersion",), ("kind",))
    yield from (("metadata", name) for name in ("name", "namespace", "ownerReferences"))
    yield from ((*at, "metadata", "labels", name) for at in ((), job, template) for name in request.labels)
    # A cell is executed once, by one pod per host, and only Kueue may suspend it.
    yield from ((*job, "spec", name) for name in _ONCE)
    if job:
        yield from (
            ("spec", "suspend"),
            ("spec", "failurePolicy"),
            (*job[:-1], "replicas"),
            ("spec", "replicatedJobs", 1),
        )
    yield (*template, "spec", "restartPolicy")
    yield from ((*template, "spec", "containers", 0, name) for name in ("name", "command"))


def _at(tree: Any, path: Path) -> Any:
    for key in path:
        try:
            tree = tree[key]
        except (LookupError, TypeError):
            return None
    return tree


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
