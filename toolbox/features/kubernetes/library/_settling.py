"""Waits until objects are ready, have their images, or have been deleted, and explains a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from toolbox.features.kubernetes.api import readiness
from toolbox.features.kubernetes.api.connection import Json
from toolbox.features.kubernetes.api.objects import POD, REPLICA_SET, Kind, Objects, Query
from toolbox.features.kubernetes.api.waiting import watching_all
from toolbox.features.kubernetes.library import _logs
from toolbox.ground.model.errors import InfrastructureError, StepError, ToolboxError
from toolbox.ground.model.verdicts import Cause, Verdict

_MAX_SHOWN: Final = 5
_EVENTS_SHOWN: Final = 3
# Error messages show the events with these reasons, and with reasons that begin with `Failed`.
_USEFUL_REASONS: Final = ("BackOff", "Evicted", "Preempted", "Unhealthy")
_DEFAULT_PHRASES: Final = ("will not be ready", "is not ready after")
_PHRASES: Final = {"Job": ("has failed", "has not ended after")}


def ready(objects: Objects, objs: Sequence[Json], timeout: float) -> None:
    """Wait until all objects are ready.

    Args:
        timeout: the timeout in seconds for all objects together.

    Raises:
        InfrastructureError: an object is not ready in time, or can never become ready.
        StepError: the program of a Job failed, or a Job exceeded its deadline.
    """
    deadline = time.monotonic() + timeout
    for obj in objs:
        if readiness.unready_reason(obj) is not None:
            _wait(objects, obj, deadline - time.monotonic(), timeout, _judge_readiness)


def images(objects: Objects, objs: Sequence[Json], timeout: float) -> None:
    """Wait until the pods of the DaemonSets in `objs` have their images. The timeout is that of all objects together.

    Raises:
        InfrastructureError: an image was not pulled in time, or can never be pulled.
    """
    deadline = time.monotonic() + timeout
    for obj in objs:
        if obj["kind"] == "DaemonSet":
            _wait(objects, obj, deadline - time.monotonic(), timeout, _judge_images)


def gone(objects: Objects, references: Sequence[tuple[Kind, str | None, str]], timeout: float) -> None:
    """Wait until objects, given by kind, namespace and name, no longer exist.

    Raises:
        InfrastructureError: an object still exists after `timeout` seconds. The message names its finalizers.
    """
    deadline = time.monotonic() + timeout
    for kind, namespace, name in references:
        query = Query(kind, namespace, fields=f"metadata.name={name}")
        remaining, note = await_deletion(objects, query, deadline - time.monotonic())
        if remaining:
            reasons = "; ".join(map(deletion_obstacle, remaining))
            raise InfrastructureError(f"{kind.name} {name} still exists after {timeout:g} s: {reasons}{note}")


def await_deletion(
    objects: Objects, query: Query, seconds: float, *, uids: Collection[str] | None = None
) -> tuple[list[Json], str]:
    """Wait until objects no longer exist.

    Args:
        uids: the UIDs of the objects; None for all objects of the query.

    Returns:
        The objects that still exist after `seconds`, and a note for messages if the server does not answer.
    """
    with watching_all(objects, query) as view:
        (watched_objects,) = view.watched

        def remaining() -> list[Json]:
            return [obj for obj in watched_objects.objects if uids is None or obj["metadata"]["uid"] in uids]

        are_gone = view.until(lambda: None if remaining() else True, seconds)
        return [] if are_gone else remaining(), view.silence_note


def deletion_obstacle(obj: Json) -> str:
    """Return why an object still exists after its deletion was requested."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta:
        return "it was created again, but not by Topgallant"
    finalizers = meta.get("finalizers") or (obj.get("spec") or {}).get("finalizers") or ()
    return f"its finalizers are {', '.join(finalizers)}" if finalizers else "it is being deleted"


# A function that returns None to continue to wait, an empty text on success, or the reason of a failure.
Judge = Callable[[Json, Sequence[Json]], str | None]


def _judge_readiness(obj: Json, pods: Sequence[Json]) -> str | None:
    if (failed := readiness.failure(obj)) is not None:
        return "; ".join([*readiness.problems(pods)[:_MAX_SHOWN], failed])
    if readiness.unready_reason(obj) is None:
        return ""
    return "; ".join(readiness.permanent_problems(pods)[:_MAX_SHOWN]) or None


