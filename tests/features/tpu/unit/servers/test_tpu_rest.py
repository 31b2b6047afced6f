"""The REST form of the test server of the TPU API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from google.cloud.tpu_v2 import TpuClient, types

from tests.features.tpu.servers.tpu import Fault, Server

PARENT = "projects/p/locations/us-central1-a"
NODE = {"acceleratorType": "v6e-8", "runtimeVersion": "v2-alpha-tpuv6e", "labels": {"team": "a"}}


def send(server: Server, verb: str, path: str, body: object = None) -> tuple[int, Any]:
    """Send a request, and return the status and content of the response."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(server.rest_endpoint + path, data, method=verb)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_both_forms_show_the_same_nodes(server: Server, client: TpuClient) -> None:
    status, operation = send(server, "POST", f"v2/{PARENT}/nodes?nodeId=n", NODE)
    assert (status, operation["metadata"]["verb"]) == (200, "create")
    server.advance()
    assert client.get_node(name=f"{PARENT}/nodes/n").labels["team"] == "a"
    _, done = send(server, "GET", f"v2/{operation['name']}?alt=json")
    assert done["response"]["@type"] == "type.googleapis.com/google.cloud.tpu.v2.Node"
    _, listed = send(server, "GET", f"v2alpha1/{PARENT}/nodes")
    assert [node["state"] for node in listed["nodes"]] == ["READY"]


def test_lists_have_pages(server: Server, client: TpuClient, node: types.Node) -> None:
    for number in range(3):
        client.create_node(parent=PARENT, node_id=f"n{number}", node=node)
    _, first = send(server, "GET", f"v2/{PARENT}/nodes?pageSize=2")
    _, second = send(server, "GET", f"v2/{PARENT}/nodes?pageSize=2&pageToken={first['nextPageToken']}")
    assert (len(first["nodes"]), len(second["nodes"])) == (2, 1)
    assert "nextPageToken" not in second


def test_a_queued_resource_is_deleted_with_force(server: Server) -> None:
    wanted = {"spot": {}, "tpu": {"nodeSpec": [{"parent": PARENT, "nodeId": "n", "node": NODE}]}}
    send(server, "POST", f"v2/{PARENT}/queuedResources?queuedResourceId=q", wanted)
    server.advance(10)
    assert send(server, "DELETE", f"v2/{PARENT}/queuedResources/q")[0] == 400
    assert send(server, "DELETE", f"v2/{PARENT}/queuedResources/q?force=true")[0] == 200
    server.advance(10)
    assert not server.leftovers()


def test_a_mask_chooses_the_fields_of_an_update(server: Server, client: TpuClient, node: types.Node) -> None:
    client.create_node(parent=PARENT, node_id="n", node=node)
    server.advance()
    body = {"labels": {"a": "b"}, "description": "not in the mask"}
    assert send(server, "PATCH", f"v2/{PARENT}/nodes/n?updateMask=labels", body)[0] == 200
    server.advance()
    found = client.get_node(name=f"{PARENT}/nodes/n")
    assert (dict(found.labels), found.description) == ({"a": "b"}, "")


def test_an_error_has_the_form_of_the_google_api(server: Server) -> None:
    status, content = send(server, "GET", f"v2/{PARENT}/nodes/n")
    assert (status, content["error"]["code"], content["error"]["status"]) == (404, 404, "NOT_FOUND")
    assert content["error"]["message"] == f"Resource '{PARENT}/nodes/n' was not found"
    assert content["error"]["details"][0]["@type"] == "type.googleapis.com/google.rpc.ResourceInfo"


@pytest.mark.parametrize(
    ("verb", "path", "body", "status"),
    [
        ("GET", "v1/projects", None, 404),
        ("POST", f"v2/{PARENT}/nodes?nodeId=n", b"{", 400),
        ("POST", f"v2/{PARENT}/nodes?nodeId=n", {"labels": 1}, 400),
        ("GET", f"v2/{PARENT}/nodes?pageToken=*", None, 400),
        ("GET", "v2/projects/p/locations/moon-a/nodes", None, 403),
    ],
)
def test_a_wrong_request_is_refused(server: Server, verb: str, path: str, body: object, status: int) -> None:
    assert send(server, verb, path, body)[0] == status


def test_faults_apply_to_rest(server: Server) -> None:
    server.add_fault(Fault("ListNodes", "UNAUTHENTICATED"))
    assert send(server, "GET", f"v2/{PARENT}/nodes")[0] == 401
    assert send(server, "GET", f"v2/{PARENT}/nodes")[0] == 200
