"""Counts what runs lose or leave behind when they are disturbed.

In each round, a run has 8 cells that sleep for a second, and one of them fails. At a random moment after the start of
the fourth cell, the orchestrator gets a signal, or the SSH server is killed and started again. Then the run is resumed.
The score counts lost results, finished cells that were executed again, cells that two attempts executed completely,
processes that are still alive, and attempts left on the targets. All counts must be 0. On Kubernetes (the cluster of
TOPGALLANT_TEST_KUBECONFIG), any object of the run in its namespace counts as left.

On `tpu_vm`, each cell creates and deletes a TPU of the test server, and the moment is at any time after the first
request. Each remaining TPU counts as left, and each name with two TPUs counts as created twice.

Arguments: the number of rounds (25), a seed (0 for a random seed), and the backends: `local ssh kubernetes tpu_vm`.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.features.kubernetes.servers import kubernetes  # importable because of `sys.path` above
from tests.features.tpu.servers import tpu  # importable because of `sys.path` above
from tests.servers import openssh  # importable because of `sys.path` above
from toolbox.ground.model.events import AttemptEnded
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import processes
from toolbox.records.runs import journal
from toolbox.testing import Running, Workspace

ROUNDS: Final = 25
CELLS: Final = 8
FAILING: Final = 3
_POLL_SECONDS: Final = 0.01
_LONGEST_DELAY: Final = 2.5  # the cells take 4 s, two at a time
_TIMEOUT_SECONDS: Final = 5.0
_CLUSTER_SECONDS: Final = 60.0  # a kubelet may take long to remove pods
_BACKENDS: Final = ("local", "ssh", "kubernetes", "tpu_vm")
_LONGEST_TPU_DELAY: Final = 15.0  # the cells take 20 s, two at a time
_DOWN_SECONDS: Final = 0.5

PROJECT = {
    "projects/sleepers/orchestration.py": '''
        """Cells that sleep a second; one fails."""

        from toolbox.orchestration import matrix


        def test() -> None:
            matrix.run()
    ''',
    "config/sleepers.yaml": """
        executed: null
        targets: {}
        matrix:
          axes: {cell: [0, 1, 2, 3, 4, 5, 6, 7]}
          jobs: 2
          target: local
          timeouts: {wait: 60}
          workload:
            command: >-
              echo "begin {@cell.cell}" >> {@executed}; sleep 1; echo "end {@cell.cell}" >> {@executed};
              test {@cell.cell} != 3
    """,
}


@dataclass
class Score:
    """The number of errors of each kind in all rounds."""

    lost: int = 0
    again: int = 0
    twice: int = 0
    alive: int = 0
    left: int = 0
    created_twice: int = 0

    def __str__(self) -> str:
        return (
            f"lost {self.lost}, executed again {self.again}, executed twice {self.twice}, alive {self.alive}, "
            f"left on targets {self.left}, created twice {self.created_twice}"
        )

    @property
    def is_clean(self) -> bool:
        """Whether there were no errors."""
        return not (self.lost or self.again or self.twice or self.alive or self.left or self.created_twice)


@dataclass
class Arena:
    """The workspace and the backend for the rounds.

    Args:
        env: additional environment variables.
        overrides: the overrides that make the cells run on the backend.
        server: the SSH server of the backend `ssh`.
        adopts: whether workloads continue to run when the run is disturbed, so that the resumed run adopts them.
        cluster: the cluster of the backend `kubernetes`.
        tpus: the server of the TPU API.
    """

    workspace: Workspace
    env: dict[str, str]
    overrides: str
    server: openssh.Server | None = None
    adopts: bool = True
    cluster: kubernetes.Cluster | None = None
    namespace: str = ""
    tpus: tpu.Server | None = None

    @property
    def executed(self) -> Path:
        """The file to which each cell writes a line when it begins and another line when it ends."""
        return self.workspace.directory / "executed"

    def play(self, disturb: Callable[[Running], object], score: Score) -> None:
        """Play one round."""
        self.executed.write_text("")
        overrides = f"--overrides={{executed: '{self.executed}', {self.overrides}}}"
        with self.workspace.start("project", "run", "sleepers", overrides, env=self.env) as running:
            while not self._is_under_way():
                time.sleep(_POLL_SECONDS)
            longest = _LONGEST_DELAY if self.tpus is None else _LONGEST_TPU_DELAY
            time.sleep(random.uniform(0, longest))  # noqa: S311
            disturb(running)
            running.wait()
        directory = self.workspace.runs()[-1]
        finished = {
            entry.event.step
            for entry in journal.read(directory)
            if isinstance(entry.event, AttemptEnded) and entry.event.verdict is not Verdict.CANCELLED
        }
        done = {step.rpartition("=")[2] for step in finished}
        began = self._counts("begin")
        outcome = self.workspace.run("project", "resume", str(directory), "--format=json", env=self.env)
        self._judge(outcome.json["steps"], began, done, score)

    def _is_under_way(self) -> bool:
        """Return whether the run may be disturbed now."""
        return self._counts("begin").total() >= CELLS / 2 if self.tpus is None else bool(self.tpus.nodes())

    def _judge(self, steps: list[dict[str, str]], began: Counter[str], done: Iterable[str], score: Score) -> None:
        verdicts = {step["name"].rpartition("=")[2]: step["verdict"] for step in steps if step["kind"] == "cell"}
        expected = {str(cell): "failed" if cell == FAILING else "passed" for cell in range(CELLS)}
        score.lost += sum(verdicts.get(cell) != verdict for cell, verdict in expected.items())
        after = self._counts("begin")
        # If the resumed run adopts workloads, no cell may begin twice. Otherwise, unfinished cells begin again.
        again = (
            [cell for cell in expected if after[cell] > 1] if self.adopts else [c for c in done if after[c] > began[c]]
        )
        score.again += len(again)
        score.twice += sum(count > 1 for count in self._counts("end").values())
        score.alive += len(self._alive())
        score.left += sum(1 for _ in self.workspace.directory.glob("far-*/*")) + len(self._objects_left())
        if self.tpus is not None:
            score.left += len(self.tpus.leftovers())
            run = self.workspace.runs()[-1].name
            names = Counter(record.name for record in self.tpus.history() if run in record.name)
            score.created_twice += sum(count > 1 for count in names.values())

    def _counts(self, word: str) -> Counter[str]:
        lines = (line.split() for line in self.executed.read_text().splitlines())
        return Counter(cell for first, cell in lines if first == word)

    def _objects_left(self) -> list[str]:
        """Return the objects of the run that are still in the cluster after the time for their removal."""
        if self.cluster is None:
            return []
        deadline = time.monotonic() + _CLUSTER_SECONDS
        while (objects := self.cluster.things(self.namespace)) and time.monotonic() < deadline:
            time.sleep(1)
        return objects

    def _alive(self) -> list[psutil.Process]:
        """Return the processes and SSH sessions of the workspace that are still alive after the timeout."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while (alive := self._processes()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return alive

    def _processes(self) -> list[psutil.Process]:
        marked = [psutil.Process(pid) for pid in processes.marked(self.workspace.directory)]
        return marked + (self.server.sessions() if self.server is not None else [])


