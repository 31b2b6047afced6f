"""The contract of the block `ci`: what a comment on a pull request may change, and the workflow files of GitHub.

docs/ci_workflows.md explains the fields of the workflow files.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from toolbox.config import paths
from toolbox.config.contracts._open_block import OpenBlock
from toolbox.ground.model.forge_data import Commenters
from toolbox.ground.model.quantities import AnyWholeSeconds

_MAX_SECONDS: Final = 5 * 24 * 3600  # GitHub ends a job after five days
OVERTIME_SECONDS: Final = 40 * 60
"""The time for the installation, the clean-up and the report, by which the limit of a job exceeds that of its run."""
MAX_SHARDS: Final = 256
"""The largest number of shards: GitHub starts at most so many jobs of a matrix."""
_CRON: Final = r"^[\d*/,A-Za-z-]+( [\d*/,A-Za-z-]+){4}$"
ENVIRONMENT_VARIABLE: Final = r"^[A-Z_][A-Z0-9_]{0,99}$"
# The steps set these variables themselves.
_RESERVED_VARIABLES: Final = frozenset(
    {
        *("GH_TOKEN", "PATH", "RESULT", "RETEST", "REVISION", "SHARD"),
        *("TOPGALLANT_MEMBERS_TOKEN", "TOPGALLANT_RESULTS_BASELINE"),
    }
)
# GitHub reserves the prefix GITHUB_ for its own variables and secrets.
_RESERVED_PREFIX: Final = "GITHUB_"
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _is_pattern(text: str) -> str:
    """Check a path with wildcards: `*` and `?` inside a key, and `**` for any number of keys."""
    try:
        if paths.parse(text):
            return text
    except paths.PathError as error:
        raise ValueError(error.detail) from None
    raise ValueError("`$` would allow every field: list the paths of the fields to allow")


def _is_field(text: str) -> str:
    """Check the path of a field."""
    try:
        if paths.parse(text):
            return text
    except paths.PathError as error:
        raise ValueError(error.detail) from None
    raise ValueError("must be the path of one field")


def _is_line(text: str) -> str:
    """Check a text of one line without expressions, which GitHub would replace before a shell reads the text."""
    if _UNPRINTABLE.search(text):
        raise ValueError("must be one line without control characters")
    if "${{" in text or "}}" in text:
        raise ValueError("must not contain an expression `${{ }}`: pass values by environment variables")
    return text


Line = Annotated[str, StringConstraints(min_length=1, max_length=500, strip_whitespace=True), AfterValidator(_is_line)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=50, strip_whitespace=True), AfterValidator(_is_line)]
Variable = Annotated[str, StringConstraints(pattern=ENVIRONMENT_VARIABLE)]
# `{0,99}` after `\w` in a pattern takes 70 ms to compile, so the length is limited separately.
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][\w.-]*$", max_length=100)]
Preset = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][\w.+-]*$")]
# A full commit with its version in words, or a tag: `de0fac2e... v6.0.2`, `v6`.
ActionVersion = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}( [\w.-]+)?|v?\d[\w.-]*)$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][\w.-]*$", max_length=80)]
WorkflowName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class GitHub(_Model):
    """What all workflow files of the project have in common."""

    runs_on: Line | Annotated[list[Line], Field(min_length=1)] = Field(
        default="ubuntu-24.04", description="the labels of the runner"
    )
    python: Line = Field(default="3.12", description="the version of Python that `actions/setup-python` installs")
    install: list[Line] = Field(
        default=["python -m pip install --editable '.[github]'"], description="the commands that install Topgallant"
    )
    command: Line = Field(default="./run_toolbox.py", description="the command that starts Topgallant")
    retention_days: int = Field(default=30, ge=1, le=400, description="how long GitHub keeps the artifacts")
    actions: dict[str, ActionVersion] = Field(
        default={}, description="other versions of actions, by name: a full commit with its version, or a tag"
    )


class _Job(_Model):
    """What workflows and the reaper have in common."""

    presets: list[Preset] = Field(default=[], description="the presets of the run")
    google: bool = Field(default=False, description="sign in to Google Cloud by Workload Identity Federation")
    environment: Line | None = Field(default=None, description="the environment of GitHub whose rules protect the job")
    secrets: dict[Variable, Variable] = Field(
        default={}, description="the names of secrets, by the environment variable that gets the secret"
    )
    secret_files: dict[FileName, Variable] = Field(
        default={},
        description="the names of secrets, by the file in the directory of `secrets.dir` that gets the secret",
    )

    @property
    def is_privileged(self) -> bool:
        """Whether the job gets credentials or secrets."""
        return bool(self.google or self.secrets or self.secret_files or self.environment)

    @field_validator("secrets")
    @classmethod
    def _has_free_names(cls, secrets: dict[str, str]) -> dict[str, str]:
        for name in secrets:
            if name in _RESERVED_VARIABLES or name.startswith(_RESERVED_PREFIX):
                raise ValueError(f"the workflow sets `{name}` itself: use another name")
        return secrets


class ResultLabels(_Model):
    """The labels that a pull request gets for the result of its latest run."""

    passed: Label = Field(description="the label after a run that passed")
    failed: Label = Field(description="the label after any other run")

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.passed.lower() == self.failed.lower():  # GitHub ignores case
            raise ValueError("`passed` and `failed` must be different labels")
        return self


class Workflow(_Job):
    """One workflow file, which runs the project when one of its triggers fires."""

    schedule: Annotated[str, StringConstraints(pattern=_CRON)] | None = Field(
        default=None, description="when to run, as five fields of cron in UTC"
    )
    dispatch: bool = Field(default=False, description="people with write access can start the workflow by hand")
    push: list[Line] = Field(default=[], description="run for each push to these branches")
    pull_request: bool = Field(
        default=False, description="run for each push to a pull request, forks included, without secrets"
    )
    label: Label | None = Field(default=None, description="run when a pull request of this repository gets this label")
    comment: bool = Field(
        default=False, description="run for `/test PROJECT` in a comment on a pull request of this repository"
    )
    comment_presets: list[Preset] = Field(
        default=[], description="the presets that a comment may choose in addition to `presets`"
    )
    revision: Annotated[str, AfterValidator(_is_field)] | None = Field(
        default=None, description="the field of the configuration that gets the tested revision"
    )
    timeout: AnyWholeSeconds = Field(
        default=3600, ge=60, le=_MAX_SECONDS, description="the deadline of the run in seconds"
    )
    shards: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SHARDS,
        description="the number of jobs that divide the cells of a run; default: --shards of `ci workflows`",
    )
    issue: bool | None = Field(
        default=None,
        description="keep an issue open while the workflow fails; default: true if the workflow has a schedule",
    )

    progress: bool = Field(
        default=False,
        description="the comment also shows milestones during the run. The job that runs the cells then has a token "
        "that can write comments",
    )
    result_labels: ResultLabels | None = Field(
        default=None, description="the labels that a pull request gets for the result of a comment"
    )

    @property
    def has_other_triggers(self) -> bool:
        """Whether the workflow has a trigger besides `comment`."""
        return any([self.schedule, self.dispatch, self.push, self.pull_request, self.label])

    @property
    def has_issue(self) -> bool:
        """Whether the workflow keeps an issue open while it fails."""
        return self.schedule is not None if self.issue is None else self.issue

    @model_validator(mode="after")
    def _has_safe_triggers(self) -> Self:
        if not (self.has_other_triggers or self.comment):
            raise ValueError("needs a trigger: schedule, dispatch, push, pull_request, label or comment")
        if self.pull_request:
            if self.label or self.comment:
                raise ValueError("`pull_request` runs for each push: put `label` and `comment` into another workflow")
            if self.is_privileged:
                raise ValueError(
                    "`pull_request` runs the code of forks, so it cannot have `google`, secrets or `environment`: "
                    "use `label` or `comment`"
                )
        if self.revision is None and (self.comment or (self.label and self.is_privileged)):
            raise ValueError(
                "`comment`, and `label` with `google`, secrets or `environment`, need `revision`: the field that gets"
                " the tested revision. Without it, the code of the pull request would run with the rights of the branch"
            )
        for name in ("result_labels", "progress"):
            if getattr(self, name) and not self.comment:
                raise ValueError(f"`{name}` needs `comment`")
        if self.progress and self.has_other_triggers:
            raise ValueError(
                "`progress` needs a workflow without other triggers, because its job gets a token that writes"
            )
        if self.issue and not (self.schedule or self.dispatch):
            raise ValueError("`issue` needs `schedule` or `dispatch`")
        return self


class Reap(_Job):
    """The workflow file that deletes leftover remote resources."""

    schedule: Annotated[str, StringConstraints(pattern=_CRON)] = Field(
        default="47 * * * *", description="when to reap, as five fields of cron in UTC"
    )
    older_than: AnyWholeSeconds | None = Field(
        default=None,
        ge=60,
        le=_MAX_SECONDS,
        description="delete all resources of this age (in seconds) or older; default: the resources whose time to live "
        "has ended",
    )


class Rule(_Model):
    """When a run without a comment selects an entry: all conditions are met. `*` and `?` match any characters."""

    job: Line | list[Line] = Field(default=[], description="patterns for the name of the job in the CI system")
    host: Line | list[Line] = Field(default=[], description="patterns for the name of this machine")
    api_server: Line | list[Line] = Field(
        default=[], description="patterns for the URL of the API server of the current kubeconfig"
    )

    @property
    def conditions(self) -> dict[str, list[str]]:
        """The patterns of each condition; one of them must match."""
        fields = {"job": self.job, "host": self.host, "api_server": self.api_server}
        return {name: [value] if isinstance(value, str) else value for name, value in fields.items() if value}

    @model_validator(mode="after")
    def _has_conditions(self) -> Self:
        if not self.conditions:
            raise ValueError("needs a condition: job, host or api_server")
        return self


class NamedJob(_Model):
    """A job that a comment starts by its name (`/test JOB PROJECT`), and any other run by `--job` or by its rule."""

    presets: list[Preset] = Field(default=[], description="the presets of the job")
    target: Line | None = Field(default=None, description="the target of the job, which replaces `matrix.target`")
    when: Rule | None = Field(default=None, description="when runs without a comment select the job by themselves")


class NamedCluster(_Model):
    """A cluster or a platform that `/cluster NAME` of a comment selects, `--cluster`, or its rule."""

    presets: Annotated[list[Preset], Field(min_length=1)] = Field(description="the presets that select the cluster")
    when: Rule | None = Field(default=None, description="when runs without a comment select the cluster by themselves")


class CommentersBlock(_Model):
    """Whose comments may start runs."""

    write_access: bool = Field(default=True, description="people who may push to the repository")
    teams: list[Annotated[str, StringConstraints(pattern=r"^\w[\w.-]*(/\w[\w.-]*)*$", max_length=200)]] = Field(
        default=[], description="the members of these teams: `ORGANIZATION/TEAM` on GitHub, groups on GitLab"
    )
    owners_file: Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*(/[\w-][\w.-]*)*$", max_length=200)] | None = (
        Field(default=None, description="the approvers and reviewers in this OWNERS file of the base branch")
    )
    members_token: Variable | None = Field(
        default=None, description="the name of the secret of GitHub with a token that can read the members of `teams`"
    )

    @model_validator(mode="after")
    def _has_a_rule(self) -> Self:
        if not (self.write_access or self.teams or self.owners_file):
            raise ValueError("no account may start runs: add `write_access: true`, `teams` or `owners_file`")
        return self


class AllowedFiles(_Model):
    """Files whose texts look like secrets and are harmless."""

    files: Line = Field(description="a pattern for the paths of files, relative to the run directory")
    reason: Line = Field(description="why the texts are harmless; the index of the exports shows the reason")


class Export(_Model):
    """How runs are exported."""

    allow: list[AllowedFiles] = Field(
        default=[], description="the files that are exported although they look as if they had a secret"
    )


class Contract(OpenBlock):
    """The block `ci`. Other fields belong to the project."""

    overridable: list[Annotated[str, AfterValidator(_is_pattern)]] = Field(
        default=[], description="patterns of the paths that `/var` of a comment may change; see docs/configuration.md"
    )
    named_jobs: dict[Name, NamedJob] = Field(
        default={}, alias="jobs", description="the jobs that `/test JOB PROJECT` of a comment may start, by name"
    )
    clusters: dict[Name, NamedCluster] = Field(
        default={}, description="the clusters that `/cluster NAME` of a comment may select, by name"
    )
    commenters: CommentersBlock = CommentersBlock()
    read_description: bool = Field(
        default=False,
        description="whether the commands from /var to /cluster in the description of a pull request apply to every "
        "/test in its comments",
    )
    github: GitHub = GitHub()
    workflows: dict[WorkflowName, Workflow] = Field(default={}, description="the workflow files by name")
    export: Export = Export()
    reap: Reap | None = Field(default=None, description="the workflow file that deletes leftover resources")

    @property
    def jobs(self) -> list[Workflow | Reap]:
        """The workflows and, if there is one, the reaper."""
        return [*self.workflows.values(), *([self.reap] if self.reap else [])]

    @property
    def allowed_commenters(self) -> Commenters:
        """Whose comments may start runs, as the adapters of forges need it."""
        block = self.commenters
        return Commenters(block.write_access, tuple(block.teams), block.owners_file)

    @field_validator("named_jobs", "clusters", "commenters", "export", "github", "workflows", mode="before")
    @classmethod
    def _null_is_default(cls, value: Any) -> Any:
        return {} if value is None else value

    @model_validator(mode="after")
    def _has_distinct_files(self) -> Self:
        if "reap" in self.workflows:
            raise ValueError("`reap` is not a name of a workflow: the field `ci.reap` describes this workflow file")
        if len(commented := [name for name, item in self.workflows.items() if item.comment]) > 1:
            raise ValueError(f"only one workflow may have `comment`, but there are {' and '.join(commented)}")
        results = [item.result_labels for item in self.workflows.values() if item.result_labels]
        labels_used = {label.lower() for each in results for label in (each.passed, each.failed)}
        if started := [name for name, item in self.workflows.items() if (item.label or "").lower() in labels_used]:
            raise ValueError(f"a label of `result_labels` must not start a workflow, but it is `label` of {started[0]}")
        longest = max((item.timeout for item in self.workflows.values()), default=0) + OVERTIME_SECONDS
        if self.reap is not None and self.reap.older_than is not None and self.reap.older_than < longest:
            raise ValueError(
                f"`reap.older_than` must be at least {longest} (the longest `timeout` plus {OVERTIME_SECONDS} s for "
                "cleaning up): otherwise, the reaper would delete the resources of runs that are being executed"
            )
        return self