def _judge_images(obj: Json, pods: Sequence[Json]) -> str | None:
    if not readiness.is_processed(obj):
        return None
    if (problems := readiness.permanent_problems(pods)) and _all_pulls_have_ended(pods):
        return "; ".join(problems)
    pods_with_images = [pod for pod in pods if all(error is None for error in readiness.pulls(pod).values())]
    return "" if len(pods_with_images) >= int((obj.get("status") or {}).get("desiredNumberScheduled", 0)) else None


def _all_pulls_have_ended(pods: Sequence[Json]) -> bool:
    """Return whether each pull of an image has succeeded, or has failed at least once."""
    return all(error != "" for pod in pods for error in readiness.pulls(pod).values())


def _wait(objects: Objects, obj: Json, seconds: float, timeout: float, judge: Judge) -> None:
    name = f"{obj['kind']} {obj['metadata']['name']}"
    queries = _queries(objects, obj)
    with watching_all(objects, *queries) as view:
        watched_obj, pods, replica_sets = view.watched

        def current_state() -> tuple[Json, list[Json]]:
            current = watched_obj.objects[0] if watched_obj.objects else obj
            current_pods = [current] if current["kind"] == "Pod" else pods.objects
            return current, readiness.current_pods(current, current_pods, replica_sets.objects)

        def judgement() -> str | None:
            return judge(*current_state()) if watched_obj.objects else "it was deleted, but not by Topgallant"

        reason = view.until(judgement, seconds)
        if reason == "":
            return
        phrases = _PHRASES.get(obj["kind"], _DEFAULT_PHRASES)
        if reason is not None:
            if watched_obj.objects:
                # The pods are watched on another connection than the object, so their changes may arrive later.
                pods.listed(objects.listed(queries[1]) if queries[1] else iter(()))
                reason = judge(*current_state()) or reason
            text = f"{name} {phrases[0]}: {reason}{_events(objects, obj, reason)}"
            raise _failure(text, *current_state()) if watched_obj.objects else InfrastructureError(text)
        current, current_pods = current_state()
        unready_reason = readiness.unready_reason(current) or "some of its pods have not pulled their images"
        details = "; ".join([unready_reason, *readiness.problems(current_pods)[:_MAX_SHOWN]])
        text = f"{name} {phrases[1]} {timeout:g} s: {details}{_events(objects, obj, details)}{view.silence_note}"
        raise InfrastructureError(text)


def _failure(text: str, obj: Json, pods: Sequence[Json]) -> ToolboxError:
    """Return the error for an object that will never be ready.

    It is a `StepError` if the program of a Job failed, or if the Job exceeded its deadline.
    """
    if obj["kind"] != "Job" or (failed := readiness.condition(obj, "Failed")) is None:
        return InfrastructureError(text)
    if failed.get("reason") == "DeadlineExceeded":
        return StepError(text, verdict=Verdict.FAILED, cause=Cause.TIMEOUT)
    if any(readiness.exit_codes(pod) for pod in pods):
        return StepError(text, verdict=Verdict.FAILED, cause=Cause.PRODUCT)
    return InfrastructureError(text)


def _queries(objects: Objects, obj: Json) -> tuple[Query | None, ...]:
    """Return the queries for an object, its pods and its ReplicaSets. The last two are None if they do not apply."""
    meta, labels = obj["metadata"], readiness.pod_selector(obj)
    kind, namespace = objects.kind(obj["apiVersion"], obj["kind"]), meta.get("namespace")
    pods = Query(POD, namespace, labels) if labels else None
    replica_sets = Query(REPLICA_SET, namespace, labels) if obj["kind"] == "Deployment" else None
    return Query(kind, namespace, fields=f"metadata.name={meta['name']}"), pods, replica_sets


def _events(objects: Objects, obj: Json, shown_text: str) -> str:
    """Return the last warnings about an object, and about objects whose names begin with its name, for a message.

    Args:
        shown_text: the beginning of the message. Warnings that this text contains are left out.
    """
    meta = obj["metadata"]
    if not meta.get("namespace"):
        return ""
    texts: dict[str, None] = {}
    for event in _logs.events(objects, meta["namespace"], [meta["name"]], fields="type=Warning"):
        reason, text = str(event.get("reason")), str(event.get("message") or "").strip()
        if (reason.startswith("Failed") or reason in _USEFUL_REASONS) and text and text not in shown_text:
            texts[text] = None
    last = list(texts)[-_EVENTS_SHOWN:]
    return f"; events: {'; '.join(last)}" if last else ""
