"""The project `grid` with cells that are Jobs in a namespace of a real cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.features.kubernetes.servers.kubernetes import Cluster
from tests.functional.grid import Grid, wait
from toolbox.testing import Workspace

TIMEOUT: Final = 240.0  # seconds, for a run on a busy machine
# A cell records how many lines it has printed, so that a test can check its log.
COMMAND: Final = """
    echo begin {@cell.x} >>{@root}/cells
    n=0
    while [ -e {@root}/hold-{@cell.x} ]; do echo line $n; n=$((n+1)); sleep 0.05; done
    echo line $n; echo $n >{@root}/lines-{@cell.x}
    echo end {@cell.x} >>{@root}/cells
    [ ! -e {@root}/fail-{@cell.x} ]
"""


@dataclass
class PodGrid:
    """The project in a workspace, with the cluster and the namespace of its Jobs.

    Args:
        kubeconfig: kubeconfig with which the run reaches the cluster.
    """

    grid: Grid
    cluster: Cluster
    namespace: str
    kubeconfig: Path

    def configure(self, x: str = "abc", *, pod: dict[str, Any] | None = None, **matrix: Any) -> Grid:
        """Write the configuration. Cells run on the target `there`, unless the matrix names another target.

        Args:
            x: values of the axis, one per letter.
            pod: further fields of the pods, besides the Python of this machine.
            matrix: further keys of the matrix. `targets` holds further targets.
        """
        shared = {**self.cluster.pod_python(self.grid.root), **(pod or {})}
        there = {
            "backend": "kubernetes",
            "kubeconfig": str(self.kubeconfig),
            "namespace": self.namespace,
            "pod": shared,
        }
        targets = {"there": there, **matrix.pop("targets", {})}
        block = {
            "target": "there",
            "jobs": len(x),
            "workload": {"command": COMMAND, "sample_seconds": None, "collect": []},
            "timeouts": {"wait": 120, "run": 300},
            "retries": {"infrastructure": 0, "capacity": 0},
            **matrix,
        }
        return self.grid.configure(x, blocks={"targets": targets}, **block)

    def left(self) -> list[str]:
        """Return the objects of the run that remain in the namespace after Kubernetes had time to delete them."""
        deadline = time.monotonic() + TIMEOUT / 2
        selector = f"topgallant.dev/run={self.grid.directory.name}"
        while (found := self.cluster.things(self.namespace, selector)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def check_logs(self, *cells: str) -> None:
        """Check that the saved logs of these ended cells contain all lines that the cells have printed."""
        for cell in cells:
            (log,) = self.grid.directory.glob(f"*__test/*__x={cell}/attempt-*/stdout.log")
            count = int((self.grid.root / f"lines-{cell}").read_text())
            assert log.read_text() == "".join(f"line {number}\n" for number in range(count + 1))

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until the journal of the run contains a text at least `times` times."""
        journal = self.grid.directory / "journal.jsonl"
        wait(lambda: journal.read_text().count(text) >= times, f"{text!r} in the journal")

    def step(self, cell: str) -> dict[str, Any]:
        """Return the step of a cell in the summary."""
        steps = self.grid.workspace.summary()["steps"]
        found: dict[str, Any] = next(step for step in steps if step["kind"] == "cell" and step["name"] == f"x={cell}")
        return found

    def pod_of(self, cell: str) -> str:
        """Return the name of the pod of a cell."""
        for pod in self.cluster.core.list_namespaced_pod(self.namespace).items:
            main = next(each for each in pod.spec.containers if each.name == "workload")
            if any(f"begin {cell} " in word for word in main.args) and pod.metadata.deletion_timestamp is None:
                return str(pod.metadata.name)
        raise AssertionError(f"{cell} has no pod")


@contextmanager
def opened(cluster: Cluster, workspace: Workspace) -> Iterator[PodGrid]:
    """Yield the project with a new namespace for its Jobs."""
    with cluster.namespace() as namespace:
        yield PodGrid(Grid(workspace), cluster, namespace, cluster.kubeconfig)
