"""Requirements for every role that uses modules for clusters."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.conformance.test_commands import ROLES, UnsafeLoader, each_role, tasks
from toolbox.features.kubernetes import library as modules

MODULES = {path.stem for path in Path(modules.__file__).parent.glob("[!_]*.py")}


@each_role
def test_a_role_passes_the_cluster_to_each_module_for_clusters(name: str) -> None:
    access = {option: f"{{{{ {name}_{option} | default(omit, true) }}}}" for option in ("kubeconfig", "context")}
    for file in sorted((ROLES[name] / "tasks").glob("*.yml")):
        for task in tasks(yaml.load(file.read_text(encoding="utf-8"), Loader=UnsafeLoader)):
            for module in MODULES & task.keys():
                assert task[module].items() >= access.items(), task


def test_there_are_modules() -> None:
    assert len(MODULES) > 5
