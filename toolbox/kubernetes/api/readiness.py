"""Whether an object is as it is meant to be, and what is wrong with its pods if it is not. Nothing is asked here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolbox.kubernetes.api.connection import Json

# No other try of the kubelet ends in another way.
_HOPELESS: Final = ("InvalidImageName", "ErrImageNeverPull")
PULLING: Final = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", *_HOPELESS)
_NO_SUCH_IMAGE: Final = ("not found", "manifest unknown", "unauthorized", "denied", "invalid reference")
_STARTING: Final = ("ContainerCreating", "PodInitializing")
_REVISION: Final = "deployment.kubernetes.io/revision"
_GENERATION: Final = "deprecated.daemonset.template.generation"
_RESTARTS: Final = 3  # after which a server that crashes is given up
# A container that waits for one of these has its image.
_BEYOND_PULLING: Final = (
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
)


def lack(found: Json) -> str | None:
    """Return what an object lacks to be ready; None where it is, or where nothing of its kind has to be waited for."""
    judge = _LACKS.get(str(found.get("kind")))
    return judge(found) if judge is not None else None


def failure(found: Json) -> str | None:
    """Return why an object will never be ready; None where it may."""
    if found.get("kind") == "Job" and (failed := condition(found, "Failed")) is not None:
        return _said(failed)
    if found.get("kind") == "Pod" and (found.get("status") or {}).get("phase") == "Failed":
        return "; ".join(_troubles(found)) or "it failed"
    return None


def condition(found: Json, kind: str, status: str = "True") -> Mapping[str, Any] | None:
    """Return a condition of an object that has this status; None where it has none of the kind."""
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind and each["status"] == status), None)


def pod_selector(found: Json) -> str | None:
    """Return the label selector of the pods of an object; None where it has no pods."""
    labels = ((found.get("spec") or {}).get("selector") or {}).get("matchLabels")
    if found.get("kind") in ("Service", None) or not labels:
        return None
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def newest(found: Json, pods: Iterable[Json], replica_sets: Iterable[Json]) -> list[Json]:
    """Return the pods that are made as an object now says, and not as it said before.

    Args:
        found: the object; of a Deployment its ReplicaSets are needed too.
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
    """Return what is wrong with pods, each with its name and its node."""
    return [f"{_where(pod)}: {text}" for pod in pods for text in _troubles(pod)]


def hopeless(pods: Iterable[Json]) -> list[str]:
    """Return what is wrong with pods and will be, however long one waits."""
    return [
        f"{_where(pod)}: {_waiting_text(pod, status)}"
        for pod in pods
        for status in _containers(pod)
        if _is_hopeless(status)
    ]


def exit_codes(pod: Json) -> list[int]:
    """Return the exit codes of the containers of a pod that ended by themselves and failed."""
    ends = [(each.get("state") or {}).get("terminated") or {} for each in _containers(pod)]
    status = pod.get("status") or {}
    if status.get("reason"):  # the system ended the pod: Evicted, NodeLost
        return []
    return [int(end["exitCode"]) for end in ends if end.get("exitCode")]


def never_comes(reason: str, message: str) -> bool:
    """Tell whether an image will never come, by why a container waits and what is said of that."""
    return reason in _HOPELESS or (reason in PULLING and any(sign in message for sign in _NO_SUCH_IMAGE))


def pulls(pod: Json) -> dict[str, str | None]:
    """Return what has become of the images of a pod, by container.

    The text is why an image did not come; empty where it may yet come, None where it is there.
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
    """Return what a Deployment or a StatefulSet lacks."""
    wanted, status = int(found["spec"].get("replicas", 1)), found.get("status") or {}
    if int(status.get("observedGeneration", 0)) < int(found["metadata"]["generation"]):
        return "the cluster has not taken it up yet"
    everyone, updated = int(status.get("replicas", 0)), int(status.get("updatedReplicas", 0))
    older = everyone - updated
    ready = max(0, int(status.get("readyReplicas", 0)) - older)  # what was there before was ready, as a rule
    if updated >= wanted and ready >= wanted and not older:
        return None
    refused = condition(found, "ReplicaFailure")
    left = f", and {older} older ones are left" if older else ""
    return f"{ready} of {wanted} replicas are ready{left}" + (f": {_said(refused)}" if refused else "")


def _daemon_set_lack(found: Json) -> str | None:
    status = found.get("status") or {}
    if int(status.get("observedGeneration", 0)) < int(found["metadata"]["generation"]):
        return "the cluster has not taken it up yet"
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
