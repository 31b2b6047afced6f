"""Shows the progress of the runs of a comment in the comment of a workflow, for `ci run`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from toolbox.features.ci import comment_texts, run_comment
from toolbox.features.ci.comment_job import Job
from toolbox.features.ci.comment_runs import CommentRun
from toolbox.features.ci.milestones import Milestones
from toolbox.features.ci.progress import Progress
from toolbox.features.ci.run_comment import WorkflowRun
from toolbox.ground.model.errors import ToolboxError, UsageError, describe
from toolbox.ground.model.events import Event
from toolbox.matrix.plan import Plan
from toolbox.orchestration import request as run_requests
from toolbox.orchestration.request import RunRequest
from toolbox.records.runs.recorder import Listener

log = logging.getLogger(__name__)

_LONGEST_UPDATE = 60.0  # seconds
_THIS_MACHINE = "local"  # the backend whose workloads run beside the orchestrator


@contextmanager
def shown(job: Job, runs: Sequence[CommentRun]) -> Iterator[list[Listener]]:
    """Yield the listeners that show the progress; none, and a warning, if it cannot be shown safely.

    Workloads on this machine could read the token from the memory of this process or of the runner, so the progress is
    shown only if all cells run elsewhere.
    """
    number = job.event.pull_request
    if number is None or not job.workflow.progress:
        yield []
        return
    try:
        _refuse_local(runs)
        pull_requests = job.pull_requests
    except ToolboxError as error:
        log.warning("the progress is not shown: %s", describe(error))
        yield []
        return
    progress = Progress(lambda text: run_comment.publish(pull_requests, number, job.part, text))
    try:
        yield [_listener(progress, job.part)]
    finally:
        if not progress.finish():
            progress.finish(timeout=_LONGEST_UPDATE)  # a late update would replace the report


def refuse_local_cells(project: str, name: str, presets: Sequence[str]) -> None:
    """Raise if the cells of a workflow with `progress` may run on the runner, or if there are no cells.

    Raises:
        UsageError: the message says which target is the runner.
    """
    plan = run_requests.load(RunRequest(project, tuple(presets)), needs_secrets=False).plan
    if fault := _fault(plan):
        raise UsageError(f"ci.workflows.{name}: `progress` needs cells that run on other machines, but {fault}")


def _refuse_local(runs: Sequence[CommentRun]) -> None:
    for run in runs:
        if fault := _fault(run_requests.load(run.request).plan):
            raise UsageError(f"{fault}, and could read the token")


def _fault(plan: Plan | None) -> str:
    """Return why the workloads of a run could read the token; empty if all cells run on other machines."""
    if plan is None:
        return "the project has no matrix, so its programs run on this machine"
    local = [name for name, target in plan.targets.items() if target.backend == _THIS_MACHINE]
    return f"cells run on this machine (target `{local[0]}`)" if local else ""


def _listener(progress: Progress, part: WorkflowRun) -> Listener:
    milestones = Milestones()

    def listen(event: Event) -> None:
        if milestones.apply(event):
            progress.show(comment_texts.running(part, milestones.lines))

    return listen
