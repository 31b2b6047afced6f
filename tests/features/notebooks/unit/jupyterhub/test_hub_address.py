"""Tests of the addresses of hubs and servers."""

import re

import pytest

from toolbox.features.notebooks.jupyterhub import hub_address, server_request


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://hub.example.org", "https://hub.example.org"),
        ("https://hub.example.org/jupyter/", "https://hub.example.org/jupyter"),
        ("http://127.0.0.1:8000/hub/api", "http://127.0.0.1:8000"),
        ("https://hub.example.org/hub/", "https://hub.example.org"),
    ],
)
def test_the_address_of_a_hub_is_normalized(text: str, url: str) -> None:
    assert hub_address.hub_url(text) == url


@pytest.mark.parametrize(
    "text",
    ["hub.example.org", "ftp://hub", "https://", "https://u:p@hub/", "https://hub/?a", "https://hub:x", "http://a b"],
)
def test_other_texts_are_not_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|Port"):
        hub_address.hub_url(text)


def test_names_are_quoted_in_paths() -> None:
    assert hub_address.server_path("a/b", "c?d") == "/hub/api/users/a%2Fb/servers/c%3Fd"


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://127.0.0.1:1", True), ("http://[::1]", True), ("http://localhost", True), ("https://10.0.0.1", False)],
)
def test_addresses_of_this_machine_are_recognized(url: str, *, expected: bool) -> None:
    assert hub_address.is_loopback(url) is expected


@pytest.mark.parametrize("run", ["20261121-011343-x7k2", "conformance", "", "Ä--B", "a" * 300])
def test_the_name_of_a_server_is_one_that_jupyterhub_accepts(run: str) -> None:
    name = server_request.server_name(run, f"{run}.cell.attempt-1")
    assert re.fullmatch(r"[a-z](-?[a-z0-9])*", name)
    assert len(name) <= 30
    assert name != server_request.server_name(run, f"{run}.cell.attempt-2")
