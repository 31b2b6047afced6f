"""Judges the answer to one case, and returns the result as a test case.

Every answer of a batch is compared. An answer that is missing, incomplete or undecodable is an `error`, and never
passes. A stream must also keep the rules of `_stream_faults`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from toolbox.extensions.protocols import Comparator
from toolbox.inference.answer_records import AnswerRecord, GenerationRecord
from toolbox.inference.suites import Expectation
from toolbox.inference.wire_models import AnyResponse
from toolbox.model.cases import CaseOutcome, CaseResult
from toolbox.model.generations import Generation, Mismatch, quoted
from toolbox.model.text import truncate

_LONGEST_MESSAGE: Final = 300
_UNFINISHED: Final = (None, "NOT_FINISHED", "CANCELLED", "ERROR")
_SKIP_CHECK: Final = "skip_check: the output is not compared; the answer is complete"
_RESPONSE: Final[TypeAdapter[Any]] = TypeAdapter(AnyResponse)


def judge(
    expectation: Expectation, comparators: Sequence[Comparator], answer: AnswerRecord | None, *, stream: bool = False
) -> CaseResult:
    """Return the result of a case.

    Args:
        comparators: those of `expectation.comparators()`.
        answer: the answer; None if there is none.
        stream: whether the case was sent as a stream.
    """
    name = f"{expectation.name} (stream)" if stream else expectation.name
    result = CaseResult(expectation.suite, name, CaseOutcome.PASSED, answer.seconds if answer is not None else None)
    if answer is None:
        return replace(result, outcome=CaseOutcome.ERROR, message="there is no answer")
    if answer.fault is not None:
        message = f"there is no complete answer: {_line(answer.fault)}"
        return replace(result, outcome=CaseOutcome.ERROR, message=message, text=truncate(answer.fault, 4000))
    mismatches = list(_mismatches(expectation, comparators, answer))
    if mismatches:
        lines = [
            line for mismatch in mismatches for line in (mismatch.message, *(f"  {each}" for each in mismatch.evidence))
        ]
        message = _line(mismatches[0].message)
        return replace(result, outcome=CaseOutcome.FAILED, message=message, text="\n".join(lines))
    if expectation.is_random:
        return replace(result, outcome=CaseOutcome.SKIPPED, message=_SKIP_CHECK)
    return result


def _mismatches(
    expectation: Expectation, comparators: Sequence[Comparator], answer: AnswerRecord
) -> Iterator[Mismatch]:
    expected = expectation.generations()
    if expected and expected[0].error is not None:
        actual = answer.error if answer.error is not None else next(iter(answer.generations), GenerationRecord())
        yield from _compared(expected[:1], [actual.generation()], comparators)
    elif answer.error is not None:
        yield Mismatch(f"the server answers with an error: {answer.error.generation().error}")
    else:
        try:
            generations = _generations(expectation, answer)
        except ValueError as error:
            yield Mismatch(f"the response is not valid: {error}")
            return
        if len(generations) != expectation.requests:
            yield Mismatch(f"the batch has {len(generations)} answers to {expectation.requests} requests")
            return
        if answer.stream:
            yield from map(Mismatch, _stream_faults(answer, expectation.protocol))
        if expected is None:
            yield from _unfinished(generations, expectation)
        else:
            wanted = [_of_input(each) for each in expected] if expectation.is_random else expected
            yield from _compared(wanted, generations, comparators)


def _compared(
    expected: Sequence[Generation], actual: Sequence[Generation], comparators: Sequence[Comparator]
) -> Iterator[Mismatch]:
    """Yield the mismatches of each answer of a batch."""
    for number, (wanted, given) in enumerate(zip(expected, actual, strict=False), start=1):
        prefix = f"answer {number} of {len(actual)}: " if len(actual) > 1 else ""
        for comparator in comparators:
            if different := comparator.compare(wanted, given):
                yield Mismatch(f"{prefix}{different.message}", different.evidence)


def _generations(expectation: Expectation, answer: AnswerRecord) -> list[Generation]:
    """Return the answer to each request.

    Raises:
        ValueError: the answer is not a response to a request for tokens.
    """
    if expectation.protocol != "tokenize":
        return [generation.generation() for generation in answer.generations]
    try:
        generations: list[Generation] = _RESPONSE.validate_python(answer.response).generations()
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from None
    return generations


def _of_input(expected: Generation) -> Generation:
    """Return what is expected of a random answer: its input."""
    return Generation(input_token_count=expected.input_token_count, input_tokens=expected.input_tokens)


def _unfinished(actual: Sequence[Generation], expectation: Expectation) -> Iterator[Mismatch]:
    if expectation.protocol == "tokenize":
        return
    for number, given in enumerate(actual, start=1):
        if given.stop_reason in _UNFINISHED:
            yield Mismatch(f"answer {number} of {len(actual)} did not end: its stop reason is {given.stop_reason}")


def _stream_faults(answer: AnswerRecord, protocol: str) -> Iterator[str]:
    """Yield the rules that a stream breaks.

    - The texts of the chunks add up to the whole text.
    - The number of generated tokens never falls from chunk to chunk, and ends with that of the whole.
    - Exactly one chunk has the stop reason, and no text follows this chunk.
    """
    if not answer.chunks:
        yield "the stream has no chunks"
        return
    pieces = [_fmaas_piece(chunk) if protocol == "fmaas" else _openai_piece(chunk) for chunk in answer.chunks]
    whole = answer.generations[0] if answer.generations else None
    text = "".join(piece.text or "" for piece in pieces)
    if whole is not None and text != (whole.text or ""):
        yield f"the chunks add up to {quoted(text)}, but the whole text is {quoted(whole.text or '')}"
    counts = [piece.generated_token_count for piece in pieces if piece.generated_token_count]
    if falling := [(a, b) for a, b in pairwise(counts) if b < a]:
        yield f"the number of generated tokens falls from {falling[0][0]} to {falling[0][1]} in the stream"
    total = whole.generated_token_count if whole is not None else None
    if counts and total is not None and counts[-1] != total:
        yield f"the stream ends with {counts[-1]} generated tokens, but the whole has {total}"
    ends = [index for index, piece in enumerate(pieces) if piece.stop_reason not in (None, "NOT_FINISHED")]
    if not ends:
        yield "no chunk of the stream has a stop reason"
    elif len(ends) > 1:
        yield f"{len(ends)} chunks of the stream have a stop reason"
    elif any(piece.text for piece in pieces[ends[0] + 1 :]):
        yield f"the stop reason is in chunk {ends[0] + 1} of {len(pieces)}, and text follows"


def _fmaas_piece(chunk: object) -> Generation:
    fields = chunk if isinstance(chunk, Mapping) else {}
    count = fields.get("generatedTokenCount")
    return Generation(
        _text(fields.get("text")),
        _text(fields.get("stopReason")),
        generated_token_count=count if isinstance(count, int) else None,
    )


def _openai_piece(chunk: object) -> Generation:
    choices = chunk.get("choices") if isinstance(chunk, Mapping) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, Mapping):
        return Generation()
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, Mapping) else choice.get("text")
    return Generation(_text(text), _text(choice.get("finish_reason")))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _line(text: str) -> str:
    """Return a text as one line of printable characters."""
    return truncate(
        " ".join(repr(truncate(text, 8 * _LONGEST_MESSAGE))[1:-1].split()) if not text.isprintable() else text,
        _LONGEST_MESSAGE,
    )
