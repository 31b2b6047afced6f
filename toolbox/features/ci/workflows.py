"""Writes the workflow files of GitHub Actions for a project, from the block `ci` of its configuration.

`ci workflows` calls this module. The text of the files is in `templates/`. The files contain short scripts, which call
toolbox commands. No script contains a GitHub expression (`${{ }}`): GitHub would insert the value into the script
before a shell reads the script, so a value such as the name of a branch could contain commands. Scripts read all values
from environment variables.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jinja2

from toolbox.config.contracts.ci import (
    ENVIRONMENT_VARIABLE,
    MAX_SHARDS,
    OVERTIME_SECONDS,
    Contract,
    GitHub,
    Reap,
    Workflow,
)
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import InfrastructureError, UsageError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.system import environ, filesystem

_TEMPLATES: Final = Path(__file__).parent / "templates"
# The commits of the releases in the second words. Update both words together.
ACTIONS: Final = {
    "actions/checkout": "de0fac2e4500dabe0009e67214ff5f5447ce83dd v6.0.2",
    "actions/setup-python": "a309ff8b426b58ec0e2a45f0f869d46889d02405 v6.2.0",
    "actions/upload-artifact": "b7c566a772e6b6bfb58ed0dc250532a479d7789f v6.0.0",
    "actions/download-artifact": "37930b1c2abaa49bbe596cd826c3c89aef350131 v7.0.0",
    "google-github-actions/auth": "7c6bc770dae815cd3e89ee6cdf493a5fab2cc093 v3.0.0",
}
_SCHEDULED: Final = "github.event_name == 'schedule'"
_DEFAULT_BRANCH: Final = "github.ref_name == github.event.repository.default_branch"
_PROJECT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
_READABLE: Final = 0o644  # other programs, such as git and editors of other users, read the files
_LONGEST_FILE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Differences:
    """How the files on the disk differ from the files that would be written.

    Args:
        written: the new texts of files that are missing or different, by path.
        removed: the generated files of workflows that the configuration no longer has.
    """

    written: Mapping[Path, str]
    removed: tuple[Path, ...]

    def __bool__(self) -> bool:
        """Return whether there is a difference."""
        return bool(self.written or self.removed)


def shards_of(workflow: Workflow, shards: int | None) -> int:
    """Return among how many jobs a workflow divides the cells of a run.

    Args:
        shards: the number for the workflows that have no number of their own; None for 1.
    """
    return workflow.shards or shards or 1


def render(
    project: str, block: Contract, *, secrets_variable: str | None = None, shards: int | None = None
) -> dict[str, str]:
    """Return the texts of the workflow files of a project, by file name.

    Args:
        secrets_variable: the environment variable that names the directory of secrets; None if the project has none.
        shards: the number of shards of the workflows that have no number of their own; None for 1.

    Raises:
        UsageError: the block describes no workflow, names an unknown action, or has secret files without a directory;
            or there are too many shards.
    """
    if shards is not None and shards > MAX_SHARDS:
        raise UsageError(f"--shards={shards}: GitHub starts at most {MAX_SHARDS} jobs of a matrix")
    if not _PROJECT.fullmatch(project):
        raise UsageError(f"`{project}` cannot be in the name of a workflow file: use letters, digits, `_`, `-` and `.`")
    if not block.workflows and block.reap is None:
        raise UsageError(
            f"config/{project}.yaml describes no workflow files: add `ci: {{workflows: {{NAME: {{schedule: ...}}}}}}`\n"
            "  docs/ci_workflows.md describes the fields"
        )
    for name in block.github.actions:
        if name not in ACTIONS:
            raise UsageError(
                f"ci.github.actions: unknown action `{name}`: {did_you_mean(name, ACTIONS, label='actions')}"
            )
    if any(job.secret_files for job in block.jobs) and not re.fullmatch(ENVIRONMENT_VARIABLE, secrets_variable or ""):
        raise UsageError(
            f"config/{project}.yaml: `secret_files` needs a variable for the directory of secrets:\n"
            "  add `secrets: {dir: {env_key: NAME}}` with a name of A-Z, 0-9 and _"
        )
    environment = _environment(project, block.github)
    environment.globals.update(
        secrets_variable=secrets_variable,
        members_token=block.commenters.members_token,
        flag=f" --shards={shards}" if shards is not None else "",
    )
    template = environment.get_template("workflow.yml.j2")
    texts = {
        f"{project}-{name}.yml": template.render(_values(name, workflow, project, shards_of(workflow, shards)))
        for name, workflow in block.workflows.items()
    }
    if block.reap is not None:
        texts[f"{project}-reap.yml"] = environment.get_template("reap.yml.j2").render(_reap_values(block.reap))
    return texts


def compare(texts: Mapping[str, str], folder: Path, project: str) -> Differences:
    """Return how the workflow files in a folder differ from their texts.

    Only files whose first line says that they were generated for the project are removed.
    """
    written = {folder / name: text for name, text in texts.items() if _read(folder / name) != text}
    others = sorted(path for path in folder.glob(f"{project}-*.yml") if path.name not in texts)
    return Differences(written, tuple(path for path in others if _is_generated(path, project)))


def refuse_foreign_files(differences: Differences, project: str) -> None:
    """Raise if a file that would be replaced was not generated for the project.

    Raises:
        UsageError: the message names the file.
    """
    for path in differences.written:
        if path.is_symlink() or (path.exists() and not _is_generated(path, project)):
            raise UsageError(
                f"{path} exists, and was not generated for {project}: move it away, or rename the workflow"
            )


def apply(differences: Differences) -> list[str]:
    """Write and remove files, and return a line for each.

    Raises:
        InfrastructureError: a file cannot be written or removed.
    """
    lines = []
    try:
        for path, text in differences.written.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            filesystem.write_pieces(path, [text.encode()], mode=_READABLE)
            lines.append(f"wrote {path}")
        for path in differences.removed:
            path.unlink()
            lines.append(f"removed {path}")
    except OSError as error:
        raise InfrastructureError(f"cannot write the workflow files: {error}") from None
    return lines


def diff(differences: Differences) -> str:
    """Return the differences as a unified diff, from the files on the disk to the generated files."""
    new = {**differences.written, **dict.fromkeys(differences.removed, "")}
    return "".join(
        line if line.endswith("\n") else f"{line}\n"
        for path, text in new.items()
        for line in difflib.unified_diff(
            (_read(path) or "").splitlines(keepends=True),
            text.splitlines(keepends=True),
            str(path),
            f"{path} (generated)",
        )
    )


def _is_generated(path: Path, project: str) -> bool:
    first = (_read(path) or "").partition("\n")[0]
    command = rf" ci workflows {re.escape(project)}( --shards=\d+)?` "
    return first.startswith("# Generated by `") and re.search(command, first) is not None


def _read(path: Path) -> str | None:
    """Return the text of a file; None if the file is missing. A file that is not a generated text is an empty text."""
    try:
        if path.is_symlink() or path.stat().st_size > _LONGEST_FILE:
            return ""
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        return ""


def _environment(project: str, github: GitHub) -> jinja2.Environment:
    environment = jinja2.Environment(  # noqa: S701  # the values are quoted for YAML and for a shell, not for HTML
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        block_start_string="[%",
        block_end_string="%]",
        variable_start_string="[[",
        variable_end_string="]]",
        comment_start_string="[#",
        comment_end_string="#]",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(quoted=_quoted, flow=_flow)
    environment.globals.update(
        project=project,
        github=github,
        command=github.command,
        action=lambda name: _action(name, github.actions.get(name, ACTIONS[name])),
    )
    return environment


def _values(name: str, workflow: Workflow, project: str, shards: int) -> dict[str, Any]:
    """Return the variables of the template for one workflow."""
    ref, why = _checkout(workflow)
    variables = {"REVISION": _revision(workflow)} if workflow.revision else {}
    variables |= {"SHARD": "matrix.shard"} if shards > 1 else {}
    writing = {"GH_TOKEN": "github.token"} if workflow.progress else {}
    return {
        "name": name,
        "workflow": workflow,
        "minutes": math.ceil(workflow.timeout / 60),
        "overtime": OVERTIME_SECONDS // 60,
        "condition": _condition(workflow),
        "group": _first_of(
            workflow,
            comment="github.event.issue.number",
            pull_request="github.event.pull_request.number",
            other="github.ref",
        ),
        "ref": ref,
        "why": why,
        "merging_ref": ref if workflow.pull_request else _base(workflow),
        "shards": shards,
        "variables": {**variables, environ.RESULTS_BASELINE: " || ".join(_on_default_branch(workflow))},
        "comment_variables": {**variables, "RETEST": "needs.gate.outputs.retest", **writing},
        "write_revision": _write_revision(workflow.revision or ""),
        "flags": " ".join(_flags(workflow, shards)),
        "comment_shard": "".join(f" {flag}" for flag in _shard(shards)),
        "clean_up": " ".join(["resources", "reap", project, *_presets(workflow.presets)]),
        "issue_triggers": _issue_triggers(schedule=workflow.schedule is not None, dispatch=workflow.dispatch),
    }


def _reap_values(reap: Reap) -> dict[str, Any]:
    age = [f"--older_than={reap.older_than}s"] if reap.older_than is not None else []
    flags = "".join(f" {flag}" for flag in [*_presets(reap.presets), *age])
    return {"reap": reap, "flags": flags, "issue_triggers": _issue_triggers(schedule=True, dispatch=True)}


def _condition(workflow: Workflow) -> list[str]:
    """Return the lines of the condition of the job `run`; no line if each event of the workflow starts the job."""
    if not (workflow.label or workflow.comment):
        return []
    events = {"schedule": workflow.schedule, "workflow_dispatch": workflow.dispatch, "push": workflow.push}
    parts = [f"github.event_name == '{event}'" for event, is_used in events.items() if is_used]
    if workflow.label:
        label = workflow.label.replace("'", "''")
        parts.append(
            f"github.event.label.name == '{label}'\n"
            "      && github.event.pull_request.head.repo.full_name == github.repository"
        )
    if workflow.comment:
        # A runner also takes outputs from commands in the log of a step, where the comment may be quoted.
        parts.append("needs.gate.result == 'success' && needs.gate.outputs.revision != ''")
    first, *others = parts
    lines = [first, *(f"|| {part}" for part in others)]
    # Without a status function such as `cancelled`, GitHub skips a job if a job that it needs was skipped.
    return ["!cancelled() && (", *lines, ")"] if workflow.comment else lines


def _first_of(workflow: Workflow, *, comment: str, pull_request: str, other: str) -> str:
    """Return an expression for the value of the event that started the workflow. Values of other events are empty."""
    is_pull_request = workflow.pull_request or workflow.label is not None
    return " || ".join([*([comment] * workflow.comment), *([pull_request] * is_pull_request), other])


def _revision(workflow: Workflow) -> str:
    """Return the expression of the tested revision, which was pinned when the workflow was triggered."""
    return _first_of(
        workflow,
        comment="needs.gate.outputs.revision",
        pull_request="github.event.pull_request.head.sha",
        other="github.sha",
    )


def _checkout(workflow: Workflow) -> tuple[str, str]:
    """Return the expression of the revision to check out, and a comment for the reader of the file."""
    if workflow.revision is None or workflow.pull_request:
        return _revision(workflow), ""
    if workflow.label:
        return (
            _base(workflow),
            "The default branch as it is now. No code of the pull request, old or new, gets credentials.",
        )
    why = "The default branch. The code of the pull request gets no credentials." if workflow.comment else ""
    return "github.sha", why


def _base(workflow: Workflow) -> str:
    """Return the expression of a revision that has no code of a pull request.

    The base of a pull request may be as old as the pull request, so an old pull request would run an old configuration
    with credentials. The author of the pull request also chooses the base branch.
    """
    if not workflow.label:
        return "github.sha"
    return "github.event_name == 'pull_request' && github.event.repository.default_branch || github.sha"


def _flags(workflow: Workflow, shards: int) -> Iterator[str]:
    yield from _presets(workflow.presets)
    yield from _shard(shards)
    yield f"--deadline={workflow.timeout}"
    if workflow.revision:
        yield '--overrides="$RUNNER_TEMP/revision.yaml"'


def _shard(shards: int) -> list[str]:
    return [f'--shard="$SHARD/{shards}"'] if shards > 1 else []


def _presets(presets: list[str]) -> list[str]:
    return [f"--presets={shlex.quote(','.join(presets))}"] if presets else []


def _write_revision(field: str) -> str:
    key = shlex.quote(json.dumps(field))
    return f"""printf "%s: '%s'\\n" {key} "$REVISION" >"$RUNNER_TEMP/revision.yaml\""""


