"""Completes and stores the outcome of an attempt after its logs and files have been fetched or are lost."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from toolbox.kubernetes.pods.pod_attempts import Attempt
from toolbox.kubernetes.pods.views import PodView
from toolbox.model.workloads import EndedBy, WorkloadOutcome
from toolbox.runs.layout import AttemptDirectory
from toolbox.system import filesystem

log = logging.getLogger(__name__)


def settled(attempt: Attempt, pods: Sequence[PodView], outcome: WorkloadOutcome) -> WorkloadOutcome:
    """Return the final outcome of an attempt, which also reports lost files and logs.

    Args:
        attempt: the attempt.
        pods: the pods of the attempt.
        outcome: the outcome according to the pods and the Job.
    """
    image = next((pod.image for pod in pods if pod.image), "")
    found = _without_logs(attempt, pods, _lost_files(attempt, pods) or outcome)
    return dataclasses.replace(found, image=image)


def keep(attempt: Attempt, outcome: WorkloadOutcome) -> None:
    """Write the outcome of an attempt, and an empty log where one is missing. Log a warning if writing fails."""
    try:
        for index in range(attempt.expected):
            place = filesystem.make_directory(attempt.place(index))
            for file in AttemptDirectory(place).logs().values():
                file.touch(filesystem.PRIVATE_FILE)
        filesystem.write_json(AttemptDirectory(attempt.directory).outcome, outcome.as_json())
        if outcome.exit_code is not None:
            filesystem.write_text(AttemptDirectory(attempt.directory).exit_code, f"{outcome.exit_code}\n")
    except OSError as error:
        log.warning("the result of %s cannot be written: %s", attempt.name, error)


def _lost_files(attempt: Attempt, pods: Sequence[PodView]) -> WorkloadOutcome | None:
    """Return the outcome of an attempt that has lost its files; None if no files were lost."""
    for pod in pods:
        told = pod.ended.told if pod.ended is not None else None
        if not told or not told.get("left"):
            continue
        if pod.files is not None or pod.is_deleted:
            why = f"they were not fetched within {attempt.pod.keep_seconds} s"
            if pod.is_deleted:
                why = "its pod was deleted"
            elif pod.files is not None and pod.files.exit_code:
                why = f"the container `files` failed: {pod.files.message or pod.files.reason}"
            return WorkloadOutcome(EndedBy.LOST, message=f"its files are lost: {why}", host=pod.node)
    return None


def _without_logs(attempt: Attempt, pods: Sequence[PodView], outcome: WorkloadOutcome) -> WorkloadOutcome:
    lost = [pod.name for pod in pods if not pod.holds_files]
    missing = sum(attempt.logs[name].missing() for name in lost if name in attempt.logs)
    stray = next((logs.stray for logs in attempt.logs.values() if logs.stray), [])
    if missing:
        text = f"the node has dropped {missing} bytes of them; set `collect`, so that the pod keeps them"
        return dataclasses.replace(outcome, log_fault=text)
    if stray and outcome.ended_by in {EndedBy.NOT_STARTED, EndedBy.LOST}:
        return dataclasses.replace(outcome, message="\n".join([outcome.message, *stray]))
    return outcome
