"""Fetches the files and logs of a workload from its pod, by the agent in one of its containers."""

from __future__ import annotations

import functools
import json
import logging
import tarfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from toolbox.features.kubernetes.api.connection import TIMEOUT, ApiError, Cluster, Unavailable
from toolbox.features.kubernetes.api.execution import Execution
from toolbox.features.kubernetes.api.objects import POD, Objects
from toolbox.features.kubernetes.pods.manifests import AGENT
from toolbox.features.kubernetes.pods.pod_state import FILES, WORKLOAD
from toolbox.ground.model.errors import LimitExceeded, StepError
from toolbox.ground.model.workloads import CollectLimits
from toolbox.ground.system import cancellation, filesystem
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets import archives
from toolbox.targets.agent import durable
from toolbox.targets.agent.pod import CANCELLING, CONFIRMED, WORKLOAD_RUNS

log = logging.getLogger(__name__)

_HEADER: Final = 8
_LONGEST_PIECE: Final = 1 << 20  # maximum size of a piece that the agent sends
_PAUSE: Final = 1.0
_MAX_RENEWALS: Final = 50  # limits the attempts if a pod always sends some data and then disconnects
_SILENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Selection:
    """The files to fetch.

    Args:
        patterns: the glob patterns of the files.
        logs: the streams whose logs to fetch too.
        directory: the destination.
        limits: the limits of number and size.
        container: the container whose agent sends the files.
    """

    patterns: tuple[str, ...]
    logs: tuple[str, ...]
    directory: Path
    limits: CollectLimits = field(default_factory=CollectLimits)
    container: str = FILES


class WorkloadRuns(StepError):
    """The agent sends no logs, because the workload has not ended."""


def fetch(cluster: Cluster, pod: str, python: str, there: str, selection: Selection, timeout: float) -> bool:
    """Fetch files and logs. Start again if the connection is lost.

    Args:
        python: the interpreter in the pod.
        there: the directory of the attempt in the pod.
        timeout: the number of seconds to retry after a failure. The time starts anew after each attempt that received
            data, up to a maximum number of times.

    Returns:
        whether the agent has confirmed that it need not keep the logs. If not, everything has still been fetched.

    Raises:
        WorkloadRuns: logs were requested, but the workload has not ended.
        LimitExceeded: the files exceed the limits. The files that have arrived are kept.
        StepError: the files cannot be fetched or written.
    """
    command = [python, "-I", "-S", AGENT, "send", there, json.dumps(selection.patterns), json.dumps(selection.logs)]
    archive = AttemptDirectory(selection.directory).archive
    deadline: float | None = None
    renewals = 0
    is_there = functools.partial(Objects(cluster).is_there, POD, cluster.namespace, pod)
    try:
        while True:
            try:
                return _fetch_once(cluster, pod, command, archive, selection)
            except (Unavailable, ApiError) as error:
                if deadline is None or (archive.stat().st_size and renewals < _MAX_RENEWALS):
                    deadline, renewals = time.monotonic() + timeout, renewals + 1
                may_pass = isinstance(error, Unavailable) or error.is_unauthorized or (error.is_absent and is_there())
                if not may_pass or time.monotonic() >= deadline:
                    raise
                log.debug("%s: %s: fetched again", pod, error)
            cancellation.current().sleep(_PAUSE)
    except LimitExceeded:
        with suppress(LimitExceeded, tarfile.TarError):  # extract the files that have arrived
            _extract(archive, selection)
        raise
    except (OSError, tarfile.TarError) as error:
        raise _cannot_be_fetched(cluster, error) from error
    finally:
        archive.unlink(missing_ok=True)


def cancel(cluster: Cluster, pod: str, python: str, there: str) -> None:
    """Ask the agent of a pod to end its workload.

    Raises:
        StepError: the agent cannot be reached, because it has not started or has ended.
    """
    command = [python, "-I", "-S", AGENT, "cancel", there]
    with Execution.start(cluster, pod, WORKLOAD, command) as execution:
        if execution.read(len(CANCELLING), TIMEOUT) != CANCELLING.encode():
            raise Unavailable(f"{cluster.label}: {pod} cannot be cancelled: {execution.end(_PAUSE)}")
        execution.end(_SILENCE)  # wait: closing the connection would end the command


def _fetch_once(cluster: Cluster, pod: str, command: Sequence[str], archive: Path, selection: Selection) -> bool:
    """Fetch and extract files and logs, and then confirm to the agent that the logs have arrived."""
    is_stored = False
    try:
        with (
            open(archive, "wb", opener=filesystem.private_opener) as stream,
            Execution.start(cluster, pod, selection.container, command) as execution,
        ):
            _receive(cluster, pod, execution, stream, selection)
            stream.flush()
            try:
                _extract(archive, selection)
            except OSError as error:  # do not take it for an error of the connection
                raise _cannot_be_fetched(cluster, error) from error
            is_stored = True
            return _confirm(pod, execution, selection)
    except Unavailable as error:
        if not is_stored:
            raise
        log.debug("%s: the logs were fetched, but its agent did not confirm it: %s", pod, error)
        return False


def _extract(archive: Path, selection: Selection) -> None:
    """Extract the archive. When this returns, the logs are on the disk."""
    with archive.open("rb") as stream:
        archives.extract(stream, selection.directory, selection.limits)
    if selection.logs:
        for stream_name in selection.logs:
            durable.sync(str(AttemptDirectory(selection.directory).log(stream_name)))
        durable.sync(str(selection.directory))


def _confirm(pod: str, execution: Execution, selection: Selection) -> bool:
    """Tell the agent that the logs have arrived, and return whether the agent has understood it."""
    is_confirmed = True
    if selection.logs:
        execution.send(b"\n")
        is_confirmed = execution.read(len(CONFIRMED), _SILENCE) == CONFIRMED
    for line in execution.error_lines(_SILENCE):
        log.warning("%s: %s", pod, line)
    return is_confirmed


def _cannot_be_fetched(cluster: Cluster, error: Exception) -> StepError:
    return StepError(f"{cluster.label}: the files of the attempt cannot be fetched: {error}")


def _receive(cluster: Cluster, pod: str, execution: Execution, stream: BinaryIO, selection: Selection) -> None:
    """Write the archive as it arrives. Each piece is requested, so that at most one is in transit."""
    while True:
        execution.send(b"\n")
        header = execution.read(_HEADER, _SILENCE)
        if header == WORKLOAD_RUNS:
            raise WorkloadRuns(f"{cluster.label}: {pod}: its workload still runs")
        if not header.isdigit() or len(header) < _HEADER:
            raise Unavailable(f"{cluster.label}: {pod}: {execution.end(_PAUSE) or 'the archive has no end'}")
        count = int(header)
        if count == 0:
            return
        if count > _LONGEST_PIECE:
            raise Unavailable(f"{cluster.label}: {pod}: it is not the agent that sends the archive")
        content = execution.read(count, _SILENCE)
        if len(content) < count:
            raise Unavailable(f"{cluster.label}: {pod}: the connection was interrupted")
        archives.write_limited(stream, content, selection.limits.archive_bytes)
