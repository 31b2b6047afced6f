"""Sends requests to the TPU API (v2), by gRPC.

Each try of a request has a deadline, and requests are repeated while the API is unavailable. All requests may be
repeated: the names are chosen by the caller, so a repeated creation fails with `is_there`, and a repeated deletion with
`is_absent`. The retries of the client library are not used, because its pauses cannot be cancelled.

A call ends at once if the scope of its thread is cancelled.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Self

from toolbox.features.tpu import api_endpoint, api_errors
from toolbox.features.tpu.api_endpoint import ApiEndpoint
from toolbox.features.tpu.api_errors import LOGIN_HINT, TpuApiError
from toolbox.features.tpu.extra import EXTRA
from toolbox.features.tpu.tpu_request import TpuRequest
from toolbox.features.tpu.tpu_states import (
    Fault,
    Location,
    Node,
    Operation,
    QueuedResource,
    ZoneView,
    is_queued_resource,
)
from toolbox.ground.model import backoff
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate
from toolbox.ground.system import cancellation, extras, signals

if TYPE_CHECKING:
    import grpc
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport, TpuTransport

log = logging.getLogger(__name__)

TIMEOUT: Final = 90.0
"""The default for how many seconds a request is repeated while the API is unavailable."""
_TRY_SECONDS: Final = 20.0  # the deadline of one try
_GRACE_SECONDS: Final = 5.0  # gRPC reports the deadline of a call itself, a moment later
_FIRST_PAUSE: Final = 0.3
_LONGEST_PAUSE: Final = 10.0
_PAGE: Final = 500
_LONGEST_ERROR: Final = 600
_MAX_PAGES: Final = 200
_ALL_ZONES: Final = "/locations/-"
_CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", 1 << 28),
    # The default pauses between attempts to connect grow to two minutes, longer than the timeout of a request.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 5000),
)
# A connection to this machine must not use the proxy of the user.
_LOOPBACK_OPTIONS: Final = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
_NO_CREDENTIALS: Final = (
    "there are no credentials for Google Cloud: run `gcloud auth application-default login`, or set "
    "GOOGLE_APPLICATION_CREDENTIALS to the file of a service account"
)


class TpuApi:
    """A connection to the TPU API. It may be used by several threads.

    Args:
        endpoint: the address of the API.
        try_seconds: the deadline of one try of a request.

    Raises:
        ConfigurationError: the client library is not installed, or there are no credentials.
    """

    def __init__(
        self,
        endpoint: ApiEndpoint | None = None,
        *,
        timeout: float = TIMEOUT,
        try_seconds: float = _TRY_SECONDS,
    ) -> None:
        extras.require(EXTRA, "the TPU API")
        self._endpoint = endpoint or ApiEndpoint(api_endpoint.DEFAULT)
        self._timeout = timeout
        self._try_seconds = try_seconds
        self._transport = _transport(self._endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def limited(self, timeout: float) -> TpuApi:
        """Return the same connection, which repeats requests for at most this number of seconds.

        The connection is closed by the original object only.
        """
        limited = copy.copy(self)
        limited._timeout = min(self._timeout, timeout)  # noqa: SLF001  # it is another object of this class
        return limited

    def node(self, name: str) -> Node:
        """Return the node with a full name.

        Raises:
            TpuApiError: the request failed; `is_absent` if there is no such node.
        """
        from google.cloud import tpu_v2

        from toolbox.features.tpu import conversions

        request = tpu_v2.GetNodeRequest(name=name)
        return conversions.node_of(self._call("get_node", request, f"the node {name} cannot be read", name=name))

    def nodes(self, location: Location) -> list[Node]:
        """Return all nodes of a location.

        Raises:
            TpuApiError: the request failed, or the zone did not answer.
        """
        from google.cloud import tpu_v2

        from toolbox.features.tpu import conversions

        action = f"the nodes of {location} cannot be listed"
        request = tpu_v2.ListNodesRequest(parent=str(location), page_size=_PAGE)
        return [conversions.node_of(node) for page in self._pages("list_nodes", request, action) for node in page.nodes]

    def queued_resource(self, name: str) -> QueuedResource:
        """Return the queued resource with a full name.

        Raises:
            TpuApiError: the request failed; `is_absent` if there is no such queued resource.
        """
        from google.cloud import tpu_v2

        from toolbox.features.tpu import conversions

        action = f"the queued resource {name} cannot be read"
        request = tpu_v2.GetQueuedResourceRequest(name=name)
        return conversions.queued_resource_of(self._call("get_queued_resource", request, action, name=name))

    def queued_resources(self, location: Location) -> list[QueuedResource]:
        """Return all queued resources of a location.

        Raises:
            TpuApiError: the request failed, or the zone did not answer.
        """
        from google.cloud import tpu_v2

        from toolbox.features.tpu import conversions

        action = f"the queued resources of {location} cannot be listed"
        request = tpu_v2.ListQueuedResourcesRequest(parent=str(location), page_size=_PAGE)
        pages = self._pages("list_queued_resources", request, action)
        return [conversions.queued_resource_of(each) for page in pages for each in page.queued_resources]

    def view(self, location: Location, *, queued: bool = True) -> ZoneView:
        """Return all nodes of a location, and its queued resources if `queued`.

        Raises:
            TpuApiError: a request failed.
        """
        # Queued resources are listed first, so that the later list of nodes contains the nodes of each ACTIVE one.
        queued_resources = self.queued_resources(location) if queued else []
        return ZoneView.of(self.nodes(location), queued_resources)

    def create(self, request: TpuRequest) -> Operation:
        """Request a node or a queued resource, and return the operation that creates it.

        Raises:
            TpuApiError: the request failed; `is_there` if the name is already in use.
        """
        from toolbox.features.tpu import conversions

        action = f"{request.full_name} cannot be created"
        parent = str(request.location)
        if request.description.is_queued:
            message = conversions.create_queued_resource(request)
            return conversions.operation_of(self._call("create_queued_resource", message, action, parent=parent))
        return conversions.operation_of(
            self._call("create_node", conversions.create_node(request), action, parent=parent)
        )

    def find(self, name: str) -> Node | QueuedResource | None:
        """Return the node or the queued resource with a full name; None if there is no such object.

        Raises:
            TpuApiError: the request failed.
        """
        try:
            return self.queued_resource(name) if is_queued_resource(name) else self.node(name)
        except TpuApiError as error:
            if error.is_absent:
                return None
            raise

    def delete(self, name: str) -> Operation:
        """Request the deletion of a node, or of a queued resource with its nodes, and return the operation.

        Args:
            name: the full name.

        Raises:
            TpuApiError: the request failed; `is_absent` if there is no such object, `is_busy` if another operation on
                the object is going on.
        """
        from google.cloud import tpu_v2

        from toolbox.features.tpu import conversions

        action = f"{name} cannot be deleted"
        if is_queued_resource(name):
            request = tpu_v2.DeleteQueuedResourceRequest(name=name, force=True)
            return conversions.operation_of(self._call("delete_queued_resource", request, action, name=name))
        request = tpu_v2.DeleteNodeRequest(name=name)
        return conversions.operation_of(self._call("delete_node", request, action, name=name))

    def operation(self, name: str) -> Operation:
        """Return the operation with a full name. The error of the operation is its `fault`.

        Raises:
            TpuApiError: the request failed.
        """
        from google.longrunning import operations_pb2

        from toolbox.features.tpu import conversions

        request = operations_pb2.GetOperationRequest(name=name)
        action = f"the operation {name} cannot be read"
        return conversions.operation_of(self._call("get_operation", request, action, name=name))

    def has_accelerator_type(self, location: Location, name: str) -> bool:
        """Return whether a zone offers an accelerator type.

        Raises:
            TpuApiError: the request failed, for example because the account may not use the zone.
        """
        from google.cloud import tpu_v2

        request = tpu_v2.GetAcceleratorTypeRequest(name=f"{location}/acceleratorTypes/{name}")
        return self._exists("get_accelerator_type", request, f"the accelerator types of {location} cannot be read")

    def has_runtime_version(self, location: Location, name: str) -> bool:
        """Return whether a zone has a runtime version.

        Raises:
            TpuApiError: the request failed, for example because the account may not use the zone.
        """
        from google.cloud import tpu_v2

        request = tpu_v2.GetRuntimeVersionRequest(name=f"{location}/runtimeVersions/{name}")
        return self._exists("get_runtime_version", request, f"the runtime versions of {location} cannot be read")

    def _exists(self, method: str, request: Any, action: str) -> bool:
        try:
            self._call(method, request, action, name=request.name)
        except TpuApiError as error:
            if error.is_absent:
                return False
            raise
        return True

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def _pages(self, method: str, request: Any, action: str) -> Iterator[Any]:
        for _ in range(_MAX_PAGES):
            page = self._call(method, request, action, parent=request.parent)
            if unreachable := ", ".join(page.unreachable):
                if not request.parent.endswith(_ALL_ZONES):  # the missing objects would count as deleted
                    raise api_errors.error_of(Fault("UNAVAILABLE", f"{unreachable} did not answer"), action)
                log.warning("%s completely: %s did not answer", action, unreachable)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def _call(self, method: str, request: Any, action: str, **routing: str) -> Any:
        """Send a request, and repeat it while the API is unavailable."""
        deadline = time.monotonic() + self._timeout
        tries, is_uncertain = 0, False
        while True:
            left = max(1.0, deadline - time.monotonic())
            result = self._try(method, request, routing, min(self._try_seconds, left))
            if not isinstance(result, Fault):
                return result
            is_uncertain |= api_errors.is_uncertain(result)
            left = deadline - time.monotonic()
            if left <= 0 or not api_errors.is_temporary(result):
                note = f", {tries + 1} tries in {self._timeout:.0f} s" if api_errors.is_temporary(result) else ""
                raise api_errors.error_of(result, action, note=note, is_uncertain=is_uncertain)
            pause = min(left, backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE))
            log.debug("%s: %s (%s): retrying in %.1f s", action, result.message, result.code, pause)
            cancellation.current().sleep(pause)
            tries += 1

    def _try(self, method: str, request: Any, routing: dict[str, str], seconds: float) -> Any:
        """Send a request once, and return the response or the fault.

        Raises:
            Cancelled: the scope of this thread was cancelled.
        """
        # The library has locks that its threads need, so a signal must not raise an error inside the library.
        with signals.deferred():
            result = self._try_undisturbed(method, request, routing, seconds)
        signals.check()
        return result

    def _try_undisturbed(self, method: str, request: Any, routing: dict[str, str], seconds: float) -> Any:
        import grpc

        scope = cancellation.current()
        scope.check()
        # The stub and not the method of the client, because only the stub returns a call that can be cancelled.
        stub: grpc.UnaryUnaryMultiCallable[Any, Any] = getattr(self._transport, method)
        call = stub.future(request, timeout=seconds, metadata=_metadata(routing))
        is_done = threading.Event()
        call.add_done_callback(lambda _: is_done.set())
        try:
            deadline = time.monotonic() + seconds + _GRACE_SECONDS
            while not is_done.wait(signals.WAIT_SECONDS) and time.monotonic() < deadline:
                scope.check()
                signals.check()
            return call.result(timeout=0)
        except grpc.FutureTimeoutError:
            return Fault("DEADLINE_EXCEEDED", f"there was no response in {seconds:.0f} s")
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            return _fault(error)
        finally:
            call.cancel()


def _fault(error: Exception) -> Fault:
    from google.api_core import exceptions

    if not hasattr(error, "code"):
        return Fault("CANCELLED", "the call was cancelled")
    translated = exceptions.from_grpc_error(error)
    code = translated.grpc_status_code.name if translated.grpc_status_code is not None else "UNKNOWN"
    return Fault(code, str(translated.message), str(translated.reason or ""))


def _metadata(routing: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the headers of a request: the version of the client, and the object by which Google routes the request."""
    from google.api_core import gapic_v1
    from google.cloud.tpu_v2.services.tpu.transports.base import DEFAULT_CLIENT_INFO

    header = gapic_v1.routing_header.to_grpc_metadata(tuple(routing.items()))
    return (DEFAULT_CLIENT_INFO.to_grpc_metadata(), header)


