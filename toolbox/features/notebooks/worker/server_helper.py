"""A Python kernel of a Jupyter server that does what the REST API of the server cannot do.

It imports `server_programs.py`, whose functions the worker calls. The results are in the replies to requests, because a
server drops outputs that arrive too fast, but never replies.
"""

from __future__ import annotations

import ast
import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty
from typing import Any, Final

from jupyter_client.session import Session

from toolbox.features.notebooks.worker import server_programs
from toolbox.features.notebooks.worker.execution_place import PlaceError
from toolbox.features.notebooks.worker.failure_texts import one_line
from toolbox.features.notebooks.worker.notebook_results import Fault
from toolbox.features.notebooks.worker.server_channels import KernelSocket
from toolbox.features.notebooks.worker.server_rest import ReplyError, ServerRest, quoted
from toolbox.features.notebooks.worker.time_limits import CALL_SECONDS, SERVER_START_SECONDS
from toolbox.ground.kit import own_cgroups, process_tree, source_code

_LOOK_SECONDS: Final = 0.2


@contextmanager
def session(rest: ServerRest, directory: str, name: str, kernel: str | None) -> Iterator[str]:
    """Start a kernel in a directory of the server, yield the id of the kernel, and shut the kernel down at the end.

    Args:
        name: the name of the session, unique in the directory. A second call with the same name uses the same kernel.

    Raises:
        PlaceError: the server cannot start the kernel.
    """
    body = {
        "path": f"{directory}/{name}.ipynb",  # the kernel starts in the directory of this file; the file need not exist
        "name": name,
        "type": "notebook",
        "kernel": {"name": kernel} if kernel else {},
    }
    try:
        document = rest.json("POST", "/api/sessions", body, seconds=SERVER_START_SECONDS)
        session_id, kernel_id = str(document["id"]), str(document["kernel"]["id"])
    except ReplyError as error:
        text = one_line(str(error))
        raise PlaceError(Fault.NO_KERNEL, f"the server cannot start the kernel {kernel or ''}: {text}") from None
    except (KeyError, TypeError):
        raise PlaceError(Fault.SERVER, "the server's reply to the start of a kernel is malformed") from None
    try:
        yield kernel_id
    finally:
        with suppress(ReplyError, PlaceError):  # the kernel has ended already, or the server is gone
            rest.content("DELETE", f"/api/sessions/{quoted(session_id)}", seconds=CALL_SECONDS)


def end_sessions(rest: ServerRest, directory: str) -> None:
    """Shut down the kernels of a directory of the server, also a kernel whose start was not confirmed.

    Raises:
        PlaceError: the server does not answer.
    """
    for model in rest.json("GET", "/api/sessions"):
        if str(model["path"]).startswith(f"{directory}/"):
            rest.content("DELETE", f"/api/sessions/{quoted(str(model['id']))}", seconds=CALL_SECONDS)


