"""Writes objects of a cluster into files of a step, without the values of Secrets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from toolbox.kubernetes.api.connection import Json
from toolbox.model.secrets import MASK
from toolbox.system import filesystem


def shown(found: Json) -> Json:
    """Return an object without `managedFields`, and without the values if it is a Secret."""
    meta = {name: value for name, value in (found.get("metadata") or {}).items() if name != "managedFields"}
    if found.get("kind") != "Secret":
        return {**found, "metadata": meta}
    # Mask all annotations: `kubectl apply` and other programs store copies of the whole object there.
    if "annotations" in meta:
        meta["annotations"] = dict.fromkeys(meta["annotations"] or (), MASK)
    masked: Json = {part: dict.fromkeys(found[part] or (), MASK) for part in ("data", "stringData") if part in found}
    return {**found, "metadata": meta, **masked}


def write(path: Path, objects: Iterable[Json]) -> None:
    """Write objects as YAML, one document each."""
    documents = [filesystem.dump_yaml(shown(found)) for found in objects]
    filesystem.write_text(path, "---\n".join(documents))
