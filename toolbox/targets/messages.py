"""Checks the messages of an agent before they are used: the host of the agent is not trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from toolbox.ground.kit.attempt_files import STREAMS

Message = Mapping[str, Any]

LONGEST: Final = 1 << 26  # the largest size of a message in bytes; the answer to `list` names all files of an attempt
EVENTS: Final = ("log", "ended")
_STATES: Final = ("running", "ended", "lost", "absent")
_LONGEST_TEXT: Final = 2000
_LONGEST_PATH: Final = 4096


def is_log(message: Message) -> bool:
    """Return whether an event contains a piece of a log."""
    return (
        message.get("event") == "log"
        and message.get("stream") in STREAMS
        and isinstance(message.get("directory"), str)
        and isinstance(message.get("data"), str)
        and _is_count(message.get("offset"))
    )


def is_end(message: Message) -> bool:
    """Return whether an event reports the end of an attempt."""
    return (
        message.get("event") == "ended"
        and isinstance(message.get("directory"), str)
        and isinstance(message.get("outcome"), dict | None)
        and isinstance(message.get("may_remain"), bool)
    )


def is_answer(op: str, answer: Message) -> bool:
    """Return whether the answer to a request has the fields that the operation `op` requires."""
    check = _ANSWERS.get(op)
    return check is None or check(answer)


def is_home(value: object) -> bool:
    """Return whether a value is valid as the path of a home directory."""
    return isinstance(value, str) and value.startswith("/") and value.isprintable() and len(value) < _LONGEST_PATH


def error_text(answer: Message) -> str | None:
    """Return why the agent could not carry out a request; None if the request succeeded."""
    return str(answer["error"])[:_LONGEST_TEXT] if "error" in answer else None


def _is_state(answer: object) -> bool:
    return isinstance(answer, dict) and answer.get("state") in _STATES


def _are_states(answer: Message) -> bool:
    states = answer.get("states")
    return isinstance(states, dict) and all(map(_is_state, states.values()))


def _is_listing(answer: Message) -> bool:
    files, logs = answer.get("files"), answer.get("logs")
    return (
        isinstance(files, list)
        and all(isinstance(file, str) and "\0" not in file for file in files)
        and isinstance(logs, dict)
        and all(stream in STREAMS and _is_count(size) for stream, size in logs.items())
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_ANSWERS: Final[Mapping[str, Callable[[Message], bool]]] = {
    "submit": _is_state,
    "state": _is_state,
    "cancel": _is_state,
    "watch": _are_states,
    "list": _is_listing,
}
