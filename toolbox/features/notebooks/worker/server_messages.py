"""Messages of the websocket of a kernel: their format, and what they say about the kernel and the server."""

from __future__ import annotations

import json
import re
import struct
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any, Final

_LIMIT_WARNING: Final = re.compile(r"\s*IOPub (data|message) rate exceeded")
_LIMITS: Final = {"data": "iopub_data_rate_limit", "message": "iopub_msg_rate_limit"}


class KernelSession:
    """The session of a kernel, which each of its messages names: it stays the same until the kernel is restarted.

    Some kernels name the session of their client, or a new session in each message. For such kernels, a restart cannot
    be recognised.

    Args:
        client: the session of the client. The server uses it for its own messages.
    """

    def __init__(self, client: str) -> None:
        self._client = client
        self._latest = ""
        self._confirmed = ""

    def is_other(self, session: object) -> bool:
        """Record the session of a message, and return whether another kernel process has sent the message."""
        if not isinstance(session, str) or session in ("", self._client):
            return False
        if session == self._latest:
            self._confirmed = self._confirmed or session
        self._latest = session
        return self._confirmed not in ("", session)


def decoded(content: str | bytes) -> dict[str, Any]:
    """Return a message from the websocket. In binary messages, buffers follow the JSON."""
    if isinstance(content, str):
        message: dict[str, Any] = json.loads(content)
        return message
    (count,) = struct.unpack_from("!I", content)
    offsets = [*struct.unpack_from(f"!{count}I", content, 4), len(content)]
    parts = [content[start:end] for start, end in pairwise(offsets)]
    message = json.loads(parts[0])
    message["buffers"] = parts[1:]
    return message


def kernel_info_request(session: str, message_id: str) -> dict[str, Any]:
    """Return a message that asks a kernel for information, on the channel that does not wait for a running cell."""
    header = {
        "msg_id": message_id,
        "msg_type": "kernel_info_request",
        "session": session,
        "username": "",
        "date": datetime.now(timezone.utc).isoformat(),
        "version": "5.3",
    }
    parts: dict[str, Any] = {"parent_header": {}, "metadata": {}, "content": {}, "buffers": []}
    return {"header": header, **parts, "channel": "control"}


def exceeded_limit(message: dict[str, Any], client: str) -> str:
    """Return the limit of the server that was exceeded according to a message; empty for other messages.

    The server reports this as an output, in the session of the client and not in the session of the kernel.

    Args:
        client: the session of the client.
    """
    if message["msg_type"] != "stream" or message["header"].get("session") != client:
        return ""
    warning = _LIMIT_WARNING.match(message["content"]["text"])
    return _LIMITS[warning[1]] if warning else ""
