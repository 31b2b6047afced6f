"""Derives kubeconfigs from an existing one, with another address, another certificate or another token."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml


def server(file: Path) -> str:
    """Return the URL of the API server in a kubeconfig."""
    return str(_current(yaml.safe_load(file.read_text()))[0]["server"])


def authority(file: Path) -> str:
    """Return the certificates with which clients verify the server, as PEM."""
    cluster, _ = _current(yaml.safe_load(file.read_text()))
    data: str | None = cluster.get("certificate-authority-data")
    if data:
        return base64.b64decode(data).decode()
    place: str = cluster["certificate-authority"]
    return (file.parent / place).read_text()


def derive(
    source: Path, file: Path, *, server: str | None = None, authority: str | None = None, token: str | None = None
) -> Path:
    """Write a kubeconfig that differs from `source` in some values, and return its file, which is replaced atomically.

    Args:
        server: URL of another server.
        authority: another certificate with which clients verify the server, as PEM.
        token: token of another user.
    """
    content = yaml.safe_load(source.read_text())
    cluster, user = _current(content)
    if server is not None:
        cluster["server"] = server
    if authority is not None:
        cluster.pop("certificate-authority", None)
        cluster["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    if token is not None:
        user.clear()
        user["token"] = token
    part = file.with_name(f"{file.name}.part")
    part.touch(mode=0o600)
    part.write_text(yaml.safe_dump(content))
    return part.replace(file)


def _current(content: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the cluster and the user of the current context."""
    context = _named(content["contexts"], content["current-context"])["context"]
    cluster: dict[str, Any] = _named(content["clusters"], context["cluster"])["cluster"]
    user: dict[str, Any] = _named(content["users"], context["user"])["user"]
    return cluster, user


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)
