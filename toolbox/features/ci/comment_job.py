"""A job that a comment started: its comment, the workflow that answers the comment, and the pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import quote

from toolbox.config.contracts.ci import Contract, Workflow
from toolbox.features.ci import addressed_commands, comment_files, partial_runs, run_comment, slash
from toolbox.features.ci.comment_runs import Settings
from toolbox.features.ci.earlier_runs import EarlierRun
from toolbox.features.ci.refusals import Fault
from toolbox.features.ci.run_comment import WorkflowRun
from toolbox.features.ci.slash import CommentRequest, Line
from toolbox.ground.extensions.protocols import Forge, PullRequests
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.forge_data import CommentEvent, CommitState
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.text import abbreviated
from toolbox.ground.system import places, redaction
from toolbox.orchestration import projects
from toolbox.orchestration import request as run_requests
from toolbox.orchestration.request import RunRequest

_MAX_EVENTS: Final = 20
_URL_CHARACTERS: Final = ":/?#@!$&*+,;=%~"  # without brackets, which would end a link of Markdown
_REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True)
class Job:
    """A job that a comment started.

    Args:
        part: the workflow that answers the comment.
        artifact_dir: the directory of the runs; None for the default directory.
        shard: the part of the cells that the job runs; None for all cells.
        override_files: files with overrides, which may change any field.
    """

    forge: Forge
    event: CommentEvent
    part: WorkflowRun
    artifact_dir: Path | None = None
    shard: tuple[int, int] | None = None
    override_files: Sequence[Path] = ()

    @cached_property
    def pull_requests(self) -> PullRequests:
        """The pull requests of the repository."""
        return self.forge.pull_requests()

    @cached_property
    def block(self) -> Contract:
        """The block `ci` of the configuration of the project."""
        return run_requests.configure(RunRequest(self.part.project))[1].block("ci", Contract)

    @cached_property
    def workflow(self) -> Workflow:
        """The workflow in the configuration.

        Raises:
            UsageError: there is no such workflow, or comments do not start it.
        """
        workflows = self.block.workflows
        if self.part.workflow not in workflows:
            hint = did_you_mean(self.part.workflow, workflows, label="workflows")
            raise UsageError(
                f"the project {self.part.project} has no workflow `{self.part.workflow}`: {hint}\n"
                f"  config/{self.part.project}.yaml describes workflows in `ci.workflows`; see docs/forges.md"
            )
        if not workflows[self.part.workflow].comment:
            raise UsageError(
                f"comments do not start the workflow {self.part.workflow}: add `comment: true` and `revision` to "
                f"ci.workflows.{self.part.workflow} of config/{self.part.project}.yaml"
            )
        return workflows[self.part.workflow]

    def commands(self) -> Iterator[Line]:
        """Yield the commands of the comment, without those for other jobs."""
        commands = slash.lines(self.event.text)
        return commands if self.event.job is None else addressed_commands.for_job(commands, self.event.job)

    @cached_property
    def request(self) -> tuple[CommentRequest, list[Fault]]:
        """What the comment requests, and its faults.

        Raises:
            UsageError: the comment or the description is too large.
        """
        return slash.read(self.event.text, places.projects(), self.description, commands=self.commands())

    def status_part(self, revision: str | None) -> WorkflowRun:
        """Return the workflow with what the runs leave out or change, compared with its full run.

        Args:
            revision: the tested revision; None to keep the value of the configuration.
        """
        comment, faults = self.request
        return replace(self.part, differences=partial_runs.differences(comment, self.settings(revision), faults))

    @property
    def description(self) -> str:
        """The description of the pull request; empty if the configuration does not say that it is read."""
        return self.event.description if self.block.read_description else ""

    def settings(self, revision: str | None, earlier: Sequence[EarlierRun] | None = None) -> Settings:
        """Return what the configuration decides about the runs of the comment.

        Args:
            revision: the tested revision; None to keep the value of the configuration.
            earlier: what `/retest` repeats.

        Raises:
            UsageError: there is no such workflow, or the revision is not a commit.
        """
        field = self.workflow.revision
        if revision is not None and not _REVISION.fullmatch(revision):
            raise UsageError(f"{abbreviated(clean(revision))} is not a full commit: use what `ci pin` printed")
        trusted = {field: revision} if field is not None and revision is not None else {}
        presets, choices = self.workflow.presets, self.workflow.comment_presets
        places_and_parts = (self.artifact_dir, earlier, self.shard, self.event.created)
        return Settings(self.part.project, presets, choices, self.override_files, trusted, *places_and_parts)

    def is_allowed(self) -> bool:
        """Return whether the author of the comment may start runs. The CI system decides about jobs started by hand.

        Raises:
            InfrastructureError: the forge refused a request.
        """
        if self.event.pull_request is None:
            return True
        return self.pull_requests.may_start(self.event, self.block.allowed_commenters)

    def publish(self, text: str) -> str:
        """Create the comment of this run or replace its text, and return its address.

        Raises:
            InfrastructureError: the forge refused a request.
        """
        text = redaction.current()(text)
        if self.event.pull_request is None:
            return str(comment_files.write(self.part, text, self.artifact_dir))
        return run_comment.publish(self.pull_requests, self.event.pull_request, self.part, text)

    def set_status(self, part: WorkflowRun, revision: str | None, state: CommitState, description: str) -> None:
        """Show the state of the workflow on the tested commit.

        Args:
            part: the result of `status_part`.

        Raises:
            InfrastructureError: the forge refused the request.
        """
        if self.event.pull_request is not None and revision is not None:
            run_comment.set_status(self.pull_requests, revision, part, state, description)


def of_events(
    project: str, workflow: str, forge: Forge, events: Sequence[CommentEvent], *, artifact_dir: Path | None = None
) -> Job:
    """Return the job of a comment: of the newest comment whose author may start runs, or else of the newest comment.

    Args:
        events: the comments that may have started the job, the newest first.

    Raises:
        UsageError: there is no comment, no such project or no such workflow.
        InfrastructureError: the forge refused a request.
    """
    part = part_of(project, workflow, forge)
    if not events:
        _ = Job(forge, CommentEvent(""), part).workflow  # raises if there is no such workflow
        raise UsageError(
            "no comment on a pull request started this job. To try a comment without a forge, use\n"
            f"  ci run --project={part.project} --workflow={part.workflow} --text='/test {part.project}'"
        )
    jobs = [Job(forge, event, part, artifact_dir) for event in events[:_MAX_EVENTS]]
    return jobs[0] if len(jobs) == 1 else next((job for job in jobs if job.is_allowed()), jobs[0])


def part_of(project: str, workflow: str, forge: Forge) -> WorkflowRun:
    """Return the workflow of a project that this job runs.

    Raises:
        UsageError: the project does not exist, or the name of the workflow is wrong.
    """
    if not re.fullmatch(r"[\w.-]{1,100}", workflow):  # the markers of issues and comments contain the name
        raise UsageError(f"{abbreviated(clean(workflow))} is not a name of a workflow: use letters, digits, _ and -")
    run = forge.run()
    return WorkflowRun(projects.find(project).name, workflow, run.id, quote(run.url, safe=_URL_CHARACTERS))
