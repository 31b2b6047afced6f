"""Waits until objects are ready, have their images, or are gone. The error after a timeout explains the delay."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from toolbox.kubernetes.api import readiness
from toolbox.kubernetes.api.connection import Json
from toolbox.kubernetes.api.objects import Kind, Objects, Query
from toolbox.kubernetes.api.waiting import View, watching_all
from toolbox.model.errors import InfrastructureError, StepError, ToolboxError
from toolbox.model.verdicts import Cause, Verdict

_MOST_SHOWN: Final = 5
_EVENTS_SHOWN: Final = 3
_TELLING: Final = ("BackOff", "Evicted", "Preempted", "Unhealthy")  # reasons of useful warnings, besides `Failed...`
_USUAL_WORDS: Final = ("will not be ready", "is not ready after")
_WORDS: Final = {"Job": ("has failed", "has not ended after")}


def ready(objects: Objects, found: Sequence[Json], timeout: float) -> None:
    """Wait until all objects are ready.

    Args:
        objects: the objects of the cluster.
        found: the objects to wait for.
        timeout: the timeout in seconds for all objects together.

    Raises:
        InfrastructureError: an object is not ready in time, or can never become ready; the message gives the reason.
    """
    deadline = time.monotonic() + timeout
    for each in found:
        if readiness.lack(each) is not None:
            _wait(objects, each, deadline - time.monotonic(), timeout, _judge_readiness)


def images(objects: Objects, found: Sequence[Json], timeout: float) -> None:
    """Wait until the pods of DaemonSets have their images. Arguments and errors are those of `ready`."""
    deadline = time.monotonic() + timeout
    for each in found:
        if each["kind"] == "DaemonSet":
            _wait(objects, each, deadline - time.monotonic(), timeout, _judge_images)


def gone(objects: Objects, meant: Sequence[tuple[Kind, str | None, str]], timeout: float) -> None:
    """Wait until objects are gone.

    Raises:
        InfrastructureError: an object is not gone in time; the message names its finalizers.
    """
    deadline = time.monotonic() + timeout
    for kind, namespace, name in meant:
        query = Query(kind, namespace, fields=f"metadata.name={name}")
        with watching_all(objects, query) as view:
            if not view.until(partial(_is_empty, view), deadline - time.monotonic()):
                held = "; ".join(map(held_by, view.watched[0].objects))
                raise InfrastructureError(f"{kind.name} {name} still exists after {timeout:g} s: {held}{after(view)}")


def _is_empty(view: View) -> bool | None:
    return None if any(watched_objects.objects for watched_objects in view.watched) else True


def held_by(found: Json) -> str:
    """Return why an object still exists."""
    meta = found["metadata"]
    if "deletionTimestamp" not in meta:
        return "it was created again, but not by Topgallant"
    finalizers = meta.get("finalizers") or (found.get("spec") or {}).get("finalizers") or ()
    return f"its finalizers are {', '.join(finalizers)}" if finalizers else "it is being deleted"


# Returns None to go on waiting, an empty text on success, or else the reason of the failure.
Judge = Callable[[Json, Sequence[Json]], str | None]


def _judge_readiness(found: Json, pods: Sequence[Json]) -> str | None:
    if (failed := readiness.failure(found)) is not None:
        return "; ".join([*readiness.troubles(pods)[:_MOST_SHOWN], failed])
    if readiness.lack(found) is None:
        return ""
    return "; ".join(readiness.hopeless(pods)[:_MOST_SHOWN]) or None


def _judge_images(found: Json, pods: Sequence[Json]) -> str | None:
    status = found.get("status") or {}
    if int(status.get("observedGeneration", 0)) < int(found["metadata"]["generation"]):
        return None
    if (hopeless := readiness.hopeless(pods)) and _all_tried(pods):
        return "; ".join(hopeless)
    there = [pod for pod in pods if all(why is None for why in readiness.pulls(pod).values())]
    return "" if len(there) >= int(status.get("desiredNumberScheduled", 0)) else None


def _all_tried(pods: Sequence[Json]) -> bool:
    """Return whether the pull of every image of every pod has succeeded or failed at least once."""
    return all(why != "" for pod in pods for why in readiness.pulls(pod).values())


def _wait(objects: Objects, found: Json, seconds: float, timeout: float, judge: Judge) -> None:
    name = f"{found['kind']} {found['metadata']['name']}"
    queries = _queries(objects, found)
    with watching_all(objects, *queries) as view:
        own, pods, replica_sets = view.watched

        def seen() -> tuple[Json, list[Json]]:
            # Objects from a watch may lack their kind.
            now = {**own.objects[0], "kind": found["kind"]} if own.objects else found
            its_pods = [now] if now["kind"] == "Pod" else pods.objects
            return now, readiness.newest(now, its_pods, replica_sets.objects)

        why = view.until(lambda: judge(*seen()) if own.objects else "it was deleted, but not by Topgallant", seconds)
        if why == "":
            return
        what = _WORDS.get(found["kind"], _USUAL_WORDS)
        if why is not None:
            if own.objects:
                # The object and its pods are watched on two connections, and changes of the pods may arrive late.
                pods.listed(objects.listed(queries[1]) if queries[1] else iter(()))
                why = judge(*seen()) or why
            text = f"{name} {what[0]}: {why}{_events(objects, found, why)}"
            raise _failure(text, *seen()) if own.objects else InfrastructureError(text)
        now, its_pods = seen()
        lack = readiness.lack(now) or "some of its pods have not pulled their images"
        told = "; ".join([lack, *readiness.troubles(its_pods)[:_MOST_SHOWN]])
        text = f"{name} {what[1]} {timeout:g} s: {told}{_events(objects, found, told)}{after(view)}"
        raise InfrastructureError(text)


def _failure(text: str, found: Json, pods: Sequence[Json]) -> ToolboxError:
    """Return the error of an object that will not be ready. A failed program in a Job is not a cluster failure."""
    if found["kind"] != "Job" or (failed := readiness.condition(found, "Failed")) is None:
        return InfrastructureError(text)
    if failed.get("reason") == "DeadlineExceeded":
        return StepError(text, verdict=Verdict.FAILED, cause=Cause.TIMEOUT)
    if any(readiness.exit_codes(pod) for pod in pods):
        return StepError(text, verdict=Verdict.FAILED, cause=Cause.PRODUCT)
    return InfrastructureError(text)


def _queries(objects: Objects, found: Json) -> tuple[Query | None, ...]:
    """Return the queries for an object, its pods and its ReplicaSets; None where it has no pods or ReplicaSets."""
    meta, labels = found["metadata"], readiness.pod_selector(found)
    kind, namespace = objects.kind(found["apiVersion"], found["kind"]), meta.get("namespace")
    pods = Query(objects.kind("v1", "Pod"), namespace, labels) if labels else None
    is_deployment = found["kind"] == "Deployment"
    replica_sets = Query(objects.kind("apps/v1", "ReplicaSet"), namespace, labels) if is_deployment else None
    return Query(kind, namespace, fields=f"metadata.name={meta['name']}"), pods, replica_sets


def after(view: View) -> str:
    """Return a text to append to a message if the server does not answer; empty if the server answers."""
    return f" ({view.silence})" if view.silence else ""


def _events(objects: Objects, found: Json, known: str) -> str:
    """Return the last warnings about an object, and about objects whose names begin with its name."""
    meta = found["metadata"]
    if not meta.get("namespace"):
        return ""
    kind = objects.kind("v1", "Event")
    texts: dict[str, None] = {}
    for event in objects.listed(Query(kind, meta["namespace"], fields="type=Warning")):
        about, reason = str(event["involvedObject"].get("name")), str(event.get("reason"))
        is_about = about == meta["name"] or about.startswith(f"{meta['name']}-")
        text = str(event.get("message") or "").strip()
        if is_about and (reason.startswith("Failed") or reason in _TELLING) and text and text not in known:
            texts[text] = None
    last = list(texts)[-_EVENTS_SHOWN:]
    return f"; events: {'; '.join(last)}" if last else ""
