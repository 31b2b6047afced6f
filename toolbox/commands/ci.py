"""Parse and run what a comment on a pull request asks for."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

from toolbox.ci import slash
from toolbox.ci.slash import Asked
from toolbox.commands import _project_run
from toolbox.interface.options import ArtifactDir, Format, SummaryFormat
from toolbox.model.errors import UsageError
from toolbox.orchestration import project_run, projects, request
from toolbox.orchestration.request import RunRequest
from toolbox.runs.layout import RunDirectory
from toolbox.system import filesystem


class Ci:
    """Parse and run what a comment on a pull request asks for."""

    def parse(self, text: str, *, format: Format[Literal["yaml", "json"]] = "yaml") -> str:  # noqa: A002
        """
        Print what a comment asks for, and run nothing. What is unknown is refused.

        Args:
            text: the text of the comment, with lines such as /test PROJECT [PRESET ...], /var PATH: VALUE, /skip PHASE
                ..., /only PHASE ... or /help.
        """
        asked = slash.parse(text)
        if asked.project is not None:
            _request(asked, None)
        understood = asdict(asked)
        if asked.help:
            understood["help"] = slash.HELP
        return (
            json.dumps(understood, indent=2, default=list)
            if format == "json"
            else filesystem.dump_yaml(_lists(understood)).rstrip()
        )

    def run(
        self,
        text: str,
        *,
        artifact_dir: ArtifactDir = None,
        format: SummaryFormat = "text",  # noqa: A002
    ) -> int | str:
        """
        Run what a comment asks for. The run directory keeps the overrides of the comment in a file for --overrides.

        Args:
            text: the text of the comment; `ci parse` shows how it is understood.
        """
        asked = slash.parse(text)
        if asked.help:
            return slash.HELP
        if asked.project is None:
            raise UsageError("the comment does not request a run: add `/test PROJECT [PRESET ...]`")
        execute = partial(project_run.execute, _request(asked, artifact_dir))
        return _project_run.shown(execute, as_json=format == "json")


def _request(asked: Asked, artifact_dir: Path | None) -> RunRequest:
    """Return the request of a run, after a look at whether all that it names is there."""
    project = asked.project or ""
    available = projects.phases(projects.find(project))
    named = list(asked.only) or [name for name in available if name not in asked.skip]
    projects.select(available, [*asked.skip, *named])
    wanted = RunRequest(
        project,
        asked.presets,
        overrides=asked.overrides,
        overrides_source="/var",
        is_from_outside=True,
        phases=named,
        artifact_dir=artifact_dir,
        note={RunDirectory.overrides: asked.overrides} if asked.overrides else {},
    )
    request.configure(wanted)
    return wanted


def _lists(value: dict[str, Any]) -> dict[str, Any]:
    return {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}
