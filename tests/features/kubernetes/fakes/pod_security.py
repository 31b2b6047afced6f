"""Checks pods against the Pod Security Standard `restricted`, as kubernetes.io describes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_VOLUMES: Final = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
_HOST: Final = ("hostNetwork", "hostPID", "hostIPC")


def violations(spec: Mapping[str, Any]) -> list[str]:
    """Return the parts of a pod spec that a namespace with the standard `restricted` refuses."""
    return [*_of_pod(spec), *(fault for each in spec["containers"] for fault in _of_container(each, spec))]


def _of_pod(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (field for field in _HOST if spec.get(field))
    yield from (f"volume {each['name']}" for each in spec.get("volumes", ()) if not _VOLUMES & each.keys())


def _of_container(container: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    security = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
    capabilities = security.get("capabilities", {})
    if security.get("privileged") or security.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if security.get("runAsNonRoot") is not True or security.get("runAsUser") == 0:
        yield "runAsNonRoot"
    if security.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        yield "seccompProfile"
