"""What an attempt comes to once all of it is here, or is known to be lost, and how that is kept."""

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
    """Return how an attempt ended, with what is lost of its files and of its logs.

    Args:
        pods: of the attempt.
        outcome: what they and its Job have told.
    """
    image = next((pod.image for pod in pods if pod.image), "")
    found = _without_logs(attempt, pods, _lost_files(attempt, pods) or outcome)
    return dataclasses.replace(found, image=image)


def keep(attempt: Attempt, outcome: WorkloadOutcome) -> None:
    """Write down how an attempt ended, as far as the disk takes it. Each of its hosts has its logs, though empty."""
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
    """Return what an attempt comes to whose files are gone; None where they are not, or there were none."""
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
