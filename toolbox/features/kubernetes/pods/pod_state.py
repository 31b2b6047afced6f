"""Converts Jobs and pods from the API into dataclasses with the fields that Topgallant needs. Makes no decisions."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from toolbox.features.kubernetes.api import readiness
from toolbox.features.kubernetes.api.connection import Json
from toolbox.targets.agent import log_transfer

WORKLOAD: Final = "workload"
FILES: Final = "files"
ATTEMPT_LABEL: Final = "topgallant.dev/attempt"  # label of pods: the name of their Job or JobSet
INDEX: Final = "batch.kubernetes.io/job-completion-index"
SLICE: Final = "jobset.sigs.k8s.io/job-index"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_OVER: Final = ("Succeeded", "Failed")  # the phases in which no container of a pod runs any more


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended. `report` is the agent's termination message; None if the agent wrote none."""

    exit_code: int
    reason: str
    message: str
    report: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod.

    Args:
        job: the name of its Job.
        index: its index among the pods of its cell; None if it has no index.
        node: the name of its node; empty before it is scheduled.
        unschedulable: the scheduler's reason why no node takes the pod.
        waiting: why the workload's container has not started: a reason and a message.
        is_running: whether the workload's container runs, according to its node.
        ended: how the workload's container ended; None if it has not.
        is_over: whether the pod is gone, or all of its containers have ended.
        has_files: whether the pod has a container `files`.
        files: how the container `files` ended; None if it has not.
        disruption: why the pod was removed from its node: evicted, preempted, or its node was lost.
        is_deleted: whether the pod is being deleted, or is gone.
        deleted_at: when its deletion was requested, in seconds of the cluster's clock; None if unknown.
        grace_seconds: the time that the pod has, or would have, after a request for its deletion.
        memory_limit: the memory limit of the workload's container.
        image: the image of the workload's container, with the digest that its node reports: `NAME@sha256:...`; empty
            before the node reports it.
    """

    name: str
    uid: str
    job: str
    index: int | None = None
    node: str = ""
    unschedulable: str = ""
    waiting: tuple[str, str] = ("", "")
    is_running: bool = False
    ended: Ended | None = None
    is_over: bool = False
    has_files: bool = True
    files: Ended | None = None
    disruption: str = ""
    is_deleted: bool = False
    deleted_at: float | None = None
    grace_seconds: float = 0.0
    memory_limit: str = ""
    image: str = ""

    @property
    def has_started(self) -> bool:
        """Whether the workload of the pod runs, or ran."""
        return self.is_running or self.ended is not None

    @property
    def may_run(self) -> bool:
        """Whether the pod has a node that has not reported the pod's end. Nodes report with a delay."""
        return bool(self.node) and self.ended is None and not self.is_over

    @property
    def report(self) -> Mapping[str, Any] | None:
        """The report of the pod's agent; None if the workload has not ended, or its agent wrote none."""
        return self.ended.report if self.ended is not None else None

    @property
    def holds_files(self) -> bool:
        """Whether the pod still holds the files of its ended workload."""
        return self.ended is not None and self.has_files and self.files is None and not self.is_deleted


@dataclass(frozen=True, slots=True)
class JobView:
    """A Job, or a JobSet.

    Args:
        is_set: whether it is a JobSet.
        is_suspended: whether it waits in a queue.
        condition: its terminal condition, `Complete` or `Failed`; empty before its end.
        reason: the reason of the terminal condition.
        message: the message of the terminal condition.
        is_deleted: whether it is being deleted, or is gone.
        ends_at: when the cluster ends it (`activeDeadlineSeconds`), in seconds of the cluster's clock.
        replaces: whether it replaces a pod as soon as the pod is being deleted, as before Kubernetes 1.28.
    """

    name: str
    uid: str
    is_set: bool = False
    is_suspended: bool = False
    condition: str = ""
    reason: str = ""
    message: str = ""
    is_deleted: bool = False
    ends_at: float = math.inf
    replaces: bool = False

    @property
    def is_at_work(self) -> bool:
        """Whether it may create pods."""
        return not (self.is_deleted or self.condition or self.is_suspended)


def job(found: Json, *, is_gone: bool = False) -> JobView:
    """Return the view of a Job or a JobSet."""
    meta, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
    terminal = readiness.condition(found, *readiness.TERMINAL) or {}
    return JobView(
        str(meta["name"]),
        str(meta["uid"]),
        "replicatedJobs" in spec,
        bool(spec.get("suspend")),
        {"Completed": "Complete"}.get(kind := str(terminal.get("type", "")), kind),
        str(terminal.get("reason", "")),
        str(terminal.get("message", "")),
        is_gone or "deletionTimestamp" in meta,
        _ends_at(spec, status),
        "template" in spec and spec.get("podReplacementPolicy") != "Failed",
    )


