"""
What a request asks for, the limits of requests, and what the engine answers.

Both protocols translate to and from these types, so that the same request gets the same answer over both.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

MAX_STOP_SEQUENCES, STOP_SEQUENCE_BYTES = 6, 240  # the limits of TGIS
MAX_TOP_TOKENS = 20
MAX_PENALTY = 1e6  # scores that are multiplied with it, or divided by it, are finite numbers
MAX_QUOTED = 100  # characters of a request in an error


class RequestError(Exception):
    """
    A request cannot be carried out as it is.

    Attributes:
        parameter: what is wrong, by the name of an attribute of `Options`, or `prompt`.
        problem: the rest of a sentence that begins with the name of the parameter.
        tgis_message: what TGIS says instead, if it is not such a sentence.
    """

    def __init__(self, parameter: str, problem: str, *, tgis_message: str = "") -> None:
        super().__init__(f"{parameter} {problem}")
        self.parameter = parameter
        self.problem = problem
        self.tgis_message = tgis_message


class OverloadedError(Exception):
    """More requests are waiting than the server accepts."""


class EngineError(Exception):
    """The server cannot carry out requests any more, or the model computed no usable result."""


class StoppingError(EngineError):
    """The server has no time left to finish the request, because it was told to end."""


class StopReason(enum.Enum):
    """Why a generation ended. The names are those of TGIS."""

    MAX_TOKENS = enum.auto()
    TOKEN_LIMIT = enum.auto()
    TIME_LIMIT = enum.auto()
    STOP_SEQUENCE = enum.auto()


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """
    How to draw tokens at random.

    Attributes:
        seed: generations with the same seed, index and request are the same.
        index: distinguishes the generations of one request that asks for several.
        temperature: divides the scores, before the other limits apply.
        top_k: number of most probable tokens to draw from; 0: all.
        top_p: draw from the most probable tokens whose probabilities add up to this.
        typical_p: draw from the tokens whose probabilities are nearest to the expected one, and add up to this (Meister
            et al., 2023).
    """

    seed: int
    index: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    typical_p: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """
    What a client can choose for a generation.

    Attributes:
        max_new_tokens: None stands for all that the model has room for.
        min_new_tokens: a stop sequence that is complete before this number of tokens does not end the text.
        time_limit: seconds since the arrival of the request.
        stop_sequences: texts that end the generation when the generated text ends with one of them.
        sampling: None: take the most probable token.
        repetition_penalty: divides the positive scores of the tokens of the text so far, and multiplies the negative
            scores of these tokens (Keskar et al., 2019).
        truncate_input_tokens: number of last tokens of the prompt to keep; 0: all.
        details: whether to compute the details of generated tokens.
        input_details: whether to compute the details of the tokens of the prompt.
        top_tokens: number of most probable tokens in the details.
    """

    max_new_tokens: int | None = None
    min_new_tokens: int = 0
    time_limit: float | None = None
    stop_sequences: Sequence[str] = ()
    sampling: Sampling | None = None
    repetition_penalty: float = 1.0
    truncate_input_tokens: int = 0
    details: bool = False
    input_details: bool = False
    top_tokens: int = 0

    def check(self) -> None:
        """Raise RequestError if an option has an impossible value. The messages are those of TGIS."""
        sampling = self.sampling
        if sampling:
            # A comparison with NaN is false.
            _require(0 < sampling.temperature < math.inf, "temperature", "must be a number above 0")
            _require(0 < sampling.top_p <= 1, "top_p", "must be > 0.0 and <= 1.0")
            _require(0 < sampling.typical_p <= 1, "typical_p", "must be > 0.0 and <= 1.0")
            _require(sampling.top_k >= 0, "top_k", "must be strictly positive")
        if self.max_new_tokens is not None:
            _require(self.max_new_tokens >= 1, "max_new_tokens", "must be >= 1")
            _require(self.min_new_tokens <= self.max_new_tokens, "min_new_tokens", "must be <= max_new_tokens")
        _require(self.min_new_tokens >= 0, "min_new_tokens", "must be >= 0")
        _require(self.repetition_penalty > 0, "repetition_penalty", "must be > 0.0")
        _require(
            1 / MAX_PENALTY <= self.repetition_penalty <= MAX_PENALTY,
            "repetition_penalty",
            f"must be between {1 / MAX_PENALTY} and {MAX_PENALTY}",
        )
        _require(self.truncate_input_tokens >= 0, "truncate_input_tokens", "must be >= 0")
        _require(0 <= self.top_tokens <= MAX_TOP_TOKENS, "top_tokens", f"must be between 0 and {MAX_TOP_TOKENS}")
        lengths = [len(sequence.encode(errors="replace")) for sequence in self.stop_sequences]
        _require(
            len(lengths) <= MAX_STOP_SEQUENCES and all(0 < length <= STOP_SEQUENCE_BYTES for length in lengths),
            "stop_sequences",
            f"can have at most {MAX_STOP_SEQUENCES} non-empty texts of at most {STOP_SEQUENCE_BYTES} UTF-8 bytes each",
            tgis_message=f"can specify at most {MAX_STOP_SEQUENCES} non-empty stop sequences, "
            f"each not more than {STOP_SEQUENCE_BYTES} UTF8 bytes",
        )


def quoted(text: str) -> str:
    """Return a text of a client as an error should show it: in ASCII, in quotes, and abbreviated."""
    return f"{text[:MAX_QUOTED]!a}{'...' * (len(text) > MAX_QUOTED)}"


def _require(correct: bool, parameter: str, problem: str, *, tgis_message: str = "") -> None:
    if not correct:
        raise RequestError(parameter, problem, tgis_message=tgis_message)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The numbers of tokens that the server allows: of a text with its continuation, and of a continuation."""

    max_sequence_length: int
    max_new_tokens: int

    def prepare(self, prompt: Sequence[int], options: Options) -> Request:
        """Return the request to continue a prompt. Raise RequestError if the options or the prompt are impossible."""
        options.check()
        wanted = self.max_new_tokens if options.max_new_tokens is None else options.max_new_tokens
        _require(wanted <= self.max_new_tokens, "max_new_tokens", f"must be <= {self.max_new_tokens}")
        tokens = prompt[-options.truncate_input_tokens :]
        length = len(tokens)
        _require(length > 0, "prompt", "must contain at least one character")
        room = self.max_sequence_length - length
        tgis_sum = f"input tokens ({length}) plus prefix length (0)"
        _require(
            room > 0,
            "prompt",
            f"must be shorter than {self.max_sequence_length} tokens, not {length}",
            tgis_message=f"{tgis_sum} must be < {self.max_sequence_length}",
        )
        _require(
            options.min_new_tokens <= min(room, wanted),
            "min_new_tokens",
            f"must be <= {min(room, wanted)} after a prompt of {length} tokens",
            tgis_message=f"{tgis_sum} plus min_new_tokens ({options.min_new_tokens}) "
            f"must be <= {self.max_sequence_length}",
        )
        reason = StopReason.TOKEN_LIMIT if room < wanted else StopReason.MAX_TOKENS
        return Request(tokens=tokens, length=min(room, wanted), length_reason=reason, options=options)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request that can be carried out: generate at most `length` tokens, which ends with `length_reason`."""

    tokens: Sequence[int]
    length: int
    length_reason: StopReason
    options: Options


@dataclass(frozen=True, kw_only=True)
class Detail:
    """
    How the model judged a token, before any penalty and limit of the sampling.

    Attributes:
        logprob: the natural logarithm of the probability.
        rank: 1 for the most probable token.
        top: the most probable tokens with their logprobs; more than requested if the last ones are equally probable.
    """

    logprob: float
    rank: int
    top: Sequence[tuple[int, float]]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to a request. After an event with `is_last`, no other follows."""

    @property
    def is_last(self) -> bool:
        """Whether the generation has ended."""
        return True


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """The prompt was read. The first detail is None, because nothing comes before the first token."""

    input_details: Sequence[Detail | None]

    @property
    def is_last(self) -> bool:
        """See `Event`."""
        return False


@dataclass(frozen=True, kw_only=True)
class Generated(Event):
    """A token was generated. The reason is None if more tokens follow."""

    token: int
    detail: Detail | None
    stop_reason: StopReason | None
    stop_sequence: str = ""

    @property
    def is_last(self) -> bool:
        """See `Event`."""
        return self.stop_reason is not None


@dataclass(frozen=True, kw_only=True)
class Expired(Event):
    """The time limit was over before the first token."""


@dataclass(frozen=True, kw_only=True)
class Failed(Event):
    """The generation ended without a usable result."""

    error: EngineError