def disturbances(server: openssh.Server | None) -> dict[str, Callable[[Running], object]]:
    """Return the ways to disturb a run, by name."""
    by_name: dict[str, Callable[[Running], object]] = {
        name: lambda running, number=number: running.send(number)  # type: ignore[misc]
        for name, number in (("SIGKILL", signal.SIGKILL), ("SIGINT", signal.SIGINT), ("SIGTERM", signal.SIGTERM))
    }
    if server is not None:
        by_name["server killed and started"] = lambda _: restart(server)
    return by_name


def restart(server: openssh.Server) -> None:
    """Kill the server and its sessions, and start the server again after a short time."""
    server.stop()
    time.sleep(_DOWN_SECONDS)
    server.start()


def server_here(directory: Path) -> openssh.Server | None:
    """Return an SSH server. If it cannot be started, print the reason and return None."""
    directory.mkdir()
    try:
        server = openssh.Server(directory)
        server.start()
    except openssh.ServerError as error:
        print(f"ssh is skipped: {error}")
        return None
    return server


def main() -> int:
    """Play all rounds, print the scores, and return 1 if there were errors."""
    try:
        arguments = [int(text) for text in sys.argv[1:3]]
    except ValueError:
        sys.exit(__doc__)
    rounds, seed = [*arguments, *(ROUNDS, 0)[len(arguments) :]]
    if rounds < 1:
        sys.exit("the number of rounds must be at least 1: without a round, all counts would be 0")
    backends = sys.argv[3:] or _BACKENDS
    random.seed(seed or None)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background of a shell would ignore it
    is_clean = True
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))  # paths of sockets must be short
        server = server_here(folder / "sshd") if "ssh" in backends else None
        if server is not None:
            stack.callback(server.stop)
        cluster = cluster_here(stack) if "kubernetes" in backends else None
        tpus = tpus_here(stack, folder) if "tpu_vm" in backends else None
        missing = {"ssh": server is None, "kubernetes": cluster is None, "tpu_vm": tpus is None}
        for backend in [backend for backend in backends if not missing.get(backend)]:
            for name, disturb in disturbances(server if backend == "ssh" else None).items():
                score = Score()
                for number in range(rounds):
                    workspace = Workspace(folder / f"{backend}-{name.split()[0]}-{number}", PROJECT)
                    with arena(workspace, backend, server, cluster, tpus) as played:
                        played.adopts = name not in {"SIGINT", "SIGTERM"}
                        played.play(disturb, score)
                print(f"{backend:<10} {name:<32} {rounds} rounds: {score}", flush=True)
                is_clean = is_clean and score.is_clean
    return 0 if is_clean else 1


