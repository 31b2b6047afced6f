"""The project `team`, which works on a cluster or a machine that other repositories use too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolbox.testing import Outcome, Running, Workspace

ORCHESTRATION = '''
    """Writes what it does, and waits while the file `hold` is there."""
    from toolbox.orchestration import clusters, config, run


    def prepare():
        for command in config.project.get_config("prepare"):
            run.run(command, env={"KUBECONFIG": clusters.access("sut").kubeconfig or ""})


    def test():
        run.run("echo begin >>lines; while [ -e hold ]; do sleep 0.02; done; echo end >>lines")


    def post_cleanup():
        run.run("echo cleanup >>lines")
        for command in config.project.get_config("cleanup"):
            run.run(command, env={"KUBECONFIG": clusters.access("sut").kubeconfig or ""})
'''


@dataclass
class Team:
    """A project in a repository of its own."""

    workspace: Workspace

    @classmethod
    def of(cls, directory: Path) -> Team:
        """Make the repository in a directory."""
        files = {"projects/team/orchestration.py": ORCHESTRATION, "command_args/team.yaml.j2": ""}
        return cls(Workspace(directory, files))

    @property
    def lines(self) -> list[str]:
        """Words that the phases have written: `begin`, `end` and `cleanup`."""
        file = self.workspace.directory / "lines"
        return file.read_text().split() if file.exists() else []

    def configure(self, cluster: dict[str, Any], *, name: str = "sut", **fields: Any) -> Team:
        """Write the configuration, in which the cluster or machine has the name `name`."""
        config = {"prepare": [], "cleanup": [], **fields, "clusters": {name: cluster, **fields.get("clusters", {})}}
        self.workspace.write({"config/team.yaml": json.dumps(config)})
        return self

    def hold(self) -> Team:
        """Make the phase `test` wait until `let_go`."""
        (self.workspace.directory / "hold").touch()
        return self

    def let_go(self) -> None:
        """Let the phase `test` continue."""
        (self.workspace.directory / "hold").unlink()

    def start(self) -> Running:
        return self.workspace.start("project", "run", "team")

    def run(self, *flags: str) -> Outcome:
        return self.workspace.run("project", "run", "team", *flags)

    def resume(self) -> Running:
        return self.workspace.start("project", "resume", str(self.workspace.run_directory()))

    def status(self) -> str:
        """Return the output of `project status` for the only run."""
        return self.workspace.run("project", "status", str(self.workspace.run_directory())).stdout
