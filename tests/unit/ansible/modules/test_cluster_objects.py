"""Manifests are read, checked and completed before they are sent to a cluster."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from toolbox.ansible.modules import cluster_objects
from toolbox.model.errors import ConfigurationError

ONE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}}


def names(path: Path) -> list[str]:
    return [str(body["metadata"]["name"]) for body in cluster_objects.read(path)]


def test_a_file_may_hold_several_documents_empty_ones_and_lists(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    listed = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: two}}\n"
    file.write_text(f"---\n---\n{ONE}---\n{listed}")
    assert names(file) == ["one", "two"]


def test_the_manifests_of_a_folder_are_sorted_by_name(tmp_path: Path) -> None:
    for name in ("b.yml", "a.json", "c.txt"):
        (tmp_path / name).write_text(f'{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}"}}}}')
    assert names(tmp_path) == ["a.json", "b.yml"]


def test_a_date_is_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{ONE}data: {{since: 2026-11-01}}\n")
    assert next(cluster_objects.read(tmp_path))["data"] == {"since": "2026-11-01"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b", "a manifest has no `apiVersion`"),
        ("apiVersion: v1\nkind: Pod", "Pod has no `metadata.name`"),
        (
            "apiVersion: 1\nkind: Pod\nmetadata: {name: one}",
            "Pod one has no `apiVersion`, or its `apiVersion` is not a string",
        ),
        ("just words", "this is not an object of Kubernetes: 'just words'"),
        ("a: [", "cannot be read"),
    ],
)
def test_an_invalid_manifest_is_named_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"a\.yaml(: | cannot be read: )") as caught:
        names(file)
    assert message in str(caught.value)


def test_a_folder_with_no_manifests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has no manifests"):
        names(tmp_path)


def test_secret_data_is_read_from_files_and_from_texts(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\x00\xff")
    body = cluster_objects.with_secrets(SECRET, {"key": str(file)}, {"word": "sesame"})
    assert {name: base64.b64decode(value) for name, value in body["data"].items()} == {
        "key": b"\x00\xff",
        "word": b"sesame",
    }


def test_a_secret_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing cannot be read: No such file"):
        cluster_objects.with_secrets(SECRET, {"key": str(tmp_path / "nothing")}, {})


HTTP = {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "periodSeconds": 2}
TCP = {"tcpSocket": {"port": 80}}


def deployment(probe: dict[str, Any] | None) -> dict[str, Any]:
    container = {"name": "server", "image": "i"} | ({"readinessProbe": probe} if probe else {})
    return {"spec": {"template": {"spec": {"containers": [{"name": "other"}, container]}}}}


@pytest.mark.parametrize("after", [TCP, None])
def test_a_probe_is_removed_before_a_probe_of_another_kind_replaces_it(after: dict[str, Any] | None) -> None:
    path = "/spec/template/spec/containers/1/readinessProbe"
    assert cluster_objects.changed_probes(deployment(HTTP), deployment(after)) == [{"op": "remove", "path": path}]


@pytest.mark.parametrize(("before", "after"), [(HTTP, HTTP), (None, HTTP), (HTTP, {**HTTP, "periodSeconds": 9})])
def test_a_probe_of_the_same_kind_is_left_to_the_server(before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    assert cluster_objects.changed_probes(deployment(before), deployment(after)) == []


def test_an_object_without_containers_has_no_probes() -> None:
    assert cluster_objects.changed_probes({"kind": "ConfigMap"}, {"kind": "ConfigMap"}) == []
