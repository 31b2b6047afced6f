"""Computes whether an object is ready, and which problems its pods have. The functions here don't send requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolbox.features.kubernetes.api.connection import Json

# The kubelet gives these reasons for the waiting state of a container if it will never be able to pull the image.
_NEVER_PULLED: Final = ("InvalidImageName", "ErrImageNeverPull")
PULLING: Final = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", *_NEVER_PULLED)
_NO_SUCH_IMAGE: Final = ("not found", "manifest unknown", "unauthorized", "denied", "invalid reference")
STARTING: Final = ("ContainerCreating", "PodInitializing")  # the reasons of a waiting container without problems
_REVISION: Final = "deployment.kubernetes.io/revision"
_GENERATION: Final = "deprecated.daemonset.template.generation"
TERMINAL: Final = ("Complete", "Failed", "Completed")  # the conditions of an ended Job; only JobSets have `Completed`
_RESTARTS: Final = 3  # after this number of restarts, a crashing container is a permanent problem
# The kubelet gives these reasons for the waiting state of a container only after it has pulled the image.
_PULLED_REASONS: Final = (
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
)


def unready_reason(obj: Json) -> str | None:
    """Return why an object is not ready; None if it is ready, or if its kind has no readiness, such as a ConfigMap."""
    judge = _UNREADY_REASONS.get(str(obj.get("kind")))
    return judge(obj) if judge is not None else None


def failure(obj: Json) -> str | None:
    """Return why an object has failed and will never be ready; None if it may become ready."""
    if obj.get("kind") == "Job" and (failed := condition(obj, "Failed")) is not None:
        return _reason_and_message(failed)
    if obj.get("kind") == "Pod" and (obj.get("status") or {}).get("phase") == "Failed":
        return "; ".join(_problems(obj)) or "it failed"
    return None


def condition(obj: Json, *kinds: str, status: str = "True") -> Mapping[str, Any] | None:
    """Return the condition of an object that has one of these types and this status; None if there is none.

    Args:
        kinds: the types of conditions, such as `Ready`.
        status: `True`, `False` or `Unknown`.
    """
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] in kinds and each["status"] == status), None)


def is_processed(obj: Json) -> bool:
    """Return whether the status of an object takes the last change of the object into account."""
    return int((obj.get("status") or {}).get("observedGeneration", 0)) >= int(obj["metadata"]["generation"])


def pod_selector(obj: Json) -> str | None:
    """Return the label selector for the pods that belong to an object; None if objects of its kind have no pods."""
    labels = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels")
    if obj.get("kind") in ("Service", None) or not labels:
        return None
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def current_pods(obj: Json, pods: Iterable[Json], replica_sets: Iterable[Json]) -> list[Json]:
    """Return the pods of the current revision of an object.

    Args:
        obj: a Deployment, StatefulSet or DaemonSet. For an object of another kind, all `pods` are returned.
        pods: the pods of all revisions of the object.
        replica_sets: the ReplicaSets of the object, if it is a Deployment.
    """
    meta, status = obj["metadata"], obj.get("status") or {}
    label, value = "", None
    if obj.get("kind") == "Deployment":
        revision = (meta.get("annotations") or {}).get(_REVISION)
        label = "pod-template-hash"
        hashes = (
            each["metadata"]["labels"].get(label)
            for each in replica_sets
            if (each["metadata"].get("annotations") or {}).get(_REVISION) == revision
        )
        value = next(hashes, "")
    elif obj.get("kind") == "StatefulSet":
        label, value = "controller-revision-hash", status.get("updateRevision")
    elif obj.get("kind") == "DaemonSet":
        label, value = "pod-template-generation", (meta.get("annotations") or {}).get(_GENERATION)
    return [pod for pod in pods if value is None or (pod["metadata"].get("labels") or {}).get(label) == value]


def problems(pods: Iterable[Json]) -> list[str]:
    """Return a message for each problem of the pods, with the name of the pod and its node."""
    return [f"{_where(pod)}: {text}" for pod in pods for text in _problems(pod)]


def permanent_problems(pods: Iterable[Json]) -> list[str]:
    """Return a message for each problem of the pods that waiting cannot solve."""
    return [
        f"{_where(pod)}: {_waiting_text(pod, status)}"
        for pod in pods
        for status in container_statuses(pod)
        if _is_permanent(status)
    ]


def exit_codes(pod: Json) -> list[int]:
    """Return the nonzero exit codes of the containers of a pod; an empty list if the cluster ended the pod."""
    ends = [(each.get("state") or {}).get("terminated") or {} for each in container_statuses(pod)]
    status = pod.get("status") or {}
    if status.get("reason"):  # the cluster ended the pod, for reasons such as Evicted or NodeLost
        return []
    return [int(end["exitCode"]) for end in ends if end.get("exitCode")]


def containers(pod: Json) -> list[Json]:
    """Return the init containers and the other containers in the specification of a pod."""
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def container_statuses(pod: Json) -> list[Json]:
    """Return the statuses of the init containers and of the other containers of a pod."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def cannot_be_pulled(reason: str, message: str) -> bool:
    """Return whether an image can never be pulled, by the reason and message of a waiting container."""
    return reason in _NEVER_PULLED or (reason in PULLING and any(sign in message for sign in _NO_SUCH_IMAGE))


