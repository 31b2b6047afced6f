"""Notes when the tokens of a stream come, and keeps nothing else of the stream.

A load has many streams at a time, so their texts must not stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from toolbox.ground.kit.server_answers import Generation

from .answer_format import UNFINISHED, Answer, FaultError, unfinished_stream

# Fields of a chunk of a chat that contain generated tokens, besides `content`: thoughts (of vLLM, two names) and calls.
_FURTHER_OUTPUT: Final = ("reasoning_content", "reasoning", "tool_calls")


class Tokens(NamedTuple):
    """Tokens that came together.

    Args:
        generation: the number of the generated text that they belong to. A request can have several texts.
    """

    time: float
    number: int
    generation: int = 0


@dataclass
class _Text:
    """What has come of a generated text.

    Args:
        counted: the tokens so far.
        total: the last number of tokens that the server told.
        size: the bytes of the output. No token has less than one byte, whatever the server tells.
        is_guessed: whether a chunk counts as one token because the server tells nothing else.
    """

    counted: int = 0
    total: int = 0
    size: int = 0
    is_guessed: bool = False
    is_finished: bool = False

    def count(self, part: Generation, output: int) -> int:
        """Return the number of tokens in a part that contains `output` bytes of output."""
        self.is_finished = self.is_finished or part.stop_reason not in UNFINISHED
        self.size += output
        before = self.counted
        if part.generated_token_count is not None:
            self.total = part.generated_token_count
        if part.tokens:
            self.counted += len(part.tokens)
        elif output and part.generated_token_count is not None:
            self.counted = max(self.counted, min(self.total, self.size))
        elif output:
            self.counted += 1
            self.is_guessed = True
        return self.counted - before


@dataclass(kw_only=True)
class TimedAnswer(Answer):
    """An answer that is a stream. Only the times of its tokens are kept.

    The number of tokens in a chunk is that of the listed tokens, else the growth of the server's count, else 1 for a
    chunk with output. If the server tells the count only at the end, and chunks contained more than one token, the
    first chunk keeps its token, and the others are spread evenly over the later chunks.

    Args:
        tokens: the tokens, in the order in which they came. Their times are those of `clock`.
    """

    tokens: list[Tokens] = field(default_factory=list)
    _texts: dict[int, _Text] = field(default_factory=dict)

    def add(self, index: int, part: Generation, raw: Mapping[str, Any]) -> None:
        """Note the tokens of a chunk that has just arrived."""
        time = self.clock()
        text = self._texts.setdefault(index, _Text())
        if number := text.count(part, len((part.text or "").encode(errors="replace")) or _further_output(raw, index)):
            self.tokens.append(Tokens(time, number, index))

    def end_stream(self) -> None:
        """Correct the numbers of tokens that the server told at the end. Raise FaultError if a text has not ended."""
        if unfinished := [index for index in self.generation_indexes if not self._texts[index].is_finished]:
            raise unfinished_stream(unfinished, len(self._texts))
        if not self._texts:
            raise FaultError("the stream ended without a generation")
        for index, text in self._texts.items():
            total = min(text.total, text.size)
            if text.is_guessed and total > text.counted:
                self._spread(index, total)

    def _spread(self, index: int, total: int) -> None:
        places = [place for place, tokens in enumerate(self.tokens) if tokens.generation == index]
        for place, number in zip(places, _counts(total, len(places)), strict=True):
            self.tokens[place] = self.tokens[place]._replace(number=number)

    @property
    def generation_indexes(self) -> Sequence[int]:
        """The indexes of the texts that have parts in the stream."""
        return sorted(self._texts)


def _counts(total: int, chunks: int) -> Iterator[int]:
    """Yield how many of some tokens each chunk gets. There are more tokens than chunks."""
    if chunks == 1:
        yield total
        return
    yield 1
    later = chunks - 1
    yield from (place * (total - 1) // later - (place - 1) * (total - 1) // later for place in range(1, chunks))


def _further_output(raw: Mapping[str, Any], index: int) -> int:
    """Return the size of the output of a chunk of a chat without text: thoughts, or calls of tools."""
    choices = raw.get("choices")
    for position, choice in enumerate(choices if isinstance(choices, list) else ()):
        if (
            isinstance(choice, dict)
            and choice.get("index", position) == index
            and isinstance(choice.get("delta"), dict)
        ):
            return sum(len(str(choice["delta"][name])) for name in _FURTHER_OUTPUT if choice["delta"].get(name))
    return 0
