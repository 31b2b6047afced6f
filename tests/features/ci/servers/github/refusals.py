"""The errors of the API, with the statuses and the messages of GitHub.

The form is that of https://docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api. The messages of the
limits were copied from public reports of users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

ValidationError = Mapping[str, Any]


@dataclass(eq=False)
class ApiError(Exception):
    """A request that the API refuses.

    Args:
        errors: the faulty fields, for a validation that failed.
    """

    status: HTTPStatus
    message: str
    errors: Sequence[ValidationError | str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def content(self, documentation: str) -> Mapping[str, Any]:
        """Return the body of the answer."""
        errors = {"errors": list(self.errors)} if self.errors else {}
        about = {"documentation_url": f"https://docs.github.com/{documentation}", "status": str(int(self.status))}
        return {"message": self.message, **errors, **about}


def not_found() -> ApiError:
    """Return the error for an object that does not exist, or that the client may not see."""
    return ApiError(HTTPStatus.NOT_FOUND, "Not Found")


def forbidden(message: str) -> ApiError:
    """Return the error for an action that the client may not take."""
    return ApiError(HTTPStatus.FORBIDDEN, message)


def unauthorized(message: str) -> ApiError:
    """Return the error for a request without a valid token."""
    return ApiError(HTTPStatus.UNAUTHORIZED, message)


def unprocessable(message: str) -> ApiError:
    """Return the error for a request that has the wrong form."""
    return ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, message)


def validation_failed(resource: str, code: str, field_name: str, message: str | None = None) -> ApiError:
    """Return the error for a faulty field."""
    error = {"resource": resource, "code": code, "field": field_name}
    errors = [{**error, "message": message} if message else error]
    return ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "Validation Failed", errors)


def not_supplied(name: str) -> ApiError:
    """Return the error for a missing field."""
    return unprocessable(f'Invalid request.\n\n"{name}" wasn\'t supplied.')


def wrong_type(name: str, value: object, expected: str) -> ApiError:
    """Return the error for a field with a value of another type."""
    shown = {None: "nil", True: "true", False: "false"}.get(value) if isinstance(value, bool | None) else repr(value)
    return unprocessable(f"Invalid request.\n\nFor 'properties/{name}', {shown} is not {expected}.")
