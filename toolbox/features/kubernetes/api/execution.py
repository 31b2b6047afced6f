"""Executes a command in a container, with its standard input and output, as `kubectl exec` does.

The websocket uses the protocol `v4.channel.k8s.io`: each message begins with one byte that names the channel. The
websocket of the official client is not used, because it has no timeout and may wait forever.
"""

from __future__ import annotations

import ssl
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from toolbox.features.kubernetes.api import proxies
from toolbox.features.kubernetes.api.connection import Cluster, Unavailable, json_object
from toolbox.features.kubernetes.api.objects import POD

if TYPE_CHECKING:
    from kubernetes.client import Configuration
    from websocket import WebSocket

_PROTOCOL: Final = "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR = range(4)
_MAX_BYTES: Final = 1 << 23  # the limit for unread output; an agent sends the next piece only on request
_SECONDS: Final = 30.0  # the timeout to connect, and to send a message


class Execution:
    """A command that runs in a container."""

    def __init__(self, cluster: Cluster, connection: WebSocket) -> None:
        self._cluster = cluster
        self._connection = connection
        self._received: defaultdict[int, bytearray] = defaultdict(bytearray)

    def send(self, content: bytes) -> None:
        """Write to the standard input of the command."""
        self._connection.settimeout(_SECONDS)
        self._connection.send_bytes(bytes([_STDIN]) + content)

    def read(self, count: int, timeout: float) -> bytes:
        """Return `count` bytes of the output of the command; fewer bytes if the command has ended.

        Raises:
            Unavailable: no output arrived for `timeout` seconds, or the connection was lost.
        """
        output = self._received[_STDOUT]
        deadline = time.monotonic() + timeout
        while len(output) < count and self._connection.connected:
            old_length = len(output)
            if not self._receive(deadline):
                raise Unavailable(f"{self._cluster.label}: a command in a pod printed nothing for {timeout:.0f} s")
            if len(output) > old_length:
                deadline = time.monotonic() + timeout
        content = bytes(output[:count])
        del output[:count]
        return content

    def end(self, timeout: float) -> str:
        """Wait until the command ends, and return its error message; empty if the command succeeded."""
        error_output = "\n".join(self.error_lines(timeout)).strip()
        status = json_object(self._received.pop(_ERROR, b""))
        if status.get("status") == "Success":
            return ""
        reason = "the command does not end" if self._connection.connected else "the connection was interrupted"
        return error_output or str(status.get("message") or reason)

    def error_lines(self, timeout: float) -> list[str]:
        """Wait until the command ends, and return the lines of its standard error."""
        deadline = time.monotonic() + timeout
        while self._connection.connected and self._receive(deadline):
            continue
        return self._received.pop(_STDERR, b"").decode(errors="replace").splitlines()

    def _receive(self, deadline: float) -> bool:
        """Receive a message, and return whether a message arrived before the deadline."""
        from websocket import ABNF, WebSocketTimeoutException

        if (remaining := deadline - time.monotonic()) <= 0:
            return False
        self._connection.settimeout(remaining)
        try:
            kind, message = self._connection.recv_data_frame(control_frame=True)
        except WebSocketTimeoutException:
            return False
        if kind in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) and message.data:
            received = self._received[message.data[0]]
            received += message.data[1:]
            if len(received) > _MAX_BYTES:
                raise Unavailable(f"{self._cluster.label}: a command in a pod sent too much unread output")
        return True

    @classmethod
    @contextmanager
    def start(cls, cluster: Cluster, pod: str, container: str, command: Sequence[str]) -> Iterator[Self]:
        """Start a command, yield its `Execution`, and close the connection to the command at the end.

        Raises:
            ApiError: the container does not exist, or is not running.
            Unavailable: the server or the node does not answer.
        """
        from websocket import WebSocketException

        path = POD.path(cluster.namespace, pod, "exec")
        query = [("container", container), *(("command", word) for word in command)]
        query += [(channel, "true") for channel in ("stdin", "stdout", "stderr")]
        try:
            connection = _connect(cluster, path, query)
        except Exception as error:  # the client raises exceptions of several libraries
            raise cluster.error_of(error) from error
        try:
            yield cls(cluster, connection)
        except (OSError, ValueError, WebSocketException) as error:
            raise Unavailable(f"{cluster.label}: the connection to a pod was interrupted: {error}") from error
        finally:
            connection.close()
            connection.shutdown()  # type: ignore[no-untyped-call]  # `close` does not close the socket if the server has closed first


def _connect(cluster: Cluster, path: str, query: list[tuple[str, str]]) -> WebSocket:
    """Return a connected websocket, with the official client's settings for TLS."""
    from kubernetes.stream.ws_client import get_websocket_url
    from websocket import WebSocket

    configuration = cluster.credentials.configuration
    url, headers = cluster.url(path, query), {**cluster.authorization(), "Sec-WebSocket-Protocol": _PROTOCOL}
    options: dict[str, Any] = {"header": [f"{name}: {value}" for name, value in headers.items()], "timeout": _SECONDS}
    websocket = WebSocket(sslopt=_security(configuration))
    options |= proxies.websocket_options(cluster.credentials.proxy)
    websocket.connect(get_websocket_url(url), **options)  # type: ignore[no-untyped-call]
    return websocket


def _security(configuration: Configuration) -> dict[str, Any]:
    """Return the TLS settings of the official client as options of a websocket."""
    import certifi

    options: dict[str, Any] = {
        "certfile": configuration.cert_file,
        "keyfile": configuration.key_file,
        "server_hostname": configuration.tls_server_name,
    }
    if not configuration.verify_ssl:
        return {**options, "cert_reqs": ssl.CERT_NONE}
    return {
        **options,
        "cert_reqs": ssl.CERT_REQUIRED,
        "ca_certs": configuration.ssl_ca_cert or certifi.where(),
        "check_hostname": configuration.assert_hostname is not False,
    }