def cluster_here(stack: ExitStack) -> kubernetes.Cluster | None:
    """Return a cluster. If there is none, print the reason and return None."""
    try:
        return stack.enter_context(kubernetes.cluster())
    except kubernetes.ClusterError as error:
        print(f"kubernetes is skipped: {error}")
        return None


def tpus_here(stack: ExitStack, folder: Path) -> tpu.Server | None:
    """Return a server of the TPU API. If it cannot be started, print the reason and return None."""
    timings = tpu.Timings(create=0.5, delete=0.5, boot=0.2)
    try:
        return stack.enter_context(tpu.Server(folder / "tpus", timings=timings, shared=folder))
    except openssh.ServerError as error:
        print(f"tpu_vm is skipped: {error}")
        return None


def on_tpus(workspace: Workspace, tpus: tpu.Server) -> Arena:
    """Return an arena in which each cell has its own TPU."""
    target = {
        "backend": "tpu_vm",
        "project": "my-project",
        "zone": "us-central1-a",
        "accelerator_type": "v5litepod-8",
        "runtime_version": "v2-alpha-tpuv5-lite",
        "api_endpoint": tpus.endpoint,
        "ssh": {"user": "root", "port": tpus.ssh_port},  # root, who may write to the file `executed`
    }
    return Arena(workspace, {}, f"matrix.target: tpus, targets: {{tpus: {json.dumps(target)}}}", tpus=tpus)


@contextmanager
def arena(
    workspace: Workspace,
    backend: str,
    server: openssh.Server | None,
    cluster: kubernetes.Cluster | None,
    tpus: tpu.Server | None,
) -> Iterator[Arena]:
    """Yield the workspace and backend for a round."""
    if backend == "local":
        yield Arena(workspace, {}, "matrix.target: local")
    elif backend == "kubernetes":
        assert cluster is not None, "`main` skips this backend without a cluster"
        with cluster.namespace() as namespace:
            target = {"backend": "kubernetes", "kubeconfig": str(cluster.kubeconfig), "namespace": namespace}
            description = json.dumps({**target, "pod": cluster.pod_python(workspace.directory)})
            yield Arena(
                workspace,
                {},
                f"matrix.target: cluster, targets: {{cluster: {description}}}",
                cluster=cluster,
                namespace=namespace,
            )
    elif backend == "tpu_vm":
        assert tpus is not None, "`main` skips this backend without a server"
        yield on_tpus(workspace, tpus)
    else:
        assert server is not None, "`main` skips this backend without a server"
        yield over_ssh(workspace, server)


def over_ssh(workspace: Workspace, server: openssh.Server) -> Arena:
    """Return an arena with two SSH targets on this machine."""
    targets = ", ".join(
        f"far-{number}: {{backend: ssh, host: {openssh.ADDRESS}, port: {server.port}, labels: [far], "
        f"directory: '{workspace.directory}/far-{number}'}}"
        for number in (1, 2)
    )
    return Arena(workspace, server.environment(), f"matrix.target: far, targets: {{{targets}}}", server)


if __name__ == "__main__":
    sys.exit(main())
