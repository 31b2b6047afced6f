"""Manifests are read, checked and completed before they are sent to a cluster."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.features.kubernetes.fakes.api_server import ApiServer, failure
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.objects import Objects
from toolbox.features.kubernetes.library import cluster_objects
from toolbox.ground.model.errors import ConfigurationError

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


def options(**given: Any) -> dict[str, Any]:
    """Return the arguments of the module, with its defaults."""
    return {name: option.get("default") for name, option in cluster_objects._OPTIONS.items()} | given


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def test_the_manifests_are_kept_before_they_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(ONE)
    wrong = {"apiVersion": "v1", "kind": 5, "metadata": {}}
    kept = tmp_path / "kept.yaml"
    cluster_objects.keep(options(manifests=[wrong], files=[str(file)], keep=str(kept)))
    assert list(yaml.safe_load_all(kept.read_text())) == [wrong, yaml.safe_load(ONE)]


def test_an_invalid_manifest_is_named_with_the_file_that_keeps_it(cluster: Cluster) -> None:
    wrong = options(manifests=[{"apiVersion": "v1", "kind": "Pod"}], keep="src/job.yaml")
    with pytest.raises(ConfigurationError, match=r"^src/job\.yaml: Pod has no `metadata\.name`"):
        cluster_objects.work(Objects(cluster), wrong)


OURS = {"app.kubernetes.io/managed-by": "topgallant"}


@pytest.fixture(name="server")
def _server(server: ApiServer) -> ApiServer:
    """Return a server with the ConfigMaps `old` of Topgallant and `foreign` of another program, and `new` to apply."""
    path = "/api/v1/namespaces/tests/configmaps"
    kind = {"name": "configmaps", "kind": "ConfigMap", "namespaced": True, "verbs": []}
    server.answers("GET", "/api/v1", {"resources": [kind]})
    server.answers("GET", f"{path}/old", config_map("old", **OURS))
    server.answers("GET", f"{path}/foreign", config_map("foreign"))
    server.answers("GET", f"{path}/new", config_map("new", **OURS))
    server.answers("PATCH", f"{path}/new", config_map("new", **OURS))
    server.answers("GET", f"{path}/gone", failure(404))
    server.answers("DELETE", f"{path}/old", {})
    return server


@pytest.mark.parametrize(("obsolete", "changed"), [("old", True), ("gone", False)])
def test_an_obsolete_object_is_deleted_after_the_others_are_applied(
    server: ApiServer, cluster: Cluster, obsolete: str, changed: bool
) -> None:
    given = options(manifests=[config_map("new")], obsolete=[config_map(obsolete)], only_ours=True)
    assert cluster_objects.work(Objects(cluster), given)["changed"] is changed
    methods = [request.method for request in server.requests if request.method != "GET"]
    assert methods == ["PATCH", *["DELETE"] * changed]


def test_an_obsolete_object_of_another_program_is_not_deleted(server: ApiServer, cluster: Cluster) -> None:
    given = options(obsolete=[config_map("foreign")], only_ours=True)
    with pytest.raises(ConfigurationError, match="ConfigMap foreign of namespace tests was not created by Topgallant"):
        cluster_objects.work(Objects(cluster), given)
    assert not any(request.method == "DELETE" for request in server.requests)
