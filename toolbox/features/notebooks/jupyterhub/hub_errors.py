"""The errors of a JupyterHub, each with a cause and a hint. Only this module judges the status of a reply."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from toolbox.ground.model.errors import StepError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate
from toolbox.ground.model.verdicts import Cause

REQUIRED_SCOPES: Final = ("read:users:name", "servers", "access:servers")
_LONGEST_MESSAGE: Final = 400
_NOT_ENABLED: Final = "Named servers are not enabled"  # what JupyterHub 6 says with the status 400
_FULL: Final = "already has the maximum of"  # the same, about the named servers of a user
_TEMPORARY: Final = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_REFUSALS: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class HubError(StepError):
    """A request failed, or a server did not start.

    Args:
        status: the HTTP status; None if the hub did not answer.
    """

    def __init__(self, message: str, *, status: int | None = None, cause: Cause = Cause.INFRASTRUCTURE) -> None:
        super().__init__(message, cause=cause)
        self.status = status

    @property
    def is_absent(self) -> bool:
        """Whether the user or the server does not exist."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_bad_request(self) -> bool:
        """Whether the state of the server does not allow the request, for example because the server is running."""
        return self.status == HTTPStatus.BAD_REQUEST


def is_temporary(status: int) -> bool:
    """Return whether the same request may succeed later."""
    return status in _TEMPORARY


def error_of(status: int, message: object, action: str, *, note: str = "") -> HubError:
    """Return the error for a reply with an error status.

    Args:
        message: the reason that the hub gives. It is untrusted text.
        action: what failed, such as `the server x cannot be started`.
        note: more about the failure, such as how long the request was repeated.
    """
    text = f"{action}: {_reason(status, message)} (HTTP {status}{note})"
    if status in _REFUSALS:
        scopes = ", ".join(REQUIRED_SCOPES)
        hint = f"the token needs these scopes for the user: {scopes}; docs/jupyterhub.md describes how to make it"
        return HubError(f"{text}\n{hint}", status=status, cause=Cause.CONFIGURATION)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        hint = "set `url` to the address of the hub itself: the token is not sent to another address"
        return HubError(f"{text}\n{hint}", status=status, cause=Cause.CONFIGURATION)
    if status == HTTPStatus.BAD_REQUEST and _NOT_ENABLED in str(message):
        hint = "the administrator of the hub must set `c.JupyterHub.allow_named_servers = True`"
        return HubError(f"{text}\n{hint}", status=status, cause=Cause.CONFIGURATION)
    is_full = status == HTTPStatus.TOO_MANY_REQUESTS or (status == HTTPStatus.BAD_REQUEST and _FULL in str(message))
    return HubError(text, status=status, cause=Cause.CAPACITY if is_full else Cause.INFRASTRUCTURE)


def one_line(text: object) -> str:
    """Return untrusted text as one truncated line without control characters; empty if the value is not text."""
    return truncate(" ".join(clean(text).split()), _LONGEST_MESSAGE) if isinstance(text, str) else ""


def message_in(document: Any) -> str:
    """Return the reason in a reply with an error status; empty if there is none."""
    return one_line(document.get("message")) if isinstance(document, dict) else ""


def _reason(status: int, message: object) -> str:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "an unknown status"
    return one_line(message) or phrase
