"""The answer begins with a text."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from toolbox.ground.kit.server_answers import Generation
from toolbox.ground.model.model_answers import Mismatch, text_mismatch


class Comparator(BaseModel):
    """The text with which the answer must begin.

    Args:
        text: the text; by default the expected text of the case.
    """

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(default=None, min_length=1)

    def compare(self, expected: Generation, actual: Generation) -> Mismatch | None:
        """Compare the beginning of the answer."""
        prefix = expected.text if self.text is None else self.text
        if prefix is None:
            return Mismatch("the case gives neither a prefix nor an expected text")
        if not prefix and actual.text:
            return Mismatch("the expected text is empty, so that every text begins with it")
        if (actual.text or "").startswith(prefix):
            return None
        wanted = Generation(prefix, tokens=expected.tokens if self.text is None else None)
        return text_mismatch(wanted, replace(actual, text=(actual.text or "")[: len(prefix)]))
