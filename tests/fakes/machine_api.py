"""An API server with MachineSets, as OpenShift's has them, for the commands that scale them.

It holds its objects in memory, answers lists, reads, merge patches and watches, and makes the machines of a MachineSet
at once. It is no Kubernetes: the API server of old releases, built with a newer Go, ends at the first object of a kind
that was defined in it (modern-go/reflect2), so that a real one cannot be asked in all places where these tests run.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINES: Final = "/apis/machine.openshift.io/v1beta1"
SETS: Final = f"{MACHINES}/namespaces/openshift-machine-api/machinesets"
_VERBS: Final = ["get", "list", "watch", "patch"]
_KINDS: Final = {
    MACHINES: [("MachineSet", "machinesets", True), ("Machine", "machines", True)],
    "/api/v1": [("Node", "nodes", False), ("Pod", "pods", True)],
}


class MachineApi(ThreadingHTTPServer):
    """The server.

    Args:
        is_idle: it makes no machines.
    """

    daemon_threads = True

    def __init__(self, *, is_idle: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.is_idle = is_idle
        self.news = threading.Condition()
        self.version = 1
        self.lists: dict[str, list[dict[str, Any]]] = {
            SETS: [],
            SETS.replace("machinesets", "machines"): [],
            "/api/v1/nodes": [],
            "/api/v1/pods": [],
        }

    def add(self, path: str, name: str, **parts: Any) -> dict[str, Any]:
        """Put an object into a list, and return it."""
        meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", **parts.pop("metadata", {})}
        found = {"metadata": meta, **parts}
        self.lists[path].append(found)
        return found

    def merge(self, found: dict[str, Any], patch: dict[str, Any]) -> None:
        """Change an object, and make its machines."""
        with self.news:
            for part, fields in patch.items():
                found.setdefault(part, {}).update(fields)
            if "replicas" in found["spec"] and not self.is_idle:
                count = found["spec"]["replicas"]
                found["status"] = {"replicas": count, "readyReplicas": count}
            self.version += 1
            found["metadata"]["resourceVersion"] = str(self.version)
            self.news.notify_all()


class _Handler(BaseHTTPRequestHandler):
    server: MachineApi

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path in _KINDS:
            kinds = [
                {"kind": kind, "name": plural, "namespaced": namespaced, "verbs": _VERBS}
                for kind, plural, namespaced in _KINDS[url.path]
            ]
            self._answer(200, {"resources": kinds})
        elif "watch" in parse_qs(url.query):
            self._watch(url.path, int(parse_qs(url.query)["resourceVersion"][0]))
        elif url.path in self.server.lists:
            meta = {"resourceVersion": str(self.server.version)}
            self._answer(200, {"metadata": meta, "items": self.server.lists[url.path]})
        else:
            found = self._found(url.path)
            self._answer(200, found) if found else self._answer(404, {"reason": "NotFound", "message": "not found"})

    def do_PATCH(self) -> None:
        found = self._found(urlsplit(self.path).path)
        assert found is not None, self.path
        self.server.merge(found, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(200, found)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name in the standard library
        """Say nothing."""

    def _found(self, path: str) -> dict[str, Any] | None:
        folder, _, name = path.rpartition("/")
        objects = self.server.lists.get(folder, [])
        return next((each for each in objects if each["metadata"]["name"] == name), None)

    def _watch(self, path: str, since: int) -> None:
        """Tell one change, and end: who watches begins again."""
        with self.server.news:
            self.server.news.wait_for(lambda: self.server.version > since, timeout=1)
            changed = [each for each in self.server.lists[path] if int(each["metadata"]["resourceVersion"]) > since]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        for each in changed:
            self.wfile.write(json.dumps({"type": "MODIFIED", "object": each}).encode() + b"\n")

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(kubeconfig: Path, *, is_idle: bool = False) -> Iterator[MachineApi]:
    """Serve, and write the kubeconfig that leads there."""
    with MachineApi(is_idle=is_idle) as server:
        context = {"name": "it", "context": {"cluster": "it", "user": "it"}}
        clusters = [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}]
        users: list[Any] = [{"name": "it", "user": {}}]
        content = {"clusters": clusters, "users": users, "contexts": [context], "current-context": "it"}
        kubeconfig.write_text(yaml.safe_dump(content))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