def pod(found: Json, *, is_gone: bool = False) -> PodView:
    """Return the view of a pod that has the label `ATTEMPT_LABEL`."""
    meta, spec, status = found["metadata"], found["spec"], found.get("status") or {}
    containers = {str(each["name"]): each.get("state") or {} for each in status.get("containerStatuses") or ()}
    main = containers.get(WORKLOAD, {})
    waiting = main.get("waiting") or {}
    scheduled = readiness.condition(found, "PodScheduled", status="False") or {}
    return PodView(
        name=str(meta["name"]),
        uid=str(meta["uid"]),
        job=str(meta["labels"][ATTEMPT_LABEL]),
        index=_index(meta, spec),
        node=str(spec.get("nodeName") or ""),
        unschedulable=str(scheduled.get("message") or scheduled.get("reason") or ""),
        waiting=(str(waiting.get("reason", "")), str(waiting.get("message", ""))),
        is_running="running" in main and not is_gone,
        ended=_ended(main),
        is_over=is_gone or status.get("phase") in _OVER,
        has_files=any(each["name"] == FILES for each in spec.get("containers") or ()),
        files=_ended(containers.get(FILES, {})),
        disruption=_disruption(found),
        is_deleted=is_gone or "deletionTimestamp" in meta,
        deleted_at=_deleted_at(meta),
        grace_seconds=_grace(meta, spec),
        memory_limit=_memory_limit(spec),
        image=_image(spec, status),
    )


def _image(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    images = {each["name"]: str(each.get("imageID") or "") for each in status.get("containerStatuses") or ()}
    digest = _DIGEST.search(images.get(WORKLOAD, ""))
    name = str(_workload(spec).get("image") or "").partition("@")[0]
    return f"{name}@{digest[0]}" if name and digest else ""


def gone(view: PodView) -> PodView:
    """Return the view of a pod that is gone, with its last known state."""
    return dataclasses.replace(view, is_deleted=True, is_running=False, is_over=True)


def _ends_at(spec: Mapping[str, Any], status: Mapping[str, Any]) -> float:
    begun, seconds = status.get("startTime"), spec.get("activeDeadlineSeconds")
    return _moment(begun) + float(seconds) if begun and seconds is not None else math.inf


def _deleted_at(meta: Mapping[str, Any]) -> float | None:
    """Return when the deletion of a pod was requested. Its `deletionTimestamp` is the end of the grace period."""
    if "deletionTimestamp" not in meta:
        return None
    return _moment(meta["deletionTimestamp"]) - float(meta.get("deletionGracePeriodSeconds") or 0)


def _grace(meta: Mapping[str, Any], spec: Mapping[str, Any]) -> float:
    return float(meta.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds")) or 0)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _ended(state: Mapping[str, Any]) -> Ended | None:
    found = state.get("terminated")
    if found is None:
        return None
    message = str(found.get("message") or "")
    return Ended(int(found.get("exitCode", -1)), str(found.get("reason", "")), message, _report(message))


@functools.lru_cache(maxsize=256)  # the events of a pod repeat the message of its ended container
def _report(message: str) -> Mapping[str, Any] | None:
    # A kubelet cuts a long message. The workload may have written the message instead of the agent.
    for text in (message, log_transfer.without_content(message)):
        with suppress(ValueError, RecursionError):
            report = json.loads(text)
            return report if isinstance(report, dict) and "ended_by" in report else None
    return None


def _disruption(pod: Json) -> str:
    """Return why a pod was removed from its node; see "Pod disruption conditions" in the Kubernetes documentation."""
    target, status = readiness.condition(pod, "DisruptionTarget"), pod.get("status") or {}
    if target is not None:
        return f"{target.get('reason', '')}: {target.get('message', '')}".strip(": ")
    reason = str(status.get("reason") or "")  # Evicted, Preempting, NodeLost, NodeShutdown, Terminated
    return f"{reason}: {status.get('message', '')}".strip(": ") if reason else ""


def _index(meta: Mapping[str, Any], spec: Mapping[str, Any]) -> int | None:
    marks = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
    if INDEX not in marks:
        return None
    env = {each["name"]: each.get("value") for each in _workload(spec).get("env") or ()}
    hosts = int(env.get("TOPGALLANT_HOSTS") or 1)
    return int(marks.get(SLICE, 0)) * hosts + int(marks[INDEX])


def _memory_limit(spec: Mapping[str, Any]) -> str:
    return str((_workload(spec).get("resources") or {}).get("limits", {}).get("memory", ""))


def _workload(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((each for each in spec.get("containers") or () if each["name"] == WORKLOAD), {})