def _on_default_branch(workflow: Workflow) -> list[str]:
    """Return the conditions under which a run tests the default branch. Scheduled runs always test this branch."""
    others = workflow.dispatch or workflow.push or workflow.pull_request or workflow.label
    return [*([_SCHEDULED] * bool(workflow.schedule)), *([_DEFAULT_BRANCH] * bool(others))]


def _issue_triggers(*, schedule: bool, dispatch: bool) -> list[str]:
    """Return the conditions under which a run changes the issue: only runs of the default branch do."""
    on_default = f"github.event_name == 'workflow_dispatch' && {_DEFAULT_BRANCH}"
    return [*([_SCHEDULED] * schedule), *([on_default] * dispatch)]


def _action(name: str, version: str) -> str:
    """Return the reference to an action, with the version of a pinned commit as a comment."""
    commit, _, words = version.partition(" ")
    return f"{name}@{commit}" + (f" # {words}" if words else "")


def _quoted(text: str) -> str:
    """Return a text as a double-quoted scalar of YAML. JSON strings are such scalars."""
    return json.dumps(text, ensure_ascii=False)


def _flow(value: str | list[str]) -> str:
    """Return a text, or a list of texts, on one line of YAML."""
    return yaml_text.dump_line(value) if isinstance(value, str) else f"[{', '.join(map(_quoted, value))}]"
