"""The server answers with the expected error."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from toolbox.ground.kit.server_answers import Generation, quoted
from toolbox.ground.model.model_answers import Mismatch


class Comparator(BaseModel):
    """How strictly the message is compared.

    Args:
        message: `exact`; `contains`, if the message of the server must contain the expected one; or `ignore`.
    """

    model_config = ConfigDict(extra="forbid")

    message: Literal["exact", "contains", "ignore"] = "exact"

    def compare(self, expected: Generation, actual: Generation) -> Mismatch | None:
        """Compare the code, the HTTP status and the message that the expected error gives."""
        wanted, given = expected.error, actual.error
        if wanted is None:
            return Mismatch(f"the server answers with an error: {given}") if given is not None else None
        if given is None:
            return Mismatch(f"the server answers {quoted(actual.text or '')}, expected the error {wanted}")
        if wanted.code is not None and wanted.code != given.code:
            return Mismatch(f"the code of the error is {quoted(given.code or '')}, expected {quoted(wanted.code)}")
        if wanted.status is not None and wanted.status != given.status:
            return Mismatch(f"the status of the error is {given.status}, expected {wanted.status}")
        if wanted.message is None or self.message == "ignore":
            return None
        if not wanted.message and self.message == "contains":
            return Mismatch("the expected message is empty, so that every message contains it")
        message = given.message or ""
        if message == wanted.message or (self.message == "contains" and wanted.message in message):
            return None
        return Mismatch(f"the message of the error is {quoted(message, 120)}, expected {quoted(wanted.message, 120)}")
