"""Run what comments on pull requests request, write the workflow files of GitHub Actions, and run their steps."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from toolbox.config import overrides as overrides_text
from toolbox.config.configuration import Configuration
from toolbox.features.ci import comment_execution, comment_runs, refusals, slash
from toolbox.features.ci.comment_runs import Settings
from toolbox.features.ci.refusals import Fault
from toolbox.features.ci.slash import CommentRequest
from toolbox.ground.interface.options import ArtifactDir, Deadline, Format, Presets, RunDir, Shard
from toolbox.ground.interface.signature import Help
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import ConfigurationError, UsageError
from toolbox.ground.model.foreign_text import clean, printable
from toolbox.ground.model.quantities import Count, Duration, Range
from toolbox.ground.model.text import abbreviated, duration
from toolbox.ground.model.verdicts import ExitCode
from toolbox.ground.system import environ, places, redaction
from toolbox.matrix import plan
from toolbox.orchestration import request
from toolbox.orchestration.request import RunRequest
from toolbox.records.runs import layout, run_reader

if TYPE_CHECKING:
    from toolbox.config.contracts.ci import Contract, GitHub
    from toolbox.config.contracts.ci import Workflow as WorkflowBlock
    from toolbox.features.ci.comment_job import Job

log = logging.getLogger(__name__)

Project = Annotated[str, Help("the name of the project.")]
Workflow = Annotated[str, Help("the name of the workflow in the configuration.")]
Forge = Annotated[
    str | None, Help("the CI system whose job this is, such as github; found by its variables when left out.")
]
# With a number of seconds that is meant as days, nearly all exports would be deleted.
Keep = Annotated[float, Range(least=3600, most=1e11), Duration()]
_WORKFLOWS: Final = Path(".github/workflows")


class Ci:
    """Run what comments on pull requests request, write the workflow files of GitHub Actions, and run their steps."""

    def parse(self, text: str, *, format: Format[Literal["yaml", "json"]] = "yaml") -> str:  # noqa: A002
        """
        Print what the slash commands of a comment request, and run nothing.

        Unknown commands, projects, jobs, presets, phases, fields, cells and clusters are errors.

        Args:
            text: the text of the comment, with lines such as /test PROJECT [PRESET ...] or /var PATH: VALUE. The
                command /help lists all commands.
        """
        with refusals.short():
            comment, faults = slash.read(text, places.projects())
            comment_runs.of(comment, Settings(), faults)
        content = _as_json(comment)
        return json.dumps(content, indent=2, default=str) if format == "json" else yaml_text.printed(content)

    def run(
        self,
        text: str | None = None,
        *,
        project: str | None = None,
        workflow: str | None = None,
        revision: str | None = None,
        retest: str | None = None,
        forge: Forge = None,
        presets: Presets = None,
        overrides: str | None = None,
        shard: Shard = None,
        deadline: Deadline = None,
        artifact_dir: ArtifactDir = None,
        format: Annotated[  # noqa: A002
            Literal["text", "json"],
            Help(
                "with json, stdout gets the summary of the run as JSON, or a list of summaries if the comment requests "
                "several runs, and stderr gets all other output."
            ),
        ] = "text",
    ) -> int | str:
        """
        Run what a comment requests, one run after the other. The worst outcome determines the exit code.

        The command first shows what it understood. If anything in the comment is wrong, nothing runs. The overrides of
        the comment are saved in the run directory, in a file that --overrides can read.

        In a job of a CI system, leave out --text, and pass --project and --workflow. The command then reads the comment
        from the event that started the job, and asks the forge whether its author may start runs. It tests the revision
        that the pull request had at the time of the comment, and shows the plan and the report on the pull request. If
        the comment requests nothing, the exit code is 4.

        Args:
            text: the text of the comment. `ci parse` shows what a comment requests.
            project: the only project that the comment may request; any project when left out.
            workflow: an entry of ci.workflows in the configuration, which gives the presets, the time limit, the field
                of the revision, and the presets that a comment may choose.
            revision: the revision that `ci pin` printed in another job, which has checked the comment and reports.
            retest: what `ci pin` printed for the command /retest; empty without this command.
            presets: the presets to apply before the presets of the comment.
            overrides: the names of files with overrides. The overrides of the comment are applied after them.
            deadline: the time limit of all runs of the comment together, in seconds. A run that exceeds it ends with
                exit code 124, and further runs are not started.
        """
        files, values = overrides_text.parse(overrides)
        if values:
            raise UsageError("ci run: --overrides must name files: put the mapping into a file")
        part = plan.parse_shard(shard)
        if text is None or workflow is not None:
            from toolbox.features.ci import pull_request_job

            if project is None or workflow is None:
                raise UsageError(
                    "ci run needs --text='/test PROJECT', or --project and --workflow in a job of a CI system"
                )
            if presets is not None or (text is not None and forge is not None):
                raise UsageError("ci run: --presets cannot be used with --workflow, and --forge not with --text")
            flags = pull_request_job.RunFlags(revision, retest, deadline, format == "json")
            with refusals.short():
                job = replace(_job(project, workflow, forge, text, artifact_dir), shard=part, override_files=files)
                return pull_request_job.run(job, flags)
        if revision is not None or retest is not None or forge is not None:
            raise UsageError("ci run: --revision, --retest and --forge need --project and --workflow")
        with refusals.short():
            comment, faults = slash.read(text, places.projects())
            if comment.help and not faults:
                return slash.HELP
            if comment.cancel:
                faults.append(Fault(0, "/cancel works only on a forge: press Ctrl-C in the terminal of the run"))
            if not (comment.tests or comment.retest or faults):
                raise UsageError("the comment does not request a run: add `/test PROJECT [PRESET ...]`")
            settings = Settings(project, presets or (), override_files=files, artifact_dir=artifact_dir, shard=part)
            runs = comment_runs.of(comment, settings, faults)
            comment_execution.announce(runs, as_json=format == "json")
        return comment_execution.run_all(runs, deadline=deadline, as_json=format == "json").exit_code

    def workflows(
        self, project: Project, *, output: Path = _WORKFLOWS, shards: Count | None = None, check: bool = False
    ) -> int:
        """
        Write the workflow files of GitHub Actions for a project, from the block `ci` of its configuration.

        A generated file is removed if its workflow is no longer in the block. Other files are never changed.

        Args:
            output: the directory of the workflow files.
            shards: the number of jobs among which each workflow divides the cells of a run; its field `shards` replaces
                this number. The first line of a file names this flag, so --check needs the same flag.
            check: write nothing, and print the differences between the files and the configuration. If there are
                differences, the exit code is 1.
        """
        from toolbox.config.contracts.ci import Contract
        from toolbox.config.contracts.secrets import Contract as Secrets
        from toolbox.features.ci import workflows  # pydantic and jinja2 are slow to import

        files, configuration = request.configure(RunRequest(project))
        block = configuration.block("ci", Contract)
        _check_installation(configuration.source, block.github)
        for job in (*block.jobs, *block.named_jobs.values(), *block.clusters.values()):
            request.configure(RunRequest(project, job.presets))  # raises if a preset does not exist
        for name, item in block.workflows.items():
            if item.progress:
                _refuse_local_cells(project, name, item)
            if item.progress and workflows.shards_of(item, shards) > 1:
                raise UsageError(f"ci.workflows.{name}: `progress` shows the run of one job: set `shards: 1`")
        for field in {item.revision for item in block.workflows.values() if item.revision}:
            _check_field(configuration, field)
        directory = configuration.block("secrets", Secrets).dir
        variable = directory.env_key if directory else None
        for item in block.workflows.values():
            if workflows.shards_of(item, shards) > 1:
                _check_matrix(files.name, item.presets)
        texts = workflows.render(files.name, block, secrets_variable=variable, shards=shards)
        differences = workflows.compare(texts, output, files.name)
        if check:
            print(printable(workflows.diff(differences)), end="")
            return ExitCode.FAILED if differences else ExitCode.PASSED
        workflows.refuse_foreign_files(differences, files.name)
        print(printable("\n".join(workflows.apply(differences)) or f"the workflow files in {output} are up to date"))
        return ExitCode.PASSED

    def pin(self, project: Project, workflow: Workflow, *, forge: Forge = None) -> str | None:
        """
        Check the comment that started this job, and print `revision=...`: the revision to test.

        The author must be allowed to start runs, and the branch must not have changed since the comment. A comment on
        the pull request shows what will run, or why nothing runs. If the comment does not request the project, nothing
        is printed. A comment with the line /cancel cancels the other runs of the workflow for the pull request.
        """
        from toolbox.features.ci import pull_request_job

        return pull_request_job.pin(_job(project, workflow, forge))

    def comment(
        self,
        project: Project,
        workflow: Workflow,
        *,
        result: Literal["success", "failure", "cancelled", "skipped"],
        revision: str,
        forge: Forge = None,
    ) -> str:
        """
        Show how a workflow ended: by the reports of its runs in its comment, and on the tested commit.

        A workflow run has one comment, which `ci pin` creates, on the pull request whose comment started this job. The
        reports are those of the newest runs in the directory of artifacts. On GitHub, the commit also gets a check run
        with annotations of the lines that failures name. Without a token, the same is written into files, and their
        directory is printed.

        Args:
            result: the result of the job that ran the project.
            revision: the tested commit.
        """
        from toolbox.features.ci import pull_request_job

        return pull_request_job.show_end(_job(project, workflow, forge), result, revision)

    def issue(
        self, project: Project, workflow: Workflow, *, result: Literal["success", "failure", "cancelled", "skipped"]
    ) -> str:
        """
        Open an issue if a workflow failed, update the issue while the workflow fails, and close it when it passes.

        The issue describes the newest runs in the directory of artifacts. $GH_TOKEN is the token.

        Args:
            result: the result of the job that ran the workflow.
        """
        from toolbox.features.ci import comment_job, current_forge, ended_runs, failure_issue
        from toolbox.features.ci.github import github_api

        api = github_api.from_environment()
        part = comment_job.part_of(project, workflow, current_forge.find("github"))
        run = failure_issue.WorkflowRun(
            part.project,
            part.workflow,
            failure_issue.Result(result),
            part.url,
            environ.get("GITHUB_SHA") or "an unknown revision",
            ended_runs.markdown(ended_runs.read(ended_runs.newest())),
        )
        return failure_issue.update(api, run)

    def export(self, output: str, *, run_dir: RunDir = None, keep: Keep | None = None) -> str:
        """
        Export a run to a directory or a URL, without symbolic links, if no file has a secret.

        The output also gets index.html, a page of all its runs. Repeating an export writes only what is missing or has
        changed. If a secret is found, nothing is written, and the exit code is 1. If the artifacts of a CI
        system refuse the name of a file, the file gets another name, until `results import` or `results merge`.

        Args:
            output: the directory or URL, such as s3://BUCKET/FOLDER, that gets the run in PROJECT/RUN.
            keep: also delete the runs in the output whose export is older than this, as in 12h, 30d or 4w.
        """
        from toolbox.features.ci import export  # pydantic and jinja2 are slow to import
        from toolbox.records.exports import storage

        directory = run_dir or layout.newest_run()
        block = _known_secrets(directory)
        exported = export.export(
            directory,
            storage.opened(output),
            secrets=redaction.current().secrets(),
            allow=block.export.allow,
            keep=keep,
        )
        if not exported.is_complete:
            log.warning("the run has not ended, so the files of its steps may contain secrets: they are not exported")
        for file in exported.withheld:
            log.warning("not exported: %s", redaction.current()(clean(file)))
        for name, original in exported.renamed.items():
            log.info("%s is exported as %s", *(redaction.current()(clean(text)) for text in (original, name)))
        for fault in exported.faults:
            log.warning("%s", fault)
        for folder in exported.expired:
            log.info("deleted, because its export is older than %s: %s", duration(keep), folder)
        uploaded = exported.uploaded
        log.info("%d files written, %d were there, %d deleted", uploaded.written, uploaded.present, uploaded.deleted)
        return "\n".join([exported.address, *(f"deleted: {folder}" for folder in exported.expired)])


def _job(
    project: str, workflow: str, forge: str | None, text: str | None = None, artifact_dir: Path | None = None
) -> Job:
    """Return the job that a comment started; or that a person at a terminal starts with a text."""
    from toolbox.features.ci import comment_job, current_forge
    from toolbox.ground.model.forge_data import CommentEvent

    current = current_forge.find(forge if text is None else current_forge.TERMINAL)
    events = current.events() if text is None else [CommentEvent(text)]
    return comment_job.of_events(project, workflow, current, events, artifact_dir=artifact_dir)


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
    configuration = request.configure(RunRequest.read(directory))[1]
    block = configuration.block("ci", Contract)
    redaction.current().add(configuration.secret_values())
    variables = {variable for job in block.jobs for variable in job.secrets}
    redaction.current().add(filter(None, map(environ.get, sorted(variables))))
    return block


def _as_json(comment: CommentRequest) -> dict[str, Any]:
    """Return a comment as JSON, without its lines."""
    content = asdict(comment)
    for each in content["tests"]:
        del each["lines"]
        each |= {name: list(value) for name, value in each.items() if isinstance(value, tuple)}
    content["tests"] = list(content["tests"])
    content["retest"] = [retest.project for retest in comment.retest]
    return {**content, "help": slash.HELP} if comment.help else content


def _check_installation(source: str, github: GitHub) -> None:
    """Raise if a workspace has no commands that install and start Topgallant: the defaults need its own checkout."""
    missing = [f"`ci.github.{name}`" for name in ("install", "command") if name not in github.model_fields_set]
    root = places.builtin_root()
    is_checkout = places.workspace() is None and (root / "run_toolbox.py").is_file()
    if missing and not is_checkout:
        raise UsageError(
            f"{source}: the default install and clean-up steps work only in a checkout of Topgallant. "
            f"Set {' and '.join(missing)}\n"
            "  install: the commands that install Topgallant on the runner; command: how to start Topgallant there"
        )


def _check_matrix(project: str, presets: list[str]) -> None:
    """Raise if a configuration has no matrix whose cells can be divided."""
    configuration = request.configure(RunRequest(project, presets))[1]
    if configuration.get(plan.BLOCK, default=None) is None:
        raise UsageError(
            f"{configuration.source}: shards divide the cells of a matrix, but there is no block `{plan.BLOCK}`:\n"
            "  leave out --shards, or set `shards: 1` for the workflow"
        )


def _refuse_local_cells(project: str, name: str, workflow: WorkflowBlock) -> None:
    """Raise if a workflow shows its progress, and its cells may run on the runner."""
    from toolbox.features.ci import run_progress

    run_progress.refuse_local_cells(project, name, workflow.presets)


def _check_field(configuration: Configuration, field: str) -> None:
    """Raise if the configuration does not have the field that gets the tested revision."""
    try:
        configuration.written(field)
    except ConfigurationError as error:
        raise UsageError(f"{configuration.source}: ci.workflows: `revision` names no field: {error}") from None
