"""Which tokens of a generation a client may see, where a stop sequence is not part of the text."""

from __future__ import annotations

from collections.abc import Sequence

from .generation import Generated
from .vocabulary import Vocabulary


class VisibleText:
    """
    Holds tokens back while they may become a stop sequence, and drops those that did.

    Args:
        stop_sequences: those to drop; empty to hold nothing back.
    """

    def __init__(self, stop_sequences: Sequence[str], vocabulary: Vocabulary) -> None:
        self._beginnings = {text[:length] for text in stop_sequences for length in range(1, len(text))}
        self._longest = max(map(len, self._beginnings), default=0)
        self._drops = bool(stop_sequences)
        self._vocabulary = vocabulary
        self._held: list[Generated] = []

    def add(self, event: Generated) -> Sequence[Generated]:
        """Take the next token, and return the tokens that are certainly part of the text."""
        self._held.append(event)
        kept = 0
        if not event.is_last:
            kept = self._unfinished_stop_sequence()
        released = self._held[: len(self._held) - kept]
        self._held = self._held[len(released) :]
        if self._drops and event.stop_sequence:
            return released[: -len(event.stop_sequence)]
        return released

    def _unfinished_stop_sequence(self) -> int:
        """Return the number of last tokens that are the beginning of a stop sequence."""
        text = self._vocabulary.decode(event.token for event in self._held[-self._longest :]) if self._longest else ""
        return max((length for length in range(1, len(text) + 1) if text[-length:] in self._beginnings), default=0)
