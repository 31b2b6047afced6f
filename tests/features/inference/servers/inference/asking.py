"""Sends one request of a case to a server, with small limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from toolbox.features.inference.client.answer_format import FMAAS_KINDS, OPENAI_KINDS, Answer, Case, Limits
from toolbox.features.inference.client.fmaas_client import FmaasClient
from toolbox.features.inference.client.openai_client import OpenAiClient
from toolbox.features.inference.client.sending import Sender

LIMITS = Limits(seconds=10, body_bytes=100_000, event_bytes=20_000, chunks=5)
SOON = Limits(seconds=0.3, body_bytes=100_000, event_bytes=20_000, chunks=5)
AFTER_CHUNKS = Limits(seconds=3, body_bytes=100_000, event_bytes=20_000, chunks=5)
"""Chunks arrive within this time on a machine under load too."""


def ask_openai(
    url: str,
    request: Mapping[str, Any] | None = None,
    *,
    protocol: str = "completions",
    limits: Limits = LIMITS,
    key: str | None = None,
    ca_file: str | None = None,
) -> list[Answer]:
    """Send a request to a URL, and return its answers."""

    async def ask() -> list[Answer]:
        client = OpenAiClient(url, limits, key=key, ca_file=ca_file)
        try:
            return await _answers(dict.fromkeys(OPENAI_KINDS, client), protocol, request or {}, limits)
        finally:
            await client.close()

    return asyncio.run(ask())


def ask_fmaas(
    address: str,
    request: Mapping[str, Any] | None = None,
    *,
    protocol: str = "fmaas",
    stream: bool = False,
    limits: Limits = LIMITS,
    key: str | None = None,
    ca_file: str | None = None,
) -> list[Answer]:
    """Send a request to HOST:PORT, and return its answers: the whole one, and then the stream."""

    async def ask() -> list[Answer]:
        client = FmaasClient(address, limits, key=key, ca_file=ca_file)
        try:
            return await _answers(dict.fromkeys(FMAAS_KINDS, client), protocol, request or {}, limits, stream)
        finally:
            await client.close()

    return asyncio.run(ask())


async def _answers(
    clients: Mapping[str, Any], protocol: str, request: Mapping[str, Any], limits: Limits, stream: bool = False
) -> list[Answer]:
    answers: list[Answer] = []
    sender = Sender(clients, limits, receive=answers.append)
    await sender.send_all([Case(name="case", protocol=protocol, request=request, stream=stream)])
    for answer in answers:
        answer.line()
    return answers
