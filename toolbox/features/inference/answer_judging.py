"""Judges the answer to one case, and returns the result as a test case.

Every answer of a batch is compared. An answer that is missing, incomplete or undecodable is an `error`, and never
passes. A stream must also keep the rules of `_stream_faults`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from pydantic import ValidationError

from toolbox.features.inference import model_descriptions
from toolbox.features.inference.answer_records import AnswerRecord, ChunkRecord
from toolbox.features.inference.client.answer_format import NOT_FINISHED, OPENAI_KINDS
from toolbox.features.inference.model_descriptions import DESCRIPTIONS
from toolbox.features.inference.suites import Expectation
from toolbox.features.inference.wire_models import TokenizedBatch
from toolbox.ground.extensions.protocols import Comparator
from toolbox.ground.kit.server_answers import Generation, ServerError, quoted
from toolbox.ground.model.cases import CaseOutcome, CaseResult
from toolbox.ground.model.model_answers import Mismatch, first_divergence, message_mismatches
from toolbox.ground.model.text import counted, truncate

_LONGEST_MESSAGE: Final = 300
_LONGEST_FAULT: Final = 4000
_ARRIVED: Final = 200  # characters of a stream that did not end
_CODE_OF_STATUS: Final = re.compile(r"HTTP [0-9]{3}")
_UNFINISHED: Final = (None, NOT_FINISHED, "CANCELLED", "ERROR")
_COMPARES_NOTHING: Final = "nothing was compared: the case has no `response`; the answer is complete"
_SKIP_CHECK: Final = "skip_check: the output is not compared; the answer is complete"


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
        message = f"no complete answer: {_line(answer.fault)}"
        arrived = list(_arrived(answer))
        is_whole = not arrived and answer.fault in message
        text = "" if is_whole else "\n".join([truncate(answer.fault, _LONGEST_FAULT), *arrived])
        return replace(result, outcome=CaseOutcome.ERROR, message=message, text=text)
    mismatches = list(_mismatches(expectation, comparators, answer))
    if mismatches:
        message, text = _line(mismatches[0].message), "\n".join(_report(mismatches))
        return replace(result, outcome=CaseOutcome.FAILED, message=message, text=text)
    if expectation.is_random:
        return replace(result, outcome=CaseOutcome.SKIPPED, message="; ".join([_SKIP_CHECK, *_refusals(answer)]))
    return replace(result, message="; ".join([*_remarks(expectation, answer), *_refusals(answer)]))


def _remarks(expectation: Expectation, answer: AnswerRecord) -> Iterator[str]:
    """Yield what a person must know about a case that passed."""
    if expectation.compares_nothing:
        yield _COMPARES_NOTHING
    if expectation.asks_logprobs and any(each.text and not _has_logprobs(each) for each in answer.generations):
        yield "the request asks for logprobs, but the answer has none"


def _has_logprobs(generation: Generation) -> bool:
    return any(token.logprob is not None for token in generation.tokens or ())


def _refusals(answer: AnswerRecord) -> Iterator[str]:
    """Yield the remark that the server refused the request before it answered."""
    if answer.refusals:
        requests = counted(answer.refusals, "request")
        yield f"the server refused {requests} for now (429 or 503 with Retry-After), and then answered"


def agree(
    expectation: Expectation,
    comparators: Sequence[Comparator],
    reference: AnswerRecord,
    answer: AnswerRecord,
    *,
    until_divergence: bool = False,
) -> CaseResult:
    """Return the result of comparing the answers of two servers to one case.

    An error of both servers is compared by its code and its status, because messages may name the server.

    Args:
        reference: the answer of the server whose answer counts as expected.
        until_divergence: whether nothing is compared after the first token that differs.
    """
    name = f"{expectation.name} (stream)" if answer.stream else expectation.name
    result = CaseResult(expectation.suite, name, CaseOutcome.PASSED, answer.seconds)
    if expectation.protocol in DESCRIPTIONS:
        return replace(result, outcome=CaseOutcome.SKIPPED, message="configs may have other limits and names of models")
    mismatches: list[Mismatch] = []
    if reference.fault is not None or answer.fault is not None:
        mismatches.append(Mismatch(f"no complete answer: {_line(reference.fault or answer.fault or '')}"))
    elif reference.error is not None or answer.error is not None:
        known = (reference.error, answer.error)
        shown = [f"the error {error}" if error is not None else "a text" for error in known]
        keys = [(error.code, error.status) if error is not None else None for error in known]
        if keys[0] != keys[1]:
            mismatches.append(Mismatch(f"the server answers with {shown[1]}, the reference with {shown[0]}"))
    elif expectation.protocol == "tokenize":
        if reference.response != answer.response:
            mismatches.append(Mismatch("the server splits the texts into other tokens than the reference"))
    elif len(reference.generations) != len(answer.generations):
        counts = f"{len(answer.generations)} answers, the reference has {len(reference.generations)}"
        mismatches.append(Mismatch(f"the batch has {counts}"))
    else:
        expected, actual = list(map(_without_ids, reference.generations)), answer.generations
        mismatches += _compared(expected, actual, comparators)
        pairs = list(zip(expected, actual, strict=True))
        required = [Generation() if until_divergence and _diverge(*pair) else _of_calls(pair[0]) for pair in pairs]
        mismatches += _of_messages(required, actual)
    if not mismatches:
        return result
    message, text = _line(mismatches[0].message), "\n".join(_report(mismatches))
    return replace(result, outcome=CaseOutcome.FAILED, message=message, text=text)


def _without_ids(generation: Generation) -> Generation:
    """Return an answer without the ids of its calls of tools, which are drawn at random."""
    calls = generation.tool_calls
    return replace(generation, tool_calls=calls and tuple(replace(call, id=None) for call in calls))


def _diverge(expected: Generation, actual: Generation) -> bool:
    return bool(expected.tokens and actual.tokens and first_divergence(expected.tokens, actual.tokens))


def _of_calls(expected: Generation) -> Generation:
    """Return what is compared with each comparator: the refusal, and the calls of tools."""
    return Generation(refusal=expected.refusal or "", tool_calls=expected.tool_calls or ())


def _arrived(answer: AnswerRecord) -> Iterator[str]:
    """Yield the end of the text that arrived before a stream broke off."""
    if answer.chunks:
        text = "".join(chunk.text or "" for chunk in answer.chunks)
        more = "..." if len(text) > _ARRIVED or answer.chunks_left_out else ""
        yield f"  the text that arrived: {more}{quoted(text[-_ARRIVED:], _ARRIVED)}"


def _report(mismatches: Sequence[Mismatch]) -> Iterator[str]:
    """Yield the lines of all mismatches. What several comparators find is shown once."""
    shown: set[str] = set()
    messages: list[str] = []
    for mismatch in mismatches:
        if shown.issuperset(mismatch.evidence) and any(mismatch.message in message for message in messages):
            continue
        yield mismatch.message
        yield from (f"  {line}" for line in mismatch.evidence if line not in shown)
        shown.update(mismatch.evidence)
        messages.append(mismatch.message)


def _mismatches(
    expectation: Expectation, comparators: Sequence[Comparator], answer: AnswerRecord
) -> Iterator[Mismatch]:
    expected = expectation.answers
    if expected and expected[0].error is not None:
        given = next(iter(answer.generations), Generation()) if answer.error is None else Generation(error=answer.error)
        is_in_stream = answer.stream and expectation.protocol in OPENAI_KINDS
        wanted_error = _of_error_in_stream(expected[0], given, comparators) if is_in_stream else expected[0]
        yield from _compared([wanted_error], [given], comparators)
    elif answer.error is not None:
        refused = f" (sent again {counted(answer.refusals, 'time')})" if answer.refusals else ""
        yield Mismatch(f"the server answers with an error: {answer.error}{refused}")
    elif expectation.protocol in DESCRIPTIONS:
        expected_fields = expectation.description or {}
        yield from model_descriptions.mismatches(expectation.protocol, expected_fields, answer.response)
    else:
        yield from _mismatches_of_texts(expectation, expected, comparators, answer)


def _mismatches_of_texts(
    expectation: Expectation,
    expected: Sequence[Generation] | None,
    comparators: Sequence[Comparator],
    answer: AnswerRecord,
) -> Iterator[Mismatch]:
    try:
        generations = _generations(expectation, answer)
    except ValueError as error:
        yield Mismatch(f"the response is not valid: {error}")
        return
    if len(generations) != expectation.requests:
        yield Mismatch(f"the batch has {len(generations)} answers to {expectation.requests} requests")
        return
    if answer.stream:
        yield from map(Mismatch, _stream_faults(answer))
    wanted = expected if expected is not None else [Generation()] * len(generations)
    if expectation.protocol != "tokenize":
        yield from _unfinished(wanted, generations)
    if expectation.is_random:
        wanted = [_of_input(each) for each in wanted]
    if answer.stream:
        wanted = [_of_stream(*both) for both in zip(wanted, generations, strict=True)]
    yield from _compared(wanted, generations, comparators)
    yield from _of_messages(wanted, generations)  # which comparators of texts do not compare


def _compared(
    expected: Sequence[Generation], actual: Sequence[Generation], comparators: Sequence[Comparator]
) -> Iterator[Mismatch]:
    """Yield the mismatches of each answer of a batch."""
    for number, (wanted, given) in enumerate(zip(expected, actual, strict=False), start=1):
        for comparator in comparators:
            if different := comparator.compare(wanted, given):
                yield _of_answer(different, number, len(actual))


def _of_messages(expected: Sequence[Generation], actual: Sequence[Generation]) -> Iterator[Mismatch]:
    """Yield the differences between the reasoning, the refusals and the calls of tools of each answer of a batch."""
    for number, (wanted, given) in enumerate(zip(expected, actual, strict=True), start=1):
        for different in message_mismatches(wanted, given):
            yield _of_answer(different, number, len(actual))


def _of_answer(mismatch: Mismatch, number: int, count: int) -> Mismatch:
    return replace(mismatch, message=f"answer {number} of {count}: {mismatch.message}") if count > 1 else mismatch


def _generations(expectation: Expectation, answer: AnswerRecord) -> list[Generation]:
    """Return the answer to each request.

    Raises:
        ValueError: the answer is not a response to a request for tokens.
    """
    if expectation.protocol != "tokenize":
        return answer.generations
    try:
        return [each.generation() for each in TokenizedBatch.model_validate(answer.response).responses]
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from None


def _of_stream(expected: Generation, actual: Generation) -> Generation:
    """Return what is expected of a stream, which need not name its stop sequence."""
    return replace(expected, stop_sequence=None) if actual.stop_sequence is None else expected


def _of_input(expected: Generation) -> Generation:
    """Return what is expected of a random answer: its input."""
    return Generation(
        input_token_count=expected.input_token_count, input_tokens=expected.input_tokens, offsets=expected.offsets
    )


def _of_error_in_stream(expected: Generation, actual: Generation, comparators: Sequence[Comparator]) -> Generation:
    """Return what is expected of an error inside a stream, which has the HTTP status 200.

    The status is compared only if the error names one, like a code that is derived from the status. If nothing else is
    expected, the status is compared nevertheless, so that not every error passes.
    """
    wanted, given = expected.error, actual.error
    if wanted is None or given is None or given.status is not None:
        return expected
    code = None if _CODE_OF_STATUS.fullmatch(wanted.code or "") else wanted.code
    error = ServerError(code, wanted.message)
    same, other = (replace(expected, error=each) for each in (error, ServerError()))
    return same if any(each.compare(same, other) for each in comparators) else expected


def _unfinished(expected: Sequence[Generation], actual: Sequence[Generation]) -> Iterator[Mismatch]:
    """Yield the answers that did not end, unless the case gives a stop reason, which is compared."""
    for number, (wanted, given) in enumerate(zip(expected, actual, strict=False), start=1):
        if given.stop_reason in _UNFINISHED and (given.stop_reason is None or given.stop_reason != wanted.stop_reason):
            yield Mismatch(f"answer {number} of {len(actual)} did not end: its stop reason is {given.stop_reason}")


def _stream_faults(answer: AnswerRecord) -> Iterator[str]:
    """Yield the rules that the streams of an answer break, one stream for each answer of the batch.

    - The texts of the chunks add up to the whole text.
    - The number of generated tokens never falls from chunk to chunk, and ends with that of the whole.
    - Exactly one chunk has the stop reason, and no text follows this chunk.
    - Each chunk belongs to an answer of the batch.

    Chunks that the worker left out are not known, so only the chunks before them keep the rules.
    """
    if not answer.chunks:
        yield "the stream has no chunks"
        return
    is_complete = not answer.chunks_left_out
    count = len(answer.generations)
    if stray := next((chunk for chunk in answer.chunks if chunk.index >= count), None):
        yield f"a chunk belongs to answer {stray.index + 1} of the batch, which has {counted(count, 'answer')}"
    for index, whole in enumerate(answer.generations):
        chunks = [chunk for chunk in answer.chunks if chunk.index == index]
        yield from _faults_of_chunks(chunks, whole, is_complete=is_complete)


def _faults_of_chunks(chunks: Sequence[ChunkRecord], whole: Generation, *, is_complete: bool) -> Iterator[str]:
    text, of_whole = "".join(chunk.text or "" for chunk in chunks), whole.text or ""
    if text != (of_whole if is_complete else of_whole[: len(text)]):
        yield f"the chunks add up to {quoted(text)}, but the whole text is {quoted(of_whole)}"
    counts = [chunk.generated_token_count for chunk in chunks if chunk.generated_token_count is not None]
    if falling := [(a, b) for a, b in pairwise(counts) if b < a]:
        yield f"the number of generated tokens falls from {falling[0][0]} to {falling[0][1]} in the stream"
    total = whole.generated_token_count
    if counts and total is not None and (counts[-1] != total if is_complete else counts[-1] > total):
        yield f"the stream ends with {counts[-1]} generated tokens, but the whole has {total}"
    ends = [number for number, chunk in enumerate(chunks, start=1) if chunk.stop_reason not in (None, NOT_FINISHED)]
    if not ends and is_complete:
        yield "no chunk of the stream has a stop reason"
    elif len(ends) > 1:
        yield f"{len(ends)} chunks of the stream have a stop reason"
    elif ends and any(chunk.text for chunk in chunks[ends[0] :]):
        yield f"the stop reason is in chunk {ends[0]} of {len(chunks)}, and text follows"


def _line(text: str) -> str:
    """Return a text as one line of printable characters."""
    return truncate(
        " ".join(repr(truncate(text, 8 * _LONGEST_MESSAGE))[1:-1].split()) if not text.isprintable() else text,
        _LONGEST_MESSAGE,
    )
