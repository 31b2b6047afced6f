"""Measures the cost of a cell with the workload `true` on Kubernetes, beside `kubectl create` and `kubectl wait`.

The processor time is compared with a program that creates, awaits and deletes the same Jobs with the official client
for Python, and does nothing else: at the limit, judging, reporting and storing a Job costs as much as executing it.
Milliseconds are only printed: they depend on the machine, and are more while the node runs pods on the same processors.
A node that deletes the files of its pods can also make new files on the same file system slower (see bench_cells.py).
For comparisons, set `$TMPDIR` to a directory on another file system, such as a tmpfs.

A second part measures the memory and processor time of the orchestrator, with many cells whose pods never run. A helper
process binds these pods to a node without a kubelet, and reports the pods as completed. `$TOPGALLANT_TEST_KUBECONFIG`
names the cluster. Arguments: the number of Jobs (200), and the number of cells (2000).
"""

from __future__ import annotations

import base64
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from costs import of_run

from tests.features.kubernetes.servers import http_proxy, kubernetes  # importable because of `sys.path` above
from toolbox.features.kubernetes.pods.pod_state import ATTEMPT_LABEL
from toolbox.testing import Workspace

JOBS, CELLS, FEW = 200, 2000, 200
AT_ONCE: Final = 50
RATIO, CLIENT_RATIO, REQUESTS = 1.15, 2.0, 5.0
MEMORY_RATIO, CPU_RATIO = 1.25, 1.15
_NODE: Final = "topgallant-bench"
_PEER: Final = "topgallant-bench=peer"
_COMPLETER: Final = "--complete"
_CLIENT: Final = "--official-client"

PROJECT = {
    "projects/cells/orchestration.py": '''
        """Cells that do nothing."""

        from toolbox.orchestration import matrix


        def test() -> None:
            matrix.run()
    ''',
}


def workspace(folder: Path, cells: int, target: Mapping[str, Any]) -> Workspace:
    """Return a workspace whose project has `cells` cells on a target."""
    matrix = {
        "axes": {"cell": list(range(cells))},
        "target": "cluster",
        "jobs": AT_ONCE,
        "timeouts": {"wait": 1800},
        "workload": {"command": ["true"], "collect": []},
    }
    config = yaml.safe_dump({"targets": {"cluster": {"backend": "kubernetes", **target}}, "matrix": matrix})
    return Workspace(folder, {**PROJECT, "config/cells.yaml": config})


def kubectl(cluster: kubernetes.Cluster, namespace: str, *args: str) -> str:
    """Run kubectl, and return its output."""
    command = ["kubectl", f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}", *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def jobs_of(cluster: kubernetes.Cluster, namespace: str, work: Workspace, folder: Path) -> Path:
    """Write the manifests of the Jobs of a run without its owner and its labels, and create what they need."""
    manifests = [yaml.safe_load(file.read_text()) for file in work.runs()[-1].glob("*/*/*/src/topgallant-job.json")]
    for manifest in manifests:
        manifest["metadata"] |= {"ownerReferences": [], "labels": dict([_PEER.split("=")])}
    volumes = {each["name"]: each for each in manifests[0]["spec"]["template"]["spec"]["volumes"]}
    agent = folder / "agent.yaml"
    agent.write_text(_agent(volumes["agent"]["configMap"]["name"]))
    kubectl(cluster, namespace, "create", "-f", str(agent))
    jobs = folder / "jobs.yaml"
    jobs.write_text(yaml.dump_all(manifests, Dumper=yaml.CSafeDumper))
    return jobs


def peer(cluster: kubernetes.Cluster, namespace: str, jobs: Path) -> float:
    """Create Jobs with kubectl, wait until they are complete, and return the time in seconds."""
    began = time.perf_counter()
    # This kubectl may be older than some fields of the manifests.
    kubectl(cluster, namespace, "create", "--validate=false", "-f", str(jobs))
    kubectl(cluster, namespace, "wait", "--for=condition=complete", "--timeout=1800s", "job", f"--selector={_PEER}")
    wall = time.perf_counter() - began
    kubectl(cluster, namespace, "delete", "--wait=false", "job", f"--selector={_PEER}")
    return wall


