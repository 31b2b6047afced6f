"""Decides whether an object is ready, and what is wrong with its pods if it is not. Sends no requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolbox.kubernetes.api.connection import Json

# The kubelet can never pull the image in these states, however often it tries.
_HOPELESS: Final = ("InvalidImageName", "ErrImageNeverPull")
PULLING: Final = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", *_HOPELESS)
_NO_SUCH_IMAGE: Final = ("not found", "manifest unknown", "unauthorized", "denied", "invalid reference")
_STARTING: Final = ("ContainerCreating", "PodInitializing")
_REVISION: Final = "deployment.kubernetes.io/revision"
_GENERATION: Final = "deprecated.daemonset.template.generation"
_RESTARTS: Final = 3  # number of restarts after which a crashing container counts as hopeless
# In these waiting states the image of the container has already been pulled.
_BEYOND_PULLING: Final = (
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
)


def lack(found: Json) -> str | None:
    """Return why an object is not ready; None if it is ready, or if objects of its kind are always ready."""
    judge = _LACKS.get(str(found.get("kind")))
    return judge(found) if judge is not None else None


def failure(found: Json) -> str | None:
    """Return why an object will never be ready; None if it may become ready."""
    if found.get("kind") == "Job" and (failed := condition(found, "Failed")) is not None:
        return _said(failed)
    if found.get("kind") == "Pod" and (found.get("status") or {}).get("phase") == "Failed":
        return "; ".join(_troubles(found)) or "it failed"
    return None


def condition(found: Json, kind: str, status: str = "True") -> Mapping[str, Any] | None:
    """Return an object's condition of type `kind` if its status is `status`; None if not."""
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind and each["status"] == status), None)


def pod_selector(found: Json) -> str | None:
    """Return the label selector for the pods of an object; None if the object has no pods of its own."""
    labels = ((found.get("spec") or {}).get("selector") or {}).get("matchLabels")
    if found.get("kind") in ("Service", None) or not labels:
        return None
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def newest(found: Json, pods: Iterable[Json], replica_sets: Iterable[Json]) -> list[Json]:
    """Return the pods of the current revision of an object.

    Args:
        found: a Deployment, StatefulSet, DaemonSet or another object.
        pods: the pods of the object.
        replica_sets: the ReplicaSets of a Deployment.
    """
    meta, status = found["metadata"], found.get("status") or {}
    label, wanted = "", None
    if found.get("kind") == "Deployment":
        revision = (meta.get("annotations") or {}).get(_REVISION)
        label = "pod-template-hash"
        hashes = (
            each["metadata"]["labels"].get(label)
            for each in replica_sets
            if (each["metadata"].get("annotations") or {}).get(_REVISION) == revision
        )
        wanted = next(hashes, "")
    elif found.get("kind") == "StatefulSet":
        label, wanted = "controller-revision-hash", status.get("updateRevision")
    elif found.get("kind") == "DaemonSet":
        label, wanted = "pod-template-generation", (meta.get("annotations") or {}).get(_GENERATION)
    return [pod for pod in pods if wanted is None or (pod["metadata"].get("labels") or {}).get(label) == wanted]


def troubles(pods: Iterable[Json]) -> list[str]:
    """Return the problems of pods, one message each, with the names of the pod and its node."""
    return [f"{_where(pod)}: {text}" for pod in pods for text in _troubles(pod)]


def hopeless(pods: Iterable[Json]) -> list[str]:
    """Return the problems of pods that waiting will not solve, one message each."""
    return [
        f"{_where(pod)}: {_waiting_text(pod, status)}"
        for pod in pods
        for status in _containers(pod)
        if _is_hopeless(status)
    ]


def exit_codes(pod: Json) -> list[int]:
    """Return the nonzero exit codes of a pod's containers; none if the system ended the pod."""
    ends = [(each.get("state") or {}).get("terminated") or {} for each in _containers(pod)]
    status = pod.get("status") or {}
    if status.get("reason"):  # the system ended the pod: Evicted, NodeLost
        return []
    return [int(end["exitCode"]) for end in ends if end.get("exitCode")]


def never_comes(reason: str, message: str) -> bool:
    """Return whether an image can never be pulled, by the reason and message of the waiting container."""
    return reason in _HOPELESS or (reason in PULLING and any(sign in message for sign in _NO_SUCH_IMAGE))


def pulls(pod: Json) -> dict[str, str | None]:
    """Return the state of the image of each container of a pod, by the name of the container.

    The state is None if the image is present, empty if the pull has not failed yet, or else the error of the pull.
    """
    found: dict[str, str | None] = {str(each["name"]): "" for each in pod["spec"]["containers"]}
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        state = status.get("state") or {}
        waiting = state.get("waiting") or {}
        if "running" in state or "terminated" in state or waiting.get("reason") in _BEYOND_PULLING:
            found[str(status["name"])] = None
        elif waiting.get("reason") in PULLING:
            found[str(status["name"])] = _said(waiting)
    return found


