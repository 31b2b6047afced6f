"""Completes and stores the outcome of an attempt, and the logs that the agents of its pods reported."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.pods import pod_logs
from toolbox.features.kubernetes.pods.pod_attempts import PodAttempt
from toolbox.features.kubernetes.pods.pod_state import PodView
from toolbox.ground.kit.attempt_files import STREAMS
from toolbox.ground.model.workloads import EndedBy, WorkloadOutcome
from toolbox.ground.system import filesystem
from toolbox.targets.agent import log_transfer

log = logging.getLogger(__name__)


def incomplete_logs(attempt: PodAttempt, pod: PodView) -> tuple[str, ...]:
    """Return the streams of a pod whose local logs are not known to be exactly those that the agent wrote."""
    record = (pod.report or {}).get("logs")
    known = record if isinstance(record, dict) else {}
    logs = attempt.place(pod.index).logs()
    return tuple(stream for stream, file in logs.items() if log_transfer.checksum(str(file)) != known.get(stream))


def write_logs(attempt: PodAttempt, pods: Sequence[PodView]) -> None:
    """Write the logs that termination messages carry over the live copies. Log a warning if writing fails."""
    for pod in pods:
        contents = log_transfer.unpack((pod.report or {}).get("logs"), STREAMS) or {}
        directory = attempt.place(pod.index)
        for stream, content in contents.items():
            try:
                if content:
                    _complete(directory.log(stream), content)
                else:
                    directory.log(stream).unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s cannot be written: %s", directory.log(stream), error)


def settled(
    cluster: Cluster, attempt: PodAttempt, pods: Sequence[PodView], outcome: WorkloadOutcome
) -> WorkloadOutcome:
    """Return the final outcome of an attempt, which also reports lost files and logs.

    Args:
        outcome: the outcome according to the pods and the Job.
    """
    image = next((pod.image for pod in pods if pod.image), "")
    return dataclasses.replace(_with_logs(cluster, attempt, pods, _lost_files(attempt, pods) or outcome), image=image)


def keep(attempt: PodAttempt, outcome: WorkloadOutcome) -> None:
    """Write the outcome of an attempt, and an empty log where one is missing. Log a warning if writing fails."""
    try:
        for index in range(attempt.expected):
            filesystem.make_directory(attempt.place(index).path)
            for file in attempt.place(index).logs().values():
                file.touch(filesystem.PRIVATE_FILE)
        filesystem.write_json(attempt.place(0).outcome, outcome.as_json())
        if outcome.exit_code is not None:
            filesystem.write_text(attempt.place(0).exit_code, f"{outcome.exit_code}\n")
    except OSError as error:
        log.warning("the result of %s cannot be written: %s", attempt.name, error)


def _lost_files(attempt: PodAttempt, pods: Sequence[PodView]) -> WorkloadOutcome | None:
    """Return the outcome of an attempt that has lost its files; None if no files were lost."""
    for pod in pods:
        if not pod.report or not pod.report.get("left"):
            continue
        if pod.files is not None or pod.is_deleted:
            why = f"they were not fetched within {attempt.pod.keep_seconds} s"
            if pod.is_deleted:
                why = "its pod was deleted"
            elif pod.files is not None and pod.files.exit_code:
                why = f"the container `files` failed: {pod.files.message or pod.files.reason}"
            return WorkloadOutcome(EndedBy.LOST, message=f"its files are lost: {why}", host=pod.node)
    return None


def _with_logs(
    cluster: Cluster, attempt: PodAttempt, pods: Sequence[PodView], outcome: WorkloadOutcome
) -> WorkloadOutcome:
    """Add to an outcome why logs are incomplete, or what the container printed if there is no report."""
    for pod in pods:
        if pod.report and not pod.holds_files and incomplete_logs(attempt, pod):
            why = "its pod was deleted" if pod.is_deleted else "they were not fetched in time"
            text = f"{why}; what was copied while the workload ran may lack lines"
            return dataclasses.replace(outcome, log_fault=outcome.log_fault or text)
    if outcome.ended_by not in {EndedBy.NOT_STARTED, EndedBy.LOST}:
        return outcome
    unreported = [pod.name for pod in pods if pod.ended is not None and pod.report is None]
    return dataclasses.replace(outcome, message="\n".join([outcome.message, *pod_logs.last_lines(cluster, unreported)]))


def _complete(file: Path, content: bytes) -> None:
    """Write a log. Append to the present file if that is the beginning of the log, so that a reader can go on."""
    size = filesystem.size(file)
    if size and file.read_bytes() == content[:size]:
        filesystem.write_at(file, size, content[size:])
    else:
        filesystem.write_bytes(file, content)
