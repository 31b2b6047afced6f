"""Run what comments on pull requests request, and write and serve the workflow files of GitHub Actions."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from toolbox.ci import slash
from toolbox.ci.slash import CommentRequest
from toolbox.commands import _invoke, _project_run, _run_directories
from toolbox.config import overrides as overrides_text
from toolbox.config.configuration import Configuration
from toolbox.interface.options import ArtifactDir, Deadline, Format, Presets, RunDir, SummaryFormat
from toolbox.interface.signature import Help
from toolbox.model.errors import ConfigurationError, UsageError, describe
from toolbox.model.foreign_text import clean, printable
from toolbox.model.quantities import Count
from toolbox.model.text import abbreviated
from toolbox.model.verdicts import ExitCode
from toolbox.orchestration import project_run, projects, request
from toolbox.orchestration.request import RunRequest
from toolbox.runs import run_reader
from toolbox.runs.layout import RunDirectory
from toolbox.system import environ, places, redaction

if TYPE_CHECKING:
    from toolbox.config.contracts.ci import Contract

log = logging.getLogger(__name__)

Project = Annotated[str, Help("the name of the project.")]
Names = list[str]
_WORKFLOWS: Final = Path(".github/workflows")
_MOST_DETAILS: Final = 60_000  # bytes; the body of an issue has at most 65,536 characters


class Ci:
    """Run what comments on pull requests request, and write and serve the workflow files of GitHub Actions."""

    def parse(self, text: str, *, format: Format[Literal["yaml", "json"]] = "yaml") -> str:  # noqa: A002
        """
        Print what the slash commands of a comment request, and run nothing.

        Unknown commands, projects, presets, phases and fields are errors.

        Args:
            text: the text of the comment, with lines such as /test PROJECT [PRESET ...], /var PATH: VALUE, /skip PHASE
                ..., /only PHASE ... or /help.
        """
        comment = slash.parse(text)
        if comment.project is not None:
            _request(comment, None)
        content = asdict(comment)
        if comment.help:
            content["help"] = slash.HELP
        return json.dumps(content, indent=2, default=list) if format == "json" else _invoke.yaml_text(content)

    def run(
        self,
        text: str,
        *,
        project: str | None = None,
        presets: Presets = None,
        overrides: str | None = None,
        deadline: Deadline = None,
        artifact_dir: ArtifactDir = None,
        format: SummaryFormat = "text",  # noqa: A002
    ) -> int | str:
        """
        Run the project that a comment requests.

        The overrides of the comment are saved in the run directory, in a file that --overrides can read.

        Args:
            text: the text of the comment. `ci parse` shows what a comment requests.
            project: the only project that the comment may request; any project when left out.
            presets: the presets to apply before the presets of the comment.
            overrides: the names of files with overrides. The overrides of the comment are applied after them.
        """
        comment = slash.parse(text)
        if comment.help:
            return slash.HELP
        if comment.project is None:
            raise UsageError("the comment does not request a run: add `/test PROJECT [PRESET ...]`")
        if project is not None and comment.project != project:
            requested = abbreviated(clean(comment.project))
            raise UsageError(f"the comment requests the project {requested}, but only {project} is allowed here")
        files, values = overrides_text.parse(overrides)
        if values:
            raise UsageError("ci run: --overrides must name files: put the mapping into a file")
        run_request = _request(comment, artifact_dir, presets=presets or (), files=files, deadline=deadline)
        return _project_run.run_and_show(partial(project_run.execute, run_request), as_json=format == "json")

    def workflows(self, project: Project, *, output: Path = _WORKFLOWS, check: bool = False) -> int:
        """
        Write the workflow files of GitHub Actions for a project, from the block `ci` of its configuration.

        A generated file is removed if its workflow is no longer in the block. Other files are never changed.

        Args:
            output: the directory of the workflow files.
            check: write nothing, and print the differences between the files and the configuration. If there are
                differences, the exit code is 1.
        """
        from toolbox.ci import workflows  # pydantic and jinja2 are slow to import
        from toolbox.config.contracts.ci import Contract
        from toolbox.config.contracts.secrets import Contract as Secrets

        files, configuration = request.configure(RunRequest(project))
        block = configuration.block("ci", Contract)
        for job in block.jobs:
            request.configure(RunRequest(project, job.presets))  # raises if a preset does not exist
        for field in {item.revision for item in block.workflows.values() if item.revision}:
            _check_field(configuration, field)
        directory = configuration.block("secrets", Secrets).dir
        variable = directory.env_key if directory else None
        texts = workflows.render(files.name, block, secrets_variable=variable)
        differences = workflows.compare(texts, output, files.name)
        if check:
            print(printable(workflows.diff(differences)), end="")
            return ExitCode.FAILED if differences else ExitCode.PASSED
        workflows.refuse_foreign_files(differences, files.name)
        print(printable("\n".join(workflows.apply(differences)) or f"the workflow files in {output} are up to date"))
        return ExitCode.PASSED

    def pin(
        self,
        project: Project,
        *,
        text: str,
        author: str,
        commented_at: str,
        pull_request: Count,
        presets: Names | None = None,
    ) -> str | None:
        """
        Decide whether a comment on a pull request may run a project, and print `revision=...`: the revision to test.

        The author needs write access, and the branch must not have changed since the comment. If the comment does not
        request the project, nothing is printed.

        Args:
            text: the text of the comment.
            author: the login of the author of the comment.
            commented_at: the time of the comment, such as 2026-11-23T04:55:00Z.
            pull_request: the number of the pull request.
            presets: the only presets that the comment may choose; any preset when left out.
        """
        from toolbox.ci import github_api, pinning

        if f"/test {project}" not in text:
            return None
        comment = slash.parse(text)
        if comment.project != project or comment.help:
            log.info("the comment does not request the project %s", project)
            return None
        if presets is not None and (others := [name for name in comment.presets if name not in presets]):
            allowed = f"only {', '.join(presets)}" if presets else "none"
            raise UsageError(
                f"a comment may not choose the preset {abbreviated(clean(others[0]))}: {allowed} is allowed"
            )
        _request(comment, None)
        source = pinning.Comment(pull_request, author, pinning.parse_time(commented_at))
        return f"revision={pinning.revision(github_api.from_environment(), source)}"

    def issue(
        self, project: Project, workflow: str, *, result: Literal["success", "failure", "cancelled", "skipped"]
    ) -> str:
        """
        Open an issue if a workflow failed, update the issue while the workflow fails, and close it when it passes.

        If the directory of artifacts contains a run, the issue describes the newest run. The command calls `gh`, which
        reads the token from $GH_TOKEN.

        Args:
            workflow: the name of the workflow in the configuration.
            result: the result of the job that ran the workflow.
        """
        from toolbox.ci import failure_issue, github_api

        if not re.fullmatch(r"[\w.-]+", workflow):  # the marker of the issue contains the name
            raise UsageError(
                f"{abbreviated(clean(workflow))} is not a name of a workflow: use letters, digits, _ and -"
            )
        api = github_api.from_environment()
        url = f"{environ.get('GITHUB_SERVER_URL')}/{api.repository}/actions/runs/{environ.get('GITHUB_RUN_ID')}"
        run = failure_issue.WorkflowRun(
            projects.find(project).name,
            workflow,
            failure_issue.Result(result),
            url,
            environ.get("GITHUB_SHA") or "an unknown revision",
            _details(),
        )
        return failure_issue.update(api, run)

    def export(self, output: str, *, run_dir: RunDir = None, keep: str | None = None) -> str:
        """
        Export a run to a directory or a URL, without symbolic links, if no file has a secret.

        The output also gets index.html, a page of all its runs. Repeating an export writes only what is missing or has
        changed. If a secret is found, nothing is written, and the exit code is 1.

        Args:
            output: the directory or URL, such as s3://BUCKET/FOLDER, that gets the run in PROJECT/RUN.
            keep: also delete the runs in the output whose export is older than this, as in 12h, 30d or 4w.
        """
        from toolbox.ci import export  # pydantic and jinja2 are slow to import
        from toolbox.exports import storage

        age = export.parse_keep(keep) if keep is not None else None
        directory = run_dir or _run_directories.newest()
        block = _known_secrets(directory)
        exported = export.export(
            directory,
            storage.opened(output),
            secrets=redaction.current().secrets(),
            allow=block.export.allow,
            keep=age,
        )
        if not exported.is_complete:
            log.warning("the run has not ended, so the files of its steps may contain secrets: they are not exported")
        for file in exported.withheld:
            log.warning("not exported: %s", redaction.current()(clean(file)))
        for fault in exported.faults:
            log.warning("%s", fault)
        for folder in exported.expired:
            log.info("deleted, because its export is older than %s: %s", keep, folder)
        uploaded = exported.uploaded
        log.info("%d files written, %d were there, %d deleted", uploaded.written, uploaded.present, uploaded.deleted)
        return "\n".join([exported.address, *(f"deleted: {folder}" for folder in exported.expired)])


def _known_secrets(directory: Path) -> Contract:
    """Add the secrets of the project of a run to the redactor, and return the block `ci` of its configuration.

    Raises:
        UsageError: the directory is not that of a run, or the configuration has a fault.
    """
    from toolbox.config.contracts.ci import Contract

    run = run_reader.read(directory)
    if run.project not in places.projects():
        log.warning("the project %s is not in this workspace: its secrets are not known", abbreviated(run.project))
        return Contract()
    configuration = request.configure(RunRequest(run.project, run.presets))[1]
    block = configuration.block("ci", Contract)
    redaction.current().add(configuration.secret_values())
    variables = {variable for job in block.jobs for variable in job.secrets}
    redaction.current().add(filter(None, map(environ.get, sorted(variables))))
    return block


def _request(
    comment: CommentRequest,
    artifact_dir: Path | None,
    *,
    presets: Sequence[str] = (),
    files: Sequence[Path] = (),
    deadline: float | None = None,
) -> RunRequest:
    """Return the request for a run after checking that the project, its phases, presets and fields exist."""
    project = comment.project or ""
    available = projects.phases(projects.find(project))
    phases = list(comment.only) or [name for name in available if name not in comment.skip]
    projects.select(available, [*comment.skip, *phases])
    run_request = RunRequest(
        project,
        (*presets, *comment.presets),
        override_files=files,
        overrides=comment.overrides,
        is_from_outside=True,
        phases=phases,
        artifact_dir=artifact_dir,
        note={RunDirectory.overrides: comment.overrides} if comment.overrides else {},
        deadline=deadline,
    )
    request.configure(run_request)
    return run_request


def _check_field(configuration: Configuration, field: str) -> None:
    """Raise if the configuration does not have the field that gets the tested revision."""
    try:
        configuration.written(field)
    except ConfigurationError as error:
        raise UsageError(f"{configuration.source}: ci.workflows: `revision` names no field: {error}") from None


def _details() -> str:
    """Return a report of the newest run, for an issue; empty if there is no run that can be read."""
    from toolbox.reports.forge import github

    try:
        return github.render(run_reader.read(_run_directories.newest()), limit=_MOST_DETAILS)
    except Exception as error:  # noqa: BLE001  # code under test may have written the run: the issue is opened anyway
        log.warning("the issue has no report: %s", describe(error))
        return ""
