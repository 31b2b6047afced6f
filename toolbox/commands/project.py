"""List projects, run them, and see how a run stands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

from toolbox.commands import _project_run
from toolbox.config import overrides as overrides_text
from toolbox.orchestration import projects
from toolbox.orchestration.project_run import RunRequest
from toolbox.reports import terminal
from toolbox.runs import summary
from toolbox.system import places

Format = Literal["text", "json"]


class Project:
    """List projects, run them, and see how a run stands."""

    def list(self, *, format: Format = "text") -> str:  # noqa: A002  # the words of the command line
        """
        List the projects and what they are for.

        Args:
            format: how to print it.
        """
        found = [projects.find(name) for name in places.projects()]
        if format == "json":
            return json.dumps([{"name": item.name, "summary": item.summary} for item in found], indent=2)
        width = max((len(item.name) for item in found), default=0)
        return "\n".join(f"{item.name:<{width}}  {item.summary}" for item in found)

    def run(
        self,
        name: str,
        *,
        presets: list[str] | None = None,
        overrides: str | None = None,
        phases: list[str] | None = None,
        artifact_dir: Path | None = None,
        format: Format = "text",  # noqa: A002  # the flag of the command line
    ) -> int:
        """
        Run a project: pre_cleanup, prepare, test, post_cleanup. The exit code is that of its verdict.

        Args:
            name: the project.
            presets: presets to apply, in their order.
            overrides: a mapping from paths to values, or files that hold one; they go before presets.
            phases: the phases to run; all of them when left out.
            artifact_dir: where runs go; $ARTIFACT_DIR, or artifacts/, when left out.
            format: with json, the summary goes to stdout and all else to stderr.
        """
        files, values = overrides_text.parse(overrides)
        request = RunRequest(name, presets or (), files, values, phases, artifact_dir)
        return _project_run.execute(request, as_json=format == "json")

    def status(self, run_dir: Path, *, format: Format = "text") -> str | None:  # noqa: A002
        """
        Say how a run stands or how it ended, from its journal, without disturbing it.

        Args:
            run_dir: the directory of the run.
            format: how to print it.
        """
        found = summary.derive(run_dir)
        if format == "json":
            return json.dumps(found.as_json(), indent=2, ensure_ascii=False)
        with terminal.view(sys.stdout) as view:
            view.table(found)
        return None