def _troubles(pod: Json) -> Iterator[str]:
    if (unscheduled := condition(pod, "PodScheduled", "False")) is not None:
        yield _said(unscheduled)
    status = pod.get("status") or {}
    if status.get("reason"):  # Evicted, NodeLost
        yield _said(status)
    for container in _containers(pod):
        state = container.get("state") or {}
        ended = state.get("terminated") or {}
        reason = (state.get("waiting") or {}).get("reason")
        if reason and reason not in _STARTING:
            yield _waiting_text(pod, container)
        elif ended.get("exitCode"):
            yield f"container {container['name']} ended with exit code {ended['exitCode']}" + _reason(ended)
        elif "running" in state and not container.get("ready") and not _is_init(pod, container):
            yield f"container {container['name']} runs and is not ready"


def _waiting_text(pod: Json, status: Mapping[str, Any]) -> str:
    waiting = status["state"]["waiting"]
    ended = (status.get("lastState") or {}).get("terminated") or {}
    image = next((each["image"] for each in _specs(pod) if each["name"] == status["name"]), "")
    what = f"image {image}" if waiting.get("reason") in PULLING else f"container {status['name']}"
    last = f" (it ended with exit code {ended['exitCode']}{_reason(ended)})" if "exitCode" in ended else ""
    return f"{what}: {_said(waiting)}{last}"


def _reason(ended: Mapping[str, Any]) -> str:
    text = ": ".join(str(ended[key]).strip() for key in ("reason", "message") if ended.get(key))
    return f", {text}" if text and text != "Error" else ""


def _is_hopeless(status: Mapping[str, Any]) -> bool:
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason, message = waiting.get("reason"), str(waiting.get("message", ""))
    if reason == "CrashLoopBackOff":
        return int(status.get("restartCount", 0)) >= _RESTARTS
    return never_comes(str(reason), message)


def _containers(pod: Json) -> list[Mapping[str, Any]]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _specs(pod: Json) -> list[Mapping[str, Any]]:
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def _is_init(pod: Json, status: Mapping[str, Any]) -> bool:
    return any(each["name"] == status["name"] for each in pod["spec"].get("initContainers") or ())


def _where(pod: Json) -> str:
    node = pod["spec"].get("nodeName")
    return f"pod {pod['metadata']['name']}" + (f" on {node}" if node else "")


def _said(told: Mapping[str, Any]) -> str:
    return ": ".join(str(told[key]).strip() for key in ("reason", "message") if told.get(key)) or "no reason is given"


def _workload_lack(found: Json) -> str | None:
    """Return why a Deployment or a StatefulSet is not ready; None if it is ready."""
    wanted, status = int(found["spec"].get("replicas", 1)), found.get("status") or {}
    if int(status.get("observedGeneration", 0)) < int(found["metadata"]["generation"]):
        return "the cluster has not processed it yet"
    everyone, updated = int(status.get("replicas", 0)), int(status.get("updatedReplicas", 0))
    older = everyone - updated
    ready = max(0, int(status.get("readyReplicas", 0)) - older)  # assume that the older replicas are ready
    if updated >= wanted and ready >= wanted and not older:
        return None
    refused = condition(found, "ReplicaFailure")
    left = f", and {older} older ones are left" if older else ""
    return f"{ready} of {wanted} replicas are ready{left}" + (f": {_said(refused)}" if refused else "")


def _daemon_set_lack(found: Json) -> str | None:
    status = found.get("status") or {}
    if int(status.get("observedGeneration", 0)) < int(found["metadata"]["generation"]):
        return "the cluster has not processed it yet"
    wanted = int(status.get("desiredNumberScheduled", 0))
    ready = min(int(status.get("numberAvailable", 0)), int(status.get("updatedNumberScheduled", 0)))
    return None if ready >= wanted else f"it is available on {ready} of {wanted} nodes"


def _by_condition(kind: str, text: str) -> Any:
    def judge(found: Json) -> str | None:
        if condition(found, kind) is not None:
            return None
        unmet = condition(found, kind, "False")
        return f"{text}: {_said(unmet)}" if unmet and (unmet.get("reason") or unmet.get("message")) else text

    return judge


def _pod_lack(found: Json) -> str | None:
    if (found.get("status") or {}).get("phase") == "Succeeded":
        return None
    return "; ".join(_troubles(found)) or "it is not ready" if condition(found, "Ready") is None else None


def _namespace_lack(found: Json) -> str | None:
    phase = (found.get("status") or {}).get("phase")
    return None if phase == "Active" else f"it is {phase}"


_LACKS: Final = {
    "Deployment": _workload_lack,
    "StatefulSet": _workload_lack,
    "DaemonSet": _daemon_set_lack,
    "Job": _by_condition("Complete", "it has not ended"),
    "Pod": _pod_lack,
    "CustomResourceDefinition": _by_condition("Established", "it is not established"),
    "Namespace": _namespace_lack,
}