class KernelDialog:
    """Sends requests to a kernel, one at a time, over a separate connection."""

    def __init__(self, rest: ServerRest, kernel_id: str) -> None:
        self._session = Session()
        self.socket = KernelSocket(rest, kernel_id, self._session.session)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def execute(
        self,
        code: str,
        seconds: float,
        *,
        expression: str = "",
        on_output: Callable[[str], None] = lambda _: None,
        stop: threading.Event | None = None,
    ) -> dict[str, Any]:
        """Execute code in the kernel, and return the content of the reply.

        Args:
            expression: an expression to evaluate after the code.
            on_output: called with each piece of the standard output.
            stop: when this event is set, stop waiting for the reply.

        Raises:
            PlaceError: the kernel does not answer in time, or has ended.
        """
        content = {
            "code": code,
            "silent": True,
            "store_history": False,
            "user_expressions": {"value": expression} if expression else {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        request = self._session.msg("execute_request", content)
        self.socket.channels["shell"].send(request)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (stop is not None and stop.is_set()):
            self._pass_outputs(request["msg_id"], on_output)
            with suppress(Empty):
                reply = self.socket.channels["shell"].take(_LOOK_SECONDS)
                if reply["parent_header"].get("msg_id") == request["msg_id"]:
                    self._pass_outputs(request["msg_id"], on_output)
                    return dict(reply["content"])
            if self.socket.lost:
                raise PlaceError(Fault.SERVER, self.socket.lost)
            if self.socket.has_ended:
                raise PlaceError(Fault.KERNEL_DIED, "a helper kernel on the Jupyter server died")
        raise PlaceError(Fault.SERVER, f"a helper kernel on the Jupyter server does not answer within {seconds:g} s")

    def evaluate(self, expression: str, seconds: float = CALL_SECONDS) -> Any:
        """Return the value of an expression that is a constant, such as a number or a text.

        Raises:
            PlaceError: the kernel does not answer, or the expression has no such value.
        """
        reply = self.execute("None", seconds, expression=expression)
        try:
            value = reply["user_expressions"]["value"]
            return ast.literal_eval(value["data"]["text/plain"])
        except (KeyError, TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
            raise PlaceError(Fault.SERVER, "a kernel on the Jupyter server cannot evaluate an expression") from None

    def _pass_outputs(self, request: str, on_output: Callable[[str], None]) -> None:
        with suppress(Empty):
            while True:
                message = self.socket.channels["iopub"].take(0)
                is_output = message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == request
                if is_output and isinstance(message["content"].get("text"), str):
                    on_output(message["content"]["text"])


class ServerHelper:
    """A Python kernel with the functions of `server_programs.py`. The functions are called one at a time."""

    def __init__(self, dialog: KernelDialog) -> None:
        self._dialog = dialog

    def call(self, name: str, *arguments: object, seconds: float = CALL_SECONDS) -> Any:
        """Call a function of `server_programs.py`, and return its result.

        Raises:
            PlaceError: the function failed, or the kernel does not answer.
        """
        request = base64.b64encode(json.dumps([name, arguments]).encode()).decode()
        result = self._dialog.evaluate(f"server_programs.call({request!r})", seconds)
        try:
            document = json.loads(base64.b64decode(result))
            if "error" not in document:
                return document["value"]
        except (KeyError, TypeError, ValueError):
            raise PlaceError(Fault.SERVER, "a helper kernel on the Jupyter server sent a malformed reply") from None
        text = one_line(str(document["error"]))
        raise PlaceError(Fault.ENVIRONMENT, f"a program cannot be run on the Jupyter server: {text}")


@contextmanager
def started(rest: ServerRest, directory: str, name: str, kernel: str) -> Iterator[ServerHelper]:
    """Start a helper in a directory of the server, and shut it down at the end of the context.

    Raises:
        PlaceError: the kernel does not start.
    """
    with session(rest, directory, name, kernel) as kernel_id, dialog(rest, kernel_id) as talk:
        code = source_code.program(server_programs.__name__, own_cgroups, process_tree, server_programs)
        reply = talk.execute(code, SERVER_START_SECONDS)
        if reply.get("status") != "ok":
            text = one_line(f"{reply.get('ename')}: {reply.get('evalue')}")
            raise PlaceError(Fault.ENVIRONMENT, f"the kernel {kernel} cannot run programs: {text}")
        yield ServerHelper(talk)


@contextmanager
def dialog(rest: ServerRest, kernel_id: str) -> Iterator[KernelDialog]:
    """Connect to a kernel, and close the connection at the end of the context.

    Raises:
        PlaceError: the connection cannot be opened.
    """
    talk = KernelDialog(rest, kernel_id)
    try:
        if not talk.socket.wait_until_connected():
            raise PlaceError(Fault.SERVER, talk.socket.lost or "the websocket of a kernel cannot be opened")
        yield talk
    finally:
        talk.close()
