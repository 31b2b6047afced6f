"""The text is similar to the expected one.

The similarity is 2 * L / (a + b): L is the length in characters of the longest common subsequence of the texts, and a
and b are their lengths. 1 means equal, 0 means that no character is common. (It is the normalised Indel similarity of
RapidFuzz; `difflib` approximates it, but in a time that grows with the cube of the length.)
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from toolbox.features.inference.extra import EXTRA
from toolbox.ground.kit.server_answers import Generation
from toolbox.ground.model.model_answers import Mismatch, text_mismatch
from toolbox.ground.system import extras


class Comparator(BaseModel):
    """The threshold.

    Args:
        threshold: the least similarity.
    """

    model_config = ConfigDict(extra="forbid")

    threshold: float = Field(default=0.9, gt=0, le=1)

    def compare(self, expected: Generation, actual: Generation) -> Mismatch | None:
        """Compare the similarity with the threshold."""
        extras.require(EXTRA, "the comparator `similarity`")
        from rapidfuzz.distance import Indel

        if expected.text is None:
            return Mismatch("the case gives no expected text")
        similarity = Indel.normalized_similarity(expected.text, actual.text or "")
        if similarity >= self.threshold:
            return None
        different = text_mismatch(expected, actual)
        evidence = different.evidence if different is not None else ()
        return Mismatch(
            f"the similarity to the expected text is {similarity:.3f}, less than {self.threshold:g}", evidence
        )
