"""Run what comments on pull requests request, and write and serve the workflow files of GitHub Actions."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from toolbox.ci import comment_runs, refusals, slash
from toolbox.ci.comment_runs import Settings
from toolbox.ci.refusals import Fault
from toolbox.ci.slash import CommentRequest
from toolbox.commands import _comment_runs, _invoke, _run_directories
from toolbox.config import overrides as overrides_text
from toolbox.config.configuration import Configuration
from toolbox.interface.options import ArtifactDir, Deadline, Format, Presets, RunDir
from toolbox.interface.signature import Help
from toolbox.model.errors import ConfigurationError, UsageError, describe
from toolbox.model.foreign_text import clean, printable
from toolbox.model.quantities import Count
from toolbox.model.text import abbreviated
from toolbox.model.verdicts import ExitCode
from toolbox.orchestration import projects, request
from toolbox.orchestration.request import RunRequest
from toolbox.system import environ, places

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

        Unknown commands, projects, jobs, presets, phases, fields, cells and clusters are errors.

        Args:
            text: the text of the comment, with lines such as /test PROJECT [PRESET ...] or /var PATH: VALUE. The
                command /help lists all commands.
        """
        with refusals.short():
            comment, faults = slash.read(text, places.projects())
            comment_runs.of(comment, Settings(), faults)
        content = _as_json(comment)
        return json.dumps(content, indent=2, default=str) if format == "json" else _invoke.yaml_text(content)

    def run(
        self,
        text: str,
        *,
        project: str | None = None,
        presets: Presets = None,
        overrides: str | None = None,
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

        Args:
            text: the text of the comment. `ci parse` shows what a comment requests.
            project: the only project that the comment may request; any project when left out.
            presets: the presets to apply before the presets of the comment.
            overrides: the names of files with overrides. The overrides of the comment are applied after them.
            deadline: the time limit of all runs of the comment together, in seconds. A run that exceeds it ends with
                exit code 124, and further runs are not started.
        """
        with refusals.short():
            comment, faults = slash.read(text, places.projects())
            if comment.help and not faults:
                return slash.HELP
            if comment.cancel:
                faults.append(Fault(0, "/cancel works only on a forge: press Ctrl-C in the terminal of the run"))
            if not (comment.tests or comment.retest or faults):
                raise UsageError("the comment does not request a run: add `/test PROJECT [PRESET ...]`")
            files, values = overrides_text.parse(overrides)
            if values:
                raise UsageError("ci run: --overrides must name files: put the mapping into a file")
            settings = Settings(project, presets or (), override_files=files, artifact_dir=artifact_dir)
            runs = comment_runs.of(comment, settings, faults)
            _comment_runs.announce(runs, as_json=format == "json")
        return _comment_runs.run_all(runs, deadline=deadline, as_json=format == "json")

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
        for job in (*block.jobs, *block.named_jobs.values(), *block.clusters.values()):
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

        if not re.search(rf"^/test\s.*(?<!\S){re.escape(project)}(?!\S)", text, re.MULTILINE):
            return None  # other comments may contain commands of other programs
        with refusals.short():
            comment = slash.parse(text, places.projects())
            if comment.help or all(test.project != project for test in comment.tests):
                log.info("the comment does not request the project %s", project)
                return None
            if comment.cancel or comment.retest:
                raise UsageError("/cancel and /retest cannot be used together with /test here")
            comment_runs.of(comment, Settings(project, choices=presets))
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

    def export(self, output: Path, *, run_dir: RunDir = None) -> str:
        """
        Copy a run into a directory that may be published, without symbolic links and files that contain secrets.

        Args:
            output: the directory that gets the copy, below the names of the project and the run.
        """
        from toolbox.ci import export

        exported = export.export(run_dir or _run_directories.newest(), output)
        if not exported.is_complete:
            log.warning("the run has not ended, so the files of its steps may contain secrets: they are not exported")
        for file in exported.withheld:
            log.warning("not exported: %s", file)
        return str(exported.directory)


def _as_json(comment: CommentRequest) -> dict[str, Any]:
    """Return a comment as JSON, without its lines."""
    content = asdict(comment)
    for each in content["tests"]:
        del each["lines"]
        each |= {name: list(value) for name, value in each.items() if isinstance(value, tuple)}
    content["tests"] = list(content["tests"])
    content["retest"] = [retest.project for retest in comment.retest]
    return {**content, "help": slash.HELP} if comment.help else content


def _check_field(configuration: Configuration, field: str) -> None:
    """Raise if the configuration does not have the field that gets the tested revision."""
    try:
        configuration.written(field)
    except ConfigurationError as error:
        raise UsageError(f"{configuration.source}: ci.workflows: `revision` names no field: {error}") from None


def _details() -> str:
    """Return a report of the newest run, for an issue; empty if there is no run that can be read."""
    from toolbox.reports.forge import github
    from toolbox.runs import run_reader

    try:
        return github.render(run_reader.read(_run_directories.newest()), limit=_MOST_DETAILS)
    except Exception as error:  # noqa: BLE001  # code under test may have written the run: the issue is opened anyway
        log.warning("the issue has no report: %s", describe(error))
        return ""
