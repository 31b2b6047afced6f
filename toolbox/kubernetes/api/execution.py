"""Executes a command in a container, by the API server and the kubelet: `kubectl exec`, with its input and output.

A message of the websocket is one of the protocol `v4.channel.k8s.io`: a byte that names a channel, and what is said on
it. The official client's own websockets wait for ever, and take no timeout.
"""

from __future__ import annotations

import json
import ssl
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from toolbox.kubernetes.api.connection import Away, Cluster
from toolbox.kubernetes.api.objects import POD

if TYPE_CHECKING:
    from kubernetes.client import Configuration
    from websocket import WebSocket

_PROTOCOL: Final = "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR = range(4)
_MOST_BYTES: Final = 1 << 23  # of unread output: the agent sends the next piece only when it is asked
_SECONDS: Final = 30.0  # to connect, between two pieces of that answer, and to be rid of what is sent


class Execution:
    """A command that runs in a container.

    What it prints comes as it was printed, in bytes.
    """

    def __init__(self, cluster: Cluster, connection: WebSocket) -> None:
        self._cluster = cluster
        self._connection = connection
        self._heard: defaultdict[int, bytearray] = defaultdict(bytearray)

    def send(self, content: bytes) -> None:
        """Write to its standard input."""
        self._connection.settimeout(_SECONDS)
        self._connection.send_bytes(bytes([_STDIN]) + content)

    def read(self, count: int, patience: float) -> bytes:
        """Return so many bytes of its output, or what there is where it has ended.

        Raises:
            Away: nothing has come for so many seconds, or the connection was broken off.
        """
        output = self._heard[_STDOUT]
        deadline = time.monotonic() + patience
        while len(output) < count and self._connection.connected:
            before = len(output)
            if not self._listen(deadline):
                raise Away(f"{self._cluster.label}: a command in a pod says nothing for {patience:.0f} s")
            if len(output) > before:
                deadline = time.monotonic() + patience
        found = bytes(output[:count])
        del output[:count]
        return found

    def end(self, patience: float) -> str:
        """Wait for its end, and return what is to be said of that: nothing where it went well."""
        complaints = "\n".join(self.complaints(patience)).strip()
        status = _status(bytes(self._heard.pop(_ERROR, b"")))
        if status.get("status") == "Success":
            return ""
        fate = "it does not end" if self._connection.connected else "the connection was broken off"
        return complaints or str(status.get("message") or fate)

    def complaints(self, patience: float) -> list[str]:
        """Wait for its end, and return what it has printed on its standard error, a text a line."""
        deadline = time.monotonic() + patience
        while self._connection.connected and self._listen(deadline):
            continue
        return self._heard.pop(_STDERR, b"").decode(errors="replace").splitlines()

    def _listen(self, deadline: float) -> bool:
        """Take in a message, and tell whether one has come in time."""
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
                raise Away(f"{self._cluster.label}: a command in a pod sends more output than was requested")
        return True

    @classmethod
    @contextmanager
    def of(cls, cluster: Cluster, pod: str, container: str, command: Sequence[str]) -> Iterator[Self]:
        """Start a command, and let go of it in the end.

        Raises:
            Refused: there is no such container, or it does not run.
            Away: the server or the node does not answer.
        """
        from websocket import WebSocketException

        path = POD.path(cluster.namespace, pod, "exec")
        query = [("container", container), *(("command", word) for word in command)]
        query += [(channel, "true") for channel in ("stdin", "stdout", "stderr")]
        try:
            connection = _connect(cluster, path, query)
        except Exception as error:  # of the client and of all that it is built on
            raise cluster.refused(_answered(error)) from error
        try:
            yield cls(cluster, connection)
        except (OSError, ValueError, WebSocketException) as error:
            raise Away(f"{cluster.label}: the connection to a pod was broken off: {error}") from error
        finally:
            connection.close()
            connection.shutdown()  # type: ignore[no-untyped-call]  # `close` leaves that to who has closed first


def _connect(cluster: Cluster, path: str, query: list[tuple[str, str]]) -> WebSocket:
    """Return a websocket that is reached and secured as the official client does it."""
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
    """Return what the official client knows of TLS, as a websocket takes it."""
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
    """Return an error as the client tells those of other requests."""
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
