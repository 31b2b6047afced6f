"""Objects that a fake API server stores: they can be created, read, listed by their labels, and deleted."""

from __future__ import annotations

import json
from typing import Any

from tests.features.kubernetes.fakes.api_server import Answer, ApiServer, Request, failure


class StoredObjects:
    """The objects of some kinds in a fake API server.

    Args:
        paths: the paths of the kinds, such as `/api/v1/namespaces`.
    """

    def __init__(self, server: ApiServer, *paths: str) -> None:
        self.server = server
        self.objects: dict[str, Any] = {}
        for path in paths:
            server.answers("POST", path, self._create)
            server.answers("GET", path, self._list)

    def put(self, path: str, name: str, **metadata: Any) -> dict[str, Any]:
        """Store an object as another user would."""
        fields = {"name": name, "uid": f"uid-{len(self.objects)}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        obj: dict[str, Any] = {"metadata": {**fields, **metadata}}
        self.objects[name] = obj
        self.server.answers("GET", f"{path}/{name}", lambda _: self.objects.get(name) or failure(404))
        self.server.answers("DELETE", f"{path}/{name}", lambda request: self._delete(name, request))
        return obj

    def _create(self, request: Request) -> dict[str, Any] | Answer:
        name = request.body["metadata"]["name"]
        if name in self.objects:
            return failure(409, "there is one")
        obj = self.put(request.path, **request.body["metadata"])
        obj |= {key: value for key, value in request.body.items() if key != "metadata"}
        return obj

    def _list(self, request: Request) -> dict[str, Any]:
        found = [obj for obj in self.objects.values() if _matches(obj, request.get("labelSelector") or "")]
        return {"metadata": {"resourceVersion": "1"}, "items": found}

    def _delete(self, name: str, request: Request) -> dict[str, Any] | Answer:
        uid = ((request.body or {}).get("preconditions") or {}).get("uid")
        if name not in self.objects:
            return failure(404)
        if uid is not None and uid != self.objects[name]["metadata"]["uid"]:
            conflict = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "another uid"}
            return Answer(json.dumps(conflict).encode(), 409)
        deleted: dict[str, Any] = self.objects.pop(name)
        return deleted


def _matches(obj: dict[str, Any], selector: str) -> bool:
    labels = obj["metadata"].get("labels") or {}
    terms = [term.partition("=") for term in selector.split(",") if term]
    return all(name in labels and (not equals or labels[name] == value) for name, equals, value in terms)
