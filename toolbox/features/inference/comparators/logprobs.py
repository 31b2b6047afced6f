"""The logprobs of the tokens are close to the expected ones.

A logprob e is close to an expected logprob x if |e - x| <= max(relative * |x|, absolute). The defaults are those of the
integration tests of TGIS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field

from toolbox.ground.kit.server_answers import Generation, Token
from toolbox.ground.model.model_answers import Mismatch, first_divergence


class Comparator(BaseModel):
    """The tolerances.

    Args:
        relative: the tolerance as a fraction of the expected logprob.
        absolute: the tolerance in the unit of logprobs.
    """

    model_config = ConfigDict(extra="forbid")

    relative: float = Field(default=5e-4, ge=0, allow_inf_nan=False)
    absolute: float = Field(default=1e-9, ge=0, allow_inf_nan=False)

    def compare(self, expected: Generation, actual: Generation) -> Mismatch | None:
        """Compare each logprob that the expected answer gives, also those of top tokens."""
        compared = False
        for name, wanted, given in (
            ("token", expected.tokens, actual.tokens),
            ("input token", expected.input_tokens, actual.input_tokens),
        ):
            if not wanted or not any(_has_logprob(token) for token in wanted):
                continue
            compared = True
            if not given:
                return Mismatch(f"the answer has no {name}s, and so no logprobs")
            if different := self._compared(wanted, given, name):
                return different
        return None if compared else Mismatch("the case gives no logprobs")

    def _compared(self, expected: Sequence[Token], actual: Sequence[Token], name: str) -> Mismatch | None:
        if (divergence := first_divergence(expected, actual)) is not None:
            return divergence.mismatch(name)
        for index, (wanted, given) in enumerate(zip(expected, actual, strict=True)):
            for fault in self._faults(wanted, given):
                before = " ".join(repr(token.text) for token in expected[max(0, index - 8) : index])
                return Mismatch(f"{name} {index + 1} {given.text!r}: {fault}", (f"before: {before}",))
        return None

    def _faults(self, wanted: Token, given: Token) -> Iterator[str]:
        if fault := self._fault(wanted.logprob, given.logprob):
            yield fault
        others = {token.text: token.logprob for token in given.top}
        last = min((token.logprob for token in given.top if token.logprob is not None), default=None)
        for token in wanted.top:
            if token.logprob is None:
                continue
            if token.text in others:
                if fault := self._fault(token.logprob, others[token.text]):
                    yield f"top token {token.text!r}: {fault}"
            elif self._fault(token.logprob, last):  # a token may leave the list if it ties with the last one
                yield f"the top token {token} is missing"

    def _fault(self, wanted: float | None, given: float | None) -> str:
        if wanted is None:
            return ""
        if math.isnan(wanted):
            return "" if given is None or math.isnan(given) else f"logprob {given:.6g}, expected none"
        if given is None or math.isnan(given):
            return f"no logprob, expected {wanted:.6g}"
        tolerance = max(self.relative * abs(wanted), self.absolute)
        if abs(given - wanted) <= tolerance:
            return ""
        return f"logprob {given:.6g}, expected {wanted:.6g} within {tolerance:.2g}"


def _has_logprob(token: Token) -> bool:
    return token.logprob is not None or any(top.logprob is not None for top in token.top)
