"""The answer matches a regular expression.

The expression is one of RE2, which searches in time proportional to the length of the text. With another engine, an
expression such as `(a+)+$` could take years, and a time limit would make the verdict depend on the load of the machine.
RE2 has no lookaround and no backreferences (https://github.com/google/re2/wiki/Syntax).
"""

from __future__ import annotations

import functools
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from toolbox.features.inference.extra import EXTRA
from toolbox.ground.kit.server_answers import Generation, quoted
from toolbox.ground.model.model_answers import Mismatch
from toolbox.ground.system import extras

_MEMORY: Final = 1 << 23  # bytes of a compiled expression
_SHOWN: Final = 200  # characters of the answer


class Comparator(BaseModel):
    """The expression.

    Args:
        pattern: the expression.
        search: whether a match anywhere in the text is enough; otherwise the whole text must match.
    """

    model_config = ConfigDict(extra="forbid")

    pattern: str = Field(min_length=1, max_length=10_000)
    search: bool = False

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        _compiled(pattern)
        return pattern

    def compare(self, expected: Generation, actual: Generation) -> Mismatch | None:  # noqa: ARG002  # the protocol
        """Search the text of the answer."""
        text = (actual.text or "").encode(errors="replace").decode()  # without lone surrogates, which RE2 refuses
        compiled = _compiled(self.pattern)
        if compiled.search(text) if self.search else compiled.fullmatch(text):
            return None
        how = "contains no match of" if self.search else "does not match"
        return Mismatch(f"the text {how} {quoted(self.pattern)}", (f"actual: {quoted(text, _SHOWN)}",))


@functools.cache
def _compiled(pattern: str) -> Any:
    extras.require(EXTRA, "the comparator `regex`")
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    options.dot_nl = True
    try:
        return re2.compile(pattern, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error, re2.error) else str(error)
        raise ValueError(f"{quoted(pattern)} is not an expression of RE2: {reason}") from None
