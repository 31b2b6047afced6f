"""Saves the logs of containers, and lists events."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.features.kubernetes.api import readiness
from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Json, Unavailable
from toolbox.features.kubernetes.api.objects import POD, Objects, is_name
from toolbox.ground.model.text import abbreviated
from toolbox.ground.system import filesystem

_TRIES: Final = 3
_PAUSE_SECONDS: Final = 1.0
_STREAM_TIMEOUTS: Final = (5.0, 60.0)  # the timeouts in seconds to connect, and between two chunks of a log
_PIECE_BYTES: Final = 1 << 16
_MAX_BYTES: Final = 1 << 28  # the largest size of a log; by default, the kubelet keeps less
_NO_LOG: Final = b"unable to retrieve container logs for "  # the kubelet returns this text instead of a log


@dataclass(frozen=True, slots=True)
class LogSelection:
    """The logs to save.

    Args:
        containers: the names of the containers; None for all containers.
        since_seconds: the age in seconds of the oldest lines to save; None for all lines.
        previous: whether to save also the log of the container before its last restart.
    """

    containers: Collection[str] | None = None
    since_seconds: int | None = None
    previous: bool = True


def save(
    cluster: Cluster, pods: Sequence[Json], directory: Path, selection: LogSelection
) -> tuple[list[str], list[str]]:
    """Write the logs of pods as `POD/CONTAINER.log` and `POD/CONTAINER.previous.log`.

    Returns:
        The paths of the new files, and a message for each log that could not be read.
    """
    files, missing = [], []
    for pod in pods:
        if not is_name(pod["metadata"]["name"]):  # don't use the name for a folder, because it may contain `/`
            missing.append(f"{abbreviated(pod['metadata']['name'])}: no pod can have this name")
            continue
        for name, is_previous in filter(lambda log: is_name(log[0]), _logs(pod, selection)):
            file = f"{pod['metadata']['name']}/{name}{'.previous' if is_previous else ''}.log"
            fault = _save(cluster, pod, name, directory / file, selection.since_seconds, is_previous=is_previous)
            if fault is None:
                files.append(file)
            else:
                missing.append(f"{file}: {fault}")
    return files, missing


def events(objects: Objects, namespace: str, names: Collection[str], *, fields: str | None = None) -> list[Json]:
    """Return the events of a namespace about objects, oldest first.

    Args:
        names: names of objects. An event is returned if the name of its object is one of these names, or begins with
            one of these names and a hyphen.
        fields: a field selector; None for all events.
    """
    prefixes = tuple(f"{name}-" for name in names)
    all_events = objects.events(namespace, fields=fields)
    return [event for event in all_events if f"{event['involvedObject'].get('name')}-".startswith(prefixes)]


def _logs(pod: Json, selection: LogSelection) -> Iterator[tuple[str, bool]]:
    """Yield the name of the container of each selected log, and whether it is the log before the last restart."""
    restarts = {str(each["name"]): int(each.get("restartCount", 0)) for each in readiness.container_statuses(pod)}
    for each in readiness.containers(pod):
        name = str(each["name"])
        if selection.containers is None or name in selection.containers:
            yield name, False
            if selection.previous and restarts.get(name):
                yield name, True


def _save(
    cluster: Cluster, pod: Json, container: str, path: Path, since: int | None, *, is_previous: bool
) -> str | None:
    """Write a log. Return why the log could not be saved; None on success."""
    api_path, fault = POD.path(pod["metadata"]["namespace"], pod["metadata"]["name"], "log"), ""
    query: dict[str, Any] = {"container": container, "previous": is_previous, "limitBytes": _MAX_BYTES}
    if since is not None:
        query["sinceSeconds"] = since
    filesystem.make_directory(path.parent)
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        try:
            response = cluster.stream(api_path, query, _STREAM_TIMEOUTS)
            with open(path, "wb", opener=filesystem.private_opener) as stream:
                stream.writelines(response.stream(_PIECE_BYTES))
            response.release_conn()
        except (ApiError, Unavailable, OSError) as error:
            fault = str(error)
            if isinstance(error, ApiError):
                break
        except Exception as error:
            if not type(error).__module__.startswith("urllib3"):  # only errors of urllib3 mean a lost connection
                raise
            fault = str(error)
        else:
            with path.open("rb") as stream:
                beginning = stream.read(_PIECE_BYTES)
            if not beginning.startswith(_NO_LOG):
                return None
            fault = beginning.decode(errors="replace").strip()
            break
    path.unlink(missing_ok=True)
    return fault
