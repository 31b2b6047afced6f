"""An API server with MachineSets, as OpenShift's has them, for the commands that scale them.

It holds its objects in memory, answers lists, reads, merge patches and watches, and makes the machines of a MachineSet
at once. A real API server would not do: old releases that are built with a newer Go crash at the first object of a
custom resource (modern-go/reflect2), and some of the machines that run these tests have only such a release.
"""

from __future__ import annotations

import json
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from tests.features.kubernetes.fakes import api_server
from tests.features.kubernetes.fakes.api_server import Answer, ApiServer, Request, failure

MACHINES: Final = "/apis/machine.openshift.io/v1beta1"
SETS: Final = f"{MACHINES}/namespaces/openshift-machine-api/machinesets"
_VERBS: Final = ["get", "list", "watch", "patch"]
_KINDS: Final = {
    MACHINES: [("MachineSet", "machinesets", True), ("Machine", "machines", True)],
    "/api/v1": [("Node", "nodes", False), ("Pod", "pods", True)],
}


class MachineApi(ApiServer):
    """The server.

    Args:
        is_idle: whether the server makes no machines.
    """

    def __init__(self, kubeconfig: Path, *, is_idle: bool = False) -> None:
        super().__init__(kubeconfig)
        self.is_idle = is_idle
        self.news = threading.Condition()
        self.version = 1
        folders = (SETS, SETS.replace("machinesets", "machines"), "/api/v1/nodes", "/api/v1/pods")
        self.lists: dict[str, list[dict[str, Any]]] = {folder: [] for folder in folders}

    def add(self, path: str, name: str, **parts: Any) -> dict[str, Any]:
        """Add an object to the list at `path`, and return the object."""
        meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", **parts.pop("metadata", {})}
        found = {"metadata": meta, **parts}
        self.lists[path].append(found)
        return found

    def merge(self, found: dict[str, Any], patch: dict[str, Any]) -> None:
        """Merge a patch into an object, and make the machines that it requests."""
        with self.news:
            for part, fields in patch.items():
                found.setdefault(part, {}).update(fields)
            if "replicas" in found["spec"] and not self.is_idle:
                count = found["spec"]["replicas"]
                found["status"] = {"replicas": count, "readyReplicas": count}
            self.version += 1
            found["metadata"]["resourceVersion"] = str(self.version)
            self.news.notify_all()

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request."""
        if request.path in _KINDS:
            kinds = [
                {"kind": kind, "name": plural, "namespaced": namespaced, "verbs": _VERBS}
                for kind, plural, namespaced in _KINDS[request.path]
            ]
            return _json({"resources": kinds})
        if request.method == "WATCH":
            return self._changes(request.path, int(request.get("resourceVersion") or 0))
        if request.path in self.lists:
            return _json({"metadata": {"resourceVersion": str(self.version)}, "items": self.lists[request.path]})
        folder, _, name = request.path.rpartition("/")
        found = next((each for each in self.lists.get(folder, []) if each["metadata"]["name"] == name), None)
        if found is None:
            return failure(404, "not found")
        if request.method == "PATCH":
            self.merge(found, request.body)
        return _json(found)

    def _changes(self, path: str, since: int) -> Answer:
        """Return the next changes of a watch, which then ends: the client has to watch again."""
        with self.news:
            self.news.wait_for(lambda: self.version > since, timeout=1)
            changed = [each for each in self.lists[path] if int(each["metadata"]["resourceVersion"]) > since]
        return Answer(b"".join(json.dumps({"type": "MODIFIED", "object": each}).encode() + b"\n" for each in changed))


def _json(content: dict[str, Any]) -> Answer:
    return Answer(json.dumps(content).encode())


def serving(kubeconfig: Path, *, is_idle: bool = False) -> AbstractContextManager[MachineApi]:
    """Run a server, and write its kubeconfig."""
    return api_server.running(MachineApi(kubeconfig, is_idle=is_idle))
