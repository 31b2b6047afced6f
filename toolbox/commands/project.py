"""List projects, run them, and see how a run stands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

from toolbox.commands import _project_run
from toolbox.config import overrides as overrides_text
from toolbox.model.errors import UsageError
from toolbox.orchestration import projects, session
from toolbox.orchestration.project_run import RunRequest
from toolbox.reports import terminal
from toolbox.runs import journal, summary
from toolbox.runs.summary import State
from toolbox.system import environ, places, processes

Format = Literal["text", "json"]
# In the class, `list` is the command.
Names = list[str]


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
        presets: Names | None = None,
        overrides: str | None = None,
        phases: Names | None = None,
        artifact_dir: Path | None = None,
        format: Format = "text",  # noqa: A002  # the flag of the command line
    ) -> int:
        """
        Run a project: pre_cleanup, prepare, test, post_cleanup. The exit code is that of its verdict.

        Args:
            name: the project.
            presets: presets to apply, in their order.
            overrides: a mapping from paths to values, or files that hold one; they win over presets.
            phases: the phases to run; all of them when left out.
            artifact_dir: where runs go; $ARTIFACT_DIR, or artifacts/, when left out.
            format: with json, the summary goes to stdout and all else to stderr.
        """
        files, values = overrides_text.parse(overrides)
        request = RunRequest(name, presets or (), files, values, phases=phases, artifact_dir=artifact_dir)
        return _project_run.execute(request, as_json=format == "json")

    def status(self, run_dir: Path | None = None, *, format: Format = "text") -> str | None:  # noqa: A002
        """
        Say how a run stands or how it ended, from its journal, without disturbing it.

        Args:
            run_dir: the directory of the run; the newest in $ARTIFACT_DIR, or artifacts/, when left out.
            format: how to print it.
        """
        found = summary.derive(run_dir or _newest_run())
        if format == "json":
            return json.dumps(found.as_json(), indent=2, ensure_ascii=False)
        with terminal.view(sys.stdout) as view:
            view.table(found)
            if found.state is State.DEAD and (alive := processes.marked(found.directory)):
                view.line(f"processes of it are alive: {' '.join(map(str, alive))} (kill ends them)", style="bold")
        return None


def _newest_run() -> Path:
    base = environ.get_path(environ.ARTIFACT_DIR) or session.DEFAULT_ARTIFACTS
    runs = sorted(base.glob(f"*/*/{journal.FILE}"), key=lambda file: file.parent.name)
    if not runs:
        raise UsageError(f"there is no run in {base}: name the directory of one")
    return runs[-1].parent
