"""Parse the slash commands of a comment on a pull request, and run them."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Literal

from toolbox.ci import slash
from toolbox.ci.slash import CommentRequest
from toolbox.commands import _invoke, _project_run
from toolbox.interface.options import ArtifactDir, Format, SummaryFormat
from toolbox.model.errors import UsageError
from toolbox.orchestration import project_run, projects, request
from toolbox.orchestration.request import RunRequest
from toolbox.runs.layout import RunDirectory


class Ci:
    """Parse the slash commands of a comment on a pull request, and run them."""

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
        artifact_dir: ArtifactDir = None,
        format: SummaryFormat = "text",  # noqa: A002
    ) -> int | str:
        """
        Run the project that a comment requests.

        The overrides of the comment are saved in the run directory, in a file that --overrides can read.

        Args:
            text: the text of the comment. `ci parse` shows what a comment requests.
        """
        comment = slash.parse(text)
        if comment.help:
            return slash.HELP
        if comment.project is None:
            raise UsageError("the comment does not request a run: add `/test PROJECT [PRESET ...]`")
        execute = partial(project_run.execute, _request(comment, artifact_dir))
        return _project_run.run_and_show(execute, as_json=format == "json")


def _request(comment: CommentRequest, artifact_dir: Path | None) -> RunRequest:
    """Return the request for a run after checking that the project, its phases, presets and fields exist."""
    project = comment.project or ""
    available = projects.phases(projects.find(project))
    phases = list(comment.only) or [name for name in available if name not in comment.skip]
    projects.select(available, [*comment.skip, *phases])
    run_request = RunRequest(
        project,
        comment.presets,
        overrides=comment.overrides,
        is_from_outside=True,
        phases=phases,
        artifact_dir=artifact_dir,
        note={RunDirectory.overrides: comment.overrides} if comment.overrides else {},
    )
    request.configure(run_request)
    return run_request