def pulls(pod: Json) -> dict[str, str | None]:
    """Return the state of the image of each container of a pod, by the name of the container.

    The state is None if the image is present, an empty text if the pull has not ended, or the error of a failed pull.
    """
    states: dict[str, str | None] = {str(each["name"]): "" for each in pod["spec"]["containers"]}
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        state = status.get("state") or {}
        waiting = state.get("waiting") or {}
        if "running" in state or "terminated" in state or waiting.get("reason") in _PULLED_REASONS:
            states[str(status["name"])] = None
        elif waiting.get("reason") in PULLING:
            states[str(status["name"])] = _reason_and_message(waiting)
    return states


def _problems(pod: Json) -> Iterator[str]:
    if (unscheduled := condition(pod, "PodScheduled", status="False")) is not None:
        yield _reason_and_message(unscheduled)
    status = pod.get("status") or {}
    if status.get("reason"):
        yield _reason_and_message(status)
    for container in container_statuses(pod):
        state = container.get("state") or {}
        ended = state.get("terminated") or {}
        reason = (state.get("waiting") or {}).get("reason")
        if reason and reason not in STARTING:
            yield _waiting_text(pod, container)
        elif ended.get("exitCode"):
            yield f"container {container['name']} ended with exit code {ended['exitCode']}" + _reason(ended)
        elif "running" in state and not container.get("ready") and not _is_init(pod, container):
            yield f"container {container['name']} runs and is not ready"


def _waiting_text(pod: Json, status: Mapping[str, Any]) -> str:
    waiting = status["state"]["waiting"]
    ended = (status.get("lastState") or {}).get("terminated") or {}
    image = next((each["image"] for each in containers(pod) if each["name"] == status["name"]), "")
    subject = f"image {image}" if waiting.get("reason") in PULLING else f"container {status['name']}"
    last = f" (it ended with exit code {ended['exitCode']}{_reason(ended)})" if "exitCode" in ended else ""
    return f"{subject}: {_reason_and_message(waiting)}{last}"


def _reason(ended: Mapping[str, Any]) -> str:
    text = ": ".join(str(ended[key]).strip() for key in ("reason", "message") if ended.get(key))
    return f", {text}" if text and text != "Error" else ""


def _is_permanent(status: Mapping[str, Any]) -> bool:
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason, message = waiting.get("reason"), str(waiting.get("message", ""))
    if reason == "CrashLoopBackOff":
        return int(status.get("restartCount", 0)) >= _RESTARTS
    return cannot_be_pulled(str(reason), message)


def _is_init(pod: Json, status: Mapping[str, Any]) -> bool:
    return any(each["name"] == status["name"] for each in pod["spec"].get("initContainers") or ())


def _where(pod: Json) -> str:
    node = pod["spec"].get("nodeName")
    return f"pod {pod['metadata']['name']}" + (f" on {node}" if node else "")


def _reason_and_message(details: Mapping[str, Any]) -> str:
    texts = [str(details[key]).strip() for key in ("reason", "message") if details.get(key)]
    return ": ".join(texts) or "no reason is given"


def _unready_workload(obj: Json) -> str | None:
    """Return why a Deployment or a StatefulSet is not ready; None if it is ready."""
    desired, status = int(obj["spec"].get("replicas", 1)), obj.get("status") or {}
    if not is_processed(obj):
        return "the cluster has not processed it yet"
    total, updated = int(status.get("replicas", 0)), int(status.get("updatedReplicas", 0))
    older = total - updated
    ready = max(0, int(status.get("readyReplicas", 0)) - older)  # assume that all older replicas are ready
    if updated >= desired and ready >= desired and not older:
        return None
    failure = condition(obj, "ReplicaFailure")
    remaining = f", and {older} older replicas remain" if older else ""
    reason = f": {_reason_and_message(failure)}" if failure else ""
    return f"{ready} of {desired} replicas are ready{remaining}{reason}"


def _unready_daemon_set(obj: Json) -> str | None:
    status = obj.get("status") or {}
    if not is_processed(obj):
        return "the cluster has not processed it yet"
    desired = int(status.get("desiredNumberScheduled", 0))
    ready = min(int(status.get("numberAvailable", 0)), int(status.get("updatedNumberScheduled", 0)))
    return None if ready >= desired else f"it is available on {ready} of {desired} nodes"


def _unready_without(kind: str, text: str) -> Any:
    def judge(obj: Json) -> str | None:
        if condition(obj, kind) is not None:
            return None
        unmet = condition(obj, kind, status="False") or condition(obj, kind, status="Unknown") or {}
        return f"{text}: {_reason_and_message(unmet)}" if unmet.get("reason") or unmet.get("message") else text

    return judge


def _unready_pod(obj: Json) -> str | None:
    if (obj.get("status") or {}).get("phase") == "Succeeded":
        return None
    return "; ".join(_problems(obj)) or "it is not ready" if condition(obj, "Ready") is None else None


def _unready_namespace(obj: Json) -> str | None:
    phase = (obj.get("status") or {}).get("phase")
    return None if phase == "Active" else f"it is {phase}"


_UNREADY_REASONS: Final = {
    "Deployment": _unready_workload,
    "StatefulSet": _unready_workload,
    "DaemonSet": _unready_daemon_set,
    "Job": _unready_without("Complete", "it has not ended"),
    "Pod": _unready_pod,
    "CustomResourceDefinition": _unready_without("Established", "it is not established"),
    "Namespace": _unready_namespace,
    "Node": _unready_without("Ready", "it is not ready"),
}
