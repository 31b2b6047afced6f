"""Requests to a cluster use the proxy that curl and kubectl use, with its user and password."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.features.kubernetes.api import proxies
from toolbox.features.kubernetes.api.access import Credentials
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.execution import Execution
from toolbox.features.kubernetes.api.proxies import Proxy
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError, StepError

USER, PASSWORD = "me@lab", "p:a/s ß"
IN_URL = "me%40lab:p%3Aa%2Fs%20%C3%9F"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the proxies of the user who runs the tests."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def kubeconfig(directory: Path, server: str, **cluster: str) -> Path:
    """Write a kubeconfig."""
    content: dict[str, Any] = {
        "clusters": [{"name": "a", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "a", "user": {"token": "token"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    file = directory / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.mark.parametrize(
    ("url", "no_proxy", "expected"),
    [
        ("https://api.lab", "", False),
        ("https://api.lab", "*", True),
        ("https://api.lab", "other, API.LAB", True),
        ("https://api.lab", "other api.lab", True),
        ("https://API.lab.", ".lab", True),
        ("https://api.lab", "*.lab", True),
        ("https://xapi.lab", "api.lab", False),
        ("https://api.lab", "api.lab:443", True),
        ("https://api.lab", "api.lab:6443", False),
        ("https://api.lab:6443", "lab:6443", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", " 10.1.2.3:6443 ,x", True),
        ("https://10.1.2.3:6443", "10.1.2.3:443,11.0.0.0/8,2.3", False),
        ("https://[fd00::7]:6443", "FD00::/8", True),
        ("https://[fd00::7]:6443", "[fd00:0::7]:6443", True),
        ("https://[fd00::7]", "fd00::8", False),
        ("https://api.lab", "10.0.0.0/99,://,:,[,.,*.,api.lab:x", False),
        ("https://api.lab", f"api.lab:{'4' * 5000}", False),
        ("https://127.9.9.9:6443", "", True),
        ("https://[::1]", "", True),
        ("https://[::ffff:127.0.0.1]", "", True),
        ("https://LOCALHOST:1", "", True),
        ("https://a.localhost", "", True),
    ],
)
def test_addresses_of_no_proxy_are_read_as_curl_and_kubectl_read_them(url: str, no_proxy: str, expected: bool) -> None:
    assert proxies.is_direct(url, no_proxy) is expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ({"https_proxy": "proxy"}, "http://proxy:80"),
        ({"ALL_PROXY": "socks5://proxy"}, "socks5://proxy:1080"),
        ({"HTTP_PROXY": "http://proxy:3128"}, None),
        ({"HTTPS_PROXY": f"http://{IN_URL}@[fd00::1]:3128/"}, "http://[fd00::1]:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "Api.Lab"}, None),
    ],
)
def test_the_proxy_of_the_environment_is_used_and_shown_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    loaded = Credentials.load(Access(str(kubeconfig(tmp_path, "https://api.lab"))))
    assert (str(loaded.proxy) if loaded.proxy else None) == expected
    client = loaded.proxy.client_url if loaded.proxy else None
    assert (loaded.configuration.proxy, loaded.configuration.no_proxy) == (client, None)
    assert "%3A" not in repr(loaded.proxy)


@pytest.mark.parametrize(
    "text", ["http://", "ftp://proxy", "http://proxy:x", "http://me:secret@proxy:99999", "http://["]
)
def test_a_wrong_address_of_a_proxy_is_refused_without_showing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", text)
    with pytest.raises(ConfigurationError, match=r"\$HTTPS_PROXY is not the address of a proxy") as caught:
        Credentials.load(Access(str(kubeconfig(tmp_path, "https://api.lab"))))
    assert "secret" not in str(caught.value)


class Refusing(BaseHTTPRequestHandler):
    """A proxy that refuses each request, and keeps its authorization."""

    def _refuse(self) -> None:
        self.server.seen.append((self.command, self.headers.get("Proxy-Authorization")))  # type: ignore[attr-defined]
        self.send_error(407)

    do_GET = do_CONNECT = _refuse  # noqa: N815  # the names that `http.server` calls

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def refusing() -> Iterator[HTTPServer]:
    """Yield a proxy on this machine."""
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        server.seen = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("server", ["http://10.9.9.9", "https://10.9.9.9"])
def test_requests_and_websockets_authenticate_at_the_proxy_and_errors_name_it(
    tmp_path: Path, refusing: HTTPServer, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")  # as for kubectl, it has no effect on the proxy of a kubeconfig
    name = f"127.0.0.1:{refusing.server_port}"
    cluster = Cluster(Access(str(kubeconfig(tmp_path, server, **{"proxy-url": f"http://{IN_URL}@{name}"}))))
    with pytest.raises(StepError, match=f"the proxy http://{name}") as by_request:
        cluster.request("GET", "/version", timeout=0.1)
    with (
        pytest.raises(StepError, match=f"the proxy http://{name}") as by_websocket,
        Execution.start(cluster, "p", "c", ["x"]),
    ):
        pass
    authorization = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"
    seen = refusing.seen  # type: ignore[attr-defined]
    assert {found for _, found in seen} == {authorization}
    assert ("CONNECT", authorization) in seen
    assert "s%20" not in f"{by_request.value} {by_websocket.value}"


@pytest.mark.parametrize(("user", "password"), [("me", ""), ("", "p")])
def test_a_user_or_a_password_alone_authenticates_at_the_proxy(user: str, password: str) -> None:
    proxy = Proxy.parse(f"http://{user}:{password}@proxy", "x")
    authorization = base64.b64encode(f"{user}:{password}".encode()).decode()
    assert proxy.headers == {"proxy-authorization": f"Basic {authorization}"}
    assert proxies.websocket_options(proxy)["http_proxy_auth"] == (user, password)


def test_a_websocket_ignores_the_variables_of_the_environment() -> None:
    assert proxies.websocket_options(None) == {"http_no_proxy": ["*"]}
    options = proxies.websocket_options(Proxy.parse("proxy:3128", "x"))
    assert options["http_no_proxy"]
    assert (options["http_proxy_host"], options["http_proxy_port"], options["proxy_type"]) == ("proxy", 3128, "http")
