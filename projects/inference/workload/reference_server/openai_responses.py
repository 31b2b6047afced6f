"""The responses of OpenAI's protocol, as a whole and as a stream, with `stop_reason` as vLLM has it."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence

from .engine import Engine
from .generation import Detail, EngineError, Event, Generated, OverloadedError, Request, StopReason
from .openai_requests import Body, as_api_error
from .visible_text import VisibleText


class Format:
    """How the parts of a completion are written. `ChatFormat` is the other one."""

    prefix = "cmpl"
    whole_object = chunk_object = "text_completion"
    # The first chunk of each choice.
    opening: Mapping[str, object] | None = None

    def __init__(self, characters: str) -> None:
        self._characters = characters

    def text(self, tokens: Sequence[Generated]) -> str:
        """Return the text of some tokens."""
        return "".join(self._characters[event.token] for event in tokens)

    def whole(self, tokens: Sequence[Generated]) -> Mapping[str, object]:
        """Return the content of a choice that is not streamed."""
        return {"text": self.text(tokens)}

    def chunk(self, tokens: Sequence[Generated]) -> Mapping[str, object]:
        """Return the content of a choice in a chunk of a stream."""
        return self.whole(tokens)

    def logprobs(self, tokens: Sequence[Generated], *, offset: int, top_tokens: int) -> Mapping[str, object]:
        """Return the logprobs of some tokens, of which the first one is at an offset in the text."""
        details = [(self._characters[event.token], event.detail) for event in tokens if event.detail]
        tops = [dict(self._top(detail, top_tokens)) | {token: detail.logprob} for token, detail in details]
        return {
            "tokens": [token for token, _ in details],
            "token_logprobs": [detail.logprob for _, detail in details],
            "top_logprobs": tops,
            "text_offset": list(range(offset, offset + len(details))),
        }

    def _top(self, detail: Detail, count: int) -> Sequence[tuple[str, float]]:
        return [(self._characters[token], logprob) for token, logprob in detail.top[:count]]


class ChatFormat(Format):
    """How the parts of a chat completion are written."""

    prefix, whole_object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"
    opening: Mapping[str, object] | None = {"delta": {"role": "assistant", "content": ""}}

    def whole(self, tokens: Sequence[Generated]) -> Mapping[str, object]:
        """See `Format`."""
        return {"message": {"role": "assistant", "content": self.text(tokens), "refusal": None}}

    def chunk(self, tokens: Sequence[Generated]) -> Mapping[str, object]:
        """See `Format`."""
        return {"delta": {"content": self.text(tokens)} if tokens else {}}

    def logprobs(self, tokens: Sequence[Generated], *, offset: int, top_tokens: int) -> Mapping[str, object]:
        """See `Format`."""
        del offset
        content = [
            self._entry(self._characters[event.token], event.detail.logprob)
            | {"top_logprobs": [self._entry(token, logprob) for token, logprob in self._top(event.detail, top_tokens)]}
            for event in tokens
            if event.detail
        ]
        return {"content": content, "refusal": None}

    def _entry(self, token: str, logprob: float) -> dict[str, object]:
        return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


class Choice:
    """One generation of a response."""

    def __init__(self, index: int, request: Request, engine: Engine, form: Format) -> None:
        self.request = request
        self.generated = 0  # number of tokens
        self._index = index
        self._format = form
        self._visible = VisibleText(request.options.stop_sequences, engine.vocabulary)
        self._tokens: list[Generated] = []
        self._last: Generated | None = None

    def add(self, event: Event) -> Sequence[Generated]:
        """Take the next event, and return the tokens that have become visible."""
        if not isinstance(event, Generated):
            return []
        self.generated += 1
        self._last = event
        visible = self._visible.add(event)
        self._tokens += visible
        return visible

    def whole(self) -> Mapping[str, object]:
        """Return the choice when its generation has ended."""
        return self._entry(self._format.whole(self._tokens), self._logprobs(self._tokens, 0))

    def opening(self) -> Mapping[str, object]:
        """Return the first chunk of a stream, if the format has one."""
        return self._entry(self._format.opening or {}, None)

    def chunk(self, visible: Sequence[Generated]) -> Mapping[str, object]:
        """Return the chunk of a stream for tokens that have just become visible."""
        logprobs = self._logprobs(visible, len(self._tokens) - len(visible)) if visible else None
        return self._entry(self._format.chunk(visible), logprobs)

    def _logprobs(self, tokens: Sequence[Generated], offset: int) -> Mapping[str, object]:
        return self._format.logprobs(tokens, offset=offset, top_tokens=self.request.options.top_tokens)

    def _entry(self, content: Mapping[str, object], logprobs: Mapping[str, object] | None) -> Mapping[str, object]:
        reason = self._last.stop_reason if self._last else None
        return {
            "index": self._index,
            **content,
            "logprobs": logprobs if self.request.options.details else None,
            "finish_reason": reason and ("stop" if reason is StopReason.STOP_SEQUENCE else "length"),
            "stop_reason": (self._last.stop_sequence or None) if self._last else None,
        }


class Answer:
    """The response to a request for completions of either kind."""

    def __init__(self, engine: Engine, body: Body, choices: Sequence[Choice], form: Format, prompt_tokens: int) -> None:
        self._engine = engine
        self._body = body
        self._choices = choices
        self._format = form
        self._prompt_tokens = prompt_tokens
        self._id = f"{form.prefix}-{secrets.token_hex(12)}"
        self._created = int(time.time())

    async def whole(self) -> Mapping[str, object]:
        """Return the content of the response when all generations have ended."""
        async with self._engine.generate([choice.request for choice in self._choices]) as events:
            async for index, event in events:
                self._choices[index].add(event)
        choices = [choice.whole() for choice in self._choices]
        return self._content(self._format.whole_object, choices) | {"usage": self._usage()}

    async def chunks(self) -> AsyncIterator[str]:
        """Yield the content of the response as server-sent events."""
        try:
            async with self._engine.generate([choice.request for choice in self._choices]) as events:
                if self._format.opening:
                    for choice in self._choices:
                        yield self._chunk([choice.opening()])
                async for index, event in events:
                    visible = self._choices[index].add(event)
                    if visible or event.is_last:
                        yield self._chunk([self._choices[index].chunk(visible)])
                        await asyncio.sleep(0)  # else a queue of very many events keeps the loop from all other work
            if self._includes_usage:
                yield _sent(self._content(self._format.chunk_object, []) | {"usage": self._usage()})
            yield "data: [DONE]\n\n"
        except (EngineError, OverloadedError) as error:
            yield _sent(as_api_error(error).body)

    @property
    def _includes_usage(self) -> bool:
        return self._body.stream_options is not None and self._body.stream_options.include_usage

    def _chunk(self, choices: Sequence[Mapping[str, object]]) -> str:
        usage = {"usage": None} if self._includes_usage else {}
        return _sent(self._content(self._format.chunk_object, choices) | usage)

    def _content(self, kind: str, choices: Sequence[Mapping[str, object]]) -> dict[str, object]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._body.model,
            "choices": choices,
        }

    def _usage(self) -> Mapping[str, int]:
        generated = sum(choice.generated for choice in self._choices)
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": self._prompt_tokens + generated,
        }


def _sent(content: Mapping[str, object]) -> str:
    return f"data: {json.dumps(content)}\n\n"