def _transport(endpoint: ApiEndpoint) -> TpuTransport:
    from google.auth import exceptions
    from google.cloud import tpu_v2

    # google-auth logs a traceback for each failed login, in addition to the error that the call returns.
    logging.getLogger("grpc._plugin_wrapping").setLevel(logging.CRITICAL)
    # The client library logs whole requests on the level DEBUG. They contain startup scripts.
    logging.getLogger("google").setLevel(logging.WARNING)
    try:
        client = tpu_v2.TpuClient(
            transport=_plain_transport if not endpoint.has_tls else _tls_transport,
            client_options={"api_endpoint": endpoint.address},
        )
    except exceptions.DefaultCredentialsError as error:
        raise ConfigurationError(f"{_NO_CREDENTIALS}\n{_line(error)}") from error
    except exceptions.GoogleAuthError as error:  # some credentials are exchanged for a token at once
        if error.retryable or isinstance(error, exceptions.TransportError):
            raise InfrastructureError(f"Google Cloud gives no token: {_line(error)}") from error
        raise ConfigurationError(f"Google Cloud refuses the credentials: {_line(error)}\n{LOGIN_HINT}") from error
    return client.transport


def _line(error: Exception) -> str:
    """Return the text of an error on one line of limited length."""
    return truncate(" ".join(clean(str(error)).split()), _LONGEST_ERROR)


def _tls_transport(**settings: Any) -> TpuGrpcTransport:
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

    return TpuGrpcTransport(**settings, channel=_channel_factory())


def _channel_factory() -> Callable[..., grpc.Channel]:
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

    def create(host: str, **settings: Any) -> grpc.Channel:
        return TpuGrpcTransport.create_channel(host, **{**settings, "options": _CHANNEL_OPTIONS})

    return create


def _plain_transport(*, host: str, **_settings: Any) -> TpuGrpcTransport:
    import grpc
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

    channel = grpc.insecure_channel(host, options=(*_CHANNEL_OPTIONS, *_LOOPBACK_OPTIONS))
    return TpuGrpcTransport(channel=channel)
