"""Executes a command in a container, as `kubectl exec` does, with standard input and output.

The websocket uses the protocol `v4.channel.k8s.io`: each message is one byte for the channel, then the content. The
official client's own websockets have no timeout and may wait for ever.
"""

from __future__ import annotations

import json
import ssl
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from toolbox.kubernetes.api.connection import Cluster, Unavailable
from toolbox.kubernetes.api.objects import POD

if TYPE_CHECKING:
    from kubernetes.client import Configuration
    from websocket import WebSocket

_PROTOCOL: Final = "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR = range(4)
_MOST_BYTES: Final = 1 << 23  # limit of unread output: the agent sends the next piece only on request
_SECONDS: Final = 30.0  # timeout to connect, and to send a message


class Execution:
    """A command that runs in a container. Its output is returned as raw bytes."""

    def __init__(self, cluster: Cluster, connection: WebSocket) -> None:
        self._cluster = cluster
        self._connection = connection
        self._heard: defaultdict[int, bytearray] = defaultdict(bytearray)

    def send(self, content: bytes) -> None:
        """Write to the standard input of the command."""
        self._connection.settimeout(_SECONDS)
        self._connection.send_bytes(bytes([_STDIN]) + content)

    def read(self, count: int, timeout: float) -> bytes:
        """Return `count` bytes of the command's output, or fewer if the command has ended.

        Raises:
            Unavailable: no output arrived for `timeout` seconds, or the connection was lost.
        """
        output = self._heard[_STDOUT]
        deadline = time.monotonic() + timeout
        while len(output) < count and self._connection.connected:
            before = len(output)
            if not self._listen(deadline):
                raise Unavailable(f"{self._cluster.label}: a command in a pod printed nothing for {timeout:.0f} s")
            if len(output) > before:
                deadline = time.monotonic() + timeout
        found = bytes(output[:count])
        del output[:count]
        return found

    def end(self, timeout: float) -> str:
        """Wait until the command ends, and return its error message; empty if the command succeeded."""
        complaints = "\n".join(self.complaints(timeout)).strip()
        status = _status(bytes(self._heard.pop(_ERROR, b"")))
        if status.get("status") == "Success":
            return ""
        fate = "it does not end" if self._connection.connected else "the connection was interrupted"
        return complaints or str(status.get("message") or fate)

    def complaints(self, timeout: float) -> list[str]:
        """Wait until the command ends, and return the lines of its standard error."""
        deadline = time.monotonic() + timeout
        while self._connection.connected and self._listen(deadline):
            continue
        return self._heard.pop(_STDERR, b"").decode(errors="replace").splitlines()

    def _listen(self, deadline: float) -> bool:
        """Receive a message, and return whether one arrived before the deadline."""
        from websocket import ABNF, WebSocketTimeoutException

        if (left := deadline - time.monotonic()) <= 0:
            return False
        self._connection.settimeout(left)
        try:
            kind, message = self._connection.recv_data_frame(control_frame=True)
        except WebSocketTimeoutException:
            return False
        if kind in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) and message.data:
            heard = self._heard[message.data[0]]
            heard += message.data[1:]
            if len(heard) > _MOST_BYTES:
                raise Unavailable(f"{self._cluster.label}: a command in a pod sends more output than was requested")
        return True

    @classmethod
    @contextmanager
    def of(cls, cluster: Cluster, pod: str, container: str, command: Sequence[str]) -> Iterator[Self]:
        """Start a command, and close the connection to it in the end.

        Raises:
            ApiError: the container does not exist or does not run.
            Unavailable: the server or the node does not answer.
        """
        from websocket import WebSocketException

        path = POD.path(cluster.namespace, pod, "exec")
        query = [("container", container), *(("command", word) for word in command)]
        query += [(channel, "true") for channel in ("stdin", "stdout", "stderr")]
        try:
            connection = _connect(cluster, path, query)
        except Exception as error:  # the client passes on the exceptions of several libraries
            raise cluster.refused(_answered(error)) from error
        try:
            yield cls(cluster, connection)
        except (OSError, ValueError, WebSocketException) as error:
            raise Unavailable(f"{cluster.label}: the connection to a pod was interrupted: {error}") from error
        finally:
            connection.close()
            connection.shutdown()  # type: ignore[no-untyped-call]  # not by `close` if the server closed first


def _connect(cluster: Cluster, path: str, query: list[tuple[str, str]]) -> WebSocket:
    """Return a connected websocket, with the official client's settings for proxies and TLS."""
    from kubernetes.stream.ws_client import get_websocket_url, websocket_proxycare
    from websocket import WebSocket

    configuration = cluster.credentials.configuration
    api = cluster.new_client()
    _, url, headers, *_ = api.param_serialize("GET", path, query_params=query, auth_settings=["BearerToken"])
    told = [f"{name}: {value}" for name, value in headers.items() if name == "authorization"]
    options = {"header": [*told, f"sec-websocket-protocol: {_PROTOCOL}"], "timeout": _SECONDS}
    found = WebSocket(sslopt=_security(configuration))
    found.connect(  # type: ignore[no-untyped-call]
        get_websocket_url(url), **websocket_proxycare(options, configuration, url, headers)
    )
    return found


def _security(configuration: Configuration) -> dict[str, Any]:
    """Return the official client's TLS settings as options of a websocket."""
    import certifi

    found: dict[str, Any] = {
        "certfile": configuration.cert_file,
        "keyfile": configuration.key_file,
        "server_hostname": configuration.tls_server_name,
    }
    if not configuration.verify_ssl:
        return {**found, "cert_reqs": ssl.CERT_NONE}
    return {
        **found,
        "cert_reqs": ssl.CERT_REQUIRED,
        "ca_certs": configuration.ssl_ca_cert or certifi.where(),
        "check_hostname": configuration.assert_hostname is not False,
    }


def _answered(error: Exception) -> Exception:
    """Return a failed handshake as the `ApiException` that the client raises for other requests."""
    from kubernetes.client import ApiException
    from websocket import WebSocketBadStatusException

    if not isinstance(error, WebSocketBadStatusException):
        return error
    found = ApiException(status=error.status_code, reason=str(error))
    found.body = (error.resp_body or b"").decode(errors="replace")
    return found


def _status(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
