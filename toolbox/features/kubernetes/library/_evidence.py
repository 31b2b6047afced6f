"""Writes objects of a cluster to files, without the values of Secrets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from toolbox.features.kubernetes.api.connection import Json
from toolbox.ground.model import yaml_text
from toolbox.ground.model.secrets import MASK
from toolbox.ground.system import filesystem


def without_secrets(obj: Json) -> Json:
    """Return an object without `managedFields`. If the object is a Secret, its values are masked."""
    metadata = obj.get("metadata")
    meta = dict(metadata) if isinstance(metadata, dict) else {}  # a manifest that was not checked may have no metadata
    meta.pop("managedFields", None)
    if obj.get("kind") != "Secret":
        return {**obj, "metadata": meta}
    # Mask all annotations, because `kubectl apply` and other programs store a copy of the object in an annotation.
    if "annotations" in meta:
        meta["annotations"] = dict.fromkeys(meta["annotations"] or (), MASK)
    masked: Json = {part: dict.fromkeys(obj[part] or (), MASK) for part in ("data", "stringData") if part in obj}
    return {**obj, "metadata": meta, **masked}


def write(path: Path, objects: Iterable[Json]) -> None:
    """Write objects to a file, as one YAML document per object."""
    documents = [yaml_text.dump(without_secrets(obj)) for obj in objects]
    filesystem.write_text(path, "---\n".join(documents))
