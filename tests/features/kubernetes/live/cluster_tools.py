"""Runs the toolbox commands for clusters on the cluster of the tests, by the real command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from toolbox.testing import Outcome, Workspace

OURS = {"app.kubernetes.io/managed-by": "topgallant"}


class Tools:
    """Runs Topgallant commands with KUBECONFIG set to the kubeconfig of the cluster, and checks whether they fail.

    Args:
        kubeconfig: kubeconfig of the cluster.
    """

    def __init__(self, workspace: Workspace, kubeconfig: Path) -> None:
        self.workspace = workspace
        self.env = {"KUBECONFIG": str(kubeconfig)}

    def __call__(self, *argv: str, fails: bool = False, env: Mapping[str, str] | None = None) -> Outcome:
        outcome = self.workspace.run(*argv, env={**self.env, **(env or {})})
        assert (outcome.exit_code != 0) == fails, str(outcome)
        return outcome

    @property
    def step(self) -> Path:
        """Directory of the last step."""
        return max(self.workspace.artifacts.glob("toolbox/*__*"))

    @property
    def failure(self) -> str:
        """Failure message of the last step."""
        return (self.step / "FAILURE").read_text()

    def kept(self, name: str) -> Any:
        """Return the parsed content of a JSON or YAML file of the last step."""
        text = (self.step / name).read_text()
        return json.loads(text) if name.endswith(".json") else list(yaml.safe_load_all(text))


def changed(outcome: Outcome) -> list[str]:
    """Return the names of the tasks that changed something other than files of the step."""
    lines = [line.split() for line in outcome.stdout.splitlines()]
    return [" ".join(line[1:-2]) for line in lines if line[:1] == ["changed"] and line[1] not in ("Write", "Save")]
