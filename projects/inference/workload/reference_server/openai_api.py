"""
OpenAI's HTTP protocol: models, completions and chat completions.

The model has not learned to chat. The prompt of a chat is the text of its messages, one after another, each in a line
of its own.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .engine import Engine
from .generation import EngineError, OverloadedError, RequestError, quoted
from .openai_requests import ApiError, Body, ChatBody, CompletionBody, as_api_error, parsed
from .openai_responses import Answer, ChatFormat, Choice, Format

DEFAULT_NEW_TOKENS = 16  # OpenAI's, for completions

T = TypeVar("T")


class Service:
    """The handlers of the requests."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._model = model
        self._started = int(time.time())

    async def health(self, request: HttpRequest) -> Response:
        """Tell whether the engine works."""
        del request
        if self._engine.failure.done():
            return JSONResponse({"status": str(self._engine.failure.exception())}, 503)
        return JSONResponse({"status": "ok"})

    async def models(self, request: HttpRequest) -> Response:
        """List the only model."""
        del request
        return JSONResponse({"object": "list", "data": [self._description()]})

    async def model(self, request: HttpRequest) -> Response:
        """Describe the model, if it has the requested name."""
        self._check_model(request.path_params["model"])
        return JSONResponse(self._description())

    async def completions(self, request: HttpRequest) -> Response:
        """Continue one or several prompts."""
        body = await parsed(request, CompletionBody)
        self._check_model(body.model)
        prompts = self._prompts(body.prompt)
        return await self._respond(
            request,
            body,
            prompts,
            Format(self._engine.vocabulary.characters),
            length=DEFAULT_NEW_TOKENS if body.max_tokens is None else body.max_tokens,
            top_tokens=body.logprobs,
        )

    async def chat_completions(self, request: HttpRequest) -> Response:
        """Continue a chat."""
        body = await parsed(request, ChatBody)
        self._check_model(body.model)
        if body.top_logprobs is not None and not body.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs", parameter="top_logprobs")
        prompt = "\n".join(message.text for message in body.messages)
        return await self._respond(
            request,
            body,
            [self._engine.vocabulary.encode(prompt)],
            ChatFormat(self._engine.vocabulary.characters),
            length=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
            top_tokens=(body.top_logprobs or 0) if body.logprobs else None,
        )

    async def _respond(
        self,
        http_request: HttpRequest,
        body: Body,
        prompts: Sequence[Sequence[int]],
        form: Format,
        *,
        length: int | None,
        top_tokens: int | None,
    ) -> Response:
        if body.stream_options and not body.stream:
            raise ApiError(400, "stream_options needs stream", parameter="stream_options")
        # Check first, because preparing very many requests takes long, and a stream cannot change its status later.
        self._engine.check_room(len(prompts) * (body.n or 1))
        seed = secrets.randbits(32) if body.seed is None else body.seed % 2**64
        requests = [
            self._engine.limits.prepare(
                prompt, body.options(index=index, seed=seed, length=length, top_tokens=top_tokens)
            )
            for prompt in prompts
            for index in range(body.n or 1)
        ]
        choices = [Choice(index, request, self._engine, form) for index, request in enumerate(requests)]
        prompt_tokens = sum(len(request.tokens) for request in requests[:: body.n or 1])
        answer = Answer(self._engine, body, choices, form, prompt_tokens)
        if body.stream:
            return StreamingResponse(answer.chunks(), media_type="text/event-stream")
        return JSONResponse(await _while_connected(http_request, answer.whole()))

    def _check_model(self, model: str) -> None:
        if model != self._model:
            message = f"the server has the model {self._model!a}, and not {quoted(model)}"
            raise ApiError(404, message, parameter="model", code="model_not_found")

    def _description(self) -> Mapping[str, object]:
        return {
            "id": self._model,
            "object": "model",
            "created": self._started,
            "owned_by": "topgallant",
            "max_model_len": self._engine.limits.max_sequence_length,
        }

    def _prompts(self, prompt: str | list[str] | list[int] | list[list[int]]) -> Sequence[Sequence[int]]:
        """Return the tokens of each prompt of a request."""
        is_single = isinstance(prompt, str) or any(isinstance(item, int) for item in prompt)
        items: list[Any] = [prompt] if is_single else list(prompt)
        prompts = [self._engine.vocabulary.encode(item) if isinstance(item, str) else item for item in items]
        if not prompts:
            raise RequestError("prompt", "must not be empty")
        if any(token >= len(self._engine.vocabulary) for tokens in prompts for token in tokens):
            raise RequestError("prompt", f"has a token id that is not below {len(self._engine.vocabulary)}")
        return prompts


async def _while_connected(request: HttpRequest, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of some work. Cancel it, and raise ClientDisconnect, if the client goes away before."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = asyncio.create_task(work), asyncio.create_task(disconnected())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _handle(request: HttpRequest, error: Exception) -> Response:
    del request
    refusal = as_api_error(error)
    headers = error.headers if isinstance(error, HTTPException) else None
    return JSONResponse(refusal.body, refusal.status, headers=headers)


async def _ignore(request: HttpRequest, error: Exception) -> Response:
    del request, error
    return Response(status_code=499)  # no client reads it


def application(engine: Engine, model: str) -> Starlette:
    """Return the ASGI application that serves the model under a name."""
    service = Service(engine, model)
    routes = [
        Route("/health", service.health),
        Route("/v1/models", service.models),
        Route("/v1/models/{model:path}", service.model),
        Route("/v1/completions", service.completions, methods=["POST"]),
        Route("/v1/chat/completions", service.chat_completions, methods=["POST"]),
    ]
    kinds = (ApiError, RequestError, OverloadedError, EngineError, HTTPException, Exception)
    return Starlette(routes=routes, exception_handlers={**dict.fromkeys(kinds, _handle), ClientDisconnect: _ignore})