def official_client(cluster: kubernetes.Cluster, namespace: str, jobs: Path) -> float:
    """Create, await and delete Jobs with the official client, and return its processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, __file__, _CLIENT, str(cluster.kubeconfig), namespace, str(jobs)]
    subprocess.run(command, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime


def use_official_client(kubeconfig: str, namespace: str, jobs: str) -> None:
    """Create Jobs, and delete each one when it is complete."""
    from kubernetes import client, config, watch

    api = client.BatchV1Api(config.new_client_from_config(kubeconfig))
    manifests = list(yaml.load_all(Path(jobs).read_text(), yaml.CSafeLoader))
    for manifest in manifests:
        api.create_namespaced_job(namespace, manifest)
    open_jobs = {manifest["metadata"]["name"] for manifest in manifests}
    for event in watch.Watch().stream(api.list_namespaced_job, namespace, label_selector=_PEER):
        job = event["object"]
        if job.metadata.name in open_jobs and any(each.type == "Complete" for each in job.status.conditions or ()):
            api.delete_namespaced_job(job.metadata.name, namespace, propagation_policy="Background")
            open_jobs.remove(job.metadata.name)
        if not open_jobs:
            return


def _agent(name: str) -> str:
    from toolbox.features.kubernetes.pods import run_resources

    data = {"agent.zip": base64.b64encode(run_resources.agent_program()).decode()}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "binaryData": data})


def wait_until_empty(cluster: kubernetes.Cluster, namespace: str) -> None:
    """Wait until the namespace has no pods."""
    while cluster.core.list_namespaced_pod(namespace).items:
        time.sleep(1)


def requests(cluster: kubernetes.Cluster, namespace: str, folder: Path, pod: Mapping[str, Any]) -> float:
    """Return the number of requests per Job."""
    folder.mkdir()
    with http_proxy.HttpProxy(cluster.kubeconfig, folder) as proxy:
        target = {"kubeconfig": str(proxy.kubeconfig), "namespace": namespace, "pod": pod}
        of_run(workspace(folder / "work", AT_ONCE, target), AT_ONCE)
        return proxy.requests.total() / AT_ONCE


@contextmanager
def completer(cluster: kubernetes.Cluster, namespace: str) -> Iterator[None]:
    """Complete the pods of a namespace in another process, without a kubelet, until the end of the block."""
    with suppress(Exception):  # a benchmark that was killed may have left the node
        cluster.core.delete_node(_NODE)
    cluster.core.create_node({"metadata": {"name": _NODE}})
    process = subprocess.Popen([sys.executable, __file__, _COMPLETER, str(cluster.kubeconfig), namespace])
    try:
        yield
    finally:
        process.kill()
        process.wait()
        cluster.core.delete_node(_NODE)


def complete(kubeconfig: str, namespace: str) -> None:
    """Report each new pod as completed with a workload that succeeded, and remove pods that are being deleted."""
    from kubernetes import client, config, watch

    api = client.CoreV1Api(config.new_client_from_config(kubeconfig))
    outcome = {"ended_by": "exit", "exit_code": 0, "message": "", "seconds": 0.1, "cpu_seconds": 0.1, "leftovers": 0}
    outcome |= {"log_dropped": {}, "log_fault": "", "host": "", "accelerators": "", "left": 0}
    message = json.dumps({**outcome, "logs": {"stdout": [0, 0], "stderr": [0, 0]}})
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}
    ended = {"name": "workload", "state": state, "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    for event in watch.Watch().stream(api.list_namespaced_pod, namespace):
        pod = event["object"]
        name = pod.metadata.name
        with suppress(client.ApiException):  # the pod has changed since the event
            if event["type"] == "ADDED" and not pod.spec.node_name and ATTEMPT_LABEL in pod.metadata.labels:
                reference: Any = {"apiVersion": "v1", "kind": "Node", "name": _NODE}
                body: Any = {"metadata": {"name": name}, "target": reference}
                api.create_namespaced_pod_binding(name, namespace, body, _preload_content=False)
                status = {"status": {"phase": "Succeeded", "containerStatuses": [ended]}}
                api.patch_namespaced_pod_status(name, namespace, status)
            elif event["type"] == "MODIFIED" and pod.metadata.deletion_timestamp:
                api.delete_namespaced_pod(name, namespace, grace_period_seconds=0)


def print_figure(text: str, value: float, limit: float) -> bool:
    """Print a figure and its limit, and return whether the figure is within the limit."""
    print(f"{text} (at most {limit:g}: {'yes' if value <= limit else 'NO'})")
    return value <= limit


def jobs_beside_kubectl(cluster: kubernetes.Cluster, folder: Path, count: int) -> bool:
    """Measure Jobs that run, created by Topgallant and by kubectl."""
    with cluster.namespace() as namespace:
        pod = cluster.pod_python()
        target = {"kubeconfig": str(cluster.kubeconfig), "namespace": namespace, "pod": pod}
        # A first run compiles the modules and creates the store.
        of_run(workspace(folder / "first", 1, target), 1)
        one = of_run(workspace(folder / "one", 1, target), 1)
        work = workspace(folder / "jobs", count, target)
        mine = of_run(work, count)
        wait_until_empty(cluster, namespace)
        jobs = jobs_of(cluster, namespace, work, folder)
        other = peer(cluster, namespace, jobs)
        wait_until_empty(cluster, namespace)
        client = official_client(cluster, namespace, jobs)
        wait_until_empty(cluster, namespace)
        requests_per_job = requests(cluster, namespace, folder / "counted", pod)
    further = 1e3 * (mine.cpu - one.cpu) / (count - 1)
    print(f"{count} Jobs of `true`, {AT_ONCE} at once\n  Topgallant: {mine}; {mine.wall:.1f} s")
    print(f"  a run of one Job takes {one.cpu:.1f} s of CPU, and each further Job {further:.1f} ms")
    print(f"  kubectl create, kubectl wait: {other:.1f} s")
    print(f"  the official client: {client:.1f} s of CPU")
    ratio, to_client = mine.wall / other, mine.cpu / client
    return all(
        [
            print_figure(f"  {ratio:.2f} times the wall time", ratio, RATIO),
            print_figure(f"  {to_client:.2f} times the CPU of the official client", to_client, CLIENT_RATIO),
            print_figure(f"  {requests_per_job:.1f} requests per Job", requests_per_job, REQUESTS),
        ]
    )


def many_cells(cluster: kubernetes.Cluster, folder: Path, count: int) -> bool:
    """Measure many cells whose pods never run."""
    costs = []
    for cells in (FEW, count):
        with cluster.namespace() as namespace, completer(cluster, namespace):
            # The cluster has no scheduler with this name, so the pods wait for the completer.
            patch = {"spec": {"template": {"spec": {"schedulerName": "missing"}}}}
            target = {"kubeconfig": str(cluster.kubeconfig), "namespace": namespace}
            work = workspace(folder / f"cells-{cells}", cells, {**target, "pod": {"image": "any", "patch": patch}})
            costs.append(of_run(work, cells))
    few, many = costs
    print(f"cells that no kubelet runs\n  {few}\n  {many}")
    cpu, memory = many.cpu / many.cells / (few.cpu / few.cells), many.memory / few.memory
    return all(
        [
            print_figure(f"  {cpu:.2f} times the CPU per cell", cpu, CPU_RATIO),
            print_figure(f"  {memory:.2f} times the memory", memory, MEMORY_RATIO),
        ]
    )


def main() -> int:
    """Measure, print the results, and return 1 if a limit is exceeded."""
    for option, work in ((_COMPLETER, complete), (_CLIENT, use_official_client)):
        if sys.argv[1:2] == [option]:
            work(*sys.argv[2:])
            return 0
    arguments = [int(text) for text in sys.argv[1:]]
    jobs, cells = [*arguments, *(JOBS, CELLS)[len(arguments) :]]
    try:
        with kubernetes.cluster() as cluster, tempfile.TemporaryDirectory() as top:
            os.environ["XDG_STATE_HOME"] = f"{top}/state"
            # Memory is measured first, because the system only knows the largest memory of all processes so far.
            passed = [many_cells(cluster, Path(top), cells)] if cells else []
            passed += [jobs_beside_kubectl(cluster, Path(top), jobs)] if jobs else []
    except kubernetes.ClusterError as error:
        print(f"skipped: {error}")
        return 0
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
