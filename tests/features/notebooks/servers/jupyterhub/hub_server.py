"""Starts the hub of the tests as a process, and ends it with all of its single-user servers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from tests.features.notebooks.servers.jupyterhub.front_proxy import FrontProxy
from tests.servers import reserved_ports
from toolbox.ground.system import places

ADDRESS: Final = "127.0.0.1"
# The scopes that docs/jupyterhub.md names: the tests use tokens that have no other scopes.
TOKEN_SCOPES: Final = ("read:users:name", "servers", "access:servers")
ACCESS_SCOPES: Final = ("read:users:name", "read:servers", "access:servers")
# The kernels of the single-user servers: each is in an environment of its own, with the module `paint` of this version.
KERNELS: Final = {"paint-stable": "1.0", "paint-next": "2.0"}
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.05


@dataclass
class Hub:
    """A running hub.

    Args:
        front: the proxy through which all clients reach the hub.
        user: a user with a token.
        token: a token of the user, with the scopes that `docs/jupyterhub.md` requires.
        admin_token: the token of a service that may read and change all servers.
        log: the file of the hub's log.
    """

    front: FrontProxy
    admin_token: str = field(repr=False)
    log: Path
    process: subprocess.Popen[bytes]
    user: str = "ann"
    token: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        """The address of the hub."""
        return f"http://{ADDRESS}:{self.front.port}{self.front.base_path.rstrip('/')}"

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to the REST API as the administrator, and return the JSON of the answer."""
        headers = {"Authorization": f"token {self.admin_token}"}
        # Not by the proxy, which may be failing.
        url = f"http://{ADDRESS}:{self.front.hub_port}{self.front.base_path}hub/api{path}"
        answer = httpx.request(method, url, json=body, headers=headers, timeout=60)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def new_token(self, scopes: Sequence[str] = TOKEN_SCOPES, user: str | None = None) -> str:
        """Return a new token of a user, whose scopes are limited to this user."""
        user = user or self.user
        body = {"scopes": [f"{scope}!user={user}" for scope in scopes], "note": "for the tests"}
        return str(self.request("POST", f"/users/{user}/tokens", body)["token"])

    def servers(self, user: str | None = None) -> Mapping[str, Any]:
        """Return the named servers of a user, also stopped ones, by name."""
        model = self.request("GET", f"/users/{user or self.user}?include_stopped_servers=1")
        return {name: server for name, server in model["servers"].items() if name}

    def requested(self) -> Counter[str]:
        """Return how often clients have requested the start of each server, by its name."""
        pattern = re.compile(r"POST .*/servers/([^/]+)")
        matches = ((pattern.fullmatch(request), count) for request, count in self.front.requests.items())
        return Counter({match[1]: count for match, count in matches if match})

    def started(self) -> Counter[str]:
        """Return how often the hub has started each server, by its name."""
        return Counter(re.findall(r"start of the server (\S+)", self.log.read_text()))

    def add_kernel(self, name: str, python: str) -> None:
        """Let the servers offer the ipykernel of a Python as a kernel."""
        _write_kernel(self.log.parent, name, python)

    def start_server(self, name: str, **options: object) -> None:
        """Request a server as the administrator."""
        self.request("POST", f"/users/{self.user}/servers/{name}", {"user_options": options})

    def remove_server(self, name: str) -> None:
        """Request the deletion of a server as the administrator, if it exists."""
        with contextlib.suppress(httpx.HTTPStatusError):
            self.request("DELETE", f"/users/{self.user}/servers/{name}", {"remove": True})

    def clear(self) -> None:
        """Forget all faults of the proxy, and delete all servers. Return when no server exists any more."""
        self.front.clear()
        for name in self.servers():
            self.remove_server(name)
        deadline = time.monotonic() + _STOP_SECONDS
        while servers := self.servers():
            assert time.monotonic() < deadline, f"these servers still exist: {servers}"
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        """Stop the hub, its proxy, and all single-user servers."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def serving(traits: Mapping[str, object] | None = None, *, base_path: str = "/") -> Iterator[Hub]:
    """Start a hub with one user, and stop it at the end of the block.

    Args:
        traits: further configuration, such as `{"JupyterHub.named_server_limit_per_user": 1}`.
        base_path: the path of the hub and its servers on the proxy.
    """
    directory = Path(tempfile.mkdtemp(prefix="topgallant-hub-"))
    try:
        with FrontProxy() as front, _reserved_ports(3) as ports:
            front.proxy_port, front.hub_port, api_port = ports
            front.base_path = base_path
            hub = _start(directory, front, api_port, traits or {})
            try:
                _wait_until_ready(hub)
                hub.request("POST", f"/users/{hub.user}")
                hub.token = hub.new_token()
                yield hub
            finally:
                hub.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _start(directory: Path, front: FrontProxy, api_port: int, traits: Mapping[str, object]) -> Hub:
    admin_token = secrets.token_hex(16)
    settings = {
        "directory": str(directory),
        "url": f"http://{ADDRESS}:{front.proxy_port}{front.base_path}",
        "hub_url": f"http://{ADDRESS}:{front.hub_port}",
        "proxy_api_url": f"http://{ADDRESS}:{api_port}",
        "proxy_token": secrets.token_hex(16),
        "proxy_command": [str(Path(sys.executable).parent / "configurable-http-proxy")],
        "admin_token": admin_token,
        "traits": dict(traits),
        "environment": _environment(directory),
    }
    variables = {"HUB_OF_TESTS": json.dumps(settings), "PYTHONPATH": _module_path(directory)}
    config = Path(__file__).with_name("hub_config.py")
    log = directory / "hub.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(config)],
            cwd=directory,
            env=os.environ | variables,
            stdout=stream,
            stderr=stream,
        )
    return Hub(front, admin_token, log, process)


def _environment(directory: Path) -> dict[str, str]:
    """Return the variables of the single-user servers, after creating the kernels that these servers offer."""
    for name, version in KERNELS.items():
        _create_kernel(directory, name, version)
    return {
        "PYTHONPATH": _module_path(directory),
        "JUPYTER_PATH": str(directory / "jupyter"),
        "JUPYTER_CONFIG_DIR": str(directory / "config"),
        "JUPYTER_RUNTIME_DIR": str(directory / "runtime"),
        "IPYTHONDIR": str(directory / "ipython"),
        "JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp",
    }


def _module_path(directory: Path) -> str:
    """Return a PYTHONPATH without the parser of IRIs, whose import takes seconds of CPU time in each process."""
    hidden = directory / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "rfc3987_syntax.py").write_text("raise ImportError('the tests need no parser of IRIs')\n")
    return os.pathsep.join(map(str, (hidden, places.builtin_root())))


def _create_kernel(directory: Path, name: str, version: str) -> None:
    """Create an environment with ipykernel and the module `paint`, and its kernel."""
    environment = directory / "environments" / name
    venv.create(environment, symlinks=True)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / python / "site-packages"
    (packages / "paint.py").write_text(f'__version__ = "{version}"\n')
    (packages / "ipykernel.pth").write_text(f"{_site_packages()}\n")
    _write_kernel(directory, name, str(environment / "bin/python"))


def _write_kernel(directory: Path, name: str, python: str) -> None:
    kernel = directory / "jupyter/kernels" / name
    kernel.mkdir(parents=True)
    arguments = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": arguments, "display_name": name, "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))


def _site_packages() -> Path:
    import ipykernel

    return Path(ipykernel.__file__).parents[1]


def _wait_until_ready(hub: Hub) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(httpx.HTTPError):
            hub.request("GET", "/")
            return
        assert hub.process.poll() is None, hub.log.read_text()[-3000:]
        assert time.monotonic() < deadline, hub.log.read_text()[-3000:]
        time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def _reserved_ports(count: int) -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(reserved_ports.reserve(ADDRESS)) for _ in range(count)]
        yield [each.getsockname()[1] for each in sockets]
