"""Brings back what a workload has left in its pod, by the agent in the container `files`, which holds it."""

from __future__ import annotations

import functools
import json
import logging
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from toolbox.agent.pod import CANCELLING
from toolbox.clusters.connection import PATIENCE, Away, Cluster, Refused
from toolbox.clusters.execution import Execution
from toolbox.clusters.objects import POD, Objects
from toolbox.hosts import archives
from toolbox.model.errors import StepError
from toolbox.model.verdicts import Cause, Verdict
from toolbox.pods.manifests import AGENT
from toolbox.pods.views import FILES, WORKLOAD
from toolbox.system import cancellation, files

log = logging.getLogger(__name__)

_HEADER: Final = 8
_PAUSE: Final = 1.0
_SILENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is brought back.

    Args:
        patterns: of files.
        logs: the streams whose logs are brought too.
        directory: where all of it goes.
    """

    patterns: tuple[str, ...]
    logs: tuple[str, ...]
    directory: Path


def fetch(cluster: Cluster, pod: str, python: str, there: str, wanted: Wanted, patience: float) -> None:
    """Bring files and logs back, again where the connection drops.

    Args:
        python: the interpreter in the pod, and `there`: the directory of the attempt.
        patience: how long the server or the node may be away, in seconds: from a failure on, and anew after each try
            that brought something.

    Raises:
        StepError: they cannot be had, or cannot be written.
    """
    command = [python, "-I", "-S", AGENT, "send", there, json.dumps(wanted.patterns), json.dumps(wanted.logs)]
    archive = wanted.directory / ".collected.tar"
    deadline: float | None = None
    is_there = functools.partial(Objects(cluster).is_there, POD, cluster.namespace, pod)
    try:
        while True:
            try:
                with open(archive, "wb", opener=files.private_opener) as stream:
                    _receive(cluster, pod, command, stream)
                break
            except (Away, Refused) as error:
                if deadline is None or archive.stat().st_size:
                    deadline = time.monotonic() + patience
                may_pass = isinstance(error, Away) or error.is_of_a_stranger or (error.is_absent and is_there())
                if not may_pass or time.monotonic() >= deadline:
                    raise
                log.debug("%s: %s: fetched again", pod, error)
            cancellation.current().sleep(_PAUSE)
        with archive.open("rb") as whole:
            archives.extract(whole, wanted.directory)
    except (OSError, tarfile.TarError) as error:
        message = f"{cluster.label}: what the attempt left cannot be brought back: {error}"
        raise StepError(message, verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE) from error
    finally:
        archive.unlink(missing_ok=True)


def cancel(cluster: Cluster, pod: str, python: str, there: str) -> None:
    """Have the workload of a pod end.

    Raises:
        StepError: it cannot be asked: it has not started, or has ended.
    """
    command = [python, "-I", "-S", AGENT, "cancel", there]
    with Execution.of(cluster, pod, WORKLOAD, command) as execution:
        if execution.read(len(CANCELLING), PATIENCE) != CANCELLING.encode():
            raise Away(f"{cluster.label}: {pod} cannot be cancelled: {execution.end(_PAUSE)}")
        execution.end(_SILENCE)  # who lets go of it ends it


def _receive(cluster: Cluster, pod: str, command: Sequence[str], stream: BinaryIO) -> None:
    """Write the archive as it comes, asking for each piece of it: never more than one is on its way."""
    with Execution.of(cluster, pod, FILES, command) as execution:
        while True:
            execution.send(b"\n")
            header = execution.read(_HEADER, _SILENCE)
            if not header.isdigit() or len(header) < _HEADER:
                raise Away(f"{cluster.label}: {pod}: {execution.end(_PAUSE) or 'the archive has no end'}")
            count = int(header)
            if count == 0:
                break
            content = execution.read(count, _SILENCE)
            if len(content) < count:
                raise Away(f"{cluster.label}: {pod}: the connection was broken off")
            stream.write(content)
        for line in execution.complaints(_SILENCE):
            log.warning("%s: %s", pod, line)
